//! Element types of burn and of oplus.

use burn::tensor::{BoolStore, DType};
use oplus::Elem;

use crate::Error;

/// The element type of oplus for a tensor of burn.
pub(crate) fn elem(dtype: DType, name: &str) -> Result<Elem, Error> {
    match dtype {
        DType::F64 => Ok(Elem::F64),
        DType::F32 => Ok(Elem::F32),
        DType::BF16 => Ok(Elem::Bf16),
        DType::F16 => Ok(Elem::F16),
        DType::I64 => Ok(Elem::I64),
        DType::I32 => Ok(Elem::I32),
        DType::U64 => Ok(Elem::U64),
        DType::U32 => Ok(Elem::U32),
        DType::Bool(store) if DType::Bool(store).size() == 1 => Ok(Elem::Bool),
        other => Err(Error::Stored { tensor: name.into(), found: format!("{other:?}") }),
    }
}

/// The element type of burn for an output.
pub(crate) fn dtype(elem: Elem) -> DType {
    match elem {
        Elem::F64 => DType::F64,
        Elem::Bf16 => DType::BF16,
        Elem::F16 => DType::F16,
        Elem::I64 => DType::I64,
        Elem::I32 => DType::I32,
        Elem::U64 => DType::U64,
        Elem::U32 => DType::U32,
        Elem::Bool => DType::Bool(BoolStore::Native),
        Elem::F32 | Elem::Call | Elem::State | Elem::Wide => DType::F32,
    }
}
