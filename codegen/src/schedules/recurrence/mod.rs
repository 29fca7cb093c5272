//! Recurrences of matrices, state by state.
//!
//! A row of the state is a vector along the axis that the matrices act on, for one index of every outer axis. A few lanes of a warp
//! share it: each holds neighbouring places in registers, and goes through time from one end to the other. Sums over the row are
//! finished by shuffles, after which all its lanes have them. What a step reads is loaded into registers some steps before.
//!
//! Whole matrices are read while they are multiplied: every lane gets the row place by place from the lanes that hold it.
//!
//! Places beyond the end of a row are left out of all sums and are not written.

mod candidates;
mod cost;
mod dense;
mod load;
mod outputs;
mod parameters;
mod place;
mod step;
mod strategy;
mod sum;
mod values;

pub use parameters::Recurrence;

use std::collections::BTreeSet;

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary, Op, Term, Value};

use super::{LowerError, Strategy};
use crate::abi::Tensor;
use crate::block::args::Args;
use crate::build::Builder;
use crate::stage::kind::Recurrence as Form;
use crate::stage::{Recurrence as Scan, Stage};
use crate::target::WARP;
use crate::tile::{Kernel, Operand, Reg, Special};
use load::Slot;
use values::Values;

/// The tile kernel of a stage with a recurrence of matrices.
fn lower(stage: &Stage, schedule: &Recurrence, symbol: &str) -> Result<Kernel, LowerError> {
    let refused = |refusal| LowerError::Kind { schedule: Recurrence::NAME, refusal };
    let form = stage.kind().recurrence().map_err(refused)?;
    let parameters = LowerError::parameters(schedule);
    if !is_possible(schedule) {
        return Err(parameters);
    }
    let Some(scan) = stage.recurrence() else { return Err(parameters) };
    let mut b = Builder::new(symbol, schedule.warps * WARP);
    let args = Args::declare(&mut b, stage, schedule.abi(stage));
    let kernel = RecurrenceKernel::new(&mut b, stage, scan, form, schedule, args);
    kernel.body(&mut b);
    Ok(b.finish())
}

fn is_possible(schedule: &Recurrence) -> bool {
    let Recurrence { warps, lanes, states, ahead, vector, .. } = *schedule;
    let some = ![warps, lanes, states, ahead, vector].contains(&0) && warps <= WARP && lanes <= WARP;
    some && lanes.is_power_of_two() && vector.is_power_of_two() && vector <= 8 && states.is_multiple_of(vector)
}

/// Everything about the kernel that does not change while its body is emitted.
struct RecurrenceKernel<'s> {
    stage: &'s Stage,
    scan: Scan<'s>,
    form: &'s Form,
    schedule: &'s Recurrence,
    args: Args,
    /// The index along every outer axis.
    row: Vec<(Axis, Operand)>,
    /// Whether there is such a row.
    row_exists: Operand,
    /// Which of its row's lanes this is, and the first of them in the warp, `i32`.
    position: Operand,
    first_lane: Operand,
    /// The lane's first place of the row, `i64`.
    first: Operand,
    /// Of each of the lane's places, whether the row has it.
    exists: Vec<Operand>,
    /// Of each parameter the offset of its element at the lane's first place and at time 0, `i64`.
    bases: Vec<Operand>,
}

