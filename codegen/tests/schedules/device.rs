//! A simulated device: launches of a plan on tensors of any layout.

use std::collections::HashMap;

use oplus_codegen::plan::{self, Arg, Call, Launch, Layout, Plan};
use oplus_codegen::schedules::Schedule;
use oplus_codegen::schedules::lower;
use oplus_codegen::simulate::{self, Buffer, BufferId, Memory, Options, Order, simulate};
use oplus_codegen::target::{Isa, Target};
use oplus_codegen::tile::Kernel;
use oplus_dsl::Elem;
use oplus_dsl::interpret::{Array, Data};
use oplus_dsl::ir::{Axis, Literal, Program};

/// A device of compute capability 8.6 or 8.9.
pub(crate) const SMALL: Target = Target { multiprocessors: 128, shared_bytes: 101_376, ..Target::A100 };

/// Whether a schedule takes chunks of 64 or of 16 times.
pub(crate) fn goes_by_chunks(schedule: &Schedule) -> bool {
    let name = schedule.name();
    name.starts_with("chunkwise") || name.starts_with("chunk_delta")
}

/// How the tensors of a test lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// One element after the other, from an aligned address.
    Contiguous,
    /// From an address that is a multiple of one element only.
    Misaligned,
    /// Rows longer than they need be, by a multiple of 16 bytes.
    Padded,
    /// The first axis fastest, and every second element.
    Strided,
}

/// A tensor's layout and where its first element lies in its buffer.
#[derive(Clone, Debug)]
struct Place {
    layout: Layout,
    first: usize,
    len: usize,
}

fn place(axes: &[Axis], sizes: &[usize], elem: Elem, placement: Placement) -> Place {
    let sizes: Vec<usize> = axes.iter().map(|a| sizes[a.0 as usize]).collect();
    let pad = match placement {
        Placement::Padded => 16,
        _ => 0,
    };
    let mut strides = vec![1i64; sizes.len()];
    let mut step = if placement == Placement::Strided { 2 } else { 1 };
    let order: Vec<usize> =
        if placement == Placement::Strided { (0..sizes.len()).collect() } else { (0..sizes.len()).rev().collect() };
    for (i, k) in order.into_iter().enumerate() {
        strides[k] = step;
        let size = sizes[k].max(1) as i64;
        step *= if i == 0 && pad > 0 { (size + 2 * pad - 1) / pad * pad } else { size };
    }
    let first = usize::from(placement == Placement::Misaligned);
    let bytes = elem.bytes().unwrap_or(8) as u32;
    let align = if first == 0 { 16 } else { bytes };
    Place { layout: Layout { strides, align }, first, len: first + step as usize }
}

/// The elements' places in the buffer, in the order of the array.
fn positions(place: &Place, sizes: &[usize]) -> Vec<usize> {
    let count: usize = sizes.iter().product();
    let position = |number: usize| {
        let mut rest = number;
        let mut at = place.first as i64;
        for (size, stride) in sizes.iter().zip(&place.layout.strides).rev() {
            at += (rest % size) as i64 * stride;
            rest /= size;
        }
        at as usize
    };
    (0..count).map(position).collect()
}

/// The call of a program with all tensors placed alike.
pub(crate) fn call(program: &Program, sizes: &[usize], placement: Placement) -> Call {
    let layout = |axes: &[Axis], elem| place(axes, sizes, elem, placement).layout;
    Call {
        sizes: sizes.iter().map(|n| *n as i64).collect(),
        params: program.params.iter().map(|p| Some(layout(&p.axes, p.elem))).collect(),
        outputs: program.outputs.iter().map(|o| layout(&o.axes, o.elem)).collect(),
    }
}

/// The work of a device: launches, and the scratch memory that they need.
pub(crate) struct Work {
    pub(crate) launches: Vec<Launch>,
    pub(crate) buffers: Vec<plan::Buffer>,
    pub(crate) message_words: u64,
    /// The buffers that share memory with each.
    pub(crate) beside: HashMap<u32, Vec<u32>>,
}

