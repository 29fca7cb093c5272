//! More than 2³¹ elements.
//!
//! Inputs repeat a block of small whole numbers whose sum is 0, or whose first decay is 0, so that the outputs repeat,
//! too, and nothing is rounded. What a block gives is computed here by the recurrence itself.

use cudarc::driver::{CudaSlice, DeviceRepr, ValidAsZeroBits};
use half::bf16;
use oplus::{Device, Element, Kernel, Tensor, kernels};
use oplus_dsl::rng::Rng;

use super::CheckError;
use super::case::Extent;
use super::oracle::Agreement;
use super::scenario::{Scenario, World};

/// All scenarios of large tensors.
pub fn scenarios(extent: Extent) -> Vec<Scenario> {
    let sum = |name, kernel: &'static Kernel, ranks, lanes| {
        Scenario::new(name, move |world| {
            (0..ranks)
                .try_fold(Agreement::default(), |all, rank| Ok(together(all, cumsum(world, kernel, lanes, rank)?)))
        })
    };
    let ranks = if extent == Extent::Long { 9 } else { 2 };
    match extent {
        Extent::Quick => vec![],
        _ => vec![
            sum("large/cumsum f32", kernels::cumsum::kernel(), ranks, 1),
            sum("large/cumsum_time_first f32", kernels::cumsum_time_first::kernel(), ranks, 32),
            Scenario::new("large/affine f32", move |world| affine::<f32>(world, ranks, |x| x)),
            Scenario::new("large/affine bf16", move |world| affine::<bf16>(world, ranks, bf16::from_f32)),
        ],
    }
}

/// Elements of a block: a prime number of rows.
const ROWS: usize = 1_000_003;

/// The agreement of both results.
pub(super) fn together(a: Agreement, b: Agreement) -> Agreement {
    Agreement { worst: a.worst.max(b.worst), compared: a.compared + b.compared, unbounded: 0 }
}

/// A tensor that repeats a block until it has more than 2³¹ elements.
fn repeated<T>(block: &[T], device: &Device) -> Result<(CudaSlice<T>, usize), CheckError>
where
    T: Element + DeviceRepr + ValidAsZeroBits,
{
    let copies = (1_usize << 31) / block.len() + 1;
    Ok((copied(block, copies, device)?, copies))
}

/// Some copies of a block, one after the other.
pub(super) fn copied<T>(block: &[T], copies: usize, device: &Device) -> Result<CudaSlice<T>, CheckError>
where
    T: Element + DeviceRepr + ValidAsZeroBits,
{
    let Device::Cuda(cuda) = device else { return super::scenario::unexpected("no GPU") };
    let stream = cuda.stream();
    let (small, mut all) = (stream.clone_htod(block)?, stream.alloc_zeros::<T>(block.len() * copies)?);
    for k in 0..copies {
        stream.memcpy_dtod(&small, &mut all.slice_mut(k * block.len()..(k + 1) * block.len()))?;
    }
    Ok(all)
}

/// Compares the tensor's stretches around every multiple of 2²⁸ elements and at its ends with a block that repeats.
pub(super) fn compare<T>(what: &str, tensor: &Tensor, block: &[T]) -> Result<Agreement, CheckError>
where
    T: Element + PartialEq + Into<f64>,
{
    const STRETCH: usize = 1 << 20;
    let flat = tensor.reshape(&[tensor.len()])?;
    let middles = (0..tensor.len()).step_by(1 << 28).chain([tensor.len()]);
    let mut compared = 0;
    for middle in middles {
        let range = middle.saturating_sub(STRETCH)..(middle + STRETCH).min(tensor.len());
        let found = flat.slice(0, range.clone())?.to_vec::<T>()?;
        let wrong = found.iter().zip(range.clone()).find(|(x, at)| **x != block[at % block.len()]);
        if let Some((x, index)) = wrong {
            let (found, wanted) = ((*x).into(), block[index % block.len()].into());
            return Err(CheckError::Wrong { output: what.into(), index, found, wanted, bound: 0.0 });
        }
        compared += found.len();
    }
    Ok(Agreement { compared, ..Agreement::default() })
}

