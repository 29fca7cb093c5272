//! The surface tree: what the user wrote, with where it stands, before any name is resolved.
//!
//! The parser is permissive: what it can read in only one way it reads, and `lower` says what is wrong with it. A part
//! that could not be read is [`ExprKind::Wrong`], which lowers to silence because its mistake is already reported.

use oplus_dsl::Elem;
use oplus_dsl::ir::{Binary, Literal};
use proc_macro2::{Ident, TokenStream};

use crate::extent::Extent;

/// The body of one `scan!` invocation.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// `op` items.
    pub operators: Vec<OperatorItem>,
    /// Helper functions: `fn` items without types, inlined where they are called.
    pub helpers: Vec<HelperItem>,
    /// Kernels: `fn` items with types.
    pub kernels: Vec<KernelItem>,
}

/// An identifier of the user's.
#[derive(Clone, Debug)]
pub struct Name {
    /// Its token.
    pub ident: Ident,
    /// Its text, without `r#`.
    pub text: String,
}

/// The documentation and attributes before an item.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// `#[…]` attributes, doc comments among them.
    pub attributes: TokenStream,
    /// `pub`, `pub(crate)` … or nothing.
    pub visibility: TokenStream,
}

/// `op Name(fields) where conditions { identity (…); combine(l, r) (…); gauge m; }`, or
/// `op Name(fields) -> (state) { combine(l, r) (…); }`.
#[derive(Clone, Debug)]
pub struct OperatorItem {
    /// Documentation and visibility.
    pub head: Head,
    /// The operator's name.
    pub name: Name,
    /// Its fields.
    pub fields: Vec<FieldItem>,
    /// The state that elements act on, where it does not have the fields itself.
    pub state: Option<FieldItem>,
    /// The states that it is for.
    pub domain: DomainItem,
    /// The identity: an expression per field. `None` when the clause is missing (reported).
    pub identity: Option<Values>,
    /// The combination. `None` when the clause is missing (reported).
    pub combine: Option<Combine>,
    /// The field named by `gauge m;`.
    pub gauge: Option<Name>,
}

/// `where m <= 255, no overflow`: the states that an operator is for; all states without it.
#[derive(Clone, Debug, Default)]
pub struct DomainItem {
    /// The conditions, of which all hold.
    pub conditions: Vec<Expr>,
    /// Whether no integer exceeds its type.
    pub no_overflow: bool,
}

/// A field of an operator, `name`, `name: type` or `name: [axes]`.
#[derive(Clone, Debug)]
pub struct FieldItem {
    /// The field's name.
    pub name: Name,
    /// Its type; without one it takes the element's type at each use.
    pub elem: Option<(Elem, Extent)>,
    /// The axes that it varies along in one step, of an operator with a state.
    pub axes: Vec<Name>,
}

/// A parenthesised list of expressions.
#[derive(Clone, Debug)]
pub struct Values {
    /// The expressions.
    pub list: Vec<Expr>,
    /// The parentheses.
    pub extent: Extent,
}

/// `combine(l, r) body`.
#[derive(Clone, Debug)]
pub struct Combine {
    /// The name of the left operand.
    pub left: Name,
    /// The name of the right operand.
    pub right: Name,
    /// The fields of the combination.
    pub body: Body,
}

/// `fn name(a, b) -> (x, y) { … }`.
#[derive(Clone, Debug)]
pub struct HelperItem {
    /// The function's name.
    pub name: Name,
    /// Its parameters.
    pub params: Vec<Name>,
    /// The results that its signature announces; `None` without an arrow.
    pub results: Option<(usize, Extent)>,
    /// Statements and the value.
    pub body: Body,
}

/// `pub fn name(x: f32[B, L] = 0, …) -> (y: [B, L], …) { … }`.
#[derive(Clone, Debug)]
pub struct KernelItem {
    /// Documentation and visibility.
    pub head: Head,
    /// The kernel's name.
    pub name: Name,
    /// The tensors that the caller gives.
    pub params: Vec<TensorItem>,
    /// The tensors that the caller receives.
    pub outputs: Vec<TensorItem>,
    /// Statements; every output is assigned once.
    pub body: Body,
}

/// A parameter or an output of a kernel.
#[derive(Clone, Debug)]
pub struct TensorItem {
    /// Its name.
    pub name: Name,
    /// The element type that it stores.
    pub elem: Elem,
    /// The element type that a parameter may store instead, and where that is written.
    pub or: Option<(Elem, Extent)>,
    /// Its axes in memory order, last fastest.
    pub axes: Vec<Name>,
    /// The value of a parameter that is left out.
    pub default: Option<Expr>,
    /// Whether its type could be read; `elem` and `axes` mean nothing otherwise.
    pub is_typed: bool,
}

