//! The plans of a case in the planner's order, as the lines of measurements that `oplus tune` reads.

use std::collections::BTreeMap;

use oplus::{Device, Shapes};
use serde::Serialize;

use super::BenchError;
use super::cases::{Case, Work};

/// A plan of a case, and which choice it is of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// How many plans are estimated to be faster.
    pub rank: usize,
    /// The program that is called.
    pub call: Called,
    /// The launches in their order.
    pub launches: Vec<Launched>,
    /// The device's name.
    pub device: String,
    /// The instruction set of the kernels.
    pub isa: &'static str,
    /// Streaming multiprocessors of the device.
    pub multiprocessors: u32,
}

/// A call, without its tensors, which are contiguous.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Called {
    /// The kernel.
    pub kernel: String,
    /// The element type.
    pub elem: String,
    /// The size of every axis.
    pub axes: BTreeMap<String, usize>,
    /// The parameters, and of a gradient the cotangents, that are left out.
    pub without: Vec<String>,
    /// Whether it is the gradient's.
    pub backward: bool,
}

/// A launch of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Launched {
    /// The stage.
    pub stage: String,
    /// The schedule.
    pub schedule: String,
    /// The planner's estimate, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micros: Option<f64>,
    /// Registers of a thread, as the driver says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Bytes of a thread in local memory, as the driver says: what spills.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spilled: Option<u32>,
}

impl Candidate {
    /// The plan of that rank, which calls on the device, of this name, run from now on.
    ///
    /// # Errors
    /// The planner's errors.
    pub fn of(case: &Case, device: &Device, name: &str, rank: usize) -> Result<Candidate, BenchError> {
        let Device::Cuda(cuda) = device else {
            return Err(BenchError::NoGpu("the device is the CPU".into()));
        };
        cuda.set_schedule_rank(rank);
        let (call, target) = (Called::of(case)?, cuda.target());
        let explanation = case.kernel.explain(&call.shapes(case, device))?;
        let explained = if call.backward { explanation.gradient? } else { explanation.forward };
        let plan = explained.gpu.map(|gpu| gpu.plan).transpose()?;
        let launches = plan.into_iter().flat_map(|plan| plan.launches).filter_map(|launch| {
            // The first candidate is the one taken.
            let taken = launch.candidates.into_iter().next()?;
            let fact = |name: &str| launch.facts.iter().find(|(known, _)| known == name)?.1.parse().ok();
            let (registers, spilled) = (fact("registers"), fact("bytes spilled"));
            Some(Launched {
                stage: launch.name,
                schedule: taken.schedule,
                micros: Some(taken.micros),
                registers,
                spilled,
            })
        });
        let (isa, multiprocessors) = (target.isa.name(), target.multiprocessors);
        Ok(Candidate { rank, call, launches: launches.collect(), device: name.to_owned(), isa, multiprocessors })
    }

    /// The schedules of the launches.
    pub fn plan(&self) -> String {
        self.launches.iter().map(|launch| launch.schedule.as_str()).collect::<Vec<_>>().join("; ")
    }
}

impl Called {
    /// The call of a case.
    fn of(case: &Case) -> Result<Called, oplus::Error> {
        let program = case.kernel.program()?;
        let backward = matches!(case.work, Work::Backward);
        let mut axes = BTreeMap::new();
        for (param, (shape, _)) in program.params.iter().zip(&case.inputs) {
            axes.extend(param.axes.iter().map(|axis| program.axis_name(*axis).to_owned()).zip(shape.iter().copied()));
        }
        let absent = program.params[case.inputs.len()..].iter().map(|param| param.name.clone());
        // Cotangents of the first output alone are given.
        let others = program.outputs.iter().skip(1).map(|output| format!("{}.bar", output.name));
        let without = absent.chain(others.filter(|_| backward)).collect();
        Ok(Called { kernel: case.kernel.name().to_owned(), elem: case.elem.to_string(), axes, without, backward })
    }

    fn shapes(&self, case: &Case, device: &Device) -> Shapes {
        let shapes = Shapes::new().elem(case.elem).device(device);
        let shapes = self.axes.iter().fold(shapes, |shapes, (axis, size)| shapes.axis(axis, *size));
        self.without.iter().fold(shapes, |shapes, param| shapes.without(param))
    }
}
