//! What a call does and why, in words.

use std::collections::BTreeMap;
use std::fmt;

use oplus_codegen::plan::{self, Choice, Launch, Plan};
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Program};

use crate::execute::make_plan;
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::source::{self, Ptx};
use crate::{Error, Shapes};

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
    /// The schedules that were weighed, best first, each with its estimate in microseconds and in words.
    pub candidates: Vec<(String, f64, String)>,
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

/// What a PTX text says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PtxFacts {
    /// How many instructions there are.
    pub instructions: usize,
    /// How many of each kind: the operation and, for memory, the space (`ld.global`).
    pub kinds: BTreeMap<String, usize>,
    /// Virtual registers by type; the driver's compiler maps them to real ones.
    pub virtual_registers: BTreeMap<String, usize>,
}

pub(crate) fn explain(kernel: &Kernel, shapes: &Shapes) -> Result<Explanation, Error> {
    let forward = explain_program(&kernel.program()?.instantiate(shapes.elem), shapes)?;
    let gradient = match kernel.gradient_program() {
        Ok(program) => Ok(explain_program(&program.instantiate(shapes.elem), shapes)?),
        Err(e) => Err(e),
    };
    Ok(Explanation { kernel: kernel.name().into(), forward, gradient })
}

fn explain_program(program: &Program, shapes: &Shapes) -> Result<Explained, Error> {
    let equations = program.to_string();
    let Some(target) = shapes.target else {
        return Ok(Explained { equations, launches: None, temporary_bytes: 0 });
    };
    let plan = make_plan(program, &call(program, shapes)?, &target)?;
    let temporary = |b: &plan::Buffer| b.len * b.elem.bytes().unwrap_or(0) as u64;
    let temporary_bytes = plan.buffers.iter().map(temporary).sum();
    Ok(Explained { equations, launches: Some(launches(program, &plan, &target)), temporary_bytes })
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
        let chosen = shapes.strides.iter().find(|(tensor, _)| tensor == name).map(|(_, strides)| strides.clone());
        let strides = chosen.map_or_else(|| Layout::contiguous(&shape).map(|l| l.strides), Ok)?;
        Ok(plan::Layout { strides, align: 16 })
    };
    let absent = |name: &String| shapes.without.contains(name);
    let params = program.params.iter().filter(|p| !absent(&p.name));
    let missing = params.clone().count();
    let _ = missing;
    let params = program.params.iter().map(|p| (!absent(&p.name)).then(|| layout(&p.name, &p.axes)).transpose());
    let outputs = program.outputs.iter().map(|o| layout(&o.name, &o.axes));
    Ok(plan::Call {
        params: params.collect::<Result<_, _>>()?,
        outputs: outputs.collect::<Result<_, _>>()?,
        sizes: sizes.iter().map(|&n| n as i64).collect(),
    })
}
