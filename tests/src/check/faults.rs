//! Faults around a call: memory, sources of kernels, handles, threads, graphs.

use cudarc::driver::sys::{CUgraphInstantiate_flags as Flags, CUstreamCaptureMode as Mode};
use oplus::source::{Code, Isa, KernelSource, Launch, register};
use oplus::{Device, Elem, Error, Kernel, Tensor, kernels};
use oplus_dsl::rng::Rng;

use super::CheckError;
use super::oracle::Agreement;
use super::scenario::{Scenario, World, bits, equal, unexpected};

/// All scenarios of faults.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = vec![
        Scenario::new("faults/out of memory", out_of_memory),
        Scenario::new("faults/refused PTX", refused_ptx),
        Scenario::new("faults/handles dropped in flight", dropped_in_flight),
        Scenario::new("faults/threads on streams of their own", |world| threads(world, true)),
        Scenario::new("faults/threads on one stream", |world| threads(world, false)),
        Scenario::new("faults/graph", graph),
        super::poison::scenario(),
    ];
    if !cfg!(feature = "jit") {
        all.push(Scenario::new("faults/missing kernel", missing_kernel));
    }
    all
}

fn compared(compared: usize) -> Result<Agreement, CheckError> {
    Ok(Agreement { compared, ..Agreement::default() })
}

/// Decays and elements of rows.
pub(super) fn affine_inputs(shape: &[usize], device: &Device, seed: u64) -> Result<[Tensor; 2], CheckError> {
    let mut rng = Rng::new(seed);
    let n: usize = shape.iter().product();
    let mut tensor = |low, high| -> Result<Tensor, CheckError> {
        let values: Vec<f32> = (0..n).map(|_| rng.between(low, high) as f32).collect();
        Ok(Tensor::from_vec(values, shape)?.to_device(device)?)
    };
    Ok([tensor(0.9, 0.999)?, tensor(-1.0, 1.0)?])
}

/// Their recurrence.
pub(super) fn affine([a, b]: &[Tensor; 2]) -> Result<Tensor, CheckError> {
    Ok(kernels::affine::kernel().call(&[Some(a), Some(b), None])?.0.swap_remove(0))
}

/// A tensor that does not fit is an error; nothing of the device is lost by it, and it goes on working.
fn out_of_memory(world: &World) -> Result<Agreement, CheckError> {
    let device = world.device()?;
    let inputs = affine_inputs(&[2, 10_007], &device, 1)?;
    let first = bits(&affine(&inputs)?)?;
    let free = || -> Result<usize, CheckError> {
        device.synchronize()?;
        Ok(world.context.mem_get_info()?.0)
    };
    let before = free()?;
    for _ in 0..5 {
        match Tensor::zeros(Elem::F64, &[1 << 45], &device) {
            Err(Error::OutOfMemory { .. }) => {}
            other => return unexpected(format!("2^48 bytes give {other:?}")),
        }
    }
    // Together larger than what is free and what the pool has kept; each fails only when the device is asked.
    let (most, _) = world.context.mem_get_info()?;
    let half = Tensor::zeros(Elem::Bool, &[most / 2 + most / 8], &device)?;
    match Tensor::zeros(Elem::Bool, &[most / 2 + most / 8], &device) {
        Err(Error::OutOfMemory { .. }) => drop(half),
        other => return unexpected(format!("more memory than there is gives {other:?}")),
    }
    let again = Tensor::zeros(Elem::Bool, &[most / 2 + most / 8], &device)?;
    drop(again);
    match Tensor::zeros(Elem::F64, &[1 << 45], &device) {
        Err(Error::OutOfMemory { .. }) => {}
        other => return unexpected(format!("2^48 bytes give {other:?}")),
    }
    let after = free()?;
    if after + (64 << 20) < before {
        return unexpected(format!("{} bytes are lost", before - after));
    }
    equal(1, "h", &first, &bits(&affine(&inputs)?)?)?;
    compared(first.len())
}

