//! The program IR: recurrences over named axes. This file is the whole of it, and these docs are its specification.
//!
//! # Programs
//!
//! A [`Program`] is a pure function from tensors to tensors. It has *axes* (names with a size that is known when the
//! program is called), *parameters* and *outputs* (tensors over some of the axes, in memory order, last fastest),
//! associative *operators*, and a list of *nodes*. A node is one operation; its operands are earlier nodes, so the list
//! is in order of evaluation and has no cycles.
//!
//! # Values
//!
//! A node's value is a function from the indices of its axes ([`Node::axes`]) to a scalar of its type ([`Node::ty`]).
//! Broadcasting is by name: an operand that lacks an axis has the same value at every index of it, and the axes of a
//! map are the union of its operands' axes. [`Op::Broadcast`] adds axes explicitly; an output whose value lacks some of
//! the output's axes is broadcast when it is stored.
//!
//! Scalars: floats follow IEEE 754 in their type; integers wrap; there is no implicit conversion between integers,
//! floats and bools. Floats of different width meet in the wider one ([`Ty::join`]). Half-precision tensors are
//! widened when a parameter is read and rounded to nearest-even when an output is stored.
//!
//! # Scans and reductions
//!
//! An [`Operator`] combines two tuples of fields, left then right, and has an identity. It must be associative up to
//! rounding (see `laws`). Over axis L with elements e\[0\] … e[n−1] (each element field may lack L: it is broadcast):
//!
//! * [`Op::Reduce`] is init-free: identity ⊕ e\[0\] ⊕ … ⊕ e[n−1], the identity when n = 0.
//! * [`Op::Scan`] inclusive: s\[t\] = s[t−1] ⊕ e\[t\] with s[−1] = init (the identity when `init` is empty).
//!   Exclusive: the value at t is s[t−1]. Reverse: s\[t\] = s[t+1] ⊕ e\[t\] with s\[n\] = init, exclusive s[t+1].
//!   In reverse the state is still the *left* operand: the operator sees elements in the order they are visited.
//! * The result is a tuple; [`Op::Field`] takes one field. A field's axes are the least set that holds the axes of its
//!   element and init, and of every field it depends on in `combine`; plus the scan axis (minus it, for a reduction).
//!   So a base without a payload axis stays without it: the log-decay g\[T\] next to the payload x[T, K, V].
//!   The tuple's own axes are those of all its fields.
//! * The order of combination is unspecified (associativity), but must be the same in every run of one plan.
//!
//! # Recurrences of matrices
//!
//! [`Op::MatrixScan`] gives all states of S\[t\] = S\[t−1\]·M\[t\] + X\[t\]. M acts on one axis of the state, K, and is given by
//! its parts, of which [`MatrixScan`] has the list: a diagonal w, pairs of vectors z and b, and whole matrices D.
//!
//! ```text
//! S[t, k] = w[t, k]·S[t−1, k] + Σ over pairs of (Σ_j S[t−1, j]·z[t, j])·b[t, k] + Σ over matrices of (Σ_j S[t−1, j]·D[t, j, k]) + X[t, k]
//! ```
//!
//! Its value has the axes of all its operands, the scanned axis and K, without the second axes of matrices, which name the index
//! j; other axes broadcast as in a map. Before the first step the state is `init`; where `reset` is true, S\[t−1\] is read as 0, whatever it
//! is. Reverse and exclusive are those of
//! scans. All operands but `reset` are floats of one type. Terms are added in their order, then X; each sum over K runs from its first
//! index to the last. The states are computed one after the other; schedules that multiply matrices of several steps first
//! give the same up to rounding.
//!
//! A gather of `axis` along `index(to)`, whose inverse is `index(axis)`, only gives an axis another name: see [`Program::complete`].
//!
//! # Positions
//!
//! [`Op::Last`] and [`Op::First`] take one index of an axis and give `empty` when its size is 0. For a scan's final
//! state the front end passes the scan's init as `empty`, so the final state of nothing is the initial state.
//! [`Op::Shift`] reads index t−by and gives `fill` outside the axis. [`Op::Starts`] is true at the indices of an axis
//! that a sorted list of offsets names: segments of packed sequences begin there. [`Op::Gather`] reads, for every index of
//! an axis, a value at one index of another axis. It only does so along a one-to-one relation of some indices of both, which it
//! is given in both directions, so that its adjoint is a gather too and never adds.
//!
//! An axis of the name `S.ends` has one index more than the axis `S`: see [`Program::ends`].
//!
//! # Operators' bodies
//!
//! An operator's `body` is a list of nodes like a program's, without axes; [`Op::Input`] k is field k of the left
//! operand for k < n, field k − n of the right one otherwise. Only maps and constants may occur.
//!
//! An operator may have a [`Domain`]: the states that it is for. Its laws hold on those, the identity is one of them, and
//! the combination of two of them is one. That elements and initial states are in the domain is promised by whoever
//! calls the program; nothing checks it, and what other states give is not specified.
//!
//! # Numeric corner cases
//!
//! `max`/`min` give the other operand when one is NaN; `sign(0) = 0`; `abs` has derivative `sign`. The derivative of
//! `max`/`min` at a tie goes to the left operand. Integer division and remainder by zero give 0. Shifts by the width or
//! more give 0 (a negative count is a large one). Conversions float → integer truncate and saturate, NaN gives 0;
//! between integers they keep the low bits; to bool they give x ≠ 0, from bool 0 or 1.

