//! Explanations of a call, for people and for notebooks.

use oplus::explain::{Explained, GpuPlan, Planned};
use oplus::{Device, Elem, Shapes, Target};
use oplus_codegen::explain::{Section, fragment};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::exception;

/// The work of a call and the reasons for its plan: prints as text.
#[pyclass(frozen, module = "oplus._native")]
pub(crate) struct Explanation {
    /// The kernel's name.
    #[pyo3(get)]
    kernel: String,
    /// The whole as text.
    #[pyo3(get)]
    text: String,
    /// The program.
    #[pyo3(get)]
    forward: Py<Part>,
    /// The derived gradient; nothing where there is none.
    #[pyo3(get)]
    gradient: Option<Py<Part>>,
    /// The whole as a part of a page.
    html: String,
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
    /// The explanation of a call of these sizes.
    pub(crate) fn of(explanation: oplus::Explanation, sizes: &[(String, usize)]) -> PyResult<Explanation> {
        Python::attach(|py| {
            let text = explanation.to_string().trim_end().to_owned();
            let html = html(&explanation, sizes);
            let forward = Py::new(py, Part::of(&explanation.forward))?;
            let gradient = explanation.gradient.as_ref().ok().map(|g| Py::new(py, Part::of(g))).transpose()?;
            Ok(Explanation { kernel: explanation.kernel, text, forward, gradient, html })
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

    /// Equations, launches and their pictures, for notebooks.
    fn _repr_html_(&self) -> &str {
        &self.html
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

/// The program and its gradient as `oplus explain --html` draws them, and how the CPU shares the work.
fn html(explanation: &oplus::Explanation, sizes: &[(String, usize)]) -> String {
    let sizes: String = sizes.iter().map(|(axis, size)| format!(", {axis}={size}")).collect();
    let parts = [("", Some(&explanation.forward)), (".bar", explanation.gradient.as_ref().ok())];
    let section = |(suffix, part): (&&str, &Explained)| {
        let planned = part.gpu.as_ref().and_then(|gpu| gpu.plan.as_ref().ok());
        let launches = planned.map(|planned| planned.launches.clone()).unwrap_or_default();
        let title = format!("{}{suffix}{sizes}", explanation.kernel);
        let cpu = part.cpu.as_ref().map(ToString::to_string);
        Section { title, equations: part.equations.clone(), launches, ptx: vec![], cpu }
    };
    fragment(
        &parts.iter().filter_map(|(suffix, part)| part.map(|part| (suffix, part))).map(section).collect::<Vec<_>>(),
    )
}

fn launches(planned: &Planned) -> Vec<(String, String, String, String, String, f64)> {
    let launch = |launch: &oplus_codegen::explain::Explained| {
        let taken = launch.candidates.first();
        let (schedule, micros) = taken.map_or((String::new(), 0.0), |taken| (taken.schedule.clone(), taken.micros));
        let (name, task, division) = (launch.name.clone(), launch.task.clone(), launch.division.clone());
        (name, task, division, launch.grid.clone(), schedule, micros)
    };
    planned.launches.iter().map(launch).collect()
}

/// The shapes of a call that is to be explained.
pub(crate) fn shapes(
    py: Python<'_>,
    sizes: &[(String, usize)],
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
