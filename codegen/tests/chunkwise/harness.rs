//! One stage under a schedule of chunks, simulated.

use std::collections::HashMap;

use oplus_codegen::abi::{Role, Tensor, axes, elem};
use oplus_codegen::schedules::chunkwise::{self, KeyParts, scratch, with_ends};
use oplus_codegen::schedules::{Chunkwise, Strategy, Unit};
use oplus_codegen::simulate::{Arg, Buffer, BufferId, Launch, Memory, Options, Order, simulate};
use oplus_codegen::stage::{Stage, cut_contracted};
use oplus_dsl::Elem;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Literal, Param, Program};
use oplus_dsl::rng::Rng;
use oplus_dsl::scalar::round;
use oplus_dsl::specialize::without_param;
use oplus_dsl::testing::relative_error;

/// A small schedule for padded tiles, of which tests change what they are about.
pub(crate) const CHUNKS: Chunkwise = Chunkwise {
    ends: false,
    warps: 2,
    unit: Unit::Warp,
    depth: 16,
    padded: true,
    wide: false,
    stages: 2,
    vector: 1,
    blocks: 1,
    copiers: 0,
    heads: 1,
    key_parts: KeyParts::Divided,
    readers: 0,
};

/// A standard model without some of its optional parameters.
pub(crate) fn model(name: &str, elem: Elem, without: &[&str]) -> Program {
    let models = oplus_front::model_programs();
    let program = models.into_iter().find(|program| program.name == name).expect("a model").instantiate(elem);
    without.iter().fold(program, |program, param| without_param(&program, param))
}

/// The program of a text of the language.
pub(crate) fn written(text: &str) -> Program {
    written_in(text, Elem::Bf16)
}

/// The program of a text of the language, in calls of an element type.
pub(crate) fn written_in(text: &str, elem: Elem) -> Program {
    let programs = oplus_front::programs(text.parse().expect("tokens")).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    programs[0].instantiate(elem)
}

/// The stage with states that are summed away.
pub(crate) fn stage(program: &Program) -> Stage {
    let cut = cut_contracted(program).expect("cuts").expect("a contraction");
    cut.stages.into_iter().find(|stage| stage.state_axis().is_some()).expect("a stage with states")
}

/// A run: the size of every axis of the stage, and its inputs.
pub(crate) struct Case<'a> {
    stage: &'a Stage,
    sizes: Vec<usize>,
    inputs: Vec<Array>,
}

/// Numbers that a parameter may have: decays and step sizes are such that states do not grow.
fn number(param: &Param, rng: &mut Rng) -> f64 {
    let (low, high) = match param.name.as_str() {
        "a" | "g" => (-1.0, 0.0),
        "dt" => (0.1, 1.0),
        _ => (-1.0, 1.0),
    };
    round(param.elem, rng.between(low, high))
}