/// Has the device take the schedules of a rank.
pub(super) fn ranked(device: &Device, rank: usize) {
    if let Device::Cuda(device) = device {
        device.set_schedule_rank(rank);
    }
}

/// Cumulative sums of rows [1, T], or of `lanes` columns [T, C].
fn cumsum(world: &World, kernel: &Kernel, lanes: usize, rank: usize) -> Result<Agreement, CheckError> {
    let device = world.device()?;
    let (rows, mut rng) = (ROWS / lanes, Rng::new(1));
    let mut block: Vec<f32> = (0..rows * lanes).map(|_| rng.below(7) as f32 - 3.0).collect();
    let mut expected = block.clone();
    for lane in 0..lanes {
        let sum: f32 = (0..rows - 1).map(|t| block[t * lanes + lane]).sum();
        block[(rows - 1) * lanes + lane] = -sum;
        let mut running = 0.0;
        for t in 0..rows {
            running += block[t * lanes + lane];
            expected[t * lanes + lane] = running;
        }
    }
    let (x, copies) = repeated(&block, &device)?;
    let shape = if lanes == 1 { [1, rows * copies] } else { [rows * copies, lanes] };
    let x = Tensor::from_cuda_slice(x, &shape)?;
    ranked(&device, rank);
    let y = kernel.call(&[Some(&x)])?.0.swap_remove(0);
    compare("y", &y, &expected)
}

/// An affine recurrence over [1, T] and its gradient.
fn affine<T>(world: &World, ranks: usize, stored: fn(f32) -> T) -> Result<Agreement, CheckError>
where
    T: Element + DeviceRepr + ValidAsZeroBits + PartialEq + Into<f64>,
{
    let (device, mut rng) = (world.device()?, Rng::new(2));
    let mut a: Vec<f32> = (0..ROWS).map(|_| [0.0, 1.0, -1.0, 1.0][rng.below(4)]).collect();
    a[0] = 0.0;
    let mut small = || -> Vec<f32> { (0..ROWS).map(|_| rng.below(3) as f32 - 1.0).collect() };
    let (b, h_bar) = (small(), small());
    let (mut h, mut a_bar, mut b_bar) = (vec![0.0; ROWS], vec![0.0; ROWS], vec![0.0; ROWS]);
    for t in 0..ROWS {
        h[t] = b[t] + if t > 0 { a[t] * h[t - 1] } else { 0.0 };
    }
    for t in (0..ROWS).rev() {
        b_bar[t] = h_bar[t] + if t + 1 < ROWS { a[t + 1] * b_bar[t + 1] } else { 0.0 };
        // The block before this one ends as this one does; only the first has nothing before it.
        a_bar[t] = b_bar[t] * if t > 0 { h[t - 1] } else { h[ROWS - 1] };
    }
    let tensor = |values: &[f32]| -> Result<Tensor, CheckError> {
        let block: Vec<T> = values.iter().map(|x| stored(*x)).collect();
        let (slice, copies) = repeated(&block, &device)?;
        Ok(Tensor::from_cuda_slice(slice, &[1, ROWS * copies])?)
    };
    let (kernel, mut all) = (kernels::affine::kernel(), Agreement::default());
    let inputs = [tensor(&a)?, tensor(&b)?, tensor(&h_bar)?];
    let block = |values: &[f32]| values.iter().map(|x| stored(*x)).collect::<Vec<T>>();
    for rank in 0..ranks {
        ranked(&device, rank);
        let (outputs, call) = kernel.call(&[Some(&inputs[0]), Some(&inputs[1]), None])?;
        all = together(all, compare("h", &outputs[0], &block(&h))?);
        let gradients = kernel.backward(&call, &[Some(&inputs[2]), None])?;
        if let [Some(grad_a), Some(grad_b), _] = &gradients[..] {
            all = together(all, compare("b.bar", grad_b, &block(&b_bar))?);
            let later = grad_a.slice(1, ROWS..grad_a.len())?;
            all = together(all, compare("a.bar", &later, &block(&a_bar))?);
        }
    }
    Ok(all)
}
