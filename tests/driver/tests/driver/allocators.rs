//! Memory that the caller gives.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaStream, result};
use oplus::{Allocate, Allocated, Device, Elem, Error, Tensor, kernels};

use crate::captures::captured;
use crate::scenario::{Done, beside, is_ramp, new_stream, ramp};

/// Gives memory from the driver's default pool, and keeps count.
#[derive(Default)]
struct Counting {
    given: Mutex<Vec<u64>>,
    alive: Arc<AtomicUsize>,
}

// SAFETY: the driver allocates and frees in the order of the stream.
unsafe impl Allocate for Counting {
    fn allocate(&self, bytes: usize, stream: &Arc<CudaStream>) -> Result<Allocated, Error> {
        assert!(bytes > 0);
        // SAFETY: whoever asks writes before it reads.
        let address = beside(|| unsafe { result::malloc_async(stream.cu_stream(), bytes) }).unwrap();
        self.given.lock().unwrap().push(address);
        self.alive.fetch_add(1, Ordering::Relaxed);
        Ok(Allocated {
            address,
            owner: Box::new(Counted { address, stream: stream.clone(), alive: self.alive.clone() }),
        })
    }
}

struct Counted {
    address: u64,
    stream: Arc<CudaStream>,
    alive: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        // SAFETY: the address is that of an allocation of this stream, freed once.
        beside(|| unsafe { result::free_async(self.address, self.stream.cu_stream()) }).unwrap();
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Has none.
struct Nothing;

// SAFETY: it never gives memory.
unsafe impl Allocate for Nothing {
    fn allocate(&self, bytes: usize, _: &Arc<CudaStream>) -> Result<Allocated, Error> {
        Err(Error::OutOfMemory { bytes, device: "nowhere".into() })
    }
}

fn set(device: &Device, allocator: Option<Arc<dyn Allocate>>) {
    let Device::Cuda(device) = device else { unreachable!("scenarios run on a GPU") };
    device.set_allocator(allocator);
}

/// Tensors, outputs, gradients and temporary memory come from the allocator, and go back to it.
pub(crate) fn give_what_calls_need() -> Done {
    let (_, device) = new_stream()?;
    let counting = Arc::new(Counting::default());
    set(&device, Some(counting.clone()));
    let affine = kernels::affine::kernel();
    let work = || {
        let (a, b) = (ramp(&[3, 100]).to_device(&device)?, ramp(&[3, 100]).to_device(&device)?);
        let (outputs, call) = affine.call(&[Some(&a), Some(&b), None])?;
        let gradients = affine.backward(&call, &[Some(&outputs[0]), None])?;
        let mut addresses: Vec<u64> = [a, b].iter().chain(&outputs).filter_map(Tensor::device_ptr).collect();
        addresses.extend(gradients.iter().flatten().filter_map(Tensor::device_ptr));
        Ok::<_, Error>(addresses)
    };
    let done = work();
    let given = counting.given.lock().unwrap().clone();
    if let Ok(addresses) = &done {
        assert!(addresses.len() > 5 && addresses.iter().all(|address| given.contains(address)));
    }
    set(&device, None);
    let own = ramp(&[9]).to_device(&device)?;
    // The next allocation drops the memory that could not be dropped where its owner was.
    drop(Tensor::zeros(Elem::F32, &[9], &device)?);
    assert!(is_ramp(&own)?);
    assert_eq!(counting.given.lock().unwrap().len(), given.len());
    assert_eq!(counting.alive.load(Ordering::Relaxed), 0);
    done?;
    Ok(device.synchronize()?)
}

/// A refusal of an allocator is the call's error, and the call leaves nothing behind.
pub(crate) fn refuse() -> Done {
    let (_, device) = new_stream()?;
    let x = ramp(&[2, 64]).to_device(&device)?;
    let y = Tensor::zeros(Elem::F32, &[2, 64], &device)?;
    set(&device, Some(Arc::new(Nothing)));
    let cumsum = kernels::cumsum::kernel();
    let refused = cumsum.call(&[Some(&x)]).map(drop).unwrap_err();
    let expected = Error::OutOfMemory { bytes: 512, device: "nowhere".into() };
    assert!(refused == expected || matches!(refused, Error::Driver { .. }), "{refused}");
    cumsum.call_into(&[Some(&x)], &[&y])?;
    set(&device, None);
    drop(cumsum.call(&[Some(&x)])?);
    Ok(device.synchronize()?)
}

/// Memory given in a capture goes back in it; what was given before waits for its end.
pub(crate) fn in_captures() -> Done {
    let (stream, device) = new_stream()?;
    let affine = kernels::affine::kernel();
    let (a, b) = (ramp(&[1, 1 << 16]).to_device(&device)?, ramp(&[1, 1 << 16]).to_device(&device)?);
    let call = || {
        let (outputs, call) = affine.call(&[Some(&a), Some(&b), None])?;
        affine.backward(&call, &[Some(&outputs[0]), None]).map(drop)
    };
    call()?;
    let counting = Arc::new(Counting::default());
    set(&device, Some(counting.clone()));
    let before = Tensor::zeros(Elem::F32, &[8], &device)?;
    let (graph, result) = captured(&stream, || {
        let done = call();
        let alive = counting.alive.load(Ordering::Relaxed);
        drop(before);
        done.map(|()| (alive, counting.alive.load(Ordering::Relaxed)))
    })?;
    let (inside, after) = result?;
    assert_eq!(inside, after, "what was given before the capture went back in it");
    // A call that fails may leave memory that is dropped later.
    assert!(
        inside == 1 || std::env::var_os("OPLUS_TEST_DRIVER_FAIL").is_some(),
        "{inside} tensors are left in the capture"
    );
    graph.launch()?;
    graph.launch()?;
    set(&device, None);
    // The next allocation drops the memory that could not be dropped where its owner was.
    for _ in 0..2 {
        drop(Tensor::zeros(Elem::F32, &[8], &device)?);
    }
    assert_eq!(counting.alive.load(Ordering::Relaxed), 0);
    Ok(device.synchronize()?)
}
