//! A tape: calls of several kernels in a row, and the gradients of a loss through all of them.
//!
//! A [`Tape`] records what is called. [`Tape::backward`] goes back over it, calls the derived gradient of every kernel, adds up
//! the cotangents of what was used more than once, in the order of the uses, and gives the gradients of all inputs.
//!
//! On a GPU that sum is a kernel that is baked, or compiled when it is called.
//!
//! A plain map is a kernel without a scan; what a kernel cannot say, such as a product of matrices by a library, is recorded
//! with its own way back ([`Tape::record`]).
//!
//! ```
//! use oplus::{Tensor, kernels, scan};
//! use oplus::tape::Tape;
//!
//! scan! {
//!     /// Half the square of the distance from a target.
//!     pub fn loss(y: [B, T], target: [B, T]) -> (loss: [B]) {
//!         loss = sum(T, 0.5 * (y - target) * (y - target));
//!     }
//! }
//!
//! let of = |x: &[f32]| Tensor::from_slice(x, &[1, x.len()]);
//! let mut tape = Tape::new();
//! let [a, b, target] = [of(&[0.5, 0.5])?, of(&[1.0, 2.0])?, of(&[1.0, 1.0])?].map(|tensor| tape.input(tensor));
//! let h = tape.call(kernels::affine::kernel(), &[Some(a), Some(b), None])?[0];    // 1, 2.5
//! let loss = tape.call(loss::kernel(), &[Some(h), Some(target)])?[0];
//! assert_eq!(tape.value(loss).to_vec::<f32>()?, [1.125]);
//! let gradients = tape.backward(loss)?;
//! assert_eq!(gradients.of(b).unwrap().to_vec::<f32>()?, [0.75, 1.5]);
//! # Ok::<(), oplus::Error>(())
//! ```

use oplus_dsl::Elem;

use crate::dist::Group;
use crate::{Call, Error, Kernel, Tensor};

/// Calls in the order in which they were made.
#[derive(Default)]
pub struct Tape<'k> {
    values: Vec<Tensor>,
    records: Vec<Record<'k>>,
}

/// A value on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Var(usize);

/// Cotangents of outputs to those of inputs, `None` for those that are zero.
type PullBack<'k> = dyn Fn(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>, Error> + 'k;

/// One call.
struct Record<'k> {
    /// The tensors that it was given; `None` for those left out.
    inputs: Vec<Option<Var>>,
    /// The tensors that it gave.
    outputs: Vec<Var>,
    back: Back<'k>,
}