impl Work {
    /// The work of a plan, whose buffers lie where the plan places them.
    pub(crate) fn of(plan: Plan) -> Work {
        let starts = plan.places().starts;
        let bytes = |k: usize| plan.buffers[k].len as u128 * plan.buffers[k].elem.bytes().unwrap_or(8) as u128;
        let (start, end) = (|k: usize| starts[k], |k: usize| starts[k] + bytes(k));
        let share = |a: usize, b: usize| a != b && start(a) < end(b) && start(b) < end(a);
        let all = 0..starts.len();
        let of = |a: usize| (a as u32, all.clone().filter(|b| share(a, *b)).map(|b| b as u32).collect());
        let beside = all.clone().map(of).collect();
        Work { launches: plan.steps, buffers: plan.buffers, message_words: plan.message_words, beside }
    }
}

/// How launches are run: how tensors lie, the order of events, and the instruction set of the kernels.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    pub placement: Placement,
    pub order: Order,
    pub isa: Isa,
}

/// Runs launches on inputs and gives the outputs.
pub(crate) fn run(program: &Program, work: &Work, inputs: &[Array], sizes: &[usize], how: Setting) -> Vec<Array> {
    run_handing(program, work, inputs, sizes, how, Buffer::unwritten(Elem::F32, 0)).0
}

/// Runs the launches with a residual; gives the outputs and the residual.
pub(crate) fn run_handing(
    program: &Program,
    work: &Work,
    inputs: &[Array],
    sizes: &[usize],
    how: Setting,
    residual: Buffer,
) -> (Vec<Array>, Buffer) {
    let kernel = |launch: &Launch| lower(&launch.stage, &launch.schedule, how.isa).expect("lowers");
    run_kernels(program, work, inputs, sizes, how, residual, kernel)
}

/// The memory that launches with messages share: the message words and the control word. A launch leaves them ready for the next.
pub(crate) struct Region {
    messages: Buffer,
    control: Buffer,
}

impl Region {
    /// A region of so many message words, none published, whose first launch has this tag.
    pub(crate) fn new(words: u64, tag: u32) -> Region {
        let control = Buffer::of(Elem::U64, [Literal::Int(i64::from(tag as i32) << 32)]);
        Region { messages: Buffer::messages(words as usize), control }
    }
}

/// Runs the launches with the kernels that `kernel` gives for them.
pub(crate) fn run_kernels(
    program: &Program,
    work: &Work,
    inputs: &[Array],
    sizes: &[usize],
    how: Setting,
    residual: Buffer,
    kernel: impl Fn(&Launch) -> Kernel,
) -> (Vec<Array>, Buffer) {
    let mut region = Region::new(work.message_words, 1);
    run_on_region(program, work, inputs, sizes, how, (residual, &mut region), kernel)
}

