//! A kernel's tensors, as Python sees them.

use oplus_dsl::ir::{Axis, ENDS, Literal, Output, Param, Program};
use pyo3::prelude::*;

/// A parameter or an output of a kernel: its name, axes in memory order and element type.
#[pyclass(frozen, get_all, module = "oplus._native")]
#[derive(Clone, Debug)]
pub(crate) struct TensorType {
    /// Its name.
    name: String,
    /// The names of its axes, last fastest.
    axes: Vec<String>,
    /// The type that it stores, or `call`, `wide` and `state`, which follow from the call's type.
    elem: String,
    /// The type that it may store instead.
    other: Option<String>,
    /// The value that it has when it is left out.
    default: Option<f64>,
}

#[pymethods]
impl TensorType {
    /// As the tensor is declared in a text.
    fn __repr__(&self) -> String {
        let elem = match (&*self.elem, &self.other) {
            ("call", None) => String::new(),
            (elem, None) => elem.to_owned(),
            (elem, Some(other)) => format!("{elem} | {other}"),
        };
        let axes: Vec<String> = self.axes.iter().map(|axis| axis.replace(ENDS, " + 1")).collect();
        let axes = if axes.is_empty() && !elem.is_empty() { String::new() } else { format!("[{}]", axes.join(", ")) };
        let default = self.default.map(|value| format!(" = {value}")).unwrap_or_default();
        format!("{}: {elem}{axes}{default}", self.name)
    }
}

impl TensorType {
    pub(crate) fn of_param(program: &Program, param: &Param) -> TensorType {
        TensorType {
            name: param.name.clone(),
            axes: names(program, &param.axes),
            elem: param.elem.to_string(),
            other: param.or.map(|elem| elem.to_string()),
            default: param.default.map(Literal::as_f64),
        }
    }

    pub(crate) fn of_output(program: &Program, output: &Output) -> TensorType {
        TensorType {
            name: output.name.clone(),
            axes: names(program, &output.axes),
            elem: output.elem.to_string(),
            other: None,
            default: None,
        }
    }
}

fn names(program: &Program, axes: &[Axis]) -> Vec<String> {
    axes.iter().map(|&axis| program.axis_name(axis).to_owned()).collect()
}
