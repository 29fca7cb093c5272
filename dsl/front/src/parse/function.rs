//! `fn` items: helper functions have names only, kernels have types.

use oplus_dsl::Elem;
use oplus_dsl::ir::ENDS;
use proc_macro2::{Delimiter, Group, TokenTree};

use crate::cursor::Cursor;
use crate::extent::Extent;
use crate::mistake::Mistake;
use crate::suggest::did_you_mean;
use crate::syntax::{Block, Body, Expr, Head, HelperItem, KernelItem, Name, Statement, TensorItem};

use super::{body, expr};

/// One entry of a signature.
struct Entry {
    name: Name,
    /// `None` without a type.
    ty: Option<TensorType>,
    default: Option<Expr>,
}

/// The type of a tensor.
#[derive(Clone, Default)]
struct TensorType {
    /// `None` if it is not known.
    elem: Option<Elem>,
    /// The element type that it may store instead.
    or: Option<(Elem, Extent)>,
    axes: Vec<Name>,
}

/// Reads what follows `fn` and adds it to the block.
pub(super) fn function(cursor: &mut Cursor, head: Head, block: &mut Block) -> Option<()> {
    let name = cursor.name("the function's name")?;
    let params = cursor.group(Delimiter::Parenthesis, "the parameters")?;
    let params = entries(cursor, &params);
    let unnamed = unnamed_output(cursor);
    let results = if unnamed.is_some() { None } else { results(cursor) };
    let extent = cursor.extent();
    let mut body = match cursor.group(Delimiter::Brace, "the function's body") {
        Some(group) => body::block(cursor, &group),
        None => Body::of(Expr::wrong(extent)),
    };
    let results = match unnamed {
        Some((ty, extent)) => {
            body.is_whole = false;
            Some((assigned(&body, &ty), extent))
        }
        None => results,
    };
    let (outputs, extent) = results.map_or((vec![], None), |(outputs, extent)| (outputs, Some(extent)));
    let is_helper = head.visibility.is_empty() && params.iter().chain(&outputs).all(|entry| entry.ty.is_none());
    if is_helper {
        let results = extent.map(|extent| (outputs.len(), extent));
        block.helpers.push(HelperItem { name, params: params.into_iter().map(|p| p.name).collect(), results, body });
    } else {
        let (params, outputs) = (tensors(cursor, params), tensors(cursor, outputs));
        if extent.is_none() {
            cursor.report(name.extent(), Mistake::NoOutputs { kernel: name.text.clone() });
        }
        block.kernels.push(KernelItem { head, name, params, outputs, body });
    }
    Some(())
}

/// The type of `-> f32[L]` and its place; reports that the output has no name.
fn unnamed_output(cursor: &mut Cursor) -> Option<(TensorType, Extent)> {
    let is_type = match (cursor.peek_at(2), cursor.peek_at(3)) {
        (Some(TokenTree::Group(group)), _) => group.delimiter() == Delimiter::Bracket,
        (Some(TokenTree::Ident(_)), Some(TokenTree::Group(group))) if group.delimiter() == Delimiter::Bracket => true,
        (Some(TokenTree::Ident(word)), _) => Elem::from_name(&word.to_string()).is_some(),
        _ => false,
    };
    if !is_type || cursor.take_operator("->").is_none() {
        return None;
    }
    let (extent, first) = (cursor.extent(), cursor.words(2));
    let ty = tensor_type(cursor).unwrap_or_default();
    cursor.report(extent, Mistake::UnnamedOutput { ty: first });
    Some((ty, extent))
}

/// The names that a body assigns, as outputs of that type.
fn assigned(body: &Body, ty: &TensorType) -> Vec<Entry> {
    let patterns = body.statements.iter().filter_map(|statement| match statement {
        Statement::Assign(pattern, _) => Some(pattern),
        Statement::Let(..) => None,
    });
    let entry = |name: &Name| Entry { name: name.clone(), ty: Some(ty.clone()), default: None };
    patterns.flat_map(|pattern| pattern.names()).map(entry).collect()
}