/// The way back through a call.
enum Back<'k> {
    Kernel(&'k Kernel, Box<Call>),
    Own(Box<PullBack<'k>>),
}

/// The gradients of a loss by what is on a tape.
pub struct Gradients(Vec<Option<Tensor>>);

impl Gradients {
    /// The gradient by a value; `None` where the loss does not depend on it differentiably.
    pub fn of(&self, var: Var) -> Option<&Tensor> {
        self.0.get(var.0)?.as_ref()
    }
}

impl<'k> Tape<'k> {
    /// An empty tape.
    pub fn new() -> Tape<'k> {
        Tape::default()
    }

    /// A value that nothing on the tape computes: data, or a weight.
    pub fn input(&mut self, tensor: Tensor) -> Var {
        self.values.push(tensor);
        Var(self.values.len() - 1)
    }

    /// The tensor of a value.
    pub fn value(&self, var: Var) -> &Tensor {
        &self.values[var.0]
    }

    /// Calls a kernel. `inputs` has one entry per parameter, `None` for those left to their default.
    ///
    /// # Errors
    /// The errors of [`Kernel::call`].
    pub fn call(&mut self, kernel: &'k Kernel, inputs: &[Option<Var>]) -> Result<Vec<Var>, Error> {
        let tensors: Vec<Option<&Tensor>> = inputs.iter().map(|var| var.map(|var| &self.values[var.0])).collect();
        let (outputs, call) = kernel.call(&tensors)?;
        Ok(self.push(inputs.to_vec(), outputs, Back::Kernel(kernel, Box::new(call))))
    }

    /// Calls a kernel on this rank's part of the inputs: see [`Kernel::call_sharded`]. All ranks of the group make the same calls, and go
    /// back together.
    ///
    /// # Errors
    /// The errors of [`Kernel::call_sharded`].
    pub fn call_sharded(
        &mut self,
        kernel: &'k Kernel,
        group: &Group,
        axis: &str,
        inputs: &[Option<Var>],
    ) -> Result<Vec<Var>, Error> {
        let tensors: Vec<Option<&Tensor>> = inputs.iter().map(|var| var.map(|var| &self.values[var.0])).collect();
        let (outputs, call) = kernel.call_sharded(group, axis, &tensors)?;
        Ok(self.push(inputs.to_vec(), outputs, Back::Kernel(kernel, Box::new(call))))
    }

    /// A value with its axes in another order, as a view: see [`Tensor::permute`].
    ///
    /// # Errors
    /// The errors of [`Tensor::permute`].
    pub fn permute(&mut self, x: Var, order: &[usize]) -> Result<Var, Error> {
        let y = self.value(x).permute(order)?;
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(k, axis)| inverse[*axis] = k);
        Ok(self.record_view(x, y, move |bar| bar.permute(&inverse)))
    }

    /// A value's elements, in row-major order, under another shape; a view where the value is contiguous, else a copy.
    ///
    /// # Errors
    /// The errors of [`Tensor::contiguous`] and [`Tensor::reshape`].
    pub fn reshape(&mut self, x: Var, shape: &[usize]) -> Result<Var, Error> {
        let before = self.value(x).shape().to_vec();
        let y = self.value(x).contiguous()?.reshape(shape)?;
        Ok(self.record_view(x, y, move |bar| bar.contiguous()?.reshape(&before)))
    }

    /// Records a view of a value; `back` gives the same view of a cotangent the other way round.
    fn record_view(&mut self, x: Var, y: Tensor, back: impl Fn(&Tensor) -> Result<Tensor, Error> + 'k) -> Var {
        self.record(&[x], vec![y], move |bars| Ok(vec![bars[0].as_ref().map(&back).transpose()?]))[0]
    }

    /// Records something that was computed otherwise. `back` takes the cotangents of the outputs, `None` for zero, and gives
    /// those of the inputs, one entry for each, of their element types and shapes.
    pub fn record(
        &mut self,
        inputs: &[Var],
        outputs: Vec<Tensor>,
        back: impl Fn(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>, Error> + 'k,
    ) -> Vec<Var> {
        self.push(inputs.iter().copied().map(Some).collect(), outputs, Back::Own(Box::new(back)))
    }

    fn push(&mut self, inputs: Vec<Option<Var>>, outputs: Vec<Tensor>, back: Back<'k>) -> Vec<Var> {
        let outputs: Vec<Var> = outputs.into_iter().map(|tensor| self.input(tensor)).collect();
        self.records.push(Record { inputs, outputs: outputs.clone(), back });
        outputs
    }

    /// The gradients of the sum of a value's elements.
    ///
    /// # Errors
    /// The errors of the gradients' calls.
    pub fn backward(&self, loss: Var) -> Result<Gradients, Error> {
        let value = self.value(loss);
        let one = match value.elem() {
            Elem::F64 => Tensor::full(1.0_f64, value.shape(), &value.device())?,
            Elem::Bf16 => Tensor::full(half::bf16::ONE, value.shape(), &value.device())?,
            Elem::F16 => Tensor::full(half::f16::ONE, value.shape(), &value.device())?,
            _ => Tensor::full(1.0_f32, value.shape(), &value.device())?,
        };
        self.backward_from(&[(loss, one)])
    }

    /// The gradients for given cotangents of some values.
    ///
    /// # Errors
    /// The errors of the gradients' calls.
    pub fn backward_from(&self, cotangents: &[(Var, Tensor)]) -> Result<Gradients, Error> {
        let mut bars: Vec<Option<Tensor>> = vec![None; self.values.len()];
        for (var, bar) in cotangents {
            add(&mut bars[var.0], bar.clone())?;
        }
        for record in self.records.iter().rev() {
            let own: Vec<Option<Tensor>> = record.outputs.iter().map(|var| bars[var.0].clone()).collect();
            if own.iter().all(Option::is_none) {
                continue;
            }
            for (input, bar) in record.inputs.iter().zip(record.pull_back(&own)?) {
                if let (Some(var), Some(bar)) = (input, bar) {
                    add(&mut bars[var.0], bar)?;
                }
            }
        }
        Ok(Gradients(bars))
    }
}

impl Record<'_> {
    /// The cotangents of the inputs.
    fn pull_back(&self, bars: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>, Error> {
        let (kernel, call) = match &self.back {
            Back::Own(back) => return back(bars),
            Back::Kernel(kernel, call) => (kernel, call),
        };
        let program = kernel.program()?;
        let floats = program.outputs.iter().zip(bars).filter(|(output, _)| output.elem.is_float());
        let bars: Vec<Option<&Tensor>> = floats.map(|(_, bar)| bar.as_ref()).collect();
        if bars.iter().all(Option::is_none) || !program.params.iter().any(|param| param.elem.is_float()) {
            return Ok(vec![None; self.inputs.len()]);
        }
        let mut gradients = kernel.backward(call, &bars)?.into_iter();
        let of = |param: &oplus_dsl::ir::Param| if param.elem.is_float() { gradients.next().flatten() } else { None };
        Ok(program.params.iter().map(of).collect())
    }
}

/// The sum of two tensors of n elements.
static ADD: Kernel = Kernel::new(
    "add",
    "program add {
        axes N;
        param x: call[N];
        param y: call[N];
        %0: call[N] = param x;
        %1: call[N] = param y;
        %2: call[N] = %0 + %1;
        output z: call[N] = %2;
    }",
);

/// Adds a contribution to a cotangent.
fn add(total: &mut Option<Tensor>, term: Tensor) -> Result<(), Error> {
    *total = Some(match total.take() {
        None => term,
        Some(total) => {
            let shape = total.shape().to_vec();
            let [x, y] = [total, term].map(|tensor| tensor.contiguous()?.reshape(&[tensor.len()]));
            ADD.call(&[Some(&x?), Some(&y?)])?.0[0].reshape(&shape)?
        }
    });
    Ok(())
}
