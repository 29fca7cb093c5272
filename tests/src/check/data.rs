//! Arrays of the interpreter as tensors of any layout on a device, and back.

use half::{bf16, f16};
use oplus::{Device, Elem, Element, Error, Tensor};
use oplus_codegen::plan;
use oplus_dsl::Ty;
use oplus_dsl::interpret::{Array, Data};

/// How the tensors of a call lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One element after the other, from an aligned address.
    Contiguous,
    /// From an address that is a multiple of one element only.
    Misaligned,
    /// Rows longer than they need be, by a multiple of 16 bytes.
    Padded,
    /// The first axis fastest, every second element, backwards.
    Strided,
}

/// Elements around a tensor that nothing may touch; keeps 16-byte alignment for every type.
const GUARD: usize = 64;
/// The number in gaps between elements and in the memory around them.
const GAP: f64 = -77.0;

/// A tensor and the memory around it.
pub struct Placed {
    /// The tensor.
    pub tensor: Tensor,
    base: Tensor,
    positions: Vec<usize>,
}

/// The elements of a tensor after a call.
pub struct Found {
    /// The elements.
    pub array: Array,
    /// The first element beside the tensor that has changed.
    pub trespass: Option<usize>,
}

impl Placed {
    /// An array on a device. Gaps between its elements hold a number that it does not.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn input(array: &Array, elem: Elem, placement: Placement, device: &Device) -> Result<Placed, Error> {
        Placed::new(&array.sizes, elem, placement, device, |positions, len| {
            let mut data = gaps(elem, len);
            positions.iter().enumerate().for_each(|(i, at)| data.set(*at, array.data.get(i)));
            data
        })
    }

    /// Room for an output.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn output(sizes: &[usize], elem: Elem, placement: Placement, device: &Device) -> Result<Placed, Error> {
        Placed::new(sizes, elem, placement, device, |_, len| gaps(elem, len))
    }

    fn new(
        sizes: &[usize],
        elem: Elem,
        placement: Placement,
        device: &Device,
        fill: impl FnOnce(&[usize], usize) -> Data,
    ) -> Result<Placed, Error> {
        let (strides, first, len) = layout(sizes, placement);
        let positions = positions(sizes, &strides, first);
        let base = host(elem, &fill(&positions, len))?.to_device(device)?;
        let tensor = base.as_strided(sizes, &strides, first)?;
        Ok(Placed { tensor, base, positions })
    }

    /// The elements, and whether anything beside them has changed.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn read(&self) -> Result<Found, Error> {
        let data = download(&self.base)?;
        let mut own = vec![false; data.len()];
        self.positions.iter().for_each(|at| own[*at] = true);
        let gap = gaps(self.base.elem(), 1).get(0);
        let trespass = (0..data.len()).find(|i| !own[*i] && data.get(*i) != gap);
        let sizes = self.tensor.shape().to_vec();
        let picked = match data {
            Data::Float(xs) => Data::Float(self.positions.iter().map(|at| xs[*at]).collect()),
            Data::Int(xs) => Data::Int(self.positions.iter().map(|at| xs[*at]).collect()),
            Data::Bool(xs) => Data::Bool(self.positions.iter().map(|at| xs[*at]).collect()),
        };
        Ok(Found { array: Array { sizes, data: picked }, trespass })
    }
}

/// How the planner sees a tensor that is placed so.
pub fn planned(sizes: &[usize], elem: Elem, placement: Placement) -> plan::Layout {
    let (strides, first, _) = layout(sizes, placement);
    let address = first * elem.bytes().unwrap_or(1);
    plan::Layout { strides, align: 1 << address.trailing_zeros().min(4) }
}

/// Strides, the place of index 0, and the elements of the whole memory.
fn layout(sizes: &[usize], placement: Placement) -> (Vec<i64>, usize, usize) {
    let strided = placement == Placement::Strided;
    let mut strides = vec![1_i64; sizes.len()];
    let mut step = if strided { 2 } else { 1 };
    let order: Vec<usize> = if strided { (0..sizes.len()).collect() } else { (0..sizes.len()).rev().collect() };
    for (i, k) in order.into_iter().enumerate() {
        strides[k] = step;
        let size = sizes[k].max(1) as i64;
        let padded = (size + 31) / 16 * 16;
        step *= if i == 0 && placement == Placement::Padded { padded } else { size };
    }
    let mut first = GUARD + usize::from(placement == Placement::Misaligned);
    if let (true, Some(size), Some(stride)) = (strided, sizes.last(), strides.last_mut()) {
        first += size.saturating_sub(1) * *stride as usize;
        *stride = -*stride;
    }
    (strides, first, GUARD + step as usize + GUARD + 1)
}

