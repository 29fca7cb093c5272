//! Memory of one stream.

use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError, result, sys};
use oplus::{Call, Device, Elem, Error, Tensor, kernels, models};

use crate::captures::captured;
use crate::scenario::{Done, beside, calls_of_the_driver, is_ramp, new_stream, ramp};

pub(crate) fn comes_and_goes() -> Done {
    let (_, device) = new_stream()?;
    let x = ramp(&[3, 5, 7]);
    let there = x.to_device(&device)?;
    assert!(is_ramp(&there)?);
    let view = |t: &Tensor| t.slice(2, 2..5)?.permute(&[1, 2, 0]);
    assert_eq!(view(&there)?.to_vec::<f32>()?, view(&x)?.to_vec::<f32>()?);
    assert_eq!(view(&x)?.to_device(&device)?.to_vec::<f32>()?, view(&x)?.to_vec::<f32>()?);
    assert_eq!(Tensor::zeros(Elem::I64, &[9], &device)?.to_vec::<i64>()?, [0; 9]);
    assert_eq!(Tensor::full(true, &[9], &device)?.to_vec::<bool>()?, [true; 9]);
    assert!(Tensor::zeros(Elem::F32, &[0, 4], &device)?.to_vec::<f32>()?.is_empty());
    Ok(device.synchronize()?)
}

/// A slice that another stream reads when it is handed over, and writes.
pub(crate) fn of_slices() -> Done {
    let (stream, device) = new_stream()?;
    let (slice, again) = beside(|| {
        let other = stream.context().new_stream()?;
        let mut slice = stream.clone_htod(&[0.0_f32, 1.0, 2.0, 3.0])?;
        let copy = other.clone_dtod(&slice)?;
        other.memcpy_dtod(&copy, &mut slice)?;
        let again = other.clone_dtod(&slice)?;
        Ok::<_, DriverError>((slice, again))
    })?;
    let x = Tensor::from_cuda_slice(slice, &[1, 4])?;
    let y = ramp(&[1, 4]).to_device(&device)?;
    kernels::cumsum::kernel().call_into(&[Some(&y)], &[&x])?;
    drop(x);
    beside(|| drop(again));
    Ok(device.synchronize()?)
}

pub(crate) fn runs_out() -> Done {
    let (_, device) = new_stream()?;
    let kept = ramp(&[9]).to_device(&device)?;
    for _ in 0..2 {
        let refused = Tensor::zeros(Elem::F64, &[1 << 40], &device);
        assert!(matches!(refused, Err(Error::OutOfMemory { .. } | Error::Driver { .. })), "{refused:?}");
    }
    assert!(is_ramp(&kept)?);
    Ok(())
}

/// A new context that is not the primary one.
fn context_of_the_users() -> Result<Arc<CudaContext>, DriverError> {
    type Create = unsafe extern "C" fn(*mut sys::CUcontext, *const (), u32, i32) -> sys::CUresult;
    result::init()?;
    let mut context = std::ptr::null_mut();
    // SAFETY: this is how the test driver declares the function, which `cudarc` does not have for every version.
    unsafe {
        let create = *sys::culib().get::<Create>(b"cuCtxCreate_v4").unwrap();
        create(&mut context, std::ptr::null(), 0, 0).result()?;
        CudaContext::from_raw_context(0, 0, context)
    }
}

pub(crate) fn in_a_context_of_the_users() -> Done {
    let context = beside(context_of_the_users)?;
    let device = Device::from_stream(context.new_stream()?)?;
    let x = ramp(&[2, 100]).to_device(&device)?;
    let (y, call) = kernels::cumsum::kernel().call(&[Some(&x)])?;
    drop((x, device, context, call));
    Ok(y[0].device().synchronize()?)
}

