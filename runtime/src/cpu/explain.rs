//! How the threads of the CPU share the work of a call, in words.

use std::fmt::{self, Display, Formatter};

use oplus_codegen::words::Bytes;
use oplus_dsl::ir::Program;

use super::plan::{Layout, Plan, Request, Source, Stage, Store, Target};
use super::{Compiled, CpuError, pool};

/// How the threads of the CPU share the work of a call; prints as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuPlan {
    /// One walk after the other over the indices of some axes.
    pub walks: Vec<Walk>,
    /// The threads that there are.
    pub threads: usize,
    /// Bytes of the tensors that walks pass on, if all were in memory together.
    pub temporary_bytes: u64,
    /// Why sums of products are computed element by element, if any are.
    pub element_by_element: Vec<String>,
}

/// A walk over the indices of some axes: threads take tasks, and a task goes through its part in tiles that the nearest
/// caches hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The tensors that it reads; those of earlier walks are numbered.
    pub reads: Vec<String>,
    /// The tensors that it writes.
    pub writes: Vec<String>,
    /// The axes and their sizes, outermost first.
    pub axes: Vec<(String, usize)>,
    /// The axis along which states pass from element to element, by a scan or a sum, and whether from the last index to the first.
    pub along: Option<(String, bool)>,
    /// Indices of a tile along every axis.
    pub tile: Vec<usize>,
    /// Indices of a task along every axis.
    pub task: Vec<usize>,
    /// How many tasks there are.
    pub tasks: usize,
    /// The number of parts into which the axis along which states pass is divided, each with tasks of its own.
    pub parts: usize,
    /// Whether there is too little to do for more than one thread.
    pub is_small: bool,
    /// The axes over which it sums by products of matrices.
    pub products: Vec<String>,
    /// Whether the steps of its scan are machine code that LLVM has made for them (feature `jit`).
    pub is_compiled: bool,
    /// Why they are not, where LLVM had no machine code for them.
    pub not_compiled: Option<String>,
}

impl Compiled {
    /// The plan of a call with these sizes of the program's axes and strides of its parameters and outputs, which need not
    /// be there.
    ///
    /// # Errors
    /// [`CpuError`] where a call of these sizes and strides is refused.
    pub(crate) fn explain(&self, sizes: &[usize], params: &[&[i64]], outputs: &[&[i64]]) -> Result<CpuPlan, CpuError> {
        let program = self.program();
        self.check_sizes(sizes)?;
        if let Some(parts) = self.parts() {
            return parts.explain(program, sizes, params, outputs);
        }
        let layout = |axes: &[oplus_dsl::ir::Axis], strides: &[i64]| {
            let reach = |(axis, stride): (&oplus_dsl::ir::Axis, &i64)| {
                stride.min(&0).unsigned_abs() as usize * sizes[axis.0 as usize].saturating_sub(1)
            };
            let is_empty = axes.iter().any(|axis| sizes[axis.0 as usize] == 0);
            let strides = if is_empty { vec![0; strides.len()] } else { strides.to_vec() };
            Layout { offset: axes.iter().zip(&strides).map(reach).sum(), strides }
        };
        let request = Request {
            sizes: sizes.to_vec(),
            inputs: program.params.iter().zip(params).map(|(p, strides)| Some(layout(&p.axes, strides))).collect(),
            outputs: program.outputs.iter().zip(outputs).map(|(o, strides)| layout(&o.axes, strides)).collect(),
        };
        let plan = Plan::new(program, &request, self.is_ordered())?;
        let bytes = plan.temporaries.iter().map(|t| (t.len * t.elem.bytes().unwrap_or(8)) as u64);
        Ok(CpuPlan {
            walks: plan.stages.iter().map(|stage| Walk::of(stage, program)).collect(),
            threads: pool::threads(),
            temporary_bytes: bytes.sum(),
            element_by_element: plan.refused.clone(),
        })
    }
}