/// The elements' places, in the order of the array.
fn positions(sizes: &[usize], strides: &[i64], first: usize) -> Vec<usize> {
    let along = |places: Vec<i64>, (size, stride): (&usize, &i64)| -> Vec<i64> {
        places.into_iter().flat_map(|p| (0..*size as i64).map(move |i| p + i * stride)).collect()
    };
    sizes.iter().zip(strides).fold(vec![first as i64], along).into_iter().map(|p| p as usize).collect()
}

fn gaps(elem: Elem, len: usize) -> Data {
    match elem.value() {
        Ty::Bool => Data::Bool(vec![true; len]),
        ty if ty.is_int() => Data::Int(vec![77; len]),
        _ => Data::Float(vec![GAP; len]),
    }
}

/// A tensor on the CPU with these elements.
pub(crate) fn host(elem: Elem, data: &Data) -> Result<Tensor, Error> {
    fn vector<T: Element>(data: &Data, float: impl Fn(f64) -> T, int: impl Fn(i64) -> T) -> Result<Tensor, Error> {
        let all: Vec<T> = match data {
            Data::Float(xs) => xs.iter().map(|x| float(*x)).collect(),
            Data::Int(xs) => xs.iter().map(|x| int(*x)).collect(),
            Data::Bool(xs) => xs.iter().map(|x| int(i64::from(*x))).collect(),
        };
        let len = all.len();
        Tensor::from_vec(all, &[len])
    }
    match elem {
        Elem::F64 => vector(data, |x| x, |i| i as f64),
        Elem::Bf16 => vector(data, bf16::from_f64, |i| bf16::from_f64(i as f64)),
        Elem::F16 => vector(data, f16::from_f64, |i| f16::from_f64(i as f64)),
        Elem::I32 => vector(data, |x| x as i32, |i| i as i32),
        Elem::I64 => vector(data, |x| x as i64, |i| i),
        Elem::U32 => vector(data, |x| x as u32, |i| i as u32),
        Elem::U64 => vector(data, |x| x as u64, |i| i as u64),
        Elem::Bool => vector(data, |x| x != 0.0, |i| i != 0),
        Elem::F32 | Elem::Call | Elem::State | Elem::Wide => vector(data, |x| x as f32, |i| i as f32),
    }
}

/// The elements of a tensor.
pub(crate) fn download(tensor: &Tensor) -> Result<Data, Error> {
    fn vector<T: Element, R>(tensor: &Tensor, f: impl Fn(T) -> R) -> Result<Vec<R>, Error> {
        Ok(tensor.to_vec::<T>()?.into_iter().map(f).collect())
    }
    Ok(match tensor.elem() {
        Elem::F64 => Data::Float(tensor.to_vec()?),
        Elem::Bf16 => Data::Float(vector(tensor, bf16::to_f64)?),
        Elem::F16 => Data::Float(vector(tensor, f16::to_f64)?),
        Elem::I32 => Data::Int(vector(tensor, |x: i32| i64::from(x))?),
        Elem::I64 => Data::Int(tensor.to_vec()?),
        Elem::U32 => Data::Int(vector(tensor, |x: u32| i64::from(x))?),
        Elem::U64 => Data::Int(vector(tensor, |x: u64| x as i64)?),
        Elem::Bool => Data::Bool(tensor.to_vec()?),
        Elem::F32 | Elem::Call | Elem::State | Elem::Wide => Data::Float(vector(tensor, |x: f32| f64::from(x))?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placement_keeps_the_elements_and_sees_a_trespass() {
        for placement in [Placement::Contiguous, Placement::Misaligned, Placement::Padded, Placement::Strided] {
            for elem in Elem::ALL {
                let sizes = [2, 3, 5];
                let array = match elem.value() {
                    Ty::Bool => Array::bools(&sizes, (0..30).map(|i| i % 3 == 0).collect::<Vec<_>>()),
                    ty if ty.is_int() => Array::ints(&sizes, (0..30).collect::<Vec<_>>()),
                    _ => Array::floats(&sizes, (0..30).map(f64::from).collect::<Vec<_>>()),
                };
                let placed = Placed::input(&array, elem, placement, &Device::Cpu).unwrap();
                let found = placed.read().unwrap();
                assert_eq!((found.array, found.trespass), (array, None), "{placement:?} {elem}");
                let tensor: Vec<usize> = placed.positions.clone();
                let shorter = Placed { positions: tensor[1..].to_vec(), ..placed };
                let changed = shorter.read().unwrap().trespass;
                assert_eq!(changed.is_some(), elem != Elem::Bool, "{placement:?} {elem}");
            }
        }
    }
}
