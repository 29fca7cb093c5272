//! Element types of tensors and types of values.
//!
//! A tensor stores [`Elem`]s; a computation works on [`Ty`]s. Half-precision elements are storage only: they are
//! widened to `f32` when loaded and rounded to nearest-even when stored. [`Elem::Call`] and [`Ty::Call`] stand for
//! the element type that the caller's tensors bring, [`Elem::State`] and [`Elem::Wide`] for the type in which such a call
//! computes; [`crate::ir::Program::instantiate`] replaces them.

use std::fmt;

/// The type that a tensor's elements are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Elem {
    /// The floating-point type of the call (`f64`, `f32`, `bf16` or `f16`), unknown until a kernel is called.
    Call,
    /// The type in which a call computes: `f64` in calls of `f64`, else `f32`. States that one call gives out and the next
    /// one takes in lose nothing in it.
    State,
    /// At least `f32`: `f64` in calls of `f64`, else `f32`. What is learned, and states whose outputs gradients do not read.
    /// Unlike [`Elem::State`] its values have a type of their own, so that what is computed of them alone stays apart.
    Wide,
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// bfloat16, computed in `f32`.
    Bf16,
    /// IEEE binary16, computed in `f32`.
    F16,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit unsigned integer.
    U64,
    /// One byte, 0 or 1.
    Bool,
}

/// The type of a value of a computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ty {
    /// The floating-point type of the call, at least `f32`.
    Call,
    /// A value of [`Elem::Wide`]: once a kernel is called, of the same type as [`Ty::Call`].
    Wide,
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// 32-bit signed integer, wrapping.
    I32,
    /// 64-bit signed integer, wrapping.
    I64,
    /// 32-bit unsigned integer, wrapping.
    U32,
    /// 64-bit unsigned integer, wrapping.
    U64,
    /// Truth value.
    Bool,
    /// The several results of a scan or a reduction; only [`crate::ir::Op::Field`] may use it.
    Tuple,
}

impl Elem {
    /// Every element type a tensor can really have, in the order of the documentation.
    pub const ALL: [Elem; 9] =
        [Elem::F64, Elem::F32, Elem::Bf16, Elem::F16, Elem::I32, Elem::I64, Elem::U32, Elem::U64, Elem::Bool];

    /// The name used in programs, messages and kernel keys.
    pub fn name(self) -> &'static str {
        match self {
            Elem::Call => "call",
            Elem::State => "state",
            Elem::Wide => "wide",
            Elem::F64 => "f64",
            Elem::F32 => "f32",
            Elem::Bf16 => "bf16",
            Elem::F16 => "f16",
            Elem::I32 => "i32",
            Elem::I64 => "i64",
            Elem::U32 => "u32",
            Elem::U64 => "u64",
            Elem::Bool => "bool",
        }
    }

    /// The element type of that name.
    pub fn from_name(name: &str) -> Option<Elem> {
        [Elem::Call, Elem::State, Elem::Wide].into_iter().chain(Elem::ALL).find(|e| e.name() == name)
    }

    /// The type that it is in calls of an element type.
    #[must_use]
    pub fn in_call(self, call: Elem) -> Elem {
        match self {
            Elem::Call => call,
            Elem::State | Elem::Wide => call.value().elem().unwrap_or(call),
            fixed => fixed,
        }
    }

    /// Bytes per element; `None` for [`Elem::Call`], [`Elem::State`] and [`Elem::Wide`].
    pub fn bytes(self) -> Option<usize> {
        Some(match self {
            Elem::Call | Elem::State | Elem::Wide => return None,
            Elem::F64 | Elem::I64 | Elem::U64 => 8,
            Elem::F32 | Elem::I32 | Elem::U32 => 4,
            Elem::Bf16 | Elem::F16 => 2,
            Elem::Bool => 1,
        })
    }

    /// The type of a value loaded from such an element.
    pub fn value(self) -> Ty {
        match self {
            Elem::Call | Elem::State => Ty::Call,
            Elem::Wide => Ty::Wide,
            Elem::F64 => Ty::F64,
            Elem::F32 | Elem::Bf16 | Elem::F16 => Ty::F32,
            Elem::I32 => Ty::I32,
            Elem::I64 => Ty::I64,
            Elem::U32 => Ty::U32,
            Elem::U64 => Ty::U64,
            Elem::Bool => Ty::Bool,
        }
    }

    /// Whether the element is a floating-point number.
    pub fn is_float(self) -> bool {
        self.value().is_float()
    }
}

impl Ty {
    /// The name used in the text form of programs.
    pub fn name(self) -> &'static str {
        match self {
            Ty::Call => "call",
            Ty::Wide => "wide",
            Ty::F64 => "f64",
            Ty::F32 => "f32",
            Ty::I32 => "i32",
            Ty::I64 => "i64",
            Ty::U32 => "u32",
            Ty::U64 => "u64",
            Ty::Bool => "bool",
            Ty::Tuple => "tuple",
        }
    }

    /// The value type of that name.
    pub fn from_name(name: &str) -> Option<Ty> {
        [Ty::Call, Ty::Wide, Ty::F64, Ty::F32, Ty::I32, Ty::I64, Ty::U32, Ty::U64, Ty::Bool, Ty::Tuple]
            .into_iter()
            .find(|t| t.name() == name)
    }

    /// Whether values of this type are floating-point numbers, and so may carry a derivative.
    pub fn is_float(self) -> bool {
        matches!(self, Ty::Call | Ty::Wide | Ty::F64 | Ty::F32)
    }

    /// Whether values of this type are integers.
    pub fn is_int(self) -> bool {
        matches!(self, Ty::I32 | Ty::I64 | Ty::U32 | Ty::U64)
    }

    /// The element type that stores such a value exactly; `None` for tuples.
    pub fn elem(self) -> Option<Elem> {
        Some(match self {
            Ty::Call => Elem::Call,
            Ty::Wide => Elem::Wide,
            Ty::F64 => Elem::F64,
            Ty::F32 => Elem::F32,
            Ty::I32 => Elem::I32,
            Ty::I64 => Elem::I64,
            Ty::U32 => Elem::U32,
            Ty::U64 => Elem::U64,
            Ty::Bool => Elem::Bool,
            Ty::Tuple => return None,
        })
    }

    /// The common type of two operands: floats widen (`f32` to `wide` to the call's type to `f64`), everything else must be equal.
    pub fn join(self, other: Ty) -> Option<Ty> {
        match (self, other) {
            (a, b) if a == b => Some(a),
            (a, b) if a.is_float() && b.is_float() => {
                let widest = [Ty::F64, Ty::Call, Ty::Wide].into_iter().find(|ty| a == *ty || b == *ty);
                Some(widest.unwrap_or(Ty::F32))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for elem in [Elem::Call, Elem::State, Elem::Wide].into_iter().chain(Elem::ALL) {
            assert_eq!(Elem::from_name(elem.name()), Some(elem));
        }
        assert_eq!(Elem::from_name("float"), None);
    }

    #[test]
    fn a_call_computes_in_what_its_states_store() {
        for call in [Elem::F64, Elem::F32, Elem::Bf16, Elem::F16] {
            assert_eq!(Elem::Call.in_call(call), call);
            assert_eq!(Elem::State.in_call(call).value(), call.value());
            assert_eq!(Elem::I32.in_call(call), Elem::I32);
        }
        assert_eq!((Elem::State.in_call(Elem::F64), Elem::State.in_call(Elem::Bf16)), (Elem::F64, Elem::F32));
    }
}
