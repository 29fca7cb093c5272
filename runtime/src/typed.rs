//! Gradients as kernels whose tensors have names, to any order.
//!
//! For a kernel `f` of [`scan!`](crate::scan) that has a gradient, `f::gradient()` is that gradient as a kernel. It takes the fields of a
//! call: the inputs of `f` and the cotangents of its outputs. It gives the gradients of the inputs, and has a gradient in turn.
//!
//! ```
//! use oplus::typed::WithCotangents;
//! use oplus::{Tensor, scan};
//!
//! scan! {
//!     pub fn cubes(x: f64[T]) -> (y: f64[T]) {
//!         y = powi(x, 3);
//!     }
//! }
//!
//! let of = |x: f64| Tensor::from_slice(&[x], &[1]);
//! let (x, one) = (of(2.0)?, of(1.0)?);
//! let cotangents = CubesCotangents { y: Some(one.clone()) };
//!
//! let first = cubes::gradient().call(Cubes { x: x.clone() }, cotangents.clone())?; // x̄ = 3·x²·ȳ
//! assert_eq!(first.gradients.x.to_vec::<f64>()?, [12.0]);
//!
//! // The gradient of the sum of x̄·u by x and by ȳ, where u is the cotangent of x̄.
//! let second = first.backward(CubesGradientsCotangents { x: Some(one.clone()) })?;
//! assert_eq!(second.inputs.x.to_vec::<f64>()?, [12.0]); // 6·x·ȳ·u
//! assert_eq!(second.cotangents.y.as_ref().unwrap().to_vec::<f64>()?, [12.0]); // 3·x²·u
//!
//! // The same as a kernel, which has a gradient as well.
//! let given = WithCotangents { inputs: Cubes { x }, cotangents };
//! let out = cubes::gradient().gradient().call(given, CubesGradientsCotangents { x: Some(one.clone()) })?;
//! let of_second = CubesGradientsCotangents { x: Some(one) };
//! let third = out.backward(WithCotangents { inputs: of_second, cotangents: CubesCotangents::default() })?;
//! assert_eq!(third.inputs.inputs.x.to_vec::<f64>()?, [6.0]); // 6·ȳ·u
//! # Ok::<(), oplus::Error>(())
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::{Error, Kernel, Tensor};

/// Tensors of a call in the order of its parameters, `None` for those left out.
pub type Given<'t> = Vec<Option<&'t Tensor>>;

/// Gradients in the order of a kernel's floating-point parameters, `None` for those of parameters that were left out.
pub type Found<'f> = &'f mut dyn Iterator<Item = Option<Tensor>>;

/// A struct of tensors in the order of a kernel's parameters, `None` for those left out.
pub trait Fields {
    /// Appends the tensors.
    fn append_to<'t>(&'t self, tensors: &mut Given<'t>);
}

/// A struct of gradients in the order of a kernel's floating-point parameters.
pub trait Gradients: Fields + Sized {
    /// Cotangents of these gradients; those left out are zero.
    type Cotangents: Gradients<Cotangents = Self::Cotangents> + Default;

    /// Takes as many tensors as there are fields.
    fn take_from(tensors: Found<'_>) -> Self;
}

/// A kernel of `scan!` that has a gradient, with the structs of its tensors.
pub trait Differentiable {
    /// The inputs.
    type Inputs: Fields;
    /// The cotangents of the floating-point outputs.
    type Cotangents: Gradients<Cotangents = Self::Cotangents> + Default;
    /// The gradients of the floating-point inputs.
    type Gradients: Gradients;
}

/// The gradient of a kernel.
pub type GradientOf<K> =
    Gradient<<K as Differentiable>::Inputs, <K as Differentiable>::Cotangents, <K as Differentiable>::Gradients>;

/// Inputs of a kernel, and cotangents of its outputs; or what belongs to both: their gradients, or cotangents of these.
#[derive(Clone, Debug, Default)]
pub struct WithCotangents<I, C> {
    /// The inputs.
    pub inputs: I,
    /// The cotangents of the outputs.
    pub cotangents: C,
}

impl<I: Fields, C: Fields> Fields for WithCotangents<I, C> {
    fn append_to<'t>(&'t self, tensors: &mut Given<'t>) {
        self.inputs.append_to(tensors);
        self.cotangents.append_to(tensors);
    }
}

impl<G: Gradients, C: Gradients> Gradients for WithCotangents<G, C> {
    type Cotangents = WithCotangents<G::Cotangents, C::Cotangents>;

    fn take_from(tensors: Found<'_>) -> Self {
        WithCotangents { inputs: G::take_from(tensors), cotangents: C::take_from(tensors) }
    }
}

/// The tensor of a field that is there in every call.
///
/// # Panics
/// When there is none.
#[doc(hidden)]
pub fn required(tensors: Found<'_>) -> Tensor {
    let Some(Some(tensor)) = tensors.next() else {
        unreachable!("a kernel gives a gradient for every input that it was given")
    };
    tensor
}

