//! Names that are declared: no two of one kind alike, none that means something else already.

use std::collections::HashSet;

use crate::diagnostics::Diagnostics;
use crate::extent::Extent;
use crate::generated::Generated;
use crate::mistake::Mistake;
use crate::parse::is_keyword;
use crate::syntax::{Block, KernelItem, Name, OperatorItem};

/// Functions over an axis, and those of one or two values that are not in the program IR by that name.
pub(crate) const FUNCTIONS: [&str; 13] =
    ["select", "min", "max", "powi", "index", "size", "sum", "reduce", "scan", "last", "first", "shift", "rename"];

/// Words that values cannot have as their name.
const VALUES: [&str; 4] = ["inf", "pi", "reverse", "exclusive"];

/// Whether a word cannot be the name of a value.
pub(crate) fn is_reserved_value(word: &str) -> bool {
    VALUES.contains(&word) || is_keyword(word)
}

/// Checks all declarations of a block.
pub(crate) fn check(block: &Block, mistakes: &mut Diagnostics) {
    distinct("operator", block.operators.iter().map(|item| &item.name), mistakes);
    let functions = block.helpers.iter().map(|item| &item.name).chain(block.kernels.iter().map(|item| &item.name));
    distinct("function", functions, mistakes);
    for item in &block.operators {
        operator(item, mistakes);
    }
    for item in &block.helpers {
        let is_builtin = FUNCTIONS.contains(&item.name.text.as_str()) || item.name.text == "segmented";
        if is_builtin || oplus_dsl::ir::Unary::from_name(&item.name.text).is_some() {
            reserved(&item.name, mistakes);
        }
        item.params.iter().for_each(|name| value(name, mistakes));
        distinct("parameter", item.params.iter(), mistakes);
    }
    for item in &block.kernels {
        kernel(item, mistakes);
    }
    clashes(block, mistakes);
}

fn operator(item: &OperatorItem, mistakes: &mut Diagnostics) {
    distinct("field", item.fields.iter().chain(&item.state).map(|field| &field.name), mistakes);
    item.fields.iter().chain(&item.state).for_each(|field| word(&field.name, mistakes));
    word(&item.name, mistakes);
    if let Some(combine) = &item.combine {
        value(&combine.left, mistakes);
        value(&combine.right, mistakes);
        distinct("operand", [&combine.left, &combine.right].into_iter(), mistakes);
    }
}

fn kernel(item: &KernelItem, mistakes: &mut Diagnostics) {
    word(&item.name, mistakes);
    let tensors = || item.params.iter().chain(&item.outputs).map(|tensor| &tensor.name);
    distinct("tensor", tensors(), mistakes);
    tensors().for_each(|name| value(name, mistakes));
}

fn distinct<'a>(what: &str, names: impl Iterator<Item = &'a Name>, mistakes: &mut Diagnostics) {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name.text.as_str()) {
            let mistake = Mistake::Duplicate { what: what.into(), name: name.text.clone() };
            mistakes.report(name.extent(), mistake);
        }
    }
}

fn value(name: &Name, mistakes: &mut Diagnostics) {
    if is_reserved_value(&name.text) {
        reserved(name, mistakes);
    }
}

fn word(name: &Name, mistakes: &mut Diagnostics) {
    if is_keyword(&name.text) {
        reserved(name, mistakes);
    }
}

fn reserved(name: &Name, mistakes: &mut Diagnostics) {
    mistakes.report(name.extent(), Mistake::Reserved { name: name.text.clone() });
}

/// The Rust items that operators and kernels generate must differ.
fn clashes(block: &Block, mistakes: &mut Diagnostics) {
    let mut seen: Vec<(String, String)> = vec![];
    let mut add = |item: String, names: Vec<String>, extent: Extent| {
        for name in names {
            match seen.iter().find(|(known, by)| *known == name && *by != item) {
                Some((_, other)) => {
                    mistakes.report(extent, Mistake::ItemClash { item: item.clone(), name, other: other.clone() });
                }
                None => seen.push((name, item.clone())),
            }
        }
    };
    for item in &block.operators {
        add(format!("operator `{}`", item.name.text), vec![item.name.text.clone()], item.name.extent());
    }
    for item in &block.kernels {
        add(format!("kernel `{}`", item.name.text), Generated::types(&item.name), item.name.extent());
    }
}
