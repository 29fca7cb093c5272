//! Tensors and calls on a GPU: memory, streams, graphs and faults. On a machine without a GPU there is nothing to test,
//! and every test says so and ends.

use crate::common::{AFFINE, ramp};
use cudarc::driver::CudaContext;
#[cfg(not(feature = "jit"))]
use oplus::source::fall_back_to_cpu;
use oplus::source::{Code, Isa, KernelSource, Launch, register};
use oplus::{Device, Elem, Error, Kernel, Tensor};

/// The first GPU, on a stream of its own.
fn gpu() -> Option<Device> {
    if Device::cuda_count() == 0 {
        eprintln!("no GPU");
        return None;
    }
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    Some(Device::from_stream(stream).unwrap())
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

#[test]
fn tensors_come_back_as_they_went() {
    let Some(device) = gpu() else { return };
    let x = ramp(&[3, 5, 7]);
    let there = x.to_device(&device).unwrap();
    assert_eq!(there.device(), device);
    assert_eq!(floats(&there), floats(&x));
    let view = |t: &Tensor| t.slice(2, 2..5).unwrap().permute(&[1, 2, 0]).unwrap();
    assert_eq!(floats(&view(&there)), floats(&view(&x)));
    assert_eq!(floats(&view(&x).to_device(&device).unwrap()), floats(&view(&x)));
    assert_eq!(Tensor::zeros(Elem::I64, &[9], &device).unwrap().to_vec::<i64>().unwrap(), [0; 9]);
    assert_eq!(Tensor::full(true, &[9], &device).unwrap().to_vec::<bool>().unwrap(), [true; 9]);
    assert!(floats(&Tensor::zeros(Elem::F32, &[0, 4], &device).unwrap()).is_empty());
}

#[test]
fn a_cuda_slice_is_taken_over_without_copying() {
    let Some(device) = gpu() else { return };
    let Device::Cuda(cuda) = &device else { unreachable!() };
    let slice = cuda.stream().clone_htod(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let x = Tensor::from_cuda_slice(slice, &[2, 3]).unwrap();
    assert_eq!(x.device(), device);
    assert_eq!(floats(&x.permute(&[1, 0]).unwrap()), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let slice = cuda.stream().clone_htod(&[0_u32; 5]).unwrap();
    assert!(matches!(Tensor::from_cuda_slice(slice, &[2, 3]), Err(Error::Length { expected: 6, found: 5, .. })));
}

#[test]
fn streams_of_one_context_share_memory_in_order() {
    let Some(first) = gpu() else { return };
    let Device::Cuda(cuda) = &first else { unreachable!() };
    let second = Device::from_stream(cuda.context().new_stream().unwrap()).unwrap();
    let x = ramp(&[1 << 20]).to_device(&first).unwrap();
    let shared = x.to_device(&second).unwrap();
    assert_eq!(x.device_ptr(), shared.device_ptr());
    assert_ne!(first, second);
    drop(x);
    assert_eq!(floats(&shared), floats(&ramp(&[1 << 20])));
    let inputs = [ramp(&[2, 3]).to_device(&first).unwrap(), ramp(&[2, 3]).to_device(&second).unwrap()];
    let error = AFFINE.call(&[Some(&inputs[0]), Some(&inputs[1]), None, None]).unwrap_err();
    assert!(matches!(error, Error::DeviceMismatch { first, second, .. } if first == "a" && second == "x"));
}

#[test]
fn memory_that_is_not_there_is_an_error_and_nothing_is_lost() {
    let Some(device) = gpu() else { return };
    let Device::Cuda(cuda) = &device else { unreachable!() };
    drop(Tensor::zeros(Elem::F32, &[1 << 20], &device).unwrap());
    device.synchronize().unwrap();
    let free = || cuda.context().mem_get_info().unwrap().0;
    let before = free();
    for _ in 0..3 {
        let error = Tensor::zeros(Elem::F64, &[1 << 45], &device).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { bytes, .. } if bytes == 1 << 48), "{error}");
    }
    assert!(free() >= before);
    assert_eq!(floats(&Tensor::zeros(Elem::F32, &[4], &device).unwrap()), [0.0; 4]);
}

#[test]
fn dropping_tensors_while_copies_are_in_flight_is_safe() {
    let Some(device) = gpu() else { return };
    let kept: Vec<Tensor> = (0..50).map(|_| ramp(&[1 << 16]).to_device(&device).unwrap()).step_by(5).collect();
    device.synchronize().unwrap();
    assert!(kept.iter().all(|t| floats(t) == floats(&ramp(&[1 << 16]))));
}

#[test]
fn the_per_thread_stream_is_waited_for_and_waits() {
    if gpu().is_none() {
        return;
    }
    let stream = CudaContext::new(0).unwrap().per_thread_stream();
    let device = Device::from_stream(stream.clone()).unwrap();
    assert_eq!(device, Device::from_stream(stream.clone()).unwrap());
    let mut slice = stream.alloc_zeros::<f32>(1 << 20).unwrap();
    stream.memcpy_htod(&floats(&ramp(&[1 << 20])), &mut slice).unwrap();
    let x = Tensor::from_cuda_slice(slice, &[1 << 20]).unwrap();
    assert_eq!(floats(&x), floats(&ramp(&[1 << 20])));
    std::thread::scope(|scope| scope.spawn(|| drop(x)).join().unwrap());
}

/// A kernel of the test's own, so that no source has it, with a name of its own.
const fn unknown(name: &'static str, text: &'static str) -> Kernel {
    Kernel::new(name, text)
}

#[cfg(not(feature = "jit"))]
#[test]
fn a_missing_kernel_names_the_command_and_runs_on_the_cpu_only_when_told() {
    static NOWHERE: Kernel = unknown(
        "nowhere",
        "program nowhere { axes N; param x: f32[N]; %0: f32[N] = param x; %1: f32[N] = cos(%0); output y: f32[N] = %1; }",
    );
    let Some(device) = gpu() else { return };
    let x = ramp(&[100]).to_device(&device).unwrap();
    let error = NOWHERE.call(&[Some(&x)]).unwrap_err();
    assert!(matches!(&error, Error::NoKernel { command, .. } if command.starts_with("oplus bake")), "{error}");
    fall_back_to_cpu(true);
    let (outputs, _) = NOWHERE.call(&[Some(&x)]).unwrap();
    fall_back_to_cpu(false);
    assert_eq!(outputs[0].device(), device);
    assert_eq!(floats(&outputs[0]), floats(&NOWHERE.call(&[Some(&ramp(&[100]))]).unwrap().0[0]));
}

#[test]
fn ptx_that_the_driver_refuses_is_an_error_with_its_words() {
    static REFUSED: Kernel = unknown(
        "refused",
        "program refused { axes N; param x: f32[N]; %0: f32[N] = param x; %1: f32[N] = sin(%0); output y: f32[N] = %1; }",
    );
    struct Garbage;
    impl KernelSource for Garbage {
        fn find(&self, launch: &Launch, _: Isa) -> Result<Option<Code>, Error> {
            let ours = launch.stage.program.name.starts_with("refused");
            Ok(ours.then(|| Code::from(".version 7.8\n.target sm_80\n.address_size 64\nnonsense;\n".to_owned())))
        }
    }
    let Some(device) = gpu() else { return };
    // SAFETY: no device runs what is not PTX.
    #[allow(unsafe_code)]
    unsafe {
        register(Garbage);
    }
    let x = ramp(&[100]).to_device(&device).unwrap();
    let error = REFUSED.call(&[Some(&x)]).unwrap_err();
    assert!(matches!(&error, Error::PtxRejected { log, .. } if log.contains("CUDA_ERROR_INVALID_PTX")), "{error}");
    assert_eq!(floats(&x), floats(&ramp(&[100])));
}

/// Calls of kernels that no source but the compiler has.
#[cfg(feature = "jit")]
mod compiled {
    use cudarc::driver::sys::{CUgraphInstantiate_flags as Flags, CUstreamCaptureMode as Mode};

    use super::*;

    /// Queues calls of the affine scan on a stream and compares with the CPU.
    fn run_affine(device: &Device, rows: usize, len: usize) {
        let (a, x) = (ramp(&[rows, len]), ramp(&[rows, len]));
        let a = Tensor::from_vec(floats(&a).iter().map(|v| v.cos()).collect::<Vec<f32>>(), &[rows, len]).unwrap();
        let (expected, _) = AFFINE.call(&[Some(&a), Some(&x), None, None]).unwrap();
        let (a, x) = (a.to_device(device).unwrap(), x.to_device(device).unwrap());
        let (found, _) = AFFINE.call(&[Some(&a), Some(&x), None, None]).unwrap();
        drop((a, x));
        let close = |(f, e): (&f32, &f32)| (f - e).abs() <= 1e-3 * e.abs().max(1.0);
        assert!(floats(&found[0]).iter().zip(&floats(&expected[0])).all(close), "{rows}×{len}");
        assert!(floats(&found[1]).iter().zip(&floats(&expected[1])).all(close), "{rows}×{len}");
    }

    #[test]
    fn threads_with_streams_of_their_own_do_not_disturb_each_other() {
        let Some(device) = gpu() else { return };
        let Device::Cuda(cuda) = &device else { unreachable!() };
        std::thread::scope(|scope| {
            for k in 0..4 {
                scope.spawn(move || {
                    let own = Device::from_stream(cuda.context().new_stream().unwrap()).unwrap();
                    for round in 0..10 {
                        run_affine(&own, 1 + k, 40_000 + 1000 * round);
                        run_affine(&own, 3, [0, 1, 2, 31, 33, 8191, 8192, 8193, 9973, 5][round]);
                    }
                });
            }
        });
    }

    #[test]
    fn a_call_into_the_callers_tensors_can_be_captured_and_replayed() {
        let Some(device) = gpu() else { return };
        let Device::Cuda(cuda) = &device else { unreachable!() };
        let (rows, len) = (2, 100_003);
        let a = Tensor::full(0.5_f32, &[rows, len], &device).unwrap();
        let x = ramp(&[rows, len]).to_device(&device).unwrap();
        let fresh = |elem, shape: &[usize]| Tensor::zeros(elem, shape, &device).unwrap();
        let outputs = [fresh(Elem::F32, &[rows, len]), fresh(Elem::F32, &[rows]), fresh(Elem::I32, &[rows])];
        let outputs: Vec<&Tensor> = outputs.iter().collect();
        let inputs = [Some(&a), Some(&x), None, None];
        AFFINE.call_into(&inputs, &outputs).unwrap();
        let expected = floats(outputs[0]);
        cuda.stream().begin_capture(Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        AFFINE.call_into(&inputs, &outputs).unwrap();
        let graph = cuda.stream().end_capture(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH).unwrap().unwrap();
        for _ in 0..5 {
            let cleared = Tensor::zeros(Elem::F32, &[rows, len], &device).unwrap();
            AFFINE.call_into(&[Some(&cleared), Some(&cleared), None, None], &outputs).unwrap();
            assert!(floats(outputs[0]).iter().all(|&h| h == 0.0));
            graph.launch().unwrap();
            assert_eq!(floats(outputs[0]), expected);
        }
    }

    /// A kernel by look-back under a name that no cache has, and its tensors.
    fn new_affine(name: &str, device: &Device) -> (Kernel, [Tensor; 2]) {
        let mut program = AFFINE.program().unwrap().clone();
        program.name = format!("{name}_{}", std::process::id());
        let kernel = Kernel::new(program.name.clone().leak(), program.to_string().leak());
        let (rows, len) = (2, 100_003);
        let a = Tensor::full(0.5_f32, &[rows, len], device).unwrap();
        (kernel, [a, ramp(&[rows, len]).to_device(device).unwrap()])
    }

    #[test]
    fn calls_give_the_same_bits_before_and_after_their_kernel_is_there() {
        let Some(device) = gpu() else { return };
        let (kernel, [a, x]) = new_affine("awaited", &device);
        let call = || {
            let (outputs, _) = kernel.call(&[Some(&a), Some(&x), None, None]).unwrap();
            (floats(&outputs[0]), floats(&outputs[1]))
        };
        let first = call();
        let start = std::time::Instant::now();
        while start.elapsed() < std::time::Duration::from_secs(2) {
            assert!(call() == first, "other bits after {:?}", start.elapsed());
        }
    }

    #[test]
    fn a_graph_gets_the_kernel_itself() {
        let Some(device) = gpu() else { return };
        let Device::Cuda(cuda) = &device else { unreachable!() };
        let (kernel, [a, x]) = new_affine("captured", &device);
        let inputs = [Some(&a), Some(&x), None, None];
        let (outputs, _) = kernel.call(&inputs).unwrap();
        let expected = floats(&outputs[0]);
        let fresh = |t: &Tensor| Tensor::zeros(t.elem(), t.shape(), &device).unwrap();
        let into: Vec<Tensor> = outputs.iter().map(fresh).collect();
        let into: Vec<&Tensor> = into.iter().collect();
        cuda.stream().begin_capture(Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        kernel.call_into(&inputs, &into).unwrap();
        let graph = cuda.stream().end_capture(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH).unwrap().unwrap();
        graph.launch().unwrap();
        assert!(floats(into[0]) == expected);
    }

    #[test]
    fn one_stream_serves_several_threads() {
        let Some(device) = gpu() else { return };
        std::thread::scope(|scope| {
            for k in 1..5 {
                let device = &device;
                scope.spawn(move || (0..10).for_each(|round| run_affine(device, k, 30_000 + 10_000 * round)));
            }
        });
    }
}
