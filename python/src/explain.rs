//! What a call does and why, for people and for notebooks.

use oplus::explain::{Explained, GpuPlan, Planned};
use oplus::{Device, Elem, Shapes, Target};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::exception;

/// What a call does and why: prints as text.
#[pyclass(frozen, get_all, module = "oplus._native")]
pub(crate) struct Explanation {
    /// The kernel's name.
    kernel: String,
    /// The whole as text.
    text: String,
    /// The program.
    forward: Py<Part>,
    /// The derived gradient; nothing where there is none.
    gradient: Option<Py<Part>>,
}

/// One program of an explanation.
#[pyclass(frozen, get_all, module = "oplus._native")]
pub(crate) struct Part {
    /// The program as equations.
    equations: String,
    /// How the threads of the CPU share the work.
    cpu: Option<String>,
    /// The GPU that the launches are planned for.
    gpu: Option<String>,
    /// The launches: name, task, division, grid, schedule, microseconds.
    launches: Vec<(String, String, String, String, String, f64)>,
}

impl Explanation {
    pub(crate) fn of(explanation: oplus::Explanation) -> PyResult<Explanation> {
        Python::attach(|py| {
            let text = explanation.to_string().trim_end().to_owned();
            let forward = Py::new(py, Part::of(&explanation.forward))?;
            let gradient = explanation.gradient.as_ref().ok().map(|g| Py::new(py, Part::of(g))).transpose()?;
            Ok(Explanation { kernel: explanation.kernel, text, forward, gradient })
        })
    }
}

#[pymethods]
impl Explanation {
    fn __repr__(&self) -> &str {
        &self.text
    }

    fn __str__(&self) -> &str {
        &self.text
    }

    /// Equations and launches, for notebooks.
    fn _repr_html_(&self) -> String {
        let parts = [("", Some(&self.forward)), (" (gradient)", self.gradient.as_ref())];
        let part = |(what, part): &(&str, Option<&Py<Part>>)| part.map(|part| part.get().html(&self.kernel, what));
        format!("<div>{}</div>", parts.iter().filter_map(part).collect::<String>())
    }
}

impl Part {
    fn of(explained: &Explained) -> Part {
        let planned = explained.gpu.as_ref().and_then(|gpu| gpu.plan.as_ref().ok());
        Part {
            equations: explained.equations.trim_end().to_owned(),
            cpu: explained.cpu.as_ref().map(ToString::to_string),
            gpu: explained.gpu.as_ref().map(|GpuPlan { target, .. }| target.to_string()),
            launches: planned.map(launches).unwrap_or_default(),
        }
    }
}

impl Part {
    fn html(&self, kernel: &str, what: &str) -> String {
        let pre = |text: &str| format!("<pre>{}</pre>", escaped(text));
        let mut html = format!("<h4>{}{what}</h4>{}", escaped(kernel), pre(&self.equations));
        html += &self.cpu.as_ref().map(|plan| format!("<p>on the CPU</p>{}", pre(plan))).unwrap_or_default();
        if let Some(gpu) = &self.gpu {
            let cell = |text: &str| format!("<td style='text-align:left'>{}</td>", escaped(text));
            let row =
                |(name, task, division, grid, schedule, micros): &(String, String, String, String, String, f64)| {
                    let cells: String =
                        [name, task, division, grid, schedule].into_iter().map(|text| cell(text)).collect();
                    format!("<tr>{cells}<td>{micros:.1}</td></tr>")
                };
            let head: String = ["launch", "task", "division", "grid", "schedule", "µs"]
                .map(|name| format!("<th>{name}</th>"))
                .concat();
            let rows: String = self.launches.iter().map(row).collect();
            html += &format!("<p>{}</p><table><tr>{head}</tr>{rows}</table>", escaped(gpu));
        }
        html
    }
}

/// A text in which HTML sees no marks.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn launches(planned: &Planned) -> Vec<(String, String, String, String, String, f64)> {
    let launch = |launch: &oplus_codegen::explain::Explained| {
        let (schedule, micros) =
            launch.candidates.first().map_or((String::new(), 0.0), |(s, micros, _)| (s.clone(), *micros));
        let (name, task, division) = (launch.name.clone(), launch.task.clone(), launch.division.clone());
        (name, task, division, launch.grid.clone(), schedule, micros)
    };
    planned.launches.iter().map(launch).collect()
}

/// The shapes of a call that is to be explained.
pub(crate) fn shapes(
    py: Python<'_>,
    sizes: Vec<(String, usize)>,
    elem: &str,
    device: Option<&str>,
    without: Vec<String>,
) -> PyResult<Shapes> {
    let elem = Elem::from_name(elem).filter(|elem| elem.is_float());
    let elem = elem.ok_or_else(|| PyValueError::new_err("`elem` is one of f64, f32, bf16 and f16"))?;
    let mut shapes = sizes.iter().fold(Shapes::new().elem(elem), |shapes, (axis, size)| shapes.axis(axis, *size));
    shapes = without.iter().fold(shapes, |shapes, param| shapes.without(param));
    match device {
        None => Ok(shapes),
        Some("cpu") => Ok(shapes.device(&Device::Cpu)),
        Some("h200") => Ok(shapes.target(Target::H200)),
        Some("cuda") => Ok(shapes.device(&Device::cuda(0).map_err(|e| exception(py, &e))?)),
        Some(other) => {
            Err(PyValueError::new_err(format!("`device` is \"cpu\", \"cuda\", \"h200\" or nothing, not \"{other}\"")))
        }
    }
}
