//! Matrix products on a GPU by cuBLAS, where its library is installed.

use std::cell::OnceCell;

use cudarc::cublas::{CudaBlas, result, sys};
use oplus::{Device, Elem, Error, Tensor};

use crate::tensors::Factor;

thread_local! {
    /// The library on the device of the first product; `None` where it is not installed.
    static LIBRARY: OnceCell<Option<Library>> = const { OnceCell::new() };
}

struct Library {
    device: Device,
    blas: CudaBlas,
}

/// a·b, queued on the tensors' stream; `None` where cuBLAS is not installed or a factor is elsewhere or has gaps.
pub(crate) fn multiply(a: Factor<'_>, b: Factor<'_>) -> Result<Option<Tensor>, Error> {
    LIBRARY.with(|library| match library.get_or_init(|| open(a.0.device())) {
        Some(Library { device, blas }) if [a, b].iter().all(|x| x.0.device() == *device && x.0.is_contiguous()) => {
            sgemm(blas, a, b).map(Some)
        }
        _ => Ok(None),
    })
}

#[expect(unsafe_code, reason = "looks for a shared library")]
fn open(device: Device) -> Option<Library> {
    let Device::Cuda(cuda) = &device else { return None };
    // SAFETY: loads a library by NVIDIA's names for cuBLAS, whose initialiser has no preconditions.
    let installed = unsafe { sys::is_culib_present() };
    let blas = installed.then(|| CudaBlas::new(cuda.stream().clone()).ok()).flatten()?;
    Some(Library { device, blas })
}

/// yᵀ = bᵀ·aᵀ, for cuBLAS stores matrices by columns.
#[expect(unsafe_code, reason = "the interface of cuBLAS takes addresses")]
fn sgemm(blas: &CudaBlas, a: Factor<'_>, b: Factor<'_>) -> Result<Tensor, Error> {
    let ([m, k], [_, n]) = (a.shape(), b.shape());
    let failed = |reason: String| Error::Driver { call: "cublasSgemm", reason, source: None };
    let size = |x: usize| i32::try_from(x).map_err(|_| failed(format!("{x} rows or columns are too many")));
    let y = Tensor::zeros(Elem::F32, &[m, n], &a.0.device())?;
    let address = |tensor: &Tensor| tensor.device_ptr().expect("a tensor of a GPU has an address");
    let operation = |factor: &Factor<'_>| match factor.1 {
        true => sys::cublasOperation_t::CUBLAS_OP_T,
        false => sys::cublasOperation_t::CUBLAS_OP_N,
    };
    let (of_a, of_b, rows_a, rows_b) = (operation(&a), operation(&b), size(a.0.shape()[1])?, size(b.0.shape()[1])?);
    let (m, n, k) = (size(m)?, size(n)?, size(k)?);
    let (a, b, c) = (address(a.0) as *const f32, address(b.0) as *const f32, address(&y) as *mut f32);
    // SAFETY: the addresses are of contiguous f32 matrices of these sizes in memory of the stream's context, which the
    // tensors keep until work queued on the stream by then is done; nothing else reads or writes `y` yet.
    let done = unsafe { result::sgemm(*blas.handle(), of_b, of_a, n, m, k, &1.0, b, rows_b, a, rows_a, &0.0, c, n) };
    done.map(|()| y).map_err(|error| failed(error.to_string()))
}
