//! A kernel's uses of its parameters, read from its PTX.

use std::collections::{BTreeMap, BTreeSet};

/// A kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    /// Whether the kernel waits for the launch ahead of it.
    pub(crate) waits: bool,
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param {
    pub(crate) bytes: usize,
    /// Whether the kernel stores through it.
    pub(crate) written: bool,
}

/// Parameters from which the value of a register is computed.
type Origins = BTreeMap<String, BTreeSet<usize>>;

/// The only kernel of a text; `None` when there is no kernel.
pub(crate) fn parse(text: &str) -> Option<Kernel> {
    let (_, rest) = text.split_once(".entry ")?;
    let (name, rest) = rest.split_once('(')?;
    let (list, body) = rest.split_once(')')?;
    let params = list.split(',').map(str::trim).filter(|p| !p.is_empty()).map(param);
    let mut kernel =
        Kernel { name: name.trim().to_owned(), params: params.collect(), waits: body.contains("griddepcontrol.wait") };
    let body: String = body.chars().map(|c| if matches!(c, '{' | '}') { ' ' } else { c }).collect();
    let instructions: Vec<&str> = body.split([';', '\n']).map(str::trim).filter(|i| !i.is_empty()).collect();
    let origins = origins(&kernel.name, &instructions);
    for instruction in instructions {
        for param in stored_through(instruction, &origins) {
            kernel.params[param].written = true;
        }
    }
    Some(kernel)
}

fn param(declaration: &str) -> Param {
    let wide = declaration.split_whitespace().any(|word| matches!(word, ".u64" | ".b64" | ".s64"));
    Param { bytes: if wide { 8 } else { 4 }, written: false }
}

/// The registers of 64 bits and the parameters that they come from, also round loops.
fn origins(name: &str, instructions: &[&str]) -> Origins {
    let mut origins = Origins::new();
    loop {
        let before: usize = origins.values().map(BTreeSet::len).sum();
        for instruction in instructions {
            derive(name, instruction, &mut origins);
        }
        if origins.values().map(BTreeSet::len).sum::<usize>() == before {
            return origins;
        }
    }
}

/// Adds what one instruction computes from its operands. What is loaded from memory comes from no parameter.
fn derive(name: &str, instruction: &str, origins: &mut Origins) {
    let Some((code, target, sources)) = operands(instruction) else { return };
    let mut found = BTreeSet::new();
    if code.starts_with("ld.param") {
        let number = sources.split_once(&format!("{name}_param_")).map(|(_, rest)| rest);
        let digits = number.map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
        found.extend(digits.and_then(|digits| digits.parse::<usize>().ok()));
    } else if !code.starts_with("ld") && target.starts_with("%rd") {
        found.extend(registers(sources).filter_map(|r| origins.get(r)).flatten());
    }
    if !found.is_empty() {
        origins.entry(target.to_owned()).or_default().extend(found);
    }
}

/// The instruction's code, its first operand and the others.
fn operands(instruction: &str) -> Option<(&str, &str, &str)> {
    let unguarded = match instruction.strip_prefix('@') {
        Some(rest) => rest.split_once(char::is_whitespace)?.1.trim(),
        None => instruction,
    };
    let (code, operands) = unguarded.split_once(char::is_whitespace)?;
    let (target, sources) = operands.split_once(',')?;
    Some((code, target.trim(), sources))
}

fn registers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '%' | '_'))).filter(|word| word.starts_with('%'))
}

/// The parameters through which an instruction stores into the memory of the device.
fn stored_through(instruction: &str, origins: &Origins) -> Vec<usize> {
    let Some((code, target, sources)) = operands(instruction) else { return vec![] };
    let stores = ["st.", "red.", "atom.", "cp.async.bulk", "cp.reduce"].iter().any(|start| code.starts_with(start));
    let elsewhere = code.contains(".shared") && !code.contains(".global.shared");
    if !stores || elsewhere || code.contains(".local") {
        return vec![];
    }
    let address = if code.starts_with("atom.") { sources } else { target };
    let address = address.split_once(']').map_or(address, |(address, _)| address);
    registers(address).filter_map(|r| origins.get(r)).flatten().copied().collect()
}
