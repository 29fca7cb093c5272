//! Matrices and channels, and what is computed between the scans.

use ndarray::Array2;
use oplus::tape::{Tape, Var};
use oplus::{Device, Error, Tensor};

use crate::blas;
use crate::kernels::{Plus, Product, plus, product};

/// The rows [B·T, D] of a matrix as the models see them, [B, 1, D, T]: a view.
pub(crate) fn channels(tape: &mut Tape<'static>, x: Var, batch: usize) -> Result<Var, Error> {
    let (rows, columns) = (tape.value(x).shape()[0], tape.value(x).shape()[1]);
    let x = tape.reshape(x, &[batch, rows / batch, 1, columns])?;
    tape.permute(x, &[0, 2, 3, 1])
}

/// The matrix [B·T, D] of what a model gave as [B, 1, D, T].
pub(crate) fn rows(tape: &mut Tape<'static>, x: Var) -> Result<Var, Error> {
    let (rows, columns) = (tape.value(x).shape()[0] * tape.value(x).shape()[3], tape.value(x).shape()[2]);
    let x = tape.permute(x, &[0, 3, 1, 2])?;
    tape.reshape(x, &[rows, columns])
}

/// a + b.
pub(crate) fn add(a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
    Ok(plus(Plus { a: a.clone(), b: b.clone() })?.y)
}

/// A matrix, transposed or not.
#[derive(Clone, Copy)]
pub(crate) struct Factor<'a>(pub(crate) &'a Tensor, pub(crate) bool);

impl Factor<'_> {
    /// Its rows and columns.
    pub(crate) fn shape(self) -> [usize; 2] {
        let (rows, columns) = (self.0.shape()[0], self.0.shape()[1]);
        if self.1 { [columns, rows] } else { [rows, columns] }
    }

    fn view(self) -> Result<Tensor, Error> {
        if self.1 { self.0.permute(&[1, 0]) } else { Ok(self.0.clone()) }
    }

    fn array(self) -> Result<Array2<f32>, Error> {
        let shape = (self.0.shape()[0], self.0.shape()[1]);
        let array = Array2::from_shape_vec(shape, self.0.to_vec()?).expect("a matrix has rows times columns elements");
        Ok(if self.1 { array.reversed_axes() } else { array })
    }
}

/// The product of two matrices: by `ndarray` on the CPU, by cuBLAS on a GPU, by a kernel where that is not installed.
pub(crate) fn multiply(a: Factor<'_>, b: Factor<'_>) -> Result<Tensor, Error> {
    if let Device::Cuda(_) = a.0.device() {
        return match blas::multiply(a, b)? {
            Some(y) => Ok(y),
            None => Ok(product(Product { a: a.view()?, b: b.view()? })?.y),
        };
    }
    let y = a.array()?.dot(&b.array()?);
    let shape = [y.nrows(), y.ncols()];
    Tensor::from_vec(y.as_standard_layout().into_owned().into_raw_vec_and_offset().0, &shape)
}

/// x·wᵀ for rows x [R, I] and weights w [O, I].
pub(crate) fn linear(x: &Tensor, w: &Tensor) -> Result<Tensor, Error> {
    multiply(Factor(x, false), Factor(w, true))
}

/// x·wᵀ on a tape; the gradients of x and w are ȳ·w and ȳᵀ·x.
pub(crate) fn linear_on(tape: &mut Tape<'static>, x: Var, w: Var) -> Result<Var, Error> {
    let (left, right) = (tape.value(x).clone(), tape.value(w).clone());
    let y = linear(&left, &right)?;
    let back = move |bars: &[Option<Tensor>]| {
        let Some(bar) = &bars[0] else { return Ok(vec![None, None]) };
        let x_bar = multiply(Factor(bar, false), Factor(&right, false))?;
        Ok(vec![Some(x_bar), Some(multiply(Factor(bar, true), Factor(&left, false))?)])
    };
    Ok(tape.record(&[x, w], vec![y], back)[0])
}
