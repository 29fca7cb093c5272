//! Element types of candle and of oplus.

use candle_core::{DType, Error, Result};
use oplus::Elem;

/// The element type of oplus for a tensor of candle that is given for a parameter of type `declared`.
///
/// candle has no truth values: where the parameter takes some, they are `u8`.
pub(crate) fn elem(dtype: DType, declared: Elem, name: &str) -> Result<Elem> {
    match dtype {
        DType::F64 => Ok(Elem::F64),
        DType::F32 => Ok(Elem::F32),
        DType::BF16 => Ok(Elem::Bf16),
        DType::F16 => Ok(Elem::F16),
        DType::I64 => Ok(Elem::I64),
        DType::I32 => Ok(Elem::I32),
        DType::U32 => Ok(Elem::U32),
        DType::U8 if declared == Elem::Bool => Ok(Elem::Bool),
        other => Err(Error::msg(format!("`{name}` stores {}, which no kernel takes there", other.as_str()))),
    }
}

/// The element type of candle for an output.
pub(crate) fn dtype(elem: Elem, name: &str) -> Result<DType> {
    match elem {
        Elem::F64 => Ok(DType::F64),
        Elem::F32 => Ok(DType::F32),
        Elem::Bf16 => Ok(DType::BF16),
        Elem::F16 => Ok(DType::F16),
        Elem::I64 => Ok(DType::I64),
        Elem::I32 => Ok(DType::I32),
        Elem::U32 => Ok(DType::U32),
        Elem::Bool => Ok(DType::U8),
        Elem::U64 | Elem::Call | Elem::State | Elem::Wide => {
            Err(Error::msg(format!("`{name}` stores {elem}, which candle has no type for")))
        }
    }
}

/// The element type of oplus for an output that candle stores.
pub(crate) fn stored(dtype: DType) -> Elem {
    match dtype {
        DType::F64 => Elem::F64,
        DType::F32 => Elem::F32,
        DType::BF16 => Elem::Bf16,
        DType::F16 => Elem::F16,
        DType::I64 => Elem::I64,
        DType::I32 => Elem::I32,
        DType::U32 => Elem::U32,
        _ => Elem::Bool,
    }
}
