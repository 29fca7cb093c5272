//! Texts of the language as kernels.

use oplus_front::SourceError;
use proc_macro2::{LexError, TokenStream};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::kernel::Kernel;

/// The first wrong character, behind the last one (line and column, both from 1), the words, and the code.
type Mistake = ((usize, usize), (usize, usize), String, &'static str);

/// The kernels of a text, and its mistakes; one of the two lists is empty. The text is the body of a `scan!` block, or a Rust
/// source file whose blocks are read.
#[pyfunction]
pub(crate) fn compile<'py>(
    py: Python<'py>,
    text: &str,
    is_source: bool,
) -> PyResult<(Bound<'py, PyList>, Vec<Mistake>)> {
    match py.detach(|| programs(text, is_source)) {
        Ok(programs) => Ok((PyList::new(py, programs.into_iter().map(|(p, docs)| Kernel::of(p, docs)))?, vec![])),
        Err(mistakes) => Ok((PyList::empty(py), mistakes)),
    }
}

type Documented = (oplus_dsl::ir::Program, String);

fn programs(text: &str, is_source: bool) -> Result<Vec<Documented>, Vec<Mistake>> {
    let programs = if is_source {
        oplus_front::scan_source_file(text).map_err(|error| match error {
            SourceError::NotRust { line, message } => vec![((line, 1), (line, 2), message, "not-a-token")],
            SourceError::Mistakes(mistakes) => mistakes.iter().map(mistake).collect(),
        })?
    } else {
        let tokens: TokenStream = text.parse().map_err(|error| vec![lexical(text, &error)])?;
        oplus_front::programs(tokens).map_err(|mistakes| mistakes.iter().map(mistake).collect::<Vec<_>>())?
    };
    Ok(programs.into_iter().map(|program| (docs(text, &program.name), program)).map(|(docs, p)| (p, docs)).collect())
}

fn mistake(found: &oplus_front::Diagnostic) -> Mistake {
    let (start, end) = (found.extent.first.start(), found.extent.last.end());
    let words = found.mistake.to_string();
    ((start.line, start.column + 1), (end.line, end.column + 1), words, found.mistake.code())
}

/// What the lexer refuses: a character that begins no token, or a bracket without its partner.
fn lexical(text: &str, error: &LexError) -> Mistake {
    let start = error.span().start();
    let found = text.lines().nth(start.line.saturating_sub(1)).and_then(|line| line.chars().nth(start.column));
    let words = match found {
        Some(bracket @ ('(' | ')' | '[' | ']' | '{' | '}')) => format!("this `{bracket}` has no partner"),
        Some(quote @ ('"' | '\'')) => format!("the text that begins at this {quote} is never closed"),
        Some(other) => format!("no token of the language begins with `{other}`"),
        None => "the text ends within a token".into(),
    };
    ((start.line, start.column + 1), (start.line, start.column + 2), words, "not-a-token")
}

/// The doc comment before a kernel of a text.
fn docs(text: &str, kernel: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declares = |line: &&str| {
        let rest = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("fn ");
        rest.and_then(|rest| rest.trim_start().strip_prefix(kernel))
            .is_some_and(|rest| rest.trim_start().starts_with('('))
    };
    let at = lines.iter().position(|line| declares(&line)).unwrap_or(0);
    let comments = lines[..at].iter().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["));
    let mut comments: Vec<&str> = comments.filter_map(|line| line.strip_prefix("///")).collect();
    comments.reverse();
    comments.iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// The kernels of the standard models, with their documentation.
#[pyfunction]
pub(crate) fn models(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let text = oplus_front::MODELS;
    let documented = |program: oplus_dsl::ir::Program| {
        let docs = docs(text, &program.name);
        Kernel::of(program, docs)
    };
    PyList::new(py, oplus_front::model_programs().into_iter().map(documented))
}
