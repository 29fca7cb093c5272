//! Kernels: programs by their text, with their derived gradients.

mod derived;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use oplus_dsl::Elem;
use oplus_dsl::alternative::choose;
use oplus_dsl::batched::with_axes_of;
use oplus_dsl::ir::{Output, Program};
use oplus_dsl::typing::TypeError;

use crate::bind::{Known, bind, check_count, others};
use crate::dist::{Group, Plans, Shard};
use crate::execute::{Executable, Hand, Outcome, Sink};
use crate::gradient::Gradient;
use crate::record::is_recording;
use crate::{Call, Error, Explanation, Residual, Shapes, Tensor, explain};

/// A program and its gradient. What `scan!` has written down as text becomes a program at the first call; a program that was
/// made at run time is taken as it is ([`Kernel::from_program`]).
pub struct Kernel {
    name: Cow<'static, str>,
    /// The text that the form is read from, unless it was given.
    text: &'static str,
    form: OnceLock<Result<Form, Error>>,
    /// For calls in which these parameters store what they may store instead.
    others: RwLock<BTreeMap<Vec<usize>, Arc<Form>>>,
}

/// The program of calls whose tensors store what it says, and its gradient.
struct Form {
    forward: Executable,
    gradient: OnceLock<Result<Gradient, Error>>,
    /// The gradient as a function of the inputs and of cotangents alone.
    derived: OnceLock<Result<Arc<Kernel>, Error>>,
    plans: Plans,
}

impl Form {
    fn of(program: Program) -> Form {
        let (gradient, derived) = (OnceLock::new(), OnceLock::new());
        Form { forward: Executable::new(program), gradient, derived, plans: Plans::default() }
    }

    fn gradient(&self) -> Result<&Gradient, Error> {
        self.gradient.get_or_init(|| Gradient::of(&self.forward.program)).as_ref().map_err(Clone::clone)
    }
}

impl Kernel {
    /// The kernel of a program's text, as `scan!` has written it or as it was derived from such a text. The text is read at the
    /// first call, and the laws of its operators are not checked again: `scan!` has done it. Of an operator that was written
    /// by hand, [`Kernel::check_laws`] checks what `scan!` would have checked, and [`Kernel::from_program`] always does.
    pub const fn new(name: &'static str, text: &'static str) -> Kernel {
        Kernel { name: Cow::Borrowed(name), text, form: OnceLock::new(), others: RwLock::new(BTreeMap::new()) }
    }

    /// The kernel of a program that was made at run time, for example by `oplus_front::compile` from a text that the
    /// program was given. It is the kernel that `scan!` makes of the same text: with its keys, bits and committed kernels.
    ///
    /// The program's operators must keep the laws of associative operators, which is checked as by
    /// [`Kernel::check_laws`].
    ///
    /// ```
    /// use oplus::{Kernel, Tensor};
    ///
    /// let items = oplus_front::compile("
    ///     op Leaky(d, h) { identity (0, -inf); combine(l, r) (l.d + r.d, max(l.h - r.d, r.h)); }
    ///     fn peaks(x: [T], d: [T]) -> (h: [T]) { h = scan(T, Leaky(d, x)).h; }
    /// ")?;
    /// let peaks = items.iter().find_map(oplus_front::Item::kernel).expect("there is one");
    /// let kernel = Kernel::from_program(peaks.program.clone())?;
    /// let x = Tensor::from_slice(&[1.0_f32, 3.0, 0.0], &[3])?;
    /// let d = Tensor::from_slice(&[0.5_f32; 3], &[3])?;
    /// let (outputs, call) = kernel.call(&[Some(&x), Some(&d)])?;
    /// assert_eq!(outputs[0].to_vec::<f32>()?, [1.0, 3.0, 2.5]);
    /// let gradients = kernel.backward(&call, &[Some(&x)])?;
    /// # assert!(gradients.iter().all(Option::is_some));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Program`] when the program is not valid, or with counter-examples when an operator breaks a law.
    pub fn from_program(program: Program) -> Result<Kernel, Error> {
        verify(&program.name, &program)?;
        check_laws(&program.name, &program)?;
        Ok(Kernel::of(program))
    }