/// The order of a struct's fields, for [`Fields`] and, with the struct of cotangents after its name, for [`Gradients`]; `scan!` writes
/// this.
#[doc(hidden)]
#[macro_export]
macro_rules! tensors {
    (@given required $tensor:expr) => { ::core::option::Option::Some(&$tensor) };
    (@given optional $tensor:expr) => { $tensor.as_ref() };
    (@found required $tensors:ident) => { $crate::typed::required($tensors) };
    (@found optional $tensors:ident) => { ::core::iter::Iterator::next($tensors).flatten() };
    ($structure:ident { $($kind:ident $name:ident),* }) => {
        impl $crate::typed::Fields for $structure {
            fn append_to<'t>(&'t self, tensors: &mut $crate::typed::Given<'t>) {
                tensors.extend([$($crate::tensors!(@given $kind self.$name)),*]);
            }
        }
    };
    ($structure:ident: $cotangents:ident { $($kind:ident $name:ident),* }) => {
        $crate::tensors! { $structure { $($kind $name),* } }

        impl $crate::typed::Gradients for $structure {
            type Cotangents = $cotangents;
            fn take_from(tensors: $crate::typed::Found<'_>) -> Self {
                Self { $($name: $crate::tensors!(@found $kind tensors)),* }
            }
        }
    };
}

/// The gradient of a kernel with inputs `I` as a kernel: it takes `I` and the cotangents `C` of the outputs, and gives the
/// gradients `G` of the floating-point inputs.
pub struct Gradient<I, C, G> {
    kernel: &'static Kernel,
    /// How often the kernel is differentiated; at least once.
    order: usize,
    types: PhantomData<fn(I, C) -> G>,
}

/// The gradients that a [`Gradient`] has computed, and what their own gradient needs: handles to the tensors that it was given.
pub struct GradientOutput<I, C, G> {
    /// The gradients.
    pub gradients: G,
    given: WithCotangents<I, C>,
    of: Gradient<I, C, G>,
}

impl<I, C, G> Gradient<I, C, G> {
    /// The gradient of a kernel whose parameters and outputs these are; `scan!` calls this.
    #[doc(hidden)]
    pub const fn of(kernel: &'static Kernel) -> Self {
        Gradient { kernel, order: 1, types: PhantomData }
    }
}

impl<I: Fields, C: Gradients, G: Gradients> Gradient<I, C, G> {
    /// The gradients of the inputs: for every input p, p̄ = Σ over outputs y of (∂y/∂p)ᵀ·ȳ. Of a kernel itself they have the bits that
    /// a call and its `backward` give.
    ///
    /// # Errors
    /// The errors of a call of the kernel and of its `backward`; [`Error::NoGradient`] when an order cannot be derived.
    pub fn call(&self, inputs: I, cotangents: C) -> Result<GradientOutput<I, C, G>, Error> {
        let given = WithCotangents { inputs, cotangents };
        let mut tensors = vec![];
        given.append_to(&mut tensors);
        let gradients = G::take_from(&mut self.kernel.gradients_of_order(self.order, &tensors)?.into_iter());
        Ok(GradientOutput { gradients, given, of: *self })
    }

    /// The gradient of this gradient, as a kernel. It takes the inputs and cotangents of this one, and cotangents of the gradients
    /// that this one gives.
    pub fn gradient(&self) -> Gradient<WithCotangents<I, C>, G::Cotangents, WithCotangents<G, C>> {
        Gradient { kernel: self.kernel, order: self.order + 1, types: PhantomData }
    }

    /// The kernel, to be called with tensors in the order of its parameters, explained, or recorded on a tape: the parameters of the
    /// kernel that is differentiated, then the cotangents of each order.
    ///
    /// # Errors
    /// [`Error::NoGradient`] when an order cannot be derived.
    pub fn kernel(&self) -> Result<Arc<Kernel>, Error> {
        self.kernel.derived_to_order(self.order, &[])
    }
}

impl<I: Fields, C: Gradients, G: Gradients> GradientOutput<I, C, G> {
    /// The gradients of the inputs and cotangents that the call was given: for each of them its product with all gradients that
    /// have a cotangent here. An input or a cotangent that was left out has none; a cotangent here of a gradient that such a one
    /// would have counts all the same.
    ///
    /// # Errors
    /// The errors of [`Gradient::call`].
    pub fn backward(&self, cotangents: G::Cotangents) -> Result<WithCotangents<G, C>, Error> {
        let mut tensors = vec![];
        self.given.append_to(&mut tensors);
        cotangents.append_to(&mut tensors);
        let gradients = self.of.kernel.gradients_of_order(self.of.order + 1, &tensors)?;
        Ok(WithCotangents::take_from(&mut gradients.into_iter()))
    }
}

impl<I, C, G> Clone for Gradient<I, C, G> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, C, G> Copy for Gradient<I, C, G> {}

impl<I, C, G> fmt::Debug for Gradient<I, C, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gradient").field("kernel", &self.kernel.name()).field("order", &self.order).finish()
    }
}

impl<I: fmt::Debug, C: fmt::Debug, G: fmt::Debug> fmt::Debug for GradientOutput<I, C, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GradientOutput")
            .field("gradients", &self.gradients)
            .field("of", &self.of)
            .finish_non_exhaustive()
    }
}
