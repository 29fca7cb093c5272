//! Tensors that several streams have.

use cudarc::driver::{CudaContext, result};
use oplus::{Device, Elem, Tensor, kernels};

use crate::captures::captured;
use crate::scenario::{Done, beside, is_ramp, new_stream, ramp};

/// A tensor outlives its first handle on another stream.
pub(crate) fn share() -> Done {
    let ((_, first), (_, second), (_, third)) = (new_stream()?, new_stream()?, new_stream()?);
    let x = ramp(&[1 << 10]).to_device(&first)?;
    let shared = x.to_device(&second)?;
    assert_eq!(x.device_ptr(), shared.device_ptr());
    let again = shared.to_device(&third)?;
    assert!(is_ramp(&again)?);
    drop(x);
    assert!(is_ramp(&shared)?);
    drop(shared);
    let home = again.to_device(&first)?;
    drop(again);
    assert!(is_ramp(&home)?);
    Ok(())
}

/// Streams write a tensor and read it by turns, without asking for another handle in between.
pub(crate) fn write_and_read() -> Done {
    let ((_, first), (_, second), (_, third)) = (new_stream()?, new_stream()?, new_stream()?);
    let cumsum = kernels::cumsum::kernel();
    let x = ramp(&[2, 64]).to_device(&first)?;
    let here = Tensor::zeros(Elem::F32, &[2, 64], &first)?;
    let (there, far) = (here.to_device(&second)?, here.to_device(&third)?);
    let y = Tensor::zeros(Elem::F32, &[2, 64], &second)?;
    let z = ramp(&[2, 64]).to_device(&third)?;
    for _ in 0..2 {
        cumsum.call_into(&[Some(&x)], &[&here])?;
        cumsum.call_into(&[Some(&there)], &[&y])?;
        drop(cumsum.call(&[Some(&far)])?);
        drop(cumsum.call(&[Some(&there)])?);
        cumsum.call_into(&[Some(&z)], &[&far])?;
        here.to_vec::<f32>()?;
        cumsum.call_into(&[Some(&y)], &[&there])?;
        far.to_vec::<f32>()?;
    }
    Ok(())
}

/// Threads with streams of their own, that share a tensor and a stream.
pub(crate) fn of_threads() -> Done {
    let (_, shared) = new_stream()?;
    let x = ramp(&[1, 1 << 14]).to_device(&shared)?;
    let sums = Tensor::zeros(Elem::F32, &[1, 1 << 14], &shared)?;
    let work = |(x, sums): (&Tensor, &Tensor)| -> Result<(), String> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let (_, own) = new_stream().map_err(|e| text(&*e))?;
        let (here, there) = (x.to_device(&own), sums.to_device(&own));
        let (here, there) = (here.map_err(|e| text(&e))?, there.map_err(|e| text(&e))?);
        for _ in 0..2 {
            let affine = kernels::affine::kernel().call(&[Some(&here), Some(&here), None]);
            drop(affine.map_err(|e| text(&e))?);
            kernels::cumsum::kernel().call_into(&[Some(&here)], &[&there]).map_err(|e| text(&e))?;
            drop(kernels::cumsum::kernel().call(&[Some(sums)]).map_err(|e| text(&e))?);
        }
        Ok(())
    };
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| work((&x, &sums)))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    results.into_iter().collect::<Result<Vec<()>, String>>()?;
    Ok(())
}

/// The stream of every thread, on which the user's own work is in order with the runtime's.
pub(crate) fn of_the_thread() -> Done {
    let stream = CudaContext::new(0)?.per_thread_stream();
    let device = Device::from_stream(stream.clone())?;
    assert_eq!(device, Device::from_stream(stream.clone())?);
    let cumsum = kernels::cumsum::kernel();
    let slice = beside(|| stream.clone_htod(&[0.0_f32, 1.0, 2.0, 3.0]))?;
    let x = Tensor::from_cuda_slice(slice, &[1, 4])?;
    let y = Tensor::zeros(Elem::F32, &[1, 4], &device)?;
    let copy = |from: &Tensor, to: &Tensor| {
        let (from, to) = (from.device_ptr().unwrap(), to.device_ptr().unwrap());
        // SAFETY: both tensors have 16 bytes.
        unsafe { result::memcpy_dtod_async(to, from, 16, stream.cu_stream()) }
    };
    assert!(is_ramp(&x)?);
    cumsum.call_into(&[Some(&x)], &[&y])?;
    copy(&y, &x)?;
    drop(cumsum.call(&[Some(&x)])?);
    copy(&ramp(&[1, 4]).to_device(&device)?, &y)?;
    assert!(is_ramp(&y)?);
    let (_, other) = new_stream()?;
    copy(&x, &y)?;
    let there = y.to_device(&other)?;
    drop(cumsum.call(&[Some(&there)])?);
    // The graph, which writes the tensor, cannot wait for another stream.
    drop((there.to_device(&device)?, there));
    let (graph, result) = captured(&stream, || {
        cumsum.call_into(&[Some(&x)], &[&y])?;
        cumsum.call(&[Some(&y)]).map(drop)
    })?;
    result?;
    graph.launch()?;
    device.synchronize()?;
    let used = std::thread::scope(|scope| scope.spawn(|| cumsum.call(&[Some(&x)]).map(|_| drop(x))).join().unwrap());
    used?;
    copy(&y, &y)?;
    drop(y);
    Ok(device.synchronize()?)
}
