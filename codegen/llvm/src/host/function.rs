//! Calling compiled sweeps.

use super::{Input, Number, Sweep};

/// The address of code: inputs, outputs, states before the first step, the state after the last step of all, states after it, squares,
/// steps of a lane, whether the first step of the first lane is left out, and whether outputs go past the caches.
type Code<T> =
    unsafe extern "C" fn(*const *const T, *const *mut T, *const T, *const T, *mut T, *mut T, i64, bool, bool);

/// How many bytes a line of the cache has.
const LINE: usize = 64;

/// A compiled sweep.
#[derive(Clone, Debug)]
pub struct Function {
    number: Number,
    inputs: Vec<Input>,
    outputs: usize,
    lanes: usize,
    fields: usize,
    /// How many inputs have squares that are kept.
    kept: usize,
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
    /// Squares that are kept: [so many](Function::squares) numbers.
    pub squares: &'t mut [T],
}

/// The steps of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// How many steps a lane has.
    pub of_lane: usize,
    /// Whether the first step of the first lane is left out.
    pub leaves_out: bool,
    /// Whether outputs are written past the caches, where that is [possible](Function::streams).
    pub streams: bool,
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
            kept: sweep.kept().len(),
            strip,
            address,
        }
    }

    /// Whether it takes lanes of so many steps.
    pub fn takes(&self, steps: usize) -> bool {
        steps > 0 && steps.is_multiple_of(self.strip)
    }

    /// How many numbers the squares have that are kept from one sweep to another, of lanes of so many steps.
    pub fn squares(&self, steps: usize) -> usize {
        self.kept.saturating_mul(steps).saturating_mul(self.lanes)
    }

    /// How many lanes it goes through at once. It asks for the next ones ahead.
    pub fn group(&self) -> usize {
        self.strip
    }

    /// Whether outputs can be written past the caches: in whole lines, where they lie on such.
    pub fn streams<T: Float>(&self, steps: usize, outputs: &[&mut [T]]) -> bool {
        let strip = self.strip * size_of::<T>();
        strip == LINE && self.takes(steps) && outputs.iter().all(|output| output.as_ptr().addr().is_multiple_of(LINE))
    }

    /// Takes all steps of every lane.
    ///
    /// # Panics
    /// If a tensor is shorter than the sweep needs, has another type, or the number of steps is not [taken](Self::takes).
    pub fn call<T: Float>(&self, steps: Steps, tensors: Tensors<'_, '_, T>) {
        let Tensors { inputs, outputs, starts, last, ends, squares } = tensors;
        let n = steps.of_lane.checked_mul(self.lanes).expect("a tile fits into memory");
        assert!(self.number == T::NUMBER && self.takes(steps.of_lane), "a sweep of another type or shape");
        assert!(inputs.len() == self.inputs.len() && outputs.len() == self.outputs, "as many tensors as the sweep has");
        for (input, how) in inputs.iter().zip(&self.inputs) {
            let least = match how {
                Input::Each => n,
                Input::One => 1,
                Input::Kept => 0,
            };
            assert!(input.len() >= least, "an input is too short");
        }
        assert!(outputs.iter().all(|output| output.len() >= n), "an output is too short");
        assert!(
            starts.len() >= self.fields * self.lanes && ends.len() >= self.fields * self.lanes,
            "a state is too short"
        );
        assert!(last.is_empty() || last.len() >= self.fields, "the last state is too short");
        assert!(squares.len() >= self.squares(steps.of_lane), "there are too few squares");
        let zeros;
        let last = if last.is_empty() {
            zeros = starts[..self.fields].to_vec();
            &zeros[..]
        } else {
            last
        };
        let steps = Steps { streams: steps.streams && self.streams(steps.of_lane, outputs), ..steps };
        self.run(steps, Tensors { inputs, outputs, starts, last, ends, squares });
    }

    #[allow(unsafe_code)]
    fn run<T: Float>(&self, steps: Steps, tensors: Tensors<'_, '_, T>) {
        let Tensors { inputs, outputs, starts, last, ends, squares } = tensors;
        let inputs: Vec<*const T> = inputs.iter().map(|input| input.as_ptr()).collect();
        let outputs: Vec<*mut T> = outputs.iter_mut().map(|output| output.as_mut_ptr()).collect();
        let [starts, last] = [starts.as_ptr(), last.as_ptr()];
        let [ends, squares] = [ends.as_mut_ptr(), squares.as_mut_ptr()];
        let Steps { of_lane, leaves_out, streams } = steps;
        // SAFETY: the address is that of a function with this signature, which is never freed. It reads and writes lanes·steps numbers of
        // the tensors, or one, one for each lane and field of the states, and the squares, which `call` has found to be there; outputs and
        // squares are borrowed exclusively, so nothing else reads or writes them. Outputs lie on lines of the cache where they are written in
        // such. `T` is the type that it was compiled for.
        unsafe {
            let code: Code<T> = std::mem::transmute::<usize, Code<T>>(self.address);
            code(inputs.as_ptr(), outputs.as_ptr(), starts, last, ends, squares, of_lane as i64, leaves_out, streams);
        }
    }
}