    /// The kernel of a program that was derived from one whose operators keep the laws, such as a tangent program
    /// ([`oplus_dsl::forward::tangent`]) or a form of it. [`Kernel::from_program`] would try the laws also at states that such a
    /// program never has: the tangent of an infinite field is 0.
    ///
    /// # Errors
    /// [`Error::Program`] when the program is not valid.
    pub fn from_derived(program: Program) -> Result<Kernel, Error> {
        verify(&program.name, &program)?;
        Ok(Kernel::of(program))
    }

    fn of(program: Program) -> Kernel {
        let name = Cow::Owned(program.name.clone());
        Kernel { name, text: "", form: OnceLock::from(Ok(Form::of(program))), others: RwLock::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program, as it is written: for tensors that store the first of what they may.
    ///
    /// # Errors
    /// [`Error::Program`] when the text is not a valid program.
    pub fn program(&self) -> Result<&Program, Error> {
        self.forward().map(|executable| &executable.program)
    }

    /// Checks that the program's operators keep the laws of associative operators, for the types that they have here: see
    /// [`oplus_dsl::laws`]. An operator that does not gives different results in different plans.
    ///
    /// # Errors
    /// [`Error::Program`] with counter-examples, or when the text is not a valid program.
    pub fn check_laws(&self) -> Result<(), Error> {
        check_laws(&self.name, self.program()?)
    }

    /// The program of the gradient. Its parameters are named as those parameters and outputs of the kernel that it
    /// needs, and `y.bar` for the cotangent of the output y; its outputs are `p.bar` for the parameter p.
    ///
    /// # Errors
    /// [`Error::NoGradient`] when the kernel is not differentiable.
    pub fn gradient_program(&self) -> Result<&Program, Error> {
        self.gradient().map(|gradient| &gradient.executable.program)
    }

    /// The gradient as a kernel: callable by itself, and differentiable again, to any order. Outputs of the kernel that it reads are
    /// parameters, which a further derivative holds fixed; the gradient of a kernel of `scan!` that is a function of its inputs and
    /// cotangents alone is in [`typed`](crate::typed).
    ///
    /// Its parameters are those of [`Kernel::gradient_program`], the cotangents last, in the order of the outputs; where these leave
    /// a size or the call's element type open, parameters of the kernel that tell it stand behind them. Its outputs are `p.bar`, in
    /// the order of the floating-point parameters.
    ///
    /// # Errors
    /// [`Error::NoGradient`] when the kernel is not differentiable.
    pub fn gradient_kernel(&self) -> Result<Kernel, Error> {
        Ok(Kernel::of(with_axes_of(self.gradient_program()?, self.program()?)))
    }

    /// Computes the outputs into new tensors, where the inputs are. `inputs` has one entry per parameter, `None` for
    /// those left to their default. On a GPU the work is queued and this returns at once.
    ///
    /// # Errors
    /// The errors of tensors that do not fit ([`Error::ShapeMismatch`] and its neighbours), [`Error::NoKernel`],
    /// [`Error::OutOfMemory`], faults of the device.
    pub fn call(&self, inputs: &[Option<&Tensor>]) -> Result<(Vec<Tensor>, Call), Error> {
        let sinks = vec![Sink::New; self.program()?.outputs.len()];
        let call = self.run(inputs, &sinks, own_hand())?;
        Ok((call.outputs.iter().flatten().cloned().collect(), call))
    }

    /// Computes the outputs into tensors of the caller's. Allocates no memory for tensors, so that it can be captured
    /// into a CUDA graph.
    ///
    /// Every handle and view of the outputs sees what is written, also those that an earlier [`Call`] holds.
    ///
    /// A graph uses the tensors of the calls that were captured, and memory of its own for their messages, at every
    /// launch. Keep the tensors until its last launch has ended; order its launches with other streams that use them; and
    /// let no two of its launches run at the same time, also not of two executables that are instantiated from it.
    ///
    /// # Errors
    /// The errors of [`Kernel::call`]; [`Error::ReadOnly`]; [`Error::Overlap`] and [`Error::SelfOverlap`] when an output does not
    /// have memory of its own. Two views that interleave in one memory count as overlapping.
    pub fn call_into(&self, inputs: &[Option<&Tensor>], outputs: &[&Tensor]) -> Result<Call, Error> {
        self.run(inputs, &into(outputs), own_hand())
    }

    /// Computes this rank's part of the outputs from its part of the inputs: see [`dist`](crate::dist). Every tensor that has
    /// the axis is divided along it; parts may have any sizes, also 0. The ranks of the group make the same call.
    ///
    /// [`Kernel::backward`] gives this rank's part of the gradient, and is called by all ranks as well.
    ///
    /// # Errors
    /// The errors of [`Kernel::call`]; [`Error::NotSharded`] for a kernel that cannot be divided along the axis;
    /// [`Error::RanksDisagree`], [`Error::LostRank`].
    pub fn call_sharded(
        &self,
        group: &Group,
        axis: &str,
        inputs: &[Option<&Tensor>],
    ) -> Result<(Vec<Tensor>, Call), Error> {
        self.with_form(inputs, |form, others| {
            let forward = &form.forward;
            let sinks = vec![Sink::New; forward.program.outputs.len()];
            let mut shard = Shard::new(group, axis);
            let (bound, outputs) = shard.run(&form.plans, &forward.program, &Known::default(), inputs, &sinks)?;
            let tensors = outputs.iter().flatten().cloned().collect();
            let inputs = inputs.iter().map(|t| t.cloned()).collect();
            let (program, sizes, elem) = (forward.id, bound.sizes, bound.elem);
            Ok((tensors, Call { program, others, sizes, elem, inputs, outputs, residual: None, shard: Some(shard) }))
        })
    }

    /// Element type and shape of every output of a call with these inputs, for [`Kernel::call_into`].
    ///
    /// # Errors
    /// The errors of inputs that do not fit, as in [`Kernel::call`].
    pub fn output_shapes(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<(Elem, Vec<usize>)>, Error> {
        self.with_form(inputs, |form, _| {
            let program = &form.forward.program;
            check_count("inputs", program.params.len(), inputs.len())?;
            let bound = bind(program, &Known::default(), inputs, &[])?;
            let shape = |output: &Output| output.axes.iter().map(|axis| bound.sizes[axis.0 as usize]).collect();
            Ok(program.outputs.iter().map(|output| (output.elem.in_call(bound.elem), shape(output))).collect())
        })
    }

    /// The shape of the tensor of `f32` that [`Kernel::call_saving_into`] takes with these tensors; `None` where the call saves
    /// nothing: on the CPU, or where no schedule does. It depends on the plan, and so on the tensors' strides and the device.
    ///
    /// # Errors
    /// The errors of [`Kernel::call_into`].
    pub fn residual_shape(&self, inputs: &[Option<&Tensor>], outputs: &[&Tensor]) -> Result<Option<Vec<usize>>, Error> {
        let len = self.with_form(inputs, |form, _| form.forward.saved_len(inputs, &into(outputs)))?;
        Ok(len.map(|len| vec![len as usize]))
    }

    /// Like [`Kernel::call_into`], with states saved for the gradient in a tensor of the caller's, of the shape that
    /// [`Kernel::residual_shape`] gives: a recorded call (see [`record`](crate::record)) that allocates nothing for tensors.
    /// [`Call::residual`] has the states. Where the call saves nothing, nothing is written there, and there is none.
    ///
    /// # Errors
    /// The errors of [`Kernel::call_into`], also for the tensor of the states.
    pub fn call_saving_into(
        &self,
        inputs: &[Option<&Tensor>],
        outputs: &[&Tensor],
        states: &Tensor,
    ) -> Result<Call, Error> {
        self.run(inputs, &into(outputs), Hand::SaveInto(states))
    }

    fn run(&self, inputs: &[Option<&Tensor>], sinks: &[Sink<'_>], hand: Hand<'_>) -> Result<Call, Error> {
        self.with_form(inputs, |form, others| {
            let forward = &form.forward;
            let Outcome { outputs, binding: bound, residual } = forward.run(&Known::default(), inputs, sinks, hand)?;
            Ok(Call {
                program: forward.id,
                others,
                sizes: bound.sizes,
                elem: bound.elem,
                inputs: inputs.iter().map(|t| t.cloned()).collect(),
                outputs,
                residual,
                shard: None,
            })
        })
    }

    /// A call that has been made elsewhere.
    pub(crate) fn made(
        &self,
        inputs: &[Option<&Tensor>],
        outputs: &[Option<&Tensor>],
        residual: Option<&Residual>,
    ) -> Result<Call, Error> {
        self.with_form(inputs, |form, others| {
            let forward = &form.forward;
            check_count("inputs", forward.program.params.len(), inputs.len())?;
            check_count("outputs", forward.program.outputs.len(), outputs.len())?;
            let bound = bind(&forward.program, &Known::default(), inputs, outputs)?;
            if residual.is_some_and(|residual| residual.program != forward.id) {
                let reason = "the states were saved by a call of another kernel".into();
                return Err(Error::NoGradient { kernel: self.name.to_string(), reason });
            }
            let owned = |tensors: &[Option<&Tensor>]| tensors.iter().map(|t| t.cloned()).collect();
            let (inputs, outputs, residual) = (owned(inputs), owned(outputs), residual.cloned());
            let (sizes, elem) = (bound.sizes, bound.elem);
            Ok(Call { program: forward.id, others, sizes, elem, inputs, outputs, residual, shard: None })
        })
    }

    /// Works with the form that calls with these inputs take, and the parameters that store what they may store instead.
    fn with_form<T>(
        &self,
        inputs: &[Option<&Tensor>],
        work: impl FnOnce(&Form, Vec<usize>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let others = others(self.program()?, inputs);
        if others.is_empty() {
            return work(self.form()?, others);
        }
        work(&*self.other(&others)?, others)
    }

    /// The gradient of a call: for every floating-point parameter p, p̄ = Σ over outputs y of (∂y/∂p)ᵀ ȳ.
    ///
    /// `cotangents` has one entry per floating-point output, in order; `None` stands for zero: what it would be a factor
    /// of is not computed, so that no infinite number makes NaN of it. The result has one entry per floating-point
    /// parameter, `None` for those that the call left to their default.
    ///
    /// # Errors
    /// [`Error::NoGradient`] when the kernel is not differentiable, else those of [`Kernel::call`].
    pub fn backward(&self, call: &Call, cotangents: &[Option<&Tensor>]) -> Result<Vec<Option<Tensor>>, Error> {
        let params = float_params(&self.forward()?.program);
        let sinks =
            params.map(|p| if call.inputs.get(p).is_some_and(Option::is_some) { Sink::New } else { Sink::Skip });
        self.run_gradient(call, cotangents, &sinks.collect::<Vec<_>>())
    }

    /// The gradient of a call, into tensors of the caller's: one entry per floating-point parameter, `None` for those
    /// whose gradient is not wanted and so is not computed. Like [`Kernel::call_into`] otherwise.
    ///
    /// # Errors
    /// The errors of [`Kernel::backward`] and [`Kernel::call_into`].
    pub fn backward_into(
        &self,
        call: &Call,
        cotangents: &[Option<&Tensor>],
        gradients: &[Option<&Tensor>],
    ) -> Result<(), Error> {
        let sinks: Vec<Sink<'_>> = gradients.iter().map(|t| t.map_or(Sink::Skip, Sink::Into)).collect();
        self.run_gradient(call, cotangents, &sinks).map(drop)
    }

    fn run_gradient(
        &self,
        call: &Call,
        cotangents: &[Option<&Tensor>],
        sinks: &[Sink<'_>],
    ) -> Result<Vec<Option<Tensor>>, Error> {
        let forward = self.forward()?;
        check_count("gradients", float_params(&forward.program).count(), sinks.len())?;
        if call.program == forward.id {
            return self.gradient()?.run(call, cotangents, sinks);
        }
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner).get(&call.others).cloned();
        let Some(form) = others.filter(|form| call.program == form.forward.id) else {
            let reason = "the call was made by another kernel".into();
            return Err(Error::NoGradient { kernel: self.name.to_string(), reason });
        };
        form.gradient()?.run(call, cotangents, sinks)
    }

    /// Explains a call of these shapes: the program, its gradient as equations, the plan with its reasons, and facts of the
    /// kernels' PTX.
    ///
    /// # Errors
    /// [`Error::UnknownSize`] when an axis has no size, [`Error::UnknownAxis`] when a size is that of no axis, [`Error::Plan`].
    pub fn explain(&self, shapes: &Shapes) -> Result<Explanation, Error> {
        explain::explain(self, shapes)
    }

    /// The program as it is written.
    pub(crate) fn forward(&self) -> Result<&Executable, Error> {
        self.form().map(|form| &form.forward)
    }

    /// The gradient of the program as it is written.
    pub(crate) fn gradient(&self) -> Result<&Gradient, Error> {
        self.form()?.gradient()
    }

    fn form(&self) -> Result<&Form, Error> {
        self.form.get_or_init(|| parse(&self.name, self.text).map(Form::of)).as_ref().map_err(Clone::clone)
    }

    /// The form of calls in which these parameters store what they may store instead.
    fn other(&self, others: &[usize]) -> Result<Arc<Form>, Error> {
        let known = self.others.read().unwrap_or_else(PoisonError::into_inner).get(others).cloned();
        if let Some(form) = known {
            return Ok(form);
        }
        let invalid = |e: TypeError| Error::Program { kernel: self.name.to_string(), reason: e.to_string() };
        let mut program = self.program()?.clone();
        for k in others {
            program = choose(&program, *k).map_err(invalid)?;
        }
        let form = Arc::new(Form::of(program));
        let mut forms = self.others.write().unwrap_or_else(PoisonError::into_inner);
        Ok(forms.entry(others.to_vec()).or_insert(form).clone())
    }
}

/// Outputs that are tensors of the caller's.
fn into<'t>(outputs: &[&'t Tensor]) -> Vec<Sink<'t>> {
    outputs.iter().map(|t| Sink::Into(t)).collect()
}

/// The way of states from calls of this thread to their gradients.
fn own_hand() -> Hand<'static> {
    if is_recording() { Hand::Save } else { Hand::Nothing }
}

/// The program of a kernel's text.
fn parse(name: &str, text: &str) -> Result<Program, Error> {
    let program = oplus_dsl::parse::parse(text).map_err(|e| wrong(name, &[e]))?;
    verify(name, &program)?;
    Ok(program)
}

/// Checks that a kernel's program is one.
fn verify(name: &str, program: &Program) -> Result<(), Error> {
    oplus_dsl::verify::verify(program).map_err(|errors| wrong(name, &errors))
}

/// Checks that the operators of a kernel's program keep their laws.
fn check_laws(name: &str, program: &Program) -> Result<(), Error> {
    oplus_dsl::laws::check_program(program).map_err(|errors| wrong(name, &errors))
}

/// All that is wrong with a kernel's program.
fn wrong(name: &str, errors: &[impl ToString]) -> Error {
    let reasons: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Error::Program { kernel: name.into(), reason: reasons.join("; ") }
}

/// The parameters that can have a gradient.
pub(crate) fn float_params(program: &Program) -> impl Iterator<Item = usize> + '_ {
    program.params.iter().enumerate().filter(|(_, p)| p.elem.is_float()).map(|(k, _)| k)
}

/// The outputs that can have a cotangent.
pub(crate) fn float_outputs(program: &Program) -> impl Iterator<Item = usize> + '_ {
    program.outputs.iter().enumerate().filter(|(_, o)| o.elem.is_float()).map(|(k, _)| k)
}
