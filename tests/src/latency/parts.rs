//! The parts of a first call that need no driver, each by itself.

use std::time::Instant;

use oplus::source::{Embedded, KernelSource};
use oplus::{Kernel, Tensor};
use oplus_codegen::plan::{Call, Planner};
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::ir::Program;
use oplus_dsl::specialize::for_call;

use super::{Line, line};
use crate::bench::BenchError;

/// A call to take apart.
pub(super) struct Whole<'a> {
    pub(super) name: &'a str,
    pub(super) kernel: &'a Kernel,
    pub(super) elem: Elem,
    pub(super) sizes: &'a [(&'a str, usize)],
    /// The tensors of the call, in the order of the kernel's parameters.
    pub(super) given: &'a [Option<Tensor>],
}

impl Whole<'_> {
    /// Reading the text and deriving the gradient; and of each: cutting and planning, and unpacking its kernels. What a first call
    /// takes beside these is the driver's: loading kernels and finding memory.
    pub(super) fn parts(&self) -> Result<Vec<Line>, BenchError> {
        let start = Instant::now();
        let program = self.kernel.program()?;
        let mut lines = vec![line(format!("part-{}-read", self.name), start.elapsed())];
        let start = Instant::now();
        let gradient = self.kernel.gradient_program()?;
        lines.push(line(format!("part-{}-derive", self.name), start.elapsed()));
        let left_out = program.params.iter().zip(self.given).filter(|(_, given)| given.is_none());
        let left_out: Vec<&str> = left_out.map(|(param, _)| param.name.as_str()).collect();
        lines.extend(self.planned("call", program, &left_out)?);
        // As the first gradient that is timed: of the first output alone.
        let bars: Vec<String> = program.outputs.iter().skip(1).map(|output| format!("{}.bar", output.name)).collect();
        let absent: Vec<&str> = left_out.into_iter().chain(bars.iter().map(String::as_str)).collect();
        lines.extend(self.planned("gradient", gradient, &absent)?);
        Ok(lines)
    }

    fn planned(&self, what: &str, program: &Program, absent: &[&str]) -> Result<[Line; 2], BenchError> {
        let wanted = program.outputs.iter().map(|output| output.name.as_str());
        let is_wanted = |name: &&str| !absent.iter().any(|absent| name.strip_suffix(".bar") == Some(absent));
        let wanted: Vec<&str> = wanted.filter(is_wanted).collect();
        let start = Instant::now();
        let program = for_call(program, self.elem, &wanted, absent);
        let planner = Planner::new(&program, &Target::H200)?;
        let plan = planner.plan(&self.call(&program))?;
        let planned = start.elapsed();
        let (start, standard) = (Instant::now(), Embedded::standard());
        let mut kernels = 0;
        for step in &plan.steps {
            kernels += usize::from(standard.find(step, Target::H200.isa)?.is_some());
        }
        let all = plan.steps.len();
        let name = |part: &str| format!("part-{}-{what}-{part}", self.name);
        Ok([
            line(name("plan"), planned),
            line(format!("{}, {kernels} of {all} kernels", name("unpack")), start.elapsed()),
        ])
    }

    /// The call on contiguous tensors.
    fn call(&self, program: &Program) -> Call {
        let size =
            |axis: &String| self.sizes.iter().find(|(known, _)| known == axis).map_or(1, |(_, size)| *size as i64);
        let sizes: Vec<i64> = program.axes.iter().map(size).collect();
        Call::contiguous(program, &sizes)
    }
}