mod axis_set;
mod domain;
mod ends;
mod literal;
mod matrix;
mod operands;

use crate::elem::{Elem, Ty};

pub use domain::Domain;
pub use ends::{ENDS, EndsError};
pub use matrix::{MatrixScan, Term};
pub use operands::Operands;

/// A program: see the [module documentation](self).
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The kernel's name, an identifier.
    pub name: String,
    /// Names of the axes; an [`Axis`] is an index into this list.
    pub axes: Vec<String>,
    /// Tensors that the caller gives.
    pub params: Vec<Param>,
    /// The associative operators used by scans and reductions.
    pub operators: Vec<Operator>,
    /// Operations in order of evaluation.
    pub nodes: Vec<Node>,
    /// Tensors that the caller receives.
    pub outputs: Vec<Output>,
}

/// An axis of a program: index into [`Program::axes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Axis(pub u32);

/// The value of a node: index into [`Program::nodes`] or [`Operator::body`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// An operator of a program: index into [`Program::operators`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperatorId(pub u32);

/// A set of axes; a program has at most 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AxisSet(pub u64);

/// A tensor that the caller gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Its name, an identifier.
    pub name: String,
    /// Its axes in memory order, last fastest. Strides are free at run time.
    pub axes: Vec<Axis>,
    /// The type that it stores.
    pub elem: Elem,
    /// The type that it may store instead, if the caller's tensor does: see [`crate::alternative`].
    pub or: Option<Elem>,
    /// The value it has everywhere when the caller leaves it out; `None` for a required parameter.
    pub default: Option<Literal>,
}

/// A tensor that the caller receives.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its name, an identifier.
    pub name: String,
    /// Its axes in memory order, last fastest.
    pub axes: Vec<Axis>,
    /// The type that it stores.
    pub elem: Elem,
    /// The value stored; its axes are a subset of `axes`.
    pub value: Value,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The operation and its operands.
    pub op: Op,
    /// The type of the value.
    pub ty: Ty,
    /// The axes of the value.
    pub axes: AxisSet,
}

/// An associative operator: fields, identity and `combine(l, r)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    /// Its name, an identifier.
    pub name: String,
    /// The fields of its elements and states.
    pub fields: Vec<Field>,
    /// The identity, one literal per field.
    pub identity: Vec<Literal>,
    /// The nodes of `combine`; `Input(k)` is field k of l, `Input(n + k)` field k of r.
    pub body: Vec<Node>,
    /// The value of each field of the combination, in `body`.
    pub combine: Vec<Value>,
    /// The field (if any) that is a gauge: what users read from a state does not depend on it, so its gradient is
    /// stopped. For the softmax merge it is the running maximum m.
    pub gauge: Option<u32>,
    /// The states that it is for.
    pub domain: Domain,
}

/// A field of an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name, an identifier.
    pub name: String,
    /// Its type.
    pub ty: Ty,
}

