//! Tables of what an operation computes: every arm is a given loop around another function.

/// `match` on an operation; the loop takes its arguments and then the function.
macro_rules! per_operation {
    ($op:expr, $loop:ident $arguments:tt over $t:ty: $($name:pat => |$($x:ident),*| $value:expr,)*) => {
        match $op {
            $($name => $crate::cpu::operations::per_operation!(@call $loop $arguments, $t, |$($x),*| $value),)*
        }
    };
    (@call $loop:ident ($($argument:expr),*), $t:ty, |$($x:ident),*| $value:expr) => {
        $loop($($argument,)* #[inline(always)] |$($x: $t),*| $value)
    };
}

/// Unary operations of a floating-point type.
macro_rules! float_unary {
    ($op:expr, $loop:ident $arguments:tt over $t:ty) => {
        $crate::cpu::operations::per_operation!($op, $loop $arguments over $t:
            Unary::Neg | Unary::Not => |x| x.neg(),
            Unary::Abs => |x| x.abs(),
            Unary::Sign => |x| x.sign(),
            Unary::Exp => |x| x.exp(),
            Unary::Exp2 => |x| x.exp2(),
            Unary::Ln => |x| x.ln(),
            Unary::Log1p => |x| x.log1p(),
            Unary::Sqrt => |x| x.sqrt(),
            Unary::Rsqrt => |x| x.sqrt().recip(),
            Unary::Recip => |x| x.recip(),
            Unary::Tanh => |x| x.tanh(),
            Unary::Sigmoid => |x| x.sigmoid(),
            Unary::Softplus => |x| x.softplus(),
            Unary::Silu => |x| x.silu(),
            Unary::Relu => |x| x.relu(),
            Unary::Sin => |x| x.sin(),
            Unary::Cos => |x| x.cos(),
            Unary::Floor => |x| x.floor(),
            Unary::Powi(2) => |x| x.mul(x),
            Unary::Powi(n) => |x| x.powi(n),
        )
    };
}

/// Unary operations of an integer type.
macro_rules! integer_unary {
    ($op:expr, $loop:ident $arguments:tt over $t:ty) => {
        $crate::cpu::operations::per_operation!($op, $loop $arguments over $t:
            Unary::Not => |x| x.not(),
            Unary::Abs => |x| x.abs(),
            Unary::Sign => |x| x.sign(),
            _ => |x| x.neg(),
        )
    };
}

/// Binary operations of a floating-point type that give a number.
macro_rules! float_binary {
    ($op:expr, $loop:ident $arguments:tt over $t:ty) => {
        $crate::cpu::operations::per_operation!($op, $loop $arguments over $t:
            Binary::Add => |l, r| l.add(r),
            Binary::Sub => |l, r| l.sub(r),
            Binary::Div => |l, r| l.div(r),
            Binary::Rem => |l, r| l.rem(r),
            Binary::Max => |l, r| l.max(r),
            Binary::Min => |l, r| l.min(r),
            _ => |l, r| l.mul(r),
        )
    };
}

/// Binary operations of an integer type that give a number.
macro_rules! integer_binary {
    ($op:expr, $loop:ident $arguments:tt over $t:ty) => {
        $crate::cpu::operations::per_operation!($op, $loop $arguments over $t:
            Binary::Add => |l, r| l.add(r),
            Binary::Sub => |l, r| l.sub(r),
            Binary::Div => |l, r| l.div(r),
            Binary::Rem => |l, r| l.rem(r),
            Binary::Max => |l, r| l.max(r),
            Binary::Min => |l, r| l.min(r),
            Binary::And => |l, r| l.and(r),
            Binary::Or => |l, r| l.or(r),
            Binary::Xor => |l, r| l.xor(r),
            Binary::Shl => |l, r| l.shl(r),
            Binary::Shr => |l, r| l.shr(r),
            _ => |l, r| l.mul(r),
        )
    };
}

/// Comparisons; a function says how their answers are written.
macro_rules! compare {
    ($op:expr, $loop:ident $arguments:tt over $t:ty, $answer:expr) => {
        $crate::cpu::operations::per_operation!($op, $loop $arguments over $t:
            Binary::Lt => |l, r| $answer(l < r),
            Binary::Le => |l, r| $answer(l <= r),
            Binary::Gt => |l, r| $answer(l > r),
            Binary::Ge => |l, r| $answer(l >= r),
            Binary::Ne => |l, r| $answer(l != r),
            _ => |l, r| $answer(l == r),
        )
    };
}

pub(super) use {compare, float_binary, float_unary, integer_binary, integer_unary, per_operation};
