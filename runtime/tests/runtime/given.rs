//! Memory of a GPU that the caller gives. On a machine without a GPU there is nothing to test, and every test says so and ends.
#![cfg(feature = "jit")]
#![allow(unsafe_code, reason = "an allocator vouches for its memory")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::driver::{CudaContext, CudaStream, DevicePtr};
use oplus::models::selective_scan;
use oplus::{Allocate, Allocated, Call, CudaDevice, Device, Elem, Error, Tensor, record};

use crate::common::{AFFINE, ramp};

/// The first GPU, on a stream of its own.
fn gpu() -> Option<CudaDevice> {
    if Device::cuda_count() == 0 {
        eprintln!("no GPU");
        return None;
    }
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    match Device::from_stream(stream).unwrap() {
        Device::Cuda(device) => Some(device),
        Device::Cpu => None,
    }
}

/// Gives memory from the driver's default pool, and counts.
#[derive(Default)]
struct Counting(AtomicUsize);

// SAFETY: cudarc allocates and frees in the order of the stream.
unsafe impl Allocate for Counting {
    fn allocate(&self, bytes: usize, stream: &Arc<CudaStream>) -> Result<Allocated, Error> {
        self.0.fetch_add(1, Ordering::Relaxed);
        // SAFETY: whoever asks writes before it reads.
        let slice = unsafe { stream.alloc::<u8>(bytes) }.unwrap();
        let address = slice.device_ptr(stream).0;
        Ok(Allocated { address, owner: Box::new(slice) })
    }
}

#[test]
fn calls_have_the_same_bits_in_memory_of_an_allocator() {
    let Some(gpu) = gpu() else { return };
    let device = Device::Cuda(gpu.clone());
    let (rows, len) = (3, 30_011);
    let half = vec![0.5_f32; rows * len];
    let run = || {
        let a = Tensor::from_slice(&half, &[rows, len]).unwrap().to_device(&device).unwrap();
        let x = ramp(&[rows, len]).to_device(&device).unwrap();
        let (outputs, call) = AFFINE.call(&[Some(&a), Some(&x), None, None]).unwrap();
        let gradients = AFFINE.backward(&call, &[Some(&outputs[0]), None]).unwrap();
        let gradient = gradients[0].as_ref().unwrap().to_vec::<f32>().unwrap();
        (outputs[0].to_vec::<f32>().unwrap(), gradient)
    };
    let own = run();
    let counting = Arc::new(Counting::default());
    gpu.set_allocator(Some(counting.clone()));
    let given = run();
    gpu.set_allocator(None);
    assert!(own == given);
    assert!(counting.0.load(Ordering::Relaxed) >= 7);
}

#[test]
fn states_saved_in_a_tensor_of_the_callers_give_the_gradient_of_a_recorded_call() {
    let Some(gpu) = gpu() else { return };
    let device = Device::Cuda(gpu);
    let scan = selective_scan::kernel();
    let there = |shape: &[usize], by: f32| {
        let small = ramp(shape).to_vec::<f32>().unwrap().iter().map(|x| by * x.sin()).collect();
        Tensor::from_vec(small, shape).unwrap().to_device(&device).unwrap()
    };
    let (u, delta, a) = (there(&[2, 1, 64, 512], 1.0), there(&[2, 1, 64, 512], 0.1), there(&[1, 64, 16], 0.5));
    let (b, c) = (there(&[2, 1, 16, 512], 1.0), there(&[2, 1, 16, 512], 0.7));
    let inputs = [Some(&u), Some(&delta), Some(&a), Some(&b), Some(&c), None, None, None];
    let recording = record();
    let (outputs, recorded) = scan.call(&inputs).unwrap();
    drop(recording);
    let zeros = |shape: &[usize]| Tensor::zeros(Elem::F32, shape, &device).unwrap();
    let (y, last) = (zeros(outputs[0].shape()), zeros(outputs[1].shape()));
    let shape = scan.residual_shape(&inputs, &[&y, &last]).unwrap().expect("such a scan saves states");
    let states = zeros(&shape);
    let saving = scan.call_saving_into(&inputs, &[&y, &last], &states).unwrap();
    let residual = saving.residual().unwrap().with_states(&states).unwrap();
    drop(saving);
    let saved = Call::from_parts(scan, &inputs, &[Some(&y), None], Some(&residual)).unwrap();
    let plain = Call::from_parts(scan, &inputs, &[Some(&y), None], None).unwrap();
    assert!(y.to_vec::<f32>().unwrap() == outputs[0].to_vec::<f32>().unwrap());
    let gradient = |call: &Call| {
        let gradients = scan.backward(call, &[Some(&y), None]).unwrap();
        gradients.iter().flatten().map(|g| g.to_vec::<f32>().unwrap()).collect::<Vec<_>>()
    };
    let (recorded, saved, plain) = (gradient(&recorded), gradient(&saved), gradient(&plain));
    assert!(recorded == saved && recorded.len() == 5);
    for (with, without) in saved.iter().flatten().zip(plain.iter().flatten()) {
        assert!((with - without).abs() <= 1e-3 * without.abs().max(1.0), "{with} beside {without}");
    }
}