/// Runs the launches with messages in a region that earlier launches may have used.
pub(crate) fn run_on_region(
    program: &Program,
    work: &Work,
    inputs: &[Array],
    sizes: &[usize],
    Setting { placement, order, .. }: Setting,
    (residual, region): (Buffer, &mut Region),
    kernel: impl Fn(&Launch) -> Kernel,
) -> (Vec<Array>, Buffer) {
    let mut memory = Memory::new();
    let mut tensors: HashMap<Arg, (BufferId, usize)> = HashMap::new();
    for (i, (param, input)) in program.params.iter().zip(inputs).enumerate() {
        let place = place(&param.axes, sizes, param.elem, placement);
        let id = memory.add(filled(param.elem, &place, input));
        tensors.insert(Arg::Param(i as u32), (id, place.first));
    }
    let outputs: Vec<Place> = program.outputs.iter().map(|o| place(&o.axes, sizes, o.elem, placement)).collect();
    for (i, (output, place)) in program.outputs.iter().zip(&outputs).enumerate() {
        let id = memory.add(Buffer::unwritten(output.elem, place.len));
        tensors.insert(Arg::Output(i as u32), (id, place.first));
    }
    for (i, plan::Buffer { elem, len }) in work.buffers.iter().enumerate() {
        tensors.insert(Arg::Buffer(i as u32), (memory.add(Buffer::unwritten(*elem, *len as usize)), 0));
    }
    let residual = memory.add(residual);
    tensors.insert(Arg::Residual, (residual, 0));
    let [messages, control] = [&region.messages, &region.control].map(|buffer| memory.add(buffer.clone()));
    tensors.insert(Arg::Messages, (messages, 0));
    tensors.insert(Arg::Control, (control, 0));
    for launch in &work.launches {
        step(launch, &kernel(launch), &tensors, &mut memory, order);
        // Whatever lay in the same memory is gone.
        let used = launch.args.iter().filter_map(|arg| if let Arg::Buffer(k) = arg { Some(k) } else { None });
        let lost = used.filter_map(|k| work.beside.get(k)).flatten();
        lost.for_each(|k| memory.forget(tensors[&Arg::Buffer(*k)].0));
    }
    let read = |(i, (output, place)): (usize, (&oplus_dsl::ir::Output, &Place))| {
        let (id, _) = tensors[&Arg::Output(i as u32)];
        let own: Vec<usize> = output.axes.iter().map(|a| sizes[a.0 as usize]).collect();
        gather(memory.buffer(id), &positions(place, &own), own, output.elem)
    };
    *region = Region { messages: memory.buffer(messages).clone(), control: memory.buffer(control).clone() };
    let outputs = program.outputs.iter().zip(&outputs).enumerate().map(read).collect();
    (outputs, memory.buffer(residual).clone())
}

fn step(
    launch: &Launch,
    kernel: &Kernel,
    tensors: &HashMap<Arg, (BufferId, usize)>,
    memory: &mut Memory,
    order: Order,
) {
    let arg = |arg: &Arg| match *arg {
        Arg::I32(x) => simulate::Arg::Scalar(Literal::Int(i64::from(x))),
        Arg::I64(x) => simulate::Arg::Scalar(Literal::Int(x)),
        tensor => {
            let (buffer, offset) = tensors[&tensor];
            simulate::Arg::Buffer { buffer, offset }
        }
    };
    let mut args: Vec<simulate::Arg> = launch.args.iter().map(arg).collect();
    for (place, bytes) in &launch.offsets {
        let simulate::Arg::Buffer { buffer, offset } = &mut args[*place] else { panic!("a number has no offset") };
        let width = memory.buffer(*buffer).elem().bytes().expect("a number") as i64;
        *offset = offset.checked_add_signed((bytes / width) as isize).expect("inside of the buffer");
    }
    // Maps and rows go round when there are more of them than blocks.
    let goes_round = matches!(launch.schedule, Schedule::Map(_) | Schedule::Rows(_));
    let grid = [if goes_round { launch.grid[0].min(64) } else { launch.grid[0] }, launch.grid[1]];
    let options = Options { order, ..Options::default() };
    let done = simulate(kernel, &simulate::Launch { grid, args }, memory, &options);
    if let Err(error) = done {
        panic!("{}\n{}\n{error}", launch.schedule, launch.stage.program);
    }
}

fn filled(elem: Elem, place: &Place, array: &Array) -> Buffer {
    let mut values = vec![oplus_dsl::ir::Literal::zero(elem.value()); place.len];
    for (i, at) in positions(place, &array.sizes).into_iter().enumerate() {
        values[at] = array.data.get(i);
    }
    Buffer::of(elem, values)
}

fn gather(buffer: &Buffer, positions: &[usize], sizes: Vec<usize>, elem: Elem) -> Array {
    let values = positions.iter().map(|at| buffer.value(*at).expect("every element of an output is written"));
    let data = match elem.value() {
        oplus_dsl::Ty::Bool => Data::Bool(values.map(|v| v == Literal::Bool(true)).collect()),
        ty if ty.is_int() => Data::Int(values.map(|v| if let Literal::Int(i) = v { i } else { 0 }).collect()),
        _ => Data::Float(values.map(Literal::as_f64).collect()),
    };
    Array { sizes, data }
}
