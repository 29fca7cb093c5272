//! Element types under their names in DLPack.

use dlpark::ffi::DLDataType;
use oplus::Elem;

/// The element type that a DLPack data type stands for; where there is none, what to say of it.
pub(crate) fn elem_of(dtype: DLDataType) -> Result<Elem, String> {
    let known = [
        (DLDataType::F64, Elem::F64),
        (DLDataType::F32, Elem::F32),
        (DLDataType::scalar(dlpark::ffi::DLDataTypeCode::BFLOAT, 16), Elem::Bf16),
        (DLDataType::scalar(dlpark::ffi::DLDataTypeCode::FLOAT, 16), Elem::F16),
        (DLDataType::I32, Elem::I32),
        (DLDataType::I64, Elem::I64),
        (DLDataType::U32, Elem::U32),
        (DLDataType::U64, Elem::U64),
        (DLDataType::BOOL, Elem::Bool),
    ];
    let found = known.iter().find(|(known, _)| known.matches(dtype)).map(|(_, elem)| *elem);
    found.ok_or_else(|| refusal(dtype))
}

fn refusal(dtype: DLDataType) -> String {
    use dlpark::ffi::DLDataTypeCode as Code;
    let bits = dtype.bits;
    let name = match dtype.code {
        Code::COMPLEX => {
            return format!(
                "stores complex numbers of {bits} bits, which no kernel takes; pass the real and the imaginary parts, as \
                 `torch.view_as_real(x)` or `x.real` and `x.imag` give them"
            );
        }
        Code::INT => format!("int{bits}"),
        Code::UINT => format!("uint{bits}"),
        _ => format!("a type of {bits} bits (DLPack code {})", dtype.code.0),
    };
    format!("stores {name}; kernels take float64, float32, bfloat16, float16, int32, int64, uint32, uint64 and bool")
}