/// A constant.
#[derive(Clone, Copy, Debug)]
pub enum Literal {
    /// A float, rounded to the node's type; may be infinite.
    Float(f64),
    /// An integer of any integer type; for `u64` the number of the same 64 bits.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

/// The operation of a node. `Value`s are operands: earlier nodes of the same list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    // ---- leaves
    /// The parameter of that index, read at the node's axes.
    Param(u32),
    /// In an operator's body: field k of the left operand (k < n) or k − n of the right one.
    Input(u32),
    /// A constant of the node's type.
    Const(Literal),
    /// The index along an axis, `i64`.
    Index(Axis),
    /// The size of an axis, `i64`, no axes.
    Size(Axis),
    // ---- maps
    /// A function of one value.
    Unary(Unary, Value),
    /// A function of two values of one type.
    Binary(Binary, Value, Value),
    /// `if condition { a } else { b }`; the branch not taken has no effect, not even through NaN.
    Select(Value, Value, Value),
    /// Conversion to the node's type; when the element type is half-precision, rounding to it (the value stays f32).
    Convert(Elem, Value),
    // ---- axes
    /// Broadcast of a value to more axes (those of the node).
    Broadcast(Value),
    /// Combination of all elements along an axis; a tuple.
    Reduce {
        /// The axis that disappears.
        axis: Axis,
        /// The operator.
        operator: OperatorId,
        /// One value per field.
        elements: Vec<Value>,
    },
    /// All running combinations along an axis; a tuple.
    Scan {
        /// The axis scanned.
        axis: Axis,
        /// The operator.
        operator: OperatorId,
        /// One value per field.
        elements: Vec<Value>,
        /// The state before the first element, one value per field without the axis; empty for the identity.
        init: Vec<Value>,
        /// From the last index to the first.
        reverse: bool,
        /// Give the state before each element instead of after it.
        exclusive: bool,
    },
    /// All states of a recurrence of matrices.
    MatrixScan(Box<MatrixScan>),
    /// One field of a scan or a reduction.
    Field(Value, u32),
    /// The value at the last index of an axis, `empty` when there is none.
    Last {
        /// The axis that disappears.
        axis: Axis,
        /// The value over the axis.
        value: Value,
        /// The result for size 0; without the axis.
        empty: Value,
    },
    /// The value at index 0 of an axis, `empty` when there is none.
    First {
        /// The axis that disappears.
        axis: Axis,
        /// The value over the axis.
        value: Value,
        /// The result for size 0; without the axis.
        empty: Value,
    },
    /// The value at index t − by, `fill` where that lies outside the axis.
    Shift {
        /// The axis shifted.
        axis: Axis,
        /// How far later the value appears; negative for earlier.
        by: i64,
        /// The value over the axis.
        value: Value,
        /// The value that appears where nothing was; without the axis.
        fill: Value,
    },
    /// True at the indices of `axis` that `offsets` names. `offsets` is a sorted integer value over `list` alone.
    Starts {
        /// The axis of the result.
        axis: Axis,
        /// The axis of the list of offsets.
        list: Axis,
        /// The offsets.
        offsets: Value,
    },
    /// At index j of `to` the value at index `index`\[j\] of `axis`; zero (false) where there is no such index.
    ///
    /// The indices inside their axes are in a one-to-one relation: `index`\[j\] = i means `inverse`\[i\] = j, and the other way
    /// round. Whoever builds the program promises it.
    Gather {
        /// The axis that disappears.
        axis: Axis,
        /// The axis that appears.
        to: Axis,
        /// The value over `axis`.
        value: Value,
        /// Of every index of `to` the index of `axis`, `i64`, over `to` alone; −1 for none.
        index: Value,
        /// Of every index of `axis` the index of `to`, `i64`, over `axis` alone; −1 for none.
        inverse: Value,
    },
}

/// Functions of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unary {
    /// −x, wrapping for integers.
    Neg,
    /// Logical or bitwise complement.
    Not,
    /// |x|.
    Abs,
    /// −1, 0 or 1; NaN for NaN.
    Sign,
    /// eˣ.
    Exp,
    /// 2ˣ.
    Exp2,
    /// Natural logarithm.
    Ln,
    /// ln(1 + x).
    Log1p,
    /// Square root.
    Sqrt,
    /// 1/√x.
    Rsqrt,
    /// 1/x.
    Recip,
    /// Hyperbolic tangent.
    Tanh,
    /// 1/(1 + e⁻ˣ), without overflow.
    Sigmoid,
    /// ln(1 + eˣ), without overflow.
    Softplus,
    /// x·sigmoid(x).
    Silu,
    /// max(x, 0).
    Relu,
    /// Sine of radians.
    Sin,
    /// Cosine of radians.
    Cos,
    /// Largest integer not above x.
    Floor,
    /// xⁿ by repeated multiplication; x⁰ = 1; negative n takes the reciprocal of the power.
    Powi(i32),
}

