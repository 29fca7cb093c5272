//! The operators that adjoints are made of: sum, product, and linear maps with payloads.

use crate::build::Builder;
use crate::elem::Ty;
use crate::ir::{Binary, Field, Literal, Operator, Unary, Value};
use crate::typing::TypeError;

use super::pattern::{Entry, Pattern, Terms};
use super::rules;

/// s = l.s + r.s.
pub(crate) fn sum(ty: Ty) -> Result<Operator, TypeError> {
    single("Sum", "s", Binary::Add, 0.0, ty)
}

/// p = l.p·r.p.
pub(crate) fn product(ty: Ty) -> Result<Operator, TypeError> {
    single("Product", "p", Binary::Mul, 1.0, ty)
}

fn single(name: &str, field: &str, op: Binary, identity: f64, ty: Ty) -> Result<Operator, TypeError> {
    let mut body = Builder::body(vec![Field { name: field.to_owned(), ty }]);
    let (l, r) = body.inputs()?;
    let combined = body.binary(op, l[0], r[0])?;
    body.finish_operator(name, vec![Literal::Float(identity)], &[combined], None)
}

/// Composition of the maps x ↦ A·x + bₘ for several vectors bₘ, the left one applied first:
///
/// A = r.A·l.A and bₘ = r.A·l.bₘ + r.bₘ.
///
/// The fields are the classes of A's pattern, then every bₘ entry by entry. For 1×1 and one vector it is the affine
/// operator (a, b).
pub(crate) fn affine(pattern: &Pattern, vectors: usize, ty: Ty) -> Result<Operator, TypeError> {
    let classes = pattern.representatives.len();
    let names = names(pattern, vectors);
    let mut body = Builder::body(names.into_iter().map(|name| Field { name, ty }).collect());
    let (l, r) = body.inputs()?;
    let mut combine = vec![];
    for class in 0..classes {
        let (row, column) = pattern.place(class);
        combine.push(sum_of_products(&mut body, &pattern.product(row, column), &r, &l, ty)?);
    }
    for (m, row) in (0..vectors).flat_map(|m| (0..pattern.size).map(move |row| (m, row))) {
        let first = classes + m * pattern.size;
        let applied = row_times(&mut body, pattern, row, &r, &l[first..], ty)?;
        combine.push(body.binary(Binary::Add, applied, r[first + row])?);
    }
    let name = if pattern.size == 1 { "Affine".to_owned() } else { format!("Affine{}", pattern.size) };
    body.finish_operator(&name, identity(pattern, vectors), &combine, None)
}

fn names(pattern: &Pattern, vectors: usize) -> Vec<String> {
    let scalar = pattern.size == 1;
    let entry = |class| {
        let (row, column) = pattern.place(class);
        if scalar { "a".to_owned() } else { format!("a{row}{column}") }
    };
    let payload = |m: usize, row: usize| match (scalar, vectors) {
        (true, 1) => "b".to_owned(),
        (true, _) => format!("b{m}"),
        (false, 1) => format!("b{row}"),
        (false, _) => format!("b{m}_{row}"),
    };
    let payloads = (0..vectors).flat_map(|m| (0..pattern.size).map(move |row| payload(m, row)));
    (0..pattern.representatives.len()).map(entry).chain(payloads).collect()
}

/// The identity matrix and zero vectors.
fn identity(pattern: &Pattern, vectors: usize) -> Vec<Literal> {
    let classes = pattern.representatives.len();
    let entry = |class| if pattern.place(class).0 == pattern.place(class).1 { 1.0 } else { 0.0 };
    let zeros = std::iter::repeat_n(0.0, vectors * pattern.size);
    (0..classes).map(entry).chain(zeros).map(Literal::Float).collect()
}

/// Σ n·a[i]·b[j] over the terms, written l before r as the affine operator is.
fn sum_of_products(body: &mut Builder, terms: &Terms, a: &[Value], b: &[Value], ty: Ty) -> Result<Value, TypeError> {
    let mut total = None;
    for (&(i, j), &n) in terms {
        let mut product = body.binary(Binary::Mul, b[j], a[i])?;
        if n.abs() != 1 {
            let count = body.number(ty, n.abs())?;
            product = body.binary(Binary::Mul, count, product)?;
        }
        total = Some(signed_sum(body, total, product, n < 0)?);
    }
    total.map_or_else(|| body.float(ty, 0.0), Ok)
}

/// Row of A times a vector.
fn row_times(
    body: &mut Builder,
    pattern: &Pattern,
    row: usize,
    a: &[Value],
    vector: &[Value],
    ty: Ty,
) -> Result<Value, TypeError> {
    let mut total = None;
    for (column, x) in vector.iter().enumerate().take(pattern.size) {
        let Some(Entry { class, negative }) = pattern.entry(row, column) else { continue };
        let product = body.binary(Binary::Mul, a[class], *x)?;
        total = Some(signed_sum(body, total, product, negative)?);
    }
    total.map_or_else(|| body.float(ty, 0.0), Ok)
}

fn signed_sum(body: &mut Builder, total: Option<Value>, term: Value, negative: bool) -> Result<Value, TypeError> {
    match total {
        Some(total) if negative => body.binary(Binary::Sub, total, term),
        None if negative => body.unary(Unary::Neg, term),
        total => rules::add(body, total, term),
    }
}
