//! What a call does and why, in words.

mod ptx;

use std::fmt;

use oplus_codegen::explain::Explanation as Planned;
use oplus_codegen::plan::{self, Launch};
use oplus_codegen::target::Target;
use oplus_dsl::adjoint::equations;
use oplus_dsl::ir::{Axis, Program};

use crate::execute::{Executable, Hand, Signature};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::ordered::is_ordered;
use crate::{Device, Error, Shapes, source};

pub use ptx::PtxFacts;

/// What a call does and why: prints as text, or can be looked into.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Name of the kernel.
    pub kernel: String,
    /// The program.
    pub forward: Explained,
    /// The derived gradient, or why there is none.
    pub gradient: Result<Explained, Error>,
}

/// One program of an explanation.
#[derive(Clone, Debug, PartialEq)]
pub enum Explained {
    /// On the threads of the CPU: the equations.
    Cpu(String),
    /// On a GPU: the equations and the plan.
    Gpu(Planned),
}

/// Explains a kernel for the shapes of a call.
pub(crate) fn explain(kernel: &Kernel, shapes: &Shapes) -> Result<Explanation, Error> {
    let forward = explain_program(kernel.forward()?, shapes)?;
    let gradient = match kernel.gradient() {
        Ok(gradient) => Ok(explain_program(&gradient.executable, shapes)?),
        Err(e @ Error::NoGradient { .. }) => Err(e),
        Err(e) => return Err(e),
    };
    Ok(Explanation { kernel: kernel.name().into(), forward, gradient })
}

fn explain_program(executable: &Executable, shapes: &Shapes) -> Result<Explained, Error> {
    let given = |name: &str| !shapes.without.iter().any(|absent| absent == name);
    let wanted = |name: &str| given(name.strip_suffix(".bar").unwrap_or(name));
    let program = &executable.program;
    let variant = executable.variant(&Signature {
        elem: shapes.elem,
        given: program.params.iter().map(|p| p.default.is_none() || given(&p.name)).collect(),
        wanted: program.outputs.iter().map(|o| wanted(&o.name)).collect(),
        ordered: is_ordered(),
    })?;
    let call = call(&variant.program, shapes)?;
    let Some(target) = shapes.target else { return Ok(Explained::Cpu(equations(&variant.program))) };
    let fastest = variant.plan(&call, &target, 0)?;
    let is_there = |launch: &Launch| source::has(launch, target.isa);
    let missing = fastest.steps.iter().find(|launch| !is_there(launch));
    let slower = missing.and_then(|_| variant.plan_among(&call, &target, Hand::Nothing, &is_there).ok());
    let plan = slower.as_ref().map_or(&fastest, |(plan, _)| plan);
    let mut planned = Planned::of(&variant.program, plan);
    planned.instead_of = slower.as_ref().zip(missing).map(|(_, launch)| {
        let micros = fastest.micros();
        format!("the fastest plan, {micros:.1} µs, for want of a kernel: {}", source::missing(&program.name, launch))
    });
    for (explained, launch) in planned.launches.iter_mut().zip(&plan.steps) {
        explained.facts = facts(&program.name, launch, &target, shapes.device.as_ref());
    }
    Ok(Explained::Gpu(planned))
}

/// The call that the shapes describe.
fn call(program: &Program, shapes: &Shapes) -> Result<plan::Call, Error> {
    if let Some((axis, _)) = shapes.axes.iter().find(|(axis, _)| program.axis(axis).is_none()) {
        let known = program.axes.join(", ");
        return Err(Error::UnknownAxis { axis: axis.clone(), kernel: program.name.clone(), known });
    }
    let size = |name: &String| {
        let found = shapes.axes.iter().find(|(axis, _)| axis == name).map(|(_, n)| *n);
        found.ok_or_else(|| Error::UnknownSize { axis: name.clone() })
    };
    let sizes = program.axes.iter().map(size).collect::<Result<Vec<_>, _>>()?;
    let layout = |name: &str, axes: &[Axis]| -> Result<plan::Layout, Error> {
        let shape: Vec<usize> = axes.iter().map(|a| sizes[a.0 as usize]).collect();
        let contiguous = Layout::contiguous(&shape)?.strides;
        let chosen = shapes.strides.iter().find(|(tensor, _)| tensor == name).map(|(_, strides)| strides.clone());
        Ok(plan::Layout { strides: chosen.unwrap_or(contiguous), align: 16 })
    };
    let params = program.params.iter().map(|p| layout(&p.name, &p.axes).map(Some));
    let outputs = program.outputs.iter().map(|o| layout(&o.name, &o.axes));
    Ok(plan::Call {
        params: params.collect::<Result<_, _>>()?,
        outputs: outputs.collect::<Result<_, _>>()?,
        sizes: sizes.iter().map(|&n| n as i64).collect(),
    })
}

/// Facts of a launch's PTX, or why there is none; with a GPU at hand also what its driver makes of it.
fn facts(name: &str, launch: &Launch, target: &Target, device: Option<&Device>) -> Vec<(String, String)> {
    let code = match source::find(name, launch, target.isa) {
        Ok(code) => code,
        Err(e) => return vec![("PTX".into(), e.to_string())],
    };
    let mut facts = vec![("PTX".to_owned(), PtxFacts::of(&code.ptx).to_string())];
    if let Some(Device::Cuda(device)) = device {
        match device.0.context.function(launch, || Ok(code.into())) {
            Ok(function) => {
                let loaded = function.now(|| true);
                facts.extend([
                    ("registers".to_owned(), loaded.registers.to_string()),
                    ("bytes spilled".to_owned(), loaded.local_bytes.to_string()),
                ]);
            }
            Err(e) => facts.push(("driver".into(), e.to_string())),
        }
    }
    facts
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n\n{}", self.kernel, self.forward)?;
        match &self.gradient {
            Ok(gradient) => writeln!(f, "gradient\n\n{gradient}"),
            Err(e) => writeln!(f, "{e}"),
        }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Explained::Cpu(equations) => writeln!(f, "{}\n\non the threads of the CPU", equations.trim_end()),
            Explained::Gpu(planned) => planned.fmt(f),
        }
    }
}
