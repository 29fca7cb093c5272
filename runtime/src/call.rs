//! The tensors and states that a call leaves behind for its gradient.

use oplus_codegen::plan;
use oplus_dsl::Elem;

use crate::dist::Shard;
use crate::{Error, Kernel, Tensor};

/// A call that has been made: handles to its inputs and outputs, which are all that its gradient needs (the states in
/// between are computed again, unless [`record`](crate::record) has had some saved). It keeps their memory alive. What is written into them later changes the gradient.
#[derive(Clone, Debug)]
pub struct Call {
    /// The program that was called.
    pub(crate) program: u64,
    /// The parameters that stored what they may store instead.
    pub(crate) others: Vec<usize>,
    pub(crate) sizes: Vec<usize>,
    pub(crate) elem: Elem,
    pub(crate) inputs: Vec<Option<Tensor>>,
    /// `None` for those that were let go.
    pub(crate) outputs: Vec<Option<Tensor>>,
    pub(crate) residual: Option<Residual>,
    /// How it was divided, if it was.
    pub(crate) shard: Option<Shard>,
}

/// States that a call has saved for its gradient: see [`record`](crate::record) and [`Kernel::call_saving_into`].
#[derive(Clone, Debug)]
pub struct Residual {
    /// The program that was called.
    pub(crate) program: u64,
    pub(crate) form: plan::Residual,
    pub(crate) states: Tensor,
}

impl Call {
    /// The call of a kernel that has been made with these inputs and gave these outputs, for those who keep its tensors
    /// themselves, as frameworks with a graph of their own do. Nothing is computed.
    ///
    /// `inputs` has one entry per parameter, `None` for those that the call left to their default. `outputs` has one per output, `None`
    /// for those that the gradient does not read: it reads those after which parameters of [`Kernel::gradient_program`] are named.
    /// `residual` has the states that the call has saved; without it they are computed again.
    ///
    /// ```
    /// use oplus::kernels::cumprod;
    /// use oplus::{Call, Tensor};
    ///
    /// let x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0], &[1, 3])?;
    /// let (outputs, call) = cumprod::kernel().call(&[Some(&x)])?;
    /// drop(call);
    /// let call = Call::from_parts(cumprod::kernel(), &[Some(&x)], &[Some(&outputs[0])], None)?;
    /// let gradients = cumprod::kernel().backward(&call, &[Some(&x)])?;
    /// # assert_eq!(gradients[0].as_ref().unwrap().to_vec::<f32>()?, [23.0, 11.0, 6.0]);
    /// # Ok::<(), oplus::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of tensors that do not fit, as [`Kernel::call_into`] gives them; [`Error::NoGradient`] for states that were saved by
    /// another kernel. An output that the gradient needs and that is not there is an [`Error::MissingTensor`] of
    /// [`Kernel::backward`].
    pub fn from_parts(
        kernel: &Kernel,
        inputs: &[Option<&Tensor>],
        outputs: &[Option<&Tensor>],
        residual: Option<&Residual>,
    ) -> Result<Call, Error> {
        kernel.made(inputs, outputs, residual)
    }

    /// The states that the call has saved, if any.
    pub fn residual(&self) -> Option<&Residual> {
        self.residual.as_ref()
    }
}

impl Residual {
    /// The states: a tensor of `f32` with one axis.
    pub fn states(&self) -> &Tensor {
        &self.states
    }

    /// These states in another tensor, to which they have been copied or moved.
    ///
    /// # Errors
    /// [`Error::WrongElem`], [`Error::Length`], [`Error::View`], [`Error::Misaligned`] when it cannot hold them.
    pub fn with_states(&self, states: &Tensor) -> Result<Residual, Error> {
        check_states(states, self.form.len)?;
        Ok(Residual { states: states.clone(), ..self.clone() })
    }
}

/// The alignment of saved states: their address is a multiple of it.
const ALIGN: usize = 16;

/// Checks that a tensor can hold saved states.
pub(crate) fn check_states(states: &Tensor, len: u64) -> Result<(), Error> {
    if states.elem() != Elem::F32 {
        let (tensor, expected) = ("residual".into(), Elem::F32.to_string());
        return Err(Error::WrongElem { tensor, expected, found: states.elem() });
    }
    let expected = len as usize;
    if states.len() != expected {
        return Err(Error::Length { shape: vec![expected], expected, found: states.len() });
    }
    if !states.is_contiguous() {
        return Err(Error::View { shape: states.shape().to_vec(), reason: "saved states have no gaps".into() });
    }
    let address = states.device_ptr().unwrap_or(0) as usize;
    if !address.is_multiple_of(ALIGN) {
        return Err(Error::Misaligned { address, elem: Elem::F32, align: ALIGN });
    }
    Ok(())
}
