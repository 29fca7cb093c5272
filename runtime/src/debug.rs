//! How tensors print for people who look for a mistake: their values, like arrays of `ndarray`.

use std::fmt::{self, Debug, Formatter};

use half::{bf16, f16};
use oplus_dsl::Elem;

use crate::Tensor;
use crate::layout::Layout;
use crate::tensor::{Storage, elem_bytes};

/// Tensors of fewer elements are printed whole.
const MANY: usize = 500;
/// The longest axes of larger ones that are printed whole: each of the last two axes, and the others. Of longer axes half
/// as many indices are printed at either end.
const LIMITS: (usize, usize) = (11, 6);
/// Tensors of which more elements than this would still be printed, since they have many axes, are printed without values.
const MOST: usize = 10_000;

/// Prints the values, those at the edges only where there are 500 or more, and then element type, shape, strides unless
/// they are contiguous, and device: `[[1.0, 2.0],⏎ [3.0, 4.0]], f32[2, 2] on cpu`. Of a tensor on a GPU this copies what it
/// prints and waits for the work queued on the tensor's stream; while that is captured into a graph, there are no values.
impl Debug for Tensor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let printed = Printed::of(&self.layout);
        if let Some(bytes) = printed.positions().and_then(|positions| self.at(&positions)) {
            let mut elements = bytes.chunks_exact(elem_bytes(self.elem));
            printed.walk(&mut |piece| match piece {
                Piece::Text(text) => f.write_str(text),
                Piece::Element(_) => elements.next().map_or(Ok(()), |bytes| element(self.elem, bytes, f)),
            })?;
            f.write_str(", ")?;
        }
        write!(f, "{}{:?}", self.elem, self.shape())?;
        if !self.is_contiguous() {
            write!(f, " with strides {:?}", self.strides())?;
        }
        write!(f, " on {}", self.device())
    }
}

impl Tensor {
    /// The bytes of the elements at these positions of the memory, if they can be had.
    fn at(&self, positions: &[usize]) -> Option<Vec<u8>> {
        let size = elem_bytes(self.elem);
        match &self.storage {
            Storage::Host(memory) => {
                let memory = memory.read();
                let bytes = memory.bytes();
                Some(positions.iter().flat_map(|at| &bytes[at * size..][..size]).copied().collect())
            }
            Storage::Cuda(memory, device) => memory.peek(device, positions, size),
        }
    }
}

/// A value of the type that the bytes encode.
fn element(elem: Elem, bytes: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    fn read<T: bytemuck::AnyBitPattern + Debug>(bytes: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
        Debug::fmt(&bytemuck::pod_read_unaligned::<T>(bytes), f)
    }
    match elem {
        Elem::F64 => read::<f64>(bytes, f),
        Elem::F32 | Elem::Call | Elem::State | Elem::Wide => read::<f32>(bytes, f),
        Elem::Bf16 => read::<bf16>(bytes, f),
        Elem::F16 => read::<f16>(bytes, f),
        Elem::I32 => read::<i32>(bytes, f),
        Elem::U32 => read::<u32>(bytes, f),
        Elem::I64 => read::<i64>(bytes, f),
        Elem::U64 => read::<u64>(bytes, f),
        Elem::Bool => Debug::fmt(&(bytes[0] != 0), f),
    }
}

/// A piece of a printed tensor.
enum Piece<'a> {
    Text(&'a str),
    /// The element at this position of the memory.
    Element(usize),
}

/// Which indices of a tensor are printed.
struct Printed<'a> {
    layout: &'a Layout,
    /// The indices along every axis, with `None` for those left out between them.
    indices: Vec<Vec<Option<usize>>>,
}

impl Printed<'_> {
    fn of(layout: &Layout) -> Printed<'_> {
        let rank = layout.shape.len();
        let indices = |(axis, &size): (usize, &usize)| {
            let limit = if axis + 2 >= rank { LIMITS.0 } else { LIMITS.1 };
            if layout.len() < MANY || size <= limit {
                return (0..size).map(Some).collect();
            }
            let edge = limit / 2;
            (0..edge).map(Some).chain([None]).chain((size - edge..size).map(Some)).collect()
        };
        let is_empty = layout.shape.contains(&0);
        let indices = if is_empty { vec![] } else { layout.shape.iter().enumerate().map(indices).collect() };
        Printed { layout, indices }
    }

    /// Where the elements that are printed lie in the memory; `None` if they are too many.
    fn positions(&self) -> Option<Vec<usize>> {
        let mut counts = self.indices.iter().map(|indices| indices.iter().flatten().count());
        counts.try_fold(1_usize, |all, n| all.checked_mul(n).filter(|all| *all <= MOST))?;
        let mut positions = vec![];
        let noted = self.walk(&mut |piece| {
            if let Piece::Element(at) = piece {
                positions.push(at);
            }
            Ok(())
        });
        noted.ok().map(|()| positions)
    }

    /// Gives `f` the pieces of the text in their order.
    fn walk(&self, f: &mut dyn FnMut(Piece<'_>) -> fmt::Result) -> fmt::Result {
        let rank = self.layout.shape.len();
        let brackets = |n: usize, f: &mut dyn FnMut(Piece<'_>) -> fmt::Result| f(Piece::Text(&"[".repeat(n)));
        if self.indices.len() < rank {
            brackets(rank, f)?;
            return f(Piece::Text(&"]".repeat(rank)));
        }
        let mut place = vec![0; rank];
        brackets(rank, f)?;
        loop {
            let left_out = (0..rank).find(|&axis| self.indices[axis][place[axis]].is_none());
            match left_out {
                Some(_) => f(Piece::Text("..."))?,
                None => f(Piece::Element(self.position(&place)))?,
            }
            // Like an odometer: the innermost axis that can moves on, those inside it begin again.
            let mut axis = left_out.map_or(rank, |axis| axis + 1);
            loop {
                let Some(k) = axis.checked_sub(1) else { return Ok(()) };
                axis = k;
                place[k] += 1;
                if place[k] < self.indices[k].len() {
                    break;
                }
                place[k] = 0;
                f(Piece::Text("]"))?;
            }
            f(Piece::Text(&separator(axis, rank)))?;
            if self.indices[axis][place[axis]].is_some() {
                brackets(rank - axis - 1, f)?;
            }
        }
    }

    fn position(&self, place: &[usize]) -> usize {
        let Layout { strides, offset, .. } = self.layout;
        let index = |(axis, &place): (usize, &usize)| self.indices[axis][place].unwrap_or(0) as i64;
        let moved: i64 = place.iter().enumerate().zip(strides).map(|(k, stride)| index(k) * stride).sum();
        (*offset as i64 + moved) as usize
    }
}

/// The text between two indices of an axis.
fn separator(axis: usize, rank: usize) -> String {
    match rank - axis {
        1 => ", ".to_owned(),
        inner => format!(",{}{}", "\n".repeat(inner - 1), " ".repeat(axis + 1)),
    }
}