/// Calls and gradients, with temporary tensors, messages and saved states.
pub(crate) fn of_calls() -> Done {
    let (_, device) = new_stream()?;
    let affine = kernels::affine::kernel();
    for shape in [[1, 1 << 17], [3, 100]] {
        let (a, b) = (ramp(&shape).to_device(&device)?, ramp(&shape).to_device(&device)?);
        let recording = oplus::record();
        let (outputs, call) = affine.call(&[Some(&a), Some(&b), None])?;
        drop((recording, a, b));
        let gradients = affine.backward(&call, &[Some(&outputs[0]), None])?;
        drop((call, outputs));
        drop(gradients);
    }
    Ok(device.synchronize()?)
}

/// States that a call saves in a tensor of the caller's, and a gradient that starts from them.
pub(crate) fn of_saved_states() -> Done {
    let (_, device) = new_stream()?;
    let scan = models::selective_scan::kernel();
    let there = |shape: &[usize]| ramp(shape).to_device(&device);
    let (rows, shared) = (there(&[1, 1, 32, 256])?, there(&[1, 1, 16, 256])?);
    let a = there(&[1, 32, 16])?;
    let (per_row, h0) = (there(&[1, 32])?, there(&[1, 1, 32, 16])?);
    let (skip, bias) = (Some(&per_row), Some(&per_row));
    let inputs = [Some(&rows), Some(&rows), Some(&a), Some(&shared), Some(&shared), skip, bias, Some(&h0)];
    let zeros = |shape: &[usize]| Tensor::zeros(Elem::F32, shape, &device);
    let (y, last) = (zeros(&[1, 1, 32, 256])?, zeros(&[1, 1, 32, 16])?);
    let shape = scan.residual_shape(&inputs, &[&y, &last])?.expect("a committed kernel saves states");
    let short = zeros(&[shape[0] - 1])?;
    let refused = scan.call_saving_into(&inputs, &[&y, &last], &short).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Length { .. } | Error::Driver { .. } | Error::OutOfMemory { .. }), "{refused}");
    let states = zeros(&shape)?;
    let call = scan.call_saving_into(&inputs, &[&y, &last], &states)?;
    let residual = call.residual().expect("they have been saved");
    assert_eq!(residual.states().device_ptr(), states.device_ptr());
    // They go through a framework's graph as a tensor, and the call is put together again.
    let residual = residual.with_states(&states.slice(0, 0..shape[0])?)?;
    assert!(residual.with_states(&short).is_err());
    let other =
        Call::from_parts(kernels::cumsum::kernel(), &[Some(&rows.reshape(&[32, 256])?)], &[None], Some(&residual));
    assert!(matches!(other, Err(Error::NoGradient { .. })));
    drop(call);
    let call = Call::from_parts(scan, &inputs, &[Some(&y), None], Some(&residual))?;
    drop(scan.backward(&call, &[Some(&y), None])?);
    Ok(device.synchronize()?)
}

/// A tensor in memory that its lender keeps costs no call of the driver, also while its stream is being captured. Where another stream
/// has used it, the lender's waits for that.
pub(crate) fn of_lenders() -> Done {
    let (stream, device) = new_stream()?;
    let (_, guest) = new_stream()?;
    let Device::Cuda(gpu) = &device else { unreachable!("scenarios run on a GPU") };
    let owner = ramp(&[3, 100]).to_device(&device)?;
    let address = owner.device_ptr().expect("it is on a GPU");
    // SAFETY: the owner lives longer than what is lent, and frees the memory in the order of the same stream.
    let lent = || unsafe { Tensor::from_device_ptr(address, 1200, Elem::F32, (&[3, 100], &[100, 1]), gpu, ()) };
    let come_and_go = || {
        let before = calls_of_the_driver();
        lent().map(drop).map(|()| calls_of_the_driver() - before)
    };
    assert_eq!(come_and_go()?, 0);
    let (graph, calls) = captured(&stream, come_and_go)?;
    assert_eq!(calls?, 0);
    drop(graph);
    let shared = lent()?.to_device(&guest)?;
    let (outputs, _) = kernels::cumsum::kernel().call(&[Some(&shared)])?;
    drop(shared);
    drop(owner);
    Ok(outputs[0].device().synchronize()?)
}
