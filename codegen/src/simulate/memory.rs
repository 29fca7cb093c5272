//! Global memory: typed buffers that know which of their elements were ever written.

use half::{bf16, f16};
use oplus_dsl::ir::Literal;
use oplus_dsl::{Elem, Ty};

use super::lanes::{Value, literal};

/// A buffer of a [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(pub(super) usize);

/// The global memory of a simulated device. Every buffer starts at a multiple of 256 bytes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub(super) buffers: Vec<Buffer>,
}

/// Elements in global memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    pub(super) elem: Elem,
    pub(super) bytes: Vec<u8>,
    pub(super) written: Vec<bool>,
}

impl Memory {
    /// No buffers.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Adds a buffer.
    pub fn add(&mut self, buffer: Buffer) -> BufferId {
        self.buffers.push(buffer);
        BufferId(self.buffers.len() - 1)
    }

    /// Makes all elements of a buffer such that must be written before they are read.
    pub fn forget(&mut self, id: BufferId) {
        let Buffer { elem, written, .. } = &self.buffers[id.0];
        self.buffers[id.0] = Buffer::unwritten(*elem, written.len());
    }

    /// The buffer of an id of this memory.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0]
    }
}

impl Buffer {
    /// `len` elements that must be written before they are read.
    pub fn unwritten(elem: Elem, len: usize) -> Buffer {
        // A pattern that is a signalling value in no type, but large in all of them.
        Buffer { elem, bytes: vec![0x5a; len * size(elem)], written: vec![false; len] }
    }

    /// The type of its elements.
    pub fn elem(&self) -> Elem {
        self.elem
    }

    /// Elements of these values, rounded to the type.
    pub fn of(elem: Elem, values: impl IntoIterator<Item = Literal>) -> Buffer {
        let values: Vec<_> = values.into_iter().collect();
        let mut buffer = Buffer::unwritten(elem, values.len());
        for (i, value) in values.into_iter().enumerate() {
            buffer.set(i, literal(elem.value(), value));
        }
        buffer
    }

    /// Floating-point elements of these values, rounded to the type.
    pub fn floats(elem: Elem, values: impl IntoIterator<Item = f64>) -> Buffer {
        Buffer::of(elem, values.into_iter().map(Literal::Float))
    }

    /// Message words that nobody has published yet.
    pub fn messages(words: usize) -> Buffer {
        Buffer::of(Elem::U64, vec![Literal::Int(0); words])
    }

    /// The control word as before the first launch.
    pub fn control() -> Buffer {
        Buffer::of(Elem::U64, [Literal::Int(1 << 32)])
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.written.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// The index of the first element that was never written.
    pub fn first_unwritten(&self) -> Option<usize> {
        self.written.iter().position(|written| !written)
    }

    /// The value of an element; `None` where it was never written or outside the buffer.
    pub fn value(&self, index: usize) -> Option<Literal> {
        if !*self.written.get(index)? {
            return None;
        }
        let bits = self.get(index);
        Some(match self.elem.value() {
            Ty::F32 => Literal::Float(f64::from(f32::from_lane(bits))),
            Ty::F64 => Literal::Float(f64::from_lane(bits)),
            Ty::I32 => Literal::Int(i64::from(i32::from_lane(bits))),
            Ty::Bool => Literal::Bool(bits != 0),
            _ => Literal::Int(bits as i64),
        })
    }

    /// All values as floats; NaN where an element was never written.
    pub fn to_floats(&self) -> Vec<f64> {
        (0..self.len()).map(|i| self.value(i).map_or(f64::NAN, Literal::as_f64)).collect()
    }

    /// The memory itself, little-endian; elements never written hold a pattern.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A register's bits for an element.
    pub(super) fn get(&self, index: usize) -> u64 {
        read(self.elem, &self.bytes, index)
    }

    /// Stores a register's bits.
    pub(super) fn set(&mut self, index: usize, bits: u64) {
        write(self.elem, &mut self.bytes, index, bits);
        self.written[index] = true;
    }
}

/// Bytes of an element of a concrete type: `Elem::bytes`, in a form that is inlined into every access.
#[inline]
pub(super) fn size(elem: Elem) -> usize {
    match elem {
        Elem::Bool => 1,
        Elem::Bf16 | Elem::F16 => 2,
        Elem::F32 | Elem::I32 | Elem::U32 => 4,
        Elem::F64 | Elem::I64 | Elem::U64 | Elem::Call | Elem::State | Elem::Wide => 8,
    }
}

/// The register's bits for an element: half precision is widened.
#[inline]
pub(super) fn read(elem: Elem, bytes: &[u8], index: usize) -> u64 {
    let at = index * size(elem);
    match elem {
        Elem::Bool => u64::from(bytes[at]),
        Elem::Bf16 => bf16::from_le_bytes(array(bytes, at)).to_f32().to_lane(),
        Elem::F16 => f16::from_le_bytes(array(bytes, at)).to_f32().to_lane(),
        Elem::F32 | Elem::I32 | Elem::U32 => u64::from(u32::from_le_bytes(array(bytes, at))),
        Elem::F64 | Elem::I64 | Elem::U64 | Elem::Call | Elem::State | Elem::Wide => {
            u64::from_le_bytes(array(bytes, at))
        }
    }
}

/// Stores a register's bits as an element: half precision is rounded to nearest-even.
#[inline]
pub(super) fn write(elem: Elem, bytes: &mut [u8], index: usize, bits: u64) {
    let at = index * size(elem);
    let to = &mut bytes[at..at + size(elem)];
    match elem {
        Elem::Bool => to[0] = (bits & 1) as u8,
        Elem::Bf16 => to.copy_from_slice(&bf16::from_f32(f32::from_lane(bits)).to_le_bytes()),
        Elem::F16 => to.copy_from_slice(&f16::from_f32(f32::from_lane(bits)).to_le_bytes()),
        Elem::F32 | Elem::I32 | Elem::U32 => to.copy_from_slice(&(bits as u32).to_le_bytes()),
        Elem::F64 | Elem::I64 | Elem::U64 | Elem::Call | Elem::State | Elem::Wide => {
            to.copy_from_slice(&bits.to_le_bytes())
        }
    }
}

#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..].first_chunk().copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_round_trip_and_round() {
        for elem in Elem::ALL {
            assert_eq!(elem.bytes(), Some(size(elem)));
            let one = if elem.is_float() { Literal::Float(1.0) } else { Literal::Int(1) };
            let one = if elem == Elem::Bool { Literal::Bool(true) } else { one };
            let buffer = Buffer::of(elem, [one, one]);
            assert_eq!(buffer.value(1), Some(one), "{elem}");
        }
        assert_eq!(Buffer::floats(Elem::Bf16, [1.0 + 1.0 / 256.0]).to_floats(), [1.0]);
        assert_eq!(Buffer::of(Elem::I32, [Literal::Int(-5)]).value(0), Some(Literal::Int(-5)));
    }

    #[test]
    fn unwritten_elements_have_no_value() {
        let mut buffer = Buffer::unwritten(Elem::F32, 3);
        buffer.set(0, 1.5f32.to_lane());
        assert_eq!(buffer.value(0), Some(Literal::Float(1.5)));
        assert_eq!((buffer.value(1), buffer.value(9)), (None, None));
        assert_eq!(buffer.first_unwritten(), Some(1));
    }
}