impl<'a> Case<'a> {
    /// A run on random numbers.
    pub(crate) fn new(stage: &'a Stage, sizes: &[(&str, usize)]) -> Case<'a> {
        let size = |name: &String| sizes.iter().find(|(known, _)| known == name).map_or(1, |(_, n)| *n);
        let sizes: Vec<usize> = stage.program.axes.iter().map(size).collect();
        let mut rng = Rng::new(7);
        let mut array = |param: &Param| {
            let own: Vec<usize> = param.axes.iter().map(|a| sizes[a.0 as usize]).collect();
            let len = own.iter().product::<usize>();
            let data = match param.elem {
                Elem::Bool => Data::Bool((0..len).map(|_| rng.between(0.0, 1.0) < 0.1).collect()),
                _ => Data::Float((0..len).map(|_| number(param, &mut rng)).collect()),
            };
            Array { sizes: own, data }
        };
        let inputs = stage.program.params.iter().map(&mut array).collect();
        Case { stage, sizes, inputs }
    }

    /// Replaces each number of an input by what `to` gives for its index and value.
    pub(crate) fn change(&mut self, name: &str, to: impl Fn(usize, f64) -> f64) {
        for (param, input) in self.stage.program.params.iter().zip(&mut self.inputs) {
            if let (true, Data::Float(numbers)) = (param.name == name, &mut input.data) {
                numbers.iter_mut().enumerate().for_each(|(i, x)| *x = round(param.elem, to(i, *x)));
            }
        }
    }

    /// The meaning of the program.
    fn wanted(&self) -> Vec<Array> {
        let given: Vec<Option<Array>> = self.inputs.iter().cloned().map(Some).collect();
        let sizes: Vec<(Axis, usize)> = (0..).map(Axis).zip(self.sizes.iter().copied()).collect();
        interpret_sized(&self.stage.program, &given, &sizes, Mode::default()).expect("runs")
    }

    /// The outputs of the kernels for so many segments, in some order of events.
    pub(crate) fn run(&self, schedule: &Chunkwise, (segments, order): (usize, Order)) -> Vec<Array> {
        let mut memory = Memory::new();
        let mut buffers: HashMap<Tensor, BufferId> = HashMap::new();
        for (i, input) in self.inputs.iter().enumerate() {
            let tensor = Tensor::Param(i as u32);
            let buffer: Vec<_> = (0..input.data.len()).map(|k| input.data.get(k)).collect();
            buffers.insert(tensor, memory.add(Buffer::of(elem(self.stage, tensor), buffer)));
        }
        for i in 0..self.stage.program.outputs.len() as u32 {
            let tensor = Tensor::Output(i);
            let len = self.shape(tensor).iter().product();
            buffers.insert(tensor, memory.add(Buffer::unwritten(elem(self.stage, tensor), len)));
        }
        let form = self.stage.kind().matrices().expect("has the form");
        let parts =
            if schedule.wide { self.sizes[form.width.0 as usize].div_ceil(schedule.width() as usize) } else { 1 };
        let rows = form.outer.iter().map(|a| self.sizes[a.0 as usize] as u64).product::<u64>() * parts as u64;
        let prepared = self.chunks_of_keys(schedule);
        let mut add = |(name, elem): (&str, Elem)| {
            let len = match name {
                "ends" => scratch(rows, segments as u64, schedule.width(), schedule.depth).expect("counts") as usize,
                _ => prepared * 2 * (schedule.times() * schedule.depth) as usize,
            };
            memory.add(Buffer::unwritten(elem, len))
        };
        let scratch: Vec<BufferId> = schedule.scratch(self.stage).into_iter().map(&mut add).collect();
        let int = |n: usize| Arg::Scalar(Literal::Int(n as i64));
        let arg = |role| match role {
            Role::Pointer(tensor) => Arg::from(buffers[&tensor]),
            Role::Size(axis) => int(self.sizes[axis.0 as usize]),
            Role::Stride(tensor, axis) => int(self.stride(tensor, axis)),
            Role::Scratch(number) => Arg::from(scratch[number as usize]),
            Role::Messages | Role::Control | Role::SegmentTiles | Role::Piece => {
                panic!("blocks do not talk to each other")
            }
        };
        for own in with_ends(self.stage, schedule) {
            let blocks = match own.key_parts {
                KeyParts::Prepare => prepared,
                _ => (rows as usize / own.heads as usize) * if own.ends { segments - 1 } else { segments },
            };
            if blocks == 0 {
                continue;
            }
            let kernel = chunkwise::lower(self.stage, &own, "k").unwrap_or_else(|e| panic!("{own}: {e}"));
            let args = own.abi(self.stage).into_iter().map(|slot| arg(slot.role)).collect();
            let launch = Launch { grid: [blocks as u32, 1], args };
            let options = Options { order, ..Options::default() };
            simulate(&kernel, &launch, &mut memory, &options).unwrap_or_else(|e| panic!("{own} {:?}: {e}", self.sizes));
        }
        let read = |i: usize| {
            let (tensor, buffer) = (Tensor::Output(i as u32), memory.buffer(buffers[&Tensor::Output(i as u32)]));
            let sizes = self.shape(tensor);
            let values = (0..sizes.iter().product()).map(|at| buffer.value(at).expect("written").as_f64());
            Array { data: Data::Float(values.collect()), sizes }
        };
        (0..self.stage.program.outputs.len()).map(read).collect()
    }

    /// The chunks of what recurrences share: keys without time.
    fn chunks_of_keys(&self, schedule: &Chunkwise) -> usize {
        let form = self.stage.kind().matrices().expect("has the form");
        let of_keys = axes(self.stage, Tensor::Param(form.key)).iter().filter(|axis| form.outer.contains(**axis));
        let rows: usize = of_keys.map(|axis| self.sizes[axis.0 as usize]).product();
        rows * self.sizes[form.time.0 as usize].div_ceil(schedule.times() as usize)
    }

    /// The kernel gives what the program means, with a root mean square error of at most a half per cent, of a tenth of that
    /// where factors are of `f16`, and of some units in the last place where they are of `f32`, of more where these are in two
    /// parts.
    pub(crate) fn check(&self, schedule: &Chunkwise, order: Order) {
        self.check_segments(schedule, 1, order);
    }

    /// The kernel, with time in so many segments, gives what the program means, within the bounds of [`Self::check`].
    pub(crate) fn check_segments(&self, schedule: &Chunkwise, segments: usize, order: Order) {
        let (wanted, found) = (self.wanted(), self.run(schedule, (segments, order)));
        let form = self.stage.kind().matrices().expect("has the form");
        for ((wanted, found), output) in wanted.iter().zip(&found).zip(&self.stage.program.outputs) {
            let error = relative_error(wanted, found);
            let most = match self.stage.program.params[form.key as usize].elem {
                Elem::F32 if schedule.unit == Unit::Warpgroup => 2e-5,
                Elem::F32 => 2e-6,
                Elem::F16 => 5e-4,
                _ => 5e-3,
            };
            let what = format!("`{}`: {:?} {schedule}, {segments} segments", output.name, self.sizes);
            assert!(error <= most, "{what}: relative error {error}");
        }
    }

    fn shape(&self, tensor: Tensor) -> Vec<usize> {
        axes(self.stage, tensor).iter().map(|a| self.sizes[a.0 as usize]).collect()
    }

    fn stride(&self, tensor: Tensor, axis: Axis) -> usize {
        let place = axes(self.stage, tensor).iter().position(|a| *a == axis).expect("has the axis");
        self.shape(tensor)[place + 1..].iter().product()
    }
}