/// `{ statements; value }`, or the value alone.
#[derive(Clone, Debug)]
pub struct Body {
    /// Its statements.
    pub statements: Vec<Statement>,
    /// The expression without a semicolon at the end.
    pub value: Option<Box<Expr>>,
    /// The braces, or the value.
    pub extent: Extent,
    /// Whether all of it could be read.
    pub is_whole: bool,
}

/// One statement.
#[derive(Clone, Debug)]
pub enum Statement {
    /// `let pattern = value;`.
    Let(Pattern, Expr),
    /// `output = value;`.
    Assign(Pattern, Expr),
}

/// The left side of a statement.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// A new name, or an output.
    Name(Name),
    /// `_`.
    Ignore,
    /// `(p, q)`.
    Tuple(Vec<Pattern>, Extent),
}

/// An expression and where it stands.
#[derive(Clone, Debug)]
pub struct Expr {
    /// Its kind.
    pub kind: ExprKind,
    /// Its tokens.
    pub extent: Extent,
    /// The longest path to a leaf, so that walks can be bounded.
    pub height: u32,
}

/// The kinds of expressions.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// Not readable; reported.
    Wrong,
    /// A number or a truth value.
    Literal(Literal),
    /// A name.
    Name(Name),
    /// `(a, b)`.
    Tuple(Vec<Expr>),
    /// `(a: x, b: y)`, fields by name.
    Fields(Vec<(Name, Expr)>),
    /// `-x`.
    Neg(Box<Expr>),
    /// `!x`.
    Not(Box<Expr>),
    /// `x + y`.
    Binary(Infix, Box<Expr>, Box<Expr>),
    /// `if c { a } else { b }`.
    If(Box<Expr>, Box<Body>, Box<Body>),
    /// `{ … }`.
    Block(Box<Body>),
    /// `f(x, key = y)`.
    Call(Box<Expr>, Vec<Argument>),
    /// `x.field`.
    Field(Box<Expr>, Name),
    /// `x as f32`.
    Cast(Box<Expr>, Elem),
}

/// A binary operator between its operands.
#[derive(Clone, Copy, Debug)]
pub struct Infix {
    /// The function.
    pub op: Binary,
    /// Its token.
    pub text: &'static str,
    /// Where the token stands.
    pub extent: Extent,
}

/// An argument of a call, `x` or `key = x`.
#[derive(Clone, Debug)]
pub struct Argument {
    /// The key, if it has one.
    pub key: Option<Name>,
    /// The value.
    pub value: Expr,
}

impl Expr {
    /// An expression; its height follows from its parts.
    pub fn new(kind: ExprKind, extent: Extent) -> Expr {
        let height = 1 + match &kind {
            ExprKind::Wrong | ExprKind::Literal(_) | ExprKind::Name(_) => 0,
            ExprKind::Tuple(list) => list.iter().map(|e| e.height).max().unwrap_or(0),
            ExprKind::Fields(list) => list.iter().map(|(_, e)| e.height).max().unwrap_or(0),
            ExprKind::Neg(e) | ExprKind::Not(e) | ExprKind::Field(e, _) | ExprKind::Cast(e, _) => e.height,
            ExprKind::Binary(_, l, r) => l.height.max(r.height),
            ExprKind::If(c, a, b) => c.height.max(a.height()).max(b.height()),
            ExprKind::Block(body) => body.height(),
            ExprKind::Call(f, list) => list.iter().map(|a| a.value.height).fold(f.height, u32::max),
        };
        Expr { kind, extent, height }
    }

    /// An expression that could not be read and is reported.
    pub fn wrong(extent: Extent) -> Expr {
        Expr::new(ExprKind::Wrong, extent)
    }
}

impl Body {
    /// A body that is one expression.
    pub fn of(value: Expr) -> Body {
        Body { extent: value.extent, statements: vec![], value: Some(Box::new(value)), is_whole: true }
    }

    /// Where its value stands.
    pub fn value_extent(&self) -> Extent {
        self.value.as_ref().map_or(self.extent, |value| value.extent)
    }

    /// The longest path to a leaf.
    pub fn height(&self) -> u32 {
        let statements = self.statements.iter().map(|statement| match statement {
            Statement::Let(_, value) | Statement::Assign(_, value) => value.height,
        });
        statements.chain(self.value.iter().map(|value| value.height)).max().unwrap_or(0)
    }
}

impl Pattern {
    /// The names that it binds, from left to right.
    pub fn names(&self) -> Vec<&Name> {
        match self {
            Pattern::Name(name) => vec![name],
            Pattern::Ignore => vec![],
            Pattern::Tuple(parts, _) => parts.iter().flat_map(Pattern::names).collect(),
        }
    }
}

impl Name {
    /// The name of an identifier.
    pub fn new(ident: Ident) -> Name {
        let text = ident.to_string();
        let text = text.strip_prefix("r#").map(str::to_owned).unwrap_or(text);
        Name { ident, text }
    }

    /// Where it stands.
    pub fn extent(&self) -> Extent {
        self.ident.span().into()
    }
}
