//! Calling compiled sweeps.

use super::{Input, Number, Sweep};

/// The address of code: inputs, outputs, states before the first step, the state after the last step of all, states after it, steps of a
/// lane, and whether the first step of the first lane is left out.
type Code<T> = unsafe extern "C" fn(*const *const T, *const *mut T, *const T, *const T, *mut T, i64, bool);

/// A compiled sweep.
#[derive(Clone, Debug)]
pub struct Function {
    number: Number,
    inputs: Vec<Input>,
    outputs: usize,
    lanes: usize,
    fields: usize,
    /// How many steps are taken at once, of which a lane has a multiple.
    strip: usize,
    address: usize,
}

/// The tensors of a call.
#[derive(Debug)]
pub struct Tensors<'t, 'm, T> {
    /// The numbers of each input: one for each step of each lane, or one.
    pub inputs: &'t [&'t [T]],
    /// Where the numbers of each output go, one for each step of each lane.
    pub outputs: &'t mut [&'m mut [T]],
    /// The states before the first step: for each field a number for each lane.
    pub starts: &'t [T],
    /// The state after the last step of the last lane, a number for each field; empty where it is not given.
    pub last: &'t [T],
    /// The states after the last step, as `starts`.
    pub ends: &'t mut [T],
}

/// `f32` and `f64`.
pub trait Float: Copy + sealed::Sealed {
    /// The type by its name.
    const NUMBER: Number;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

impl Float for f32 {
    const NUMBER: Number = Number::F32;
}

impl Float for f64 {
    const NUMBER: Number = Number::F64;
}

impl Function {
    pub(super) fn new(sweep: &Sweep, strip: usize, address: usize) -> Function {
        Function {
            number: sweep.number,
            inputs: sweep.inputs.clone(),
            outputs: sweep.outputs.len(),
            lanes: sweep.lanes,
            fields: sweep.next.len(),
            strip,
            address,
        }
    }

    /// Whether it takes lanes of so many steps.
    pub fn takes(&self, steps: usize) -> bool {
        steps > 0 && steps.is_multiple_of(self.strip)
    }

    /// Takes so many steps of every lane.
    ///
    /// # Panics
    /// If a tensor is shorter than the sweep needs, has another type, or the number of steps is not [taken](Self::takes).
    pub fn call<T: Float>(&self, steps: usize, leaves_out: bool, tensors: Tensors<'_, '_, T>) {
        let Tensors { inputs, outputs, starts, last, ends } = tensors;
        let n = steps.checked_mul(self.lanes).expect("a tile fits into memory");
        assert!(self.number == T::NUMBER && self.takes(steps), "a sweep of another type or shape");
        assert!(inputs.len() == self.inputs.len() && outputs.len() == self.outputs, "as many tensors as the sweep has");
        for (input, how) in inputs.iter().zip(&self.inputs) {
            assert!(input.len() >= if *how == Input::Each { n } else { 1 }, "an input is too short");
        }
        assert!(outputs.iter().all(|output| output.len() >= n), "an output is too short");
        assert!(
            starts.len() >= self.fields * self.lanes && ends.len() >= self.fields * self.lanes,
            "a state is too short"
        );
        assert!(last.is_empty() || last.len() >= self.fields, "the last state is too short");
        let inputs: Vec<*const T> = inputs.iter().map(|input| input.as_ptr()).collect();
        let outputs: Vec<*mut T> = outputs.iter_mut().map(|output| output.as_mut_ptr()).collect();
        let zeros;
        let last = if last.is_empty() {
            zeros = starts[..self.fields].to_vec();
            &zeros[..]
        } else {
            last
        };
        self.run(&inputs, &outputs, [starts.as_ptr(), last.as_ptr()], ends.as_mut_ptr(), (steps, leaves_out));
    }

    #[allow(unsafe_code)]
    fn run<T: Float>(
        &self,
        inputs: &[*const T],
        outputs: &[*mut T],
        [starts, last]: [*const T; 2],
        ends: *mut T,
        (steps, leaves_out): (usize, bool),
    ) {
        // SAFETY: the address is that of a function with this signature, which is never freed. It reads and writes lanes·steps numbers of
        // the tensors, or one, and one for each lane and field of the states, which `call` has found to be there; outputs are borrowed
        // exclusively, so nothing else reads or writes them. `T` is the type that it was compiled for.
        unsafe {
            let code: Code<T> = std::mem::transmute::<usize, Code<T>>(self.address);
            code(inputs.as_ptr(), outputs.as_ptr(), starts, last, ends, steps as i64, leaves_out);
        }
    }
}