/// Functions of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Binary {
    /// l + r.
    Add,
    /// l − r.
    Sub,
    /// l·r.
    Mul,
    /// l / r.
    Div,
    /// Remainder with the sign of l.
    Rem,
    /// The larger; the other one when one is NaN.
    Max,
    /// The smaller; the other one when one is NaN.
    Min,
    /// l < r, bool.
    Lt,
    /// l ≤ r, bool.
    Le,
    /// l > r, bool.
    Gt,
    /// l ≥ r, bool.
    Ge,
    /// l = r, bool.
    Eq,
    /// l ≠ r, bool.
    Ne,
    /// Logical or bitwise and.
    And,
    /// Logical or bitwise or.
    Or,
    /// Logical or bitwise exclusive or.
    Xor,
    /// l·2ʳ, integers.
    Shl,
    /// l / 2ʳ rounded down, integers (logical for unsigned).
    Shr,
}

impl Binary {
    /// Whether the result is a bool whatever the operands are.
    pub fn is_comparison(self) -> bool {
        matches!(self, Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge | Binary::Eq | Binary::Ne)
    }
}

impl Program {
    /// The node of a value.
    pub fn node(&self, value: Value) -> &Node {
        &self.nodes[value.0 as usize]
    }

    /// The operator of an id.
    pub fn operator(&self, id: OperatorId) -> &Operator {
        &self.operators[id.0 as usize]
    }

    /// Axes, parameters, operators and outputs, without the operations.
    #[must_use]
    pub fn without_nodes(&self) -> Program {
        let Program { name, axes, params, operators, outputs, .. } = self;
        let (name, axes, params) = (name.clone(), axes.clone(), params.clone());
        Program { name, axes, params, operators: operators.clone(), nodes: vec![], outputs: outputs.clone() }
    }

    /// The name of an axis.
    pub fn axis_name(&self, axis: Axis) -> &str {
        &self.axes[axis.0 as usize]
    }

    /// The axis of a name.
    pub fn axis(&self, name: &str) -> Option<Axis> {
        self.axes.iter().position(|a| a == name).map(|i| Axis(i as u32))
    }

    /// The parameter of a name.
    pub fn param(&self, name: &str) -> Option<u32> {
        self.params.iter().position(|p| p.name == name).map(|i| i as u32)
    }

    /// Whether any tensor or value has the type of the call.
    pub fn is_generic(&self) -> bool {
        let is_open = |ty: Ty| matches!(ty, Ty::Call | Ty::Wide);
        self.params.iter().any(|p| is_open(p.elem.value()))
            || self.outputs.iter().any(|o| is_open(o.elem.value()))
            || self.nodes.iter().any(|n| is_open(n.ty))
    }

    /// The program for calls whose tensors store `elem`: every `call`, `state` and `wide` type is replaced, and what
    /// parameters may store instead is left out.
    ///
    /// `elem` must be a floating-point type; values are computed in `elem.value()`.
    #[must_use]
    pub fn instantiate(&self, elem: Elem) -> Program {
        let ty = elem.value();
        let fix_elem = |e: &mut Elem| *e = e.in_call(elem);
        let fix_ty = |t: &mut Ty| *t = if matches!(t, Ty::Call | Ty::Wide) { ty } else { *t };
        let mut program = self.clone();
        program.params.iter_mut().for_each(|p| {
            fix_elem(&mut p.elem);
            p.or = None;
        });
        program.outputs.iter_mut().for_each(|o| fix_elem(&mut o.elem));
        let bodies = program.operators.iter_mut().map(|o| {
            o.fields.iter_mut().for_each(|f| fix_ty(&mut f.ty));
            o.body.iter_mut().chain(&mut o.domain.body)
        });
        for node in bodies.flatten().chain(&mut program.nodes) {
            fix_ty(&mut node.ty);
            if let Op::Convert(e, _) = &mut node.op {
                *e = e.in_call(ty.elem().unwrap_or(elem));
            }
        }
        program
    }
}
