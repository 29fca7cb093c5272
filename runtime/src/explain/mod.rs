//! What a call does and why, in words.

mod ptx;

use std::fmt;

use oplus_codegen::plan::{self, Choice, Launch, Plan};
use oplus_codegen::target::Target;
use oplus_dsl::ir::{Axis, Program};

use crate::execute::{Executable, Signature};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::{Device, Error, Shapes, source};

pub use ptx::PtxFacts;

/// What a call does and why: prints as text, or can be looked into.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Name of the kernel.
    pub kernel: String,
    /// The program as it is computed.
    pub forward: Explained,
    /// The derived gradient, or why there is none.
    pub gradient: Result<Explained, Error>,
}

/// One program of an explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// Its equations.
    pub equations: String,
    /// Its launches on the GPU; `None` where it runs on the CPU.
    pub launches: Option<Vec<ExplainedLaunch>>,
    /// Bytes of temporary tensors between the launches.
    pub temporary_bytes: u64,
}

/// One launch of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedLaunch {
    /// The equations of the part of the program that it computes.
    pub equations: String,
    /// How it runs.
    pub schedule: String,
    /// The schedules that were weighed, best first.
    pub candidates: Vec<Candidate>,
    /// The schedules that do not fit, and why.
    pub refused: Vec<(String, String)>,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Shared memory of a block.
    pub shared_bytes: u32,
    /// What the kernel is found by.
    pub key: String,
    /// Facts of its PTX, or why there is none.
    pub ptx: Result<PtxFacts, Error>,
}

/// A schedule that was weighed.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The schedule.
    pub schedule: String,
    /// Its estimated time in microseconds.
    pub micros: f64,
    /// The estimate in words.
    pub why: String,
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
    })?;
    let (equations, call) = (variant.program.to_string(), call(&variant.program, shapes)?);
    let Some(target) = shapes.target else {
        return Ok(Explained { equations, launches: None, temporary_bytes: 0 });
    };
    let plan = variant.plan(&call, &target)?;
    let bytes = |b: &plan::Buffer| b.len * b.elem.bytes().unwrap_or(0) as u64;
    let explain = |(step, launch)| explain_launch(&program.name, &plan, step, launch, &target, shapes);
    Ok(Explained {
        equations,
        launches: Some(plan.steps.iter().enumerate().map(explain).collect()),
        temporary_bytes: plan.buffers.iter().map(bytes).sum(),
    })
}

/// The call that the shapes describe.
fn call(program: &Program, shapes: &Shapes) -> Result<plan::Call, Error> {
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

fn explain_launch(
    name: &str,
    plan: &Plan,
    step: usize,
    launch: &Launch,
    target: &Target,
    shapes: &Shapes,
) -> ExplainedLaunch {
    let choice = plan.choices.iter().find(|choice| choice.step == Some(step));
    let candidates = |choice: &Choice| choice.candidates.iter().map(Candidate::of).collect();
    let refused = |choice: &Choice| choice.refused.iter().map(|(s, why)| (s.to_string(), why.clone())).collect();
    ExplainedLaunch {
        equations: launch.stage.program.to_string(),
        schedule: launch.schedule.to_string(),
        candidates: choice.map(candidates).unwrap_or_default(),
        refused: choice.map(refused).unwrap_or_default(),
        grid: launch.grid,
        threads: launch.threads,
        shared_bytes: launch.shared_bytes,
        key: launch.key.to_string(),
        ptx: facts(name, launch, target, shapes.device.as_ref()),
    }
}

/// Facts of a launch's PTX; with a GPU at hand also what its driver makes of it.
fn facts(name: &str, launch: &Launch, target: &Target, device: Option<&Device>) -> Result<PtxFacts, Error> {
    let ptx = source::find(name, launch, target.isa)?;
    let mut facts = PtxFacts::of(&ptx.text);
    if let Some(Device::Cuda(device)) = device {
        let function = device.0.context.function(launch, || Ok(ptx))?;
        facts.registers = Some(function.registers);
        facts.local_bytes = Some(function.local_bytes);
    }
    Ok(facts)
}

impl Candidate {
    fn of(estimate: &plan::Estimate) -> Candidate {
        let plan::Estimate { schedule, micros, why, .. } = estimate;
        Candidate { schedule: schedule.to_string(), micros: *micros, why: why.clone() }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n\nforward\n{}", self.kernel, self.forward)?;
        match &self.gradient {
            Ok(gradient) => writeln!(f, "gradient\n{gradient}"),
            Err(e) => writeln!(f, "no gradient: {e}"),
        }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_indented(f, 1, &self.equations)?;
        let Some(launches) = &self.launches else { return writeln!(f, "  on the threads of the CPU") };
        for (step, launch) in launches.iter().enumerate() {
            writeln!(f, "  launch {} of {}", step + 1, launches.len())?;
            write_indented(f, 2, &launch.to_string())?;
        }
        match self.temporary_bytes {
            0 => Ok(()),
            bytes => writeln!(f, "  {bytes} bytes of temporary tensors"),
        }
    }
}

impl fmt::Display for ExplainedLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.grid;
        writeln!(f, "{}", self.schedule)?;
        writeln!(f, "{x}×{y}×{z} blocks of {} threads, {} bytes shared memory", self.threads, self.shared_bytes)?;
        for candidate in &self.candidates {
            writeln!(f, "estimate {:.1} µs for {}: {}", candidate.micros, candidate.schedule, candidate.why)?;
        }
        for (schedule, why) in &self.refused {
            writeln!(f, "not {schedule}: {why}")?;
        }
        writeln!(f, "key {}", self.key)?;
        match &self.ptx {
            Ok(facts) => writeln!(f, "{facts}"),
            Err(e) => writeln!(f, "{e}"),
        }
    }
}

fn write_indented(f: &mut fmt::Formatter<'_>, depth: usize, text: &str) -> fmt::Result {
    text.lines().try_for_each(|line| writeln!(f, "{:indent$}{line}", "", indent = 2 * depth))
}
