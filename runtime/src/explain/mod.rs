//! Explanations of calls: the work of a call, and the reasons for its plan, in words.

mod ptx;

use std::fmt;

use oplus_codegen::plan::{self, Launch};
use oplus_codegen::target::Target;
use oplus_dsl::adjoint::equations;
use oplus_dsl::ir::{Axis, Program};

use crate::dist::Exchanges;
use crate::execute::{Executable, Hand, Signature, Variant};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::ordered::is_ordered;
use crate::{Device, Error, Shapes, source};

pub use crate::cpu::{CpuPlan, Walk};
pub use oplus_codegen::explain::Explanation as Planned;
pub use ptx::PtxFacts;

/// The work of a call and the reasons for its plan: prints as text, or can be looked into.
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
pub struct Explained {
    /// The program as equations.
    pub equations: String,
    /// How the threads of the CPU share the work; `None` where the shapes ask for a GPU.
    pub cpu: Option<CpuPlan>,
    /// The launches on a GPU; `None` where the shapes ask for the CPU.
    pub gpu: Option<GpuPlan>,
    /// The exchanges of ranks; `None` where the shapes are those of a whole call. The plans are then those of a whole call of a
    /// rank's sizes.
    pub exchanges: Option<Exchanges>,
}

/// The launches of a program on a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuPlan {
    /// The device that the plan is for.
    pub target: Target,
    /// Whose GPU that is.
    pub whose: Whose,
    /// The launches with the reasons for each, or why there is no plan.
    pub plan: Result<Planned, Error>,
}

/// Whose GPU a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The GPU of this machine, which has loaded the kernels.
    Here,
    /// The GPU of another machine, since this one has none.
    Elsewhere,
    /// The one that the shapes name, wherever it is.
    Named,
}

/// Which plans an explanation shows.
struct Places {
    cpu: bool,
    gpu: Option<(Target, Option<Device>, Whose)>,
    /// Whether the explanation fails where the call cannot be planned for the GPU.
    needs_gpu: bool,
}

impl Places {
    /// The CPU's plan and one for a GPU, this machine's or an H200, unless the shapes say where the call runs.
    fn of(shapes: &Shapes) -> Places {
        let (cpu, gpu, needs_gpu) = match (&shapes.target, &shapes.device) {
            (Some(target), None) => (false, Some((*target, None, Whose::Named)), true),
            (Some(target), device) => (false, Some((*target, device.clone(), Whose::Here)), true),
            (None, Some(_)) => (true, None, false),
            (None, None) => match Device::default() {
                Device::Cuda(here) => (true, Some((here.target(), Some(Device::Cuda(here)), Whose::Here)), false),
                Device::Cpu => (true, Some((Target::H200, None, Whose::Elsewhere)), false),
            },
        };
        Places { cpu, gpu, needs_gpu }
    }
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
    let wanted: Vec<bool> = program.outputs.iter().map(|o| wanted(&o.name)).collect();
    let exchanges = Exchanges::of(program, shapes, &wanted)?;
    let variant = executable.variant(&Signature {
        elem: shapes.elem,
        given: program.params.iter().map(|p| p.default.is_none() || given(&p.name)).collect(),
        wanted,
        ordered: is_ordered(),
    })?;
    let call = call(&variant.program, shapes)?;
    let places = Places::of(shapes);
    let cpu = places.cpu.then(|| explain_on_cpu(&variant, &call)).transpose()?;
    let on_gpu = |(target, device, whose): (Target, Option<Device>, Whose)| {
        let plan = explain_on_gpu(&program.name, &variant, &call, &target, device.as_ref());
        match plan {
            Err(error) if places.needs_gpu => Err(error),
            plan => Ok(GpuPlan { target, whose, plan }),
        }
    };
    let gpu = places.gpu.map(on_gpu).transpose()?;
    Ok(Explained { equations: equations(&variant.program), cpu, gpu, exchanges })
}

fn explain_on_cpu(variant: &Variant, call: &plan::Call) -> Result<CpuPlan, Error> {
    let sizes: Vec<usize> = call.sizes.iter().map(|&n| n as usize).collect();
    let params: Vec<&[i64]> = call.params.iter().flatten().map(|layout| &layout.strides[..]).collect();
    let outputs: Vec<&[i64]> = call.outputs.iter().map(|layout| &layout.strides[..]).collect();
    variant.on_cpu()?.explain(&sizes, &params, &outputs).map_err(|e| variant.refusal(e))
}

fn explain_on_gpu(
    name: &str,
    variant: &Variant,
    call: &plan::Call,
    target: &Target,
    device: Option<&Device>,
) -> Result<Planned, Error> {
    let rank = if let Some(Device::Cuda(device)) = device { device.0.schedule_rank() } else { 0 };
    let fastest = variant.plan(call, target, rank)?;
    let is_there = |launch: &Launch| source::has(launch, target.isa);
    // Calls under slower schedules take no others in their place.
    let missing = fastest.steps.iter().find(|launch| rank == 0 && !is_there(launch));
    let slower = missing.and_then(|_| variant.plan_among(call, target, Hand::Nothing, &is_there).ok());
    let plan = slower.as_ref().map_or(&fastest, |(plan, _)| plan);
    let mut planned = Planned::of(&variant.program, plan);
    planned.instead_of = slower.as_ref().zip(missing).map(|(_, launch)| {
        let micros = fastest.micros();
        format!("the fastest plan, {micros:.1} µs, for want of a kernel: {}", source::missing(name, launch))
    });
    for (explained, (launch, _)) in planned.launches.iter_mut().zip(plan.distinct()) {
        explained.facts = facts(name, launch, target, device);
    }
    Ok(planned)
}

/// The call that the shapes describe.
fn call(program: &Program, shapes: &Shapes) -> Result<plan::Call, Error> {
    if let Some((axis, _)) = shapes.axes.iter().find(|(axis, _)| program.axis(axis).is_none()) {
        let known = program.axes.join(", ");
        return Err(Error::UnknownAxis { axis: axis.clone(), kernel: program.name.clone(), known });
    }
    let size = |name: &String| shapes.axes.iter().find(|(axis, _)| axis == name).map(|(_, n)| *n);
    let mut sizes: Vec<Option<usize>> = program.axes.iter().map(size).collect();
    program.complete(&mut sizes)?;
    let known = |(size, name): (Option<usize>, &String)| size.ok_or(Error::UnknownSize { axis: name.clone() });
    let sizes = sizes.into_iter().zip(&program.axes).map(known).collect::<Result<Vec<_>, _>>()?;
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
    let mut facts = vec![("PTX".to_owned(), PtxFacts::of(code.ptx()).to_string())];
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
        writeln!(f, "{}\n", self.equations.trim_end())?;
        self.exchanges.iter().try_for_each(|exchanges| writeln!(f, "{exchanges}"))?;
        self.cpu.iter().try_for_each(|plan| writeln!(f, "on the CPU\n\n{plan}"))?;
        self.gpu.iter().try_for_each(|plan| writeln!(f, "{plan}"))
    }
}

impl fmt::Display for GpuPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match self.whose {
            Whose::Here => ", which is here",
            Whose::Elsewhere => "; this machine is not one: it has no GPU",
            Whose::Named => ", whether or not it is here",
        };
        writeln!(f, "on a GPU: {}{whose}\n", self.target)?;
        match &self.plan {
            Ok(planned) => writeln!(f, "{}", planned.plan()),
            Err(e) => writeln!(f, "{e}"),
        }
    }
}