impl<'s> RecurrenceKernel<'s> {
    fn new(
        b: &mut Builder,
        stage: &'s Stage,
        scan: Scan<'s>,
        form: &'s Form,
        schedule: &'s Recurrence,
        args: Args,
    ) -> RecurrenceKernel<'s> {
        let [block, thread, lane] = [Special::Block, Special::Thread, Special::Lane].map(|special| b.special(special));
        let lanes = Operand::i32(schedule.lanes as i32);
        let position = b.binary(Binary::Rem, lane, lanes);
        let first_lane = b.sub(lane, position);
        let (block, own) = (b.convert(Ty::I64, block), b.binary(Binary::Div, thread, lanes));
        let own = b.convert(Ty::I64, own);
        let before = b.mul(block, Operand::i64(i64::from(schedule.rows())));
        let number = b.add(before, own);
        let rows = args.rows(b, stage.outer_axes());
        let row_exists = b.lt(number, rows);
        // Lanes without a row read those of the first one, and write nothing.
        let number = b.select(row_exists, number, Operand::i64(0));
        let row = args.row_indices(b, number);
        let first = b.mul(position, Operand::i32(schedule.states as i32));
        let first = b.convert(Ty::I64, first);
        let size = args.size(scan.scan.along);
        let place = |b: &mut Builder, k: u32| match schedule.padded {
            false => Operand::bool(true),
            true => {
                let place = b.add(first, Operand::i64(i64::from(k)));
                b.lt(place, size)
            }
        };
        let exists = (0..schedule.states).map(|k| place(b, k)).collect();
        let mut indices = row.clone();
        indices.push((scan.scan.along, first));
        let params = 0..stage.program.params.len() as u32;
        let bases = params.map(|param| args.offset(b, Tensor::Param(param), &indices)).collect();
        RecurrenceKernel {
            stage,
            scan,
            form,
            schedule,
            args,
            row,
            row_exists,
            position,
            first_lane,
            first,
            exists,
            bases,
        }
    }

    fn body(&self, b: &mut Builder) {
        let mut fixed = Values::without_time(self);
        let init = fixed.of_places(b, self.scan.scan.init);
        let states: Vec<Reg> = init.into_iter().map(|x| b.var(x)).collect();
        self.fixed(b, &mut fixed);
        let slots = Slot::all(b, self);
        slots.iter().enumerate().for_each(|(k, slot)| slot.load(b, self, Operand::i64(k as i64)));
        let (length, ahead) = (self.length(), i64::from(self.schedule.ahead));
        b.for_(Operand::i64(0), length, Operand::i64(ahead), |b, start| {
            for (k, slot) in (0..).zip(&slots) {
                let step = b.add(start, Operand::i64(k));
                let some = if k == 0 { Operand::bool(true) } else { b.lt(step, length) };
                b.if_(some, |b| {
                    let mut values = fixed.at(b, step, slot);
                    self.step(b, &mut values, &states);
                    let next = b.add(step, Operand::i64(ahead));
                    slot.load(b, self, next);
                });
            }
        });
        self.store_ends(b, fixed, &states);
    }

    /// Emits what is the same at all steps, once.
    fn fixed(&self, b: &mut Builder, values: &mut Values<'_, 's>) {
        let time = self.scan.scan.axis;
        let constant = |v: &Value| {
            let node = self.stage.program.node(*v);
            !node.axes.contains(time) && !matches!(node.op, Op::Const(_)) && node.ty != Ty::Tuple
        };
        for value in self.read_by_steps().into_iter().filter(constant) {
            let has_places = self.stage.program.node(value).axes.contains(self.scan.scan.along);
            let places = if has_places { self.schedule.states } else { 1 };
            (0..places).for_each(|k| _ = values.of_place(b, value, k));
        }
    }

    /// The values that steps ask for, but whole matrices.
    fn roots(&self) -> Vec<Value> {
        let (program, scan) = (&self.stage.program, self.scan.scan);
        let pairs = scan.terms.iter().filter(|term| matches!(term, Term::Pair { .. }));
        let mut roots: Vec<Value> = [scan.decay, scan.input].into_iter().chain(scan.reset).collect();
        roots.extend(pairs.flat_map(Term::values));
        roots.extend(self.form.readouts.iter().map(|readout| readout.element));
        roots.extend((0..program.outputs.len()).filter(|k| !self.stage.is_final(*k)).map(|k| program.outputs[k].value));
        roots
    }

    /// The values that steps compute or read, without whole matrices.
    fn read_by_steps(&self) -> BTreeSet<Value> {
        let program = &self.stage.program;
        let (mut open, mut seen) = (self.roots(), BTreeSet::new());
        while let Some(value) = open.pop() {
            let op = &program.node(value).op;
            if !matches!(op, Op::MatrixScan(_) | Op::Reduce { .. }) && seen.insert(value) {
                open.extend(op.operands());
            }
        }
        seen
    }

    /// The lane's places of its row.
    fn places(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.schedule.states
    }

    /// The number of steps, `i64`.
    fn length(&self) -> Operand {
        self.args.size(self.scan.scan.axis)
    }

    /// The index along time of a step, numbered in the order of the scan, `i64`.
    fn time(&self, b: &mut Builder, step: Operand) -> Operand {
        if !self.scan.scan.reverse {
            return step;
        }
        let last = b.sub(self.length(), Operand::i64(1));
        b.sub(last, step)
    }
}