/// `-> (y: [L], …)`, `-> y`, or nothing.
fn results(cursor: &mut Cursor) -> Option<(Vec<Entry>, Extent)> {
    cursor.take_operator("->")?;
    let extent = cursor.extent();
    if let Some(group) = cursor.take_group(Delimiter::Parenthesis) {
        return Some((entries(cursor, &group), extent));
    }
    let name = cursor.name("the results' names")?;
    Some((vec![Entry { name, ty: None, default: None }], extent))
}

fn entries(cursor: &mut Cursor, group: &Group) -> Vec<Entry> {
    let mut inside = cursor.inside(group);
    let parts = inside.split(',');
    parts.into_iter().filter_map(|part| entry(&mut inside.part(part))).collect()
}

/// `name`, `name: type`, `name: type = default`.
fn entry(cursor: &mut Cursor) -> Option<Entry> {
    let name = cursor.name("a name")?;
    let ty = if cursor.take_operator(":").is_some() { Some(tensor_type(cursor)?) } else { None };
    let default = if cursor.take_operator("=").is_some() { Some(expr::expr(cursor)?) } else { None };
    cursor.finish(if ty.is_none() { "`:` and a type, or `,`" } else { "`= default` or `,`" });
    Some(Entry { name, ty, default })
}

/// `[B, L]`, `f32[B, L]`, `f32`, or `i32 | i64[S]`.
fn tensor_type(cursor: &mut Cursor) -> Option<TensorType> {
    let is_bare = matches!(cursor.peek(), Some(TokenTree::Group(_)));
    let elem = if is_bare { Some(Elem::Call) } else { elem(cursor) };
    let or = if is_bare { None } else { or(cursor) };
    let group = if is_bare {
        Some(cursor.group(Delimiter::Bracket, "the axes")?)
    } else {
        cursor.take_group(Delimiter::Bracket)
    };
    let axes = group.map_or_else(Vec::new, |group| axes(&mut cursor.inside(&group)));
    Some(TensorType { elem, or, axes })
}

/// `| i64`: what the tensor may store instead.
fn or(cursor: &mut Cursor) -> Option<(Elem, Extent)> {
    cursor.take_operator("|")?;
    let extent = cursor.extent();
    Some((elem(cursor)?, extent))
}

pub(super) fn axes(cursor: &mut Cursor) -> Vec<Name> {
    let mut axes: Vec<Name> = vec![];
    for part in cursor.split(',') {
        let mut part = cursor.part(part);
        let Some(mut axis) = part.name("the name of an axis") else { continue };
        if part.take_operator("+").is_some() {
            one_more(&mut part, &mut axis);
        }
        part.finish("`,`");
        if axes.iter().any(|other| other.text == axis.text) {
            part.report(axis.extent(), Mistake::DuplicateAxis { axis: axis.text });
        } else {
            axes.push(axis);
        }
    }
    axes
}

/// The `1` of `S + 1`: the axis of the ends of S sequences.
fn one_more(part: &mut Cursor, axis: &mut Name) {
    let extent = part.extent();
    match part.next() {
        Some(TokenTree::Literal(literal)) if literal.to_string() == "1" => axis.text.push_str(ENDS),
        _ => {
            let (what, instead) = ("sizes other than `S` and `S + 1` are".into(), "name the axis".into());
            part.report(extent, Mistake::Unsupported { what, instead });
        }
    }
}

/// An element type.
pub(super) fn elem(cursor: &mut Cursor) -> Option<Elem> {
    let name = cursor.name("a type such as `f32[B, L]` or `[B, L]`")?;
    let elem = Elem::from_name(&name.text);
    if elem.is_none() {
        let hint = did_you_mean(&name.text, [Elem::State, Elem::Wide].iter().chain(&Elem::ALL).map(|e| e.name()));
        cursor.report(name.extent(), Mistake::UnknownType { name: name.text, hint });
    }
    elem
}

/// A kernel's entries must have types.
fn tensors(cursor: &mut Cursor, entries: Vec<Entry>) -> Vec<TensorItem> {
    let mut tensor = |Entry { name, ty, default }: Entry| {
        if ty.is_none() {
            cursor.report(name.extent(), Mistake::MissingType { name: name.text.clone() });
        }
        let TensorType { elem, or, axes } = ty.unwrap_or_default();
        TensorItem { name, elem: elem.unwrap_or(Elem::Call), or, axes, default, is_typed: elem.is_some() }
    };
    entries.into_iter().map(&mut tensor).collect()
}