impl Walk {
    fn of(stage: &Stage, program: &Program) -> Walk {
        let axes = stage.stores.first().map_or(&[][..], |store| &store.axes);
        let name = |k: usize| axes.get(k).map_or(String::new(), |axis| program.axis_name(*axis).to_owned());
        let read = |source: &Source| match source {
            Source::Param(k) => program.params[*k].name.clone(),
            Source::Temporary(k) => temporary(*k),
        };
        let written = |store: &Store| match store.target {
            Target::Output(k) => program.outputs[k].name.clone(),
            Target::Temporary(k) => temporary(k),
        };
        Walk {
            reads: unique(stage.sources.iter().map(read)),
            writes: unique(stage.stores.iter().map(written)),
            axes: stage.sizes.iter().enumerate().map(|(k, size)| (name(k), *size)).collect(),
            along: stage.streamed.map(|streamed| (name(streamed.axis), streamed.reverse)),
            tile: stage.tile.clone(),
            task: stage.task.clone(),
            tasks: stage.tasks(),
            parts: stage.chunks(),
            is_small: stage.is_small(),
            products: unique(stage.products().map(name)),
            is_compiled: stage.native.is_some(),
            not_compiled: stage.refusal.as_ref().map(ToString::to_string),
        }
    }

    /// The threads that walk.
    fn threads(&self, all: usize) -> usize {
        if self.is_small { 1 } else { self.tasks.clamp(1, all.max(1)) }
    }
}

fn temporary(k: usize) -> String {
    format!("temporary {}", k + 1)
}

fn unique(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

impl Display for CpuPlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, walk) in self.walks.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            writeln!(f, "walk {}: {} → {}", number + 1, walk.reads.join(", "), walk.writes.join(", "))?;
            walk.write(f, self.threads)?;
        }
        if self.temporary_bytes > 0 {
            write!(f, "\n{} of temporary tensors", Bytes(self.temporary_bytes))?;
        }
        self.element_by_element.iter().try_for_each(|line| write!(f, "\n{line}"))?;
        Ok(())
    }
}

impl Walk {
    fn write(&self, f: &mut Formatter<'_>, threads: usize) -> fmt::Result {
        let sizes: Vec<String> = self.axes.iter().map(|(axis, size)| format!("{axis} = {size}")).collect();
        let over = if sizes.is_empty() { "one point".to_owned() } else { sizes.join(", ") };
        let along = match &self.along {
            None => "every index by itself".to_owned(),
            Some((axis, false)) => format!("states along {axis} from the first index to the last"),
            Some((axis, true)) => format!("states along {axis} from the last index to the first"),
        };
        writeln!(f, "  over {over}; {along}")?;
        if !self.products.is_empty() {
            writeln!(f, "  sums over {} by products of matrices", self.products.join(", "))?;
        }
        if self.is_compiled {
            writeln!(f, "  steps and the maps that follow are machine code, made by LLVM for this operator")?;
        }
        if let Some(reason) = &self.not_compiled {
            writeln!(f, "  {reason}")?;
        }
        let tasks = if self.tasks == 1 { "1 task".to_owned() } else { format!("{} tasks", self.tasks) };
        let (task, tile) = (self.per_axis(&self.task), self.per_axis(&self.tile));
        writeln!(f, "  {tasks} of {task}, each in tiles of {tile}")?;
        if let (Some((axis, _)), 2..) = (&self.along, self.parts) {
            let parts = self.parts;
            writeln!(
                f,
                "  {axis} is cut into {parts} parts, since other axes give the threads too little to share: a task first\n  \
                 combines its part, waits for the state before it, hands on the state after it, and then writes results"
            )?;
        }
        let why = if self.is_small {
            ": there is too little to do to wake others".to_owned()
        } else if self.threads(threads) < threads {
            format!(" of {threads}: there are no more tasks")
        } else {
            ", which take the tasks in their order".to_owned()
        };
        let count = self.threads(threads);
        writeln!(f, "  {count} thread{}{why}", if count == 1 { "" } else { "s" })
    }

    /// Indices along every axis.
    fn per_axis(&self, indices: &[usize]) -> String {
        let of = |((axis, size), n): (&(String, usize), &usize)| format!("{axis} {}", n.min(size));
        let all: Vec<String> = self.axes.iter().zip(indices).map(of).collect();
        if all.is_empty() { "one point".to_owned() } else { all.join(" × ") }
    }
}
