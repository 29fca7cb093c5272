//! Recurrences of matrices that keep their final state alone.

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Op, Program, Value};
use oplus_dsl::walk::follow;

use super::matrix::{MatrixRecurrence, StateAxes, StateField, axes_of, coefficient, decay_of, only_field};
use crate::stage::opposite::{bare_decays, is_affine, is_zero, narrow, shifted_decay};
use crate::stage::{Scan, Stage};

impl MatrixRecurrence {
    /// The form of a stage that keeps final states alone, without a readout; `None` if it is no such recurrence. In reverse the final
    /// state is decay\[t\]·S\[t\] at the first time, as in a gradient.
    pub(super) fn of_final(stage: &Stage) -> Option<MatrixRecurrence> {
        let (program, scan) = (&stage.program, stage.scan()?);
        let (Some(tuple), None) = (scan.inclusive, scan.exclusive) else { return None };
        let operator = program.operator(scan.operator);
        let field = only_field(program, tuple)?;
        let decay = match scan.reverse {
            true if is_affine(operator) => decay_of(program, shifted_decay(program, tuple)?).ok()?,
            true => return None,
            false => coefficient(operator, field)?.decay(program, scan.elements).ok()?,
        };
        let state: Vec<Axis> = axes_of(program, tuple, field).without(scan.axis).iter().collect();
        let of_decay = decay.map_or(AxisSet::EMPTY, |decay| decay.axes(program));
        let widths = |depth: Axis| state.iter().rev().copied().filter(move |w| *w != depth && !of_decay.contains(*w));
        let pairs = state.iter().rev().flat_map(|depth| widths(*depth).map(|width| StateAxes { depth: *depth, width }));
        let of_pair = |axes| MatrixRecurrence::of_scan(program, &scan, StateField { tuple, field }, axes, decay).ok();
        let form = pairs.into_iter().find_map(of_pair)?;
        let is_multiplied = matches!(form.elem(program).ok()?, Elem::Bf16 | Elem::F16 | Elem::F32);
        let all_final = program.outputs.iter().all(|output| form.is_final(program, &scan, output.value));
        (is_multiplied && all_final).then_some(form)
    }

    /// Whether a value is the final state.
    fn is_final(&self, program: &Program, scan: &Scan<'_>, value: Value) -> bool {
        let converted = follow(value, |v| if let Op::Convert(_, x) = program.node(v).op { Some(x) } else { None });
        let (of, empty) = match program.node(converted).op {
            Op::Last { value, empty, .. } if !self.reverse => (value, empty),
            Op::First { value, empty, .. } if self.reverse => (value, empty),
            _ => return false,
        };
        let starts_there = match scan.init.get(self.state.1 as usize) {
            Some(init) => *init == empty || is_zero(program, *init) && is_zero(program, empty),
            None => is_zero(program, empty),
        };
        starts_there && if self.reverse { self.is_decayed_state(program, of) } else { self.is_state(program, of) }
    }

    fn is_state(&self, program: &Program, value: Value) -> bool {
        program.node(narrow(program, value)).op == Op::Field(self.state.0, self.state.1)
    }

    fn is_decayed_state(&self, program: &Program, value: Value) -> bool {
        let Some(decay) = shifted_decay(program, self.state.0) else { return false };
        let is_decay = |v: Value| bare_decays(program, decay).contains(&narrow(program, v));
        match program.node(value).op {
            Op::Binary(Binary::Mul, x, y) => {
                is_decay(x) && self.is_state(program, y) || is_decay(y) && self.is_state(program, x)
            }
            _ => false,
        }
    }
}