/// A text that is not PTX is refused with the driver's words; the context goes on working.
fn refused_ptx(world: &World) -> Result<Agreement, CheckError> {
    static REFUSED: Kernel = Kernel::new(
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
    // SAFETY: no device runs what is not PTX.
    #[allow(unsafe_code)]
    unsafe {
        register(Garbage);
    }
    let device = world.device()?;
    let x = Tensor::from_vec(vec![1.0_f32; 100], &[100])?.to_device(&device)?;
    match REFUSED.call(&[Some(&x)]) {
        Err(Error::PtxRejected { log, .. }) if !log.is_empty() => {}
        other => return unexpected(format!("a text that is not PTX gives {other:?}")),
    }
    let inputs = affine_inputs(&[2, 1000], &device, 1)?;
    compared(affine(&inputs)?.to_vec::<f32>()?.len())
}

/// A kernel that no source has is an error that names the command to make it.
fn missing_kernel(world: &World) -> Result<Agreement, CheckError> {
    static NOWHERE: Kernel = Kernel::new(
        "nowhere",
        "program nowhere { axes N; param x: f32[N]; %0: f32[N] = param x; %1: f32[N] = cos(%0); output y: f32[N] = %1; }",
    );
    let x = Tensor::from_vec(vec![1.0_f32; 100], &[100])?.to_device(&world.device()?)?;
    match NOWHERE.call(&[Some(&x)]) {
        Err(Error::NoKernel { command, .. }) if command == "oplus bake --kernel nowhere" => compared(0),
        other => unexpected(format!("a kernel that no source has gives {other:?}")),
    }
}

/// Inputs and calls that are dropped while their kernels run are not overwritten by what is allocated next.
fn dropped_in_flight(world: &World) -> Result<Agreement, CheckError> {
    let (device, shape) = (world.device()?, [4, (1 << 20) + 3]);
    let first = bits(&affine(&affine_inputs(&shape, &device, 3)?)?)?;
    for run in 0..20 {
        let inputs = affine_inputs(&shape, &device, 3)?;
        let (outputs, call) = kernels::affine::kernel().call(&[Some(&inputs[0]), Some(&inputs[1]), None])?;
        drop((inputs, call));
        let litter = (0..4).map(|_| Tensor::zeros(Elem::F32, &shape, &device)).collect::<Result<Vec<_>, _>>()?;
        equal(run, "h", &first, &bits(&outputs[0])?)?;
        drop(litter);
    }
    compared(20 * first.len())
}

/// Several threads at once, on streams of their own or on one that they share, get the bits of a single one.
fn threads(world: &World, own: bool) -> Result<Agreement, CheckError> {
    let (shared, shapes) = (world.device()?, [[1, 200_003], [7, 4096], [64, 1025], [3, 33]]);
    let reference = |shape: &[usize; 2]| bits(&affine(&affine_inputs(shape, &shared, 8)?)?);
    let firsts = shapes.iter().map(reference).collect::<Result<Vec<_>, CheckError>>()?;
    let work = |k: usize| -> Result<usize, CheckError> {
        let device = if own { world.device()? } else { shared.clone() };
        let mut count = 0;
        for run in 0..40 {
            let at = (k + run) % shapes.len();
            let found = bits(&affine(&affine_inputs(&shapes[at], &device, 8)?)?)?;
            equal(run, "h", &firsts[at], &found)?;
            count += found.len();
        }
        Ok(count)
    };
    let results: Vec<Result<usize, CheckError>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..8).map(|k| scope.spawn(move || work(k))).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, _>| {
            handle.join().unwrap_or_else(|_| unexpected("a thread has panicked"))
        };
        handles.into_iter().map(join).collect()
    });
    compared(results.into_iter().sum::<Result<usize, _>>()?)
}

/// A call and its gradient are captured into a graph; every replay gives their bits, whatever ran in between.
fn graph(world: &World) -> Result<Agreement, CheckError> {
    let (device, shape) = (world.device()?, [2, 100_003]);
    let Device::Cuda(cuda) = &device else { return unexpected("no GPU") };
    let (kernel, inputs) = (kernels::affine::kernel(), affine_inputs(&shape, &device, 4)?);
    let zeros = || Tensor::zeros(Elem::F32, &shape, &device);
    let (h, h_last, grad_a, grad_b) = (zeros()?, Tensor::zeros(Elem::F32, &[2], &device)?, zeros()?, zeros()?);
    let run = |inputs: &[Tensor; 2]| -> Result<(), CheckError> {
        let call = kernel.call_into(&[Some(&inputs[0]), Some(&inputs[1]), None], &[&h, &h_last])?;
        Ok(kernel.backward_into(&call, &[Some(&inputs[1]), None], &[Some(&grad_a), Some(&grad_b), None])?)
    };
    let results = || [&h, &h_last, &grad_a, &grad_b].into_iter().map(bits).collect::<Result<Vec<_>, CheckError>>();
    run(&inputs)?;
    let first = results()?;
    cuda.stream().begin_capture(Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    run(&inputs)?;
    let graph = cuda.stream().end_capture(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)?;
    let Some(graph) = graph else { return unexpected("nothing was captured") };
    let other = affine_inputs(&shape, &device, 5)?;
    for replay in 0..20 {
        run(&other)?;
        if results()? == first {
            return unexpected("other inputs give the same outputs");
        }
        graph.launch()?;
        let now = results()?;
        first.iter().zip(&now).try_for_each(|(before, now)| equal(replay, "a replay", before, now))?;
    }
    compared(20 * first.iter().map(Vec::len).sum::<usize>())
}
