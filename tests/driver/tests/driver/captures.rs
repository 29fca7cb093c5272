//! Graphs: what is captured, and what happens meanwhile.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags as Flags, CUstreamCaptureMode as Mode};
use cudarc::driver::{CudaGraph, CudaStream, DriverError, result};
use oplus::{Elem, Error, Tensor, kernels};

use crate::harness::{REPORTED, folder_of_driver, process, said};
use crate::scenario::{Done, beside, is_ramp, new_stream, ramp};

/// A row that is scanned by look-back.
const LONG: [usize; 2] = [1, 1 << 16];

/// A graph, whose end is not under test.
pub(crate) struct Graph(Option<CudaGraph>);

impl std::ops::Deref for Graph {
    type Target = CudaGraph;

    fn deref(&self) -> &CudaGraph {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        beside(|| drop(self.0.take()));
    }
}

/// A graph of the work that `work` queues on a stream, and its result. The capture ends however it goes.
pub(crate) fn captured<T>(stream: &Arc<CudaStream>, work: impl FnOnce() -> T) -> Result<(Graph, T), DriverError> {
    stream.begin_capture(Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let value = work();
    let flags = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = beside(|| {
        // `cudarc` reports here an error that it could not report where it happened.
        let _ = stream.context().check_err();
        stream.end_capture(flags)
    })?;
    assert!(graph.is_some(), "a capture has a graph");
    Ok((Graph(graph), value))
}

pub(crate) fn of_calls() -> Done {
    let (stream, device) = new_stream()?;
    let affine = kernels::affine::kernel();
    let (a, b) = (ramp(&LONG).to_device(&device)?, ramp(&LONG).to_device(&device)?);
    let outputs = [Tensor::zeros(Elem::F32, &LONG, &device)?, Tensor::zeros(Elem::F32, &[1], &device)?];
    let call = || affine.call_into(&[Some(&a), Some(&b), None], &[&outputs[0], &outputs[1]]).map(drop);
    call()?;
    let (graph, result) = captured(&stream, || call().and_then(|()| call()))?;
    result?;
    for _ in 0..3 {
        graph.launch()?;
        call()?;
    }
    drop(graph);
    Ok(device.synchronize()?)
}

/// Tensors that calls make in a capture belong to the graph.
pub(crate) fn that_allocate() -> Done {
    let (stream, device) = new_stream()?;
    let affine = kernels::affine::kernel();
    let (a, b) = (ramp(&LONG).to_device(&device)?, ramp(&LONG).to_device(&device)?);
    let call = || {
        let (outputs, call) = affine.call(&[Some(&a), Some(&b), None])?;
        affine.backward(&call, &[Some(&outputs[0]), None]).map(drop)
    };
    call()?;
    let (graph, result) = captured(&stream, call)?;
    result?;
    graph.launch()?;
    graph.launch()?;
    let (graph, kept) = captured(&stream, || affine.call(&[Some(&a), Some(&b), None]))?;
    graph.launch()?;
    drop(kept?);
    Ok(device.synchronize()?)
}

/// Tensors are dropped while their stream or another one is captured.
pub(crate) fn while_tensors_go() -> Done {
    let ((stream, device), (_, other)) = (new_stream()?, new_stream()?);
    let (x, y) = (ramp(&[2, 64]).to_device(&device)?, Tensor::zeros(Elem::F32, &[2, 64], &device)?);
    let cumsum = kernels::cumsum::kernel();
    cumsum.call_into(&[Some(&x)], &[&y])?;
    let (mine, others) = (ramp(&[64]).to_device(&device)?, ramp(&[64]).to_device(&other)?);
    let (graph, result) = captured(&stream, || {
        drop((mine, others));
        drop(Tensor::zeros(Elem::F32, &[8], &other)?);
        cumsum.call_into(&[Some(&x)], &[&y]).map(drop)
    })?;
    result?;
    graph.launch()?;
    Ok(device.synchronize()?)
}

/// Shared tensors are dropped while a stream that has them is captured: their own, or a guest.
pub(crate) fn while_shared_tensors_go() -> Done {
    let ((first_stream, first), (second_stream, second)) = (new_stream()?, new_stream()?);
    let cumsum = kernels::cumsum::kernel();
    for stream in [&first_stream, &second_stream] {
        let x = ramp(&[2, 64]).to_device(&first)?;
        let (there, y) = (x.to_device(&second)?, Tensor::zeros(Elem::F32, &[2, 64], &second)?);
        cumsum.call_into(&[Some(&there)], &[&y])?;
        let handles = (x, there);
        let (graph, result) = captured(stream, || {
            drop(handles);
            drop(Tensor::zeros(Elem::F32, &[8], &first)?);
            drop(Tensor::zeros(Elem::F32, &[8], &second)?);
            Ok::<_, Error>(())
        })?;
        result?;
        graph.launch()?;
    }
    Ok(())
}

/// A slice of cudarc's, which waits for its events when it is dropped.
pub(crate) fn while_slices_go() -> Done {
    let (stream, device) = new_stream()?;
    let slice = beside(|| stream.clone_htod(&[0.0_f32, 1.0, 2.0, 3.0]))?;
    let x = Tensor::from_cuda_slice(slice, &[4])?;
    assert!(is_ramp(&x)?);
    let (graph, ()) = captured(&stream, || drop(x))?;
    graph.launch()?;
    Ok(device.synchronize()?)
}

/// A copy from the host in a capture is refused, and the capture goes on.
pub(crate) fn refuse_uploads() -> Done {
    let (stream, device) = new_stream()?;
    let (x, y) = (ramp(&[2, 64]).to_device(&device)?, Tensor::zeros(Elem::F32, &[2, 64], &device)?);
    let cumsum = kernels::cumsum::kernel();
    cumsum.call_into(&[Some(&x)], &[&y])?;
    let (graph, result) = captured(&stream, || {
        let refused = [ramp(&[8]).to_device(&device).map(drop), x.to_vec::<f32>().map(drop), device.synchronize()];
        for error in refused.map(Result::unwrap_err) {
            let worded = error.to_string().contains("capture");
            assert!(worded || matches!(&error, Error::Driver { .. } | Error::OutOfMemory { .. }), "{error}");
        }
        cumsum.call_into(&[Some(&x)], &[&y]).map(drop)
    })?;
    result?;
    graph.launch()?;
    assert!(is_ramp(&x)?);
    Ok(())
}

/// A tensor does not move between a stream that is captured and one that is not, and the capture goes on.
pub(crate) fn refuse_other_streams() -> Done {
    let ((stream, first), (_, second)) = (new_stream()?, new_stream()?);
    let (x, y) = (ramp(&[2, 64]).to_device(&first)?, ramp(&[2, 64]).to_device(&second)?);
    let there = x.to_device(&second)?;
    let cumsum = kernels::cumsum::kernel();
    let z = Tensor::zeros(Elem::F32, &[2, 64], &first)?;
    let shared = z.to_device(&second)?;
    let (graph, result) = captured(&stream, || {
        for error in [x.to_device(&second), y.to_device(&first)].map(Result::unwrap_err) {
            let worded = error.to_string().contains("capture");
            assert!(worded || matches!(&error, Error::Driver { .. }), "{error}");
        }
        cumsum.call_into(&[Some(&x)], &[&z])?;
        drop(cumsum.call(&[Some(&there)])?);
        Ok::<_, Error>(())
    })?;
    result?;
    shared.to_device(&first)?;
    graph.launch()?;
    drop(cumsum.call(&[Some(&shared.to_device(&first)?.to_device(&second)?)])?);
    Ok(())
}

/// Two streams in one capture, which share tensors.
pub(crate) fn across_streams() -> Done {
    let ((stream, first), (other, second)) = (new_stream()?, new_stream()?);
    let cumsum = kernels::cumsum::kernel();
    let x = ramp(&[2, 64]).to_device(&first)?;
    let y = Tensor::zeros(Elem::F32, &[2, 64], &first)?;
    let (there, z) = (y.to_device(&second)?, Tensor::zeros(Elem::F32, &[2, 64], &second)?);
    cumsum.call_into(&[Some(&x)], &[&y])?;
    // The graph runs on one stream.
    second.synchronize()?;
    let (graph, result) = captured(&stream, || {
        other.join(&stream)?;
        let work = || {
            cumsum.call_into(&[Some(&x)], &[&y])?;
            cumsum.call_into(&[Some(&there)], &[&z])?;
            cumsum.call_into(&[Some(&x)], &[&y]).map(drop)
        };
        let done: Result<(), Error> = work();
        beside(|| stream.context().check_err().and(stream.join(&other)).or_else(|_| stream.join(&other)))?;
        Ok::<_, DriverError>(done)
    })?;
    result??;
    graph.launch()?;
    first.synchronize().or_else(|_| first.synchronize())?;
    Ok(())
}

/// Two executables of one captured graph, of which the second is launched `after` the first.
fn two_executables(after: bool) -> Done {
    let ((stream, device), (other, _)) = (new_stream()?, new_stream()?);
    let affine = kernels::affine::kernel();
    let (a, b) = (ramp(&LONG).to_device(&device)?, ramp(&LONG).to_device(&device)?);
    let outputs = [Tensor::zeros(Elem::F32, &LONG, &device)?, Tensor::zeros(Elem::F32, &[1], &device)?];
    let call = || affine.call_into(&[Some(&a), Some(&b), None], &[&outputs[0], &outputs[1]]).map(drop);
    let (graph, result) = captured(&stream, call)?;
    result?;
    // SAFETY: the graph is alive, and the executable is destroyed once.
    unsafe {
        let second = beside(|| result::graph::instantiate(graph.cu_graph(), Flags(0)))?;
        let launch = || {
            other.join(&stream)?;
            graph.launch()?;
            if after {
                other.join(&stream)?;
            }
            result::graph::launch(second, other.cu_stream())
        };
        let launched = launch();
        let ended = other.synchronize().or_else(|_| other.synchronize());
        beside(|| result::graph::exec_destroy(second))?;
        launched.and(ended)?;
    }
    Ok(device.synchronize()?)
}

pub(crate) fn launched_twice() -> Done {
    two_executables(true)
}

pub(crate) fn launched_at_once() -> Done {
    two_executables(false)
}

/// A rule of `Kernel::call_into`: executables of one graph use the same memory, so that they must not run at once.
#[test]
fn executables_of_one_graph_that_run_at_once_are_a_race() {
    let output = process("captures::launched_at_once", folder_of_driver(), &[]);
    assert_eq!(output.status.code(), Some(REPORTED), "{}", said(&output));
    assert!(said(&output).contains("without waiting for a write of it"), "{}", said(&output));
}
