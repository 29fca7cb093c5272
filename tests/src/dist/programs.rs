//! The programs that a divided kernel is made of, each by itself on one device against the CPU: where the ranks' results are wrong,
//! this says which program is.

use oplus::{Device, Elem, Error, Kernel, Tensor};
use oplus_dsl::ir::{Axis, Param, Program};
use oplus_dsl::rng::Rng;
use oplus_dsl::shard::shard;

use super::case::{Case, of_array, timed};
use super::member::{Print, difference, worse};
use super::{Line, TOLERANCE};
use crate::check::data::download;
use crate::check::inputs::{Fill, array};

/// Checks the programs of the timed kernels whose names have `only` in them, with so many tokens. Whether all was right.
///
/// # Errors
/// The errors of calls.
pub fn programs(device: &Device, only: &str, tokens: usize, print: Print<'_>) -> Result<bool, Error> {
    let mut right = true;
    for case in timed(tokens).iter().filter(|case| case.name.contains(only)) {
        let gradient = case.kernel.gradient_program().ok();
        for program in [Some(case.program()?), gradient].into_iter().flatten() {
            for (what, part) in parts(program, &case.axis) {
                let line = Checked { case, device }.line(&what, part)?;
                print(&line);
                right &= line.is_right();
            }
        }
    }
    Ok(right)
}

/// The programs of the shards, with the phase of each. Folds are left out, since they take what ranks exchange, and so are programs
/// with an axis that no parameter has, since its size is known to the ranks alone.
fn parts(program: &Program, axis: &str) -> Vec<(String, Program)> {
    let Ok(divided) = shard(program, axis) else { return vec![] };
    let mut all = vec![];
    for (number, phase) in (1..).zip(divided.phases) {
        let is_sized =
            |own: &Program| (0..own.axes.len() as u32).all(|k| own.params.iter().any(|p| p.axes.contains(&Axis(k))));
        all.extend(phase.program.filter(is_sized).map(|own| (format!("{}, phase {number}", program.name), own)));
    }
    all
}

struct Checked<'a> {
    case: &'a Case,
    device: &'a Device,
}

impl Checked<'_> {
    fn line(&self, what: &str, program: Program) -> Result<Line, Error> {
        let names: Vec<String> = program.outputs.iter().map(|output| output.name.clone()).collect();
        let inputs = self.inputs(&program)?;
        let kernel = Kernel::from_derived(program)?;
        let results = |device: &Device| -> Result<Vec<Tensor>, Error> {
            let there = inputs.iter().map(|x| x.as_ref().map(|x| x.to_device(device)).transpose());
            let there = there.collect::<Result<Vec<_>, _>>()?;
            kernel.call(&there.iter().map(Option::as_ref).collect::<Vec<_>>()).map(|(outputs, _)| outputs)
        };
        let (found, wanted) = (results(self.device)?, results(&Device::Cpu)?);
        let (mut error, mut wrong) = (0.0_f64, vec![]);
        for ((name, found), wanted) in names.iter().zip(&found).zip(&wanted) {
            let apart = difference(&download(found)?, &download(wanted)?);
            error = worse(error, apart);
            if apart.is_nan() || apart > TOLERANCE {
                wrong.push(format!("{name} {:?}: {apart:e}", found.shape()));
            }
        }
        let reason = (!wrong.is_empty()).then(|| wrong.join("; "));
        let (case, device) = (what.to_owned(), self.device.to_string());
        Ok(Line {
            case,
            kind: "program",
            ranks: 1,
            tokens: self.case.checked,
            device,
            error: Some(error),
            reason,
            ..Line::default()
        })
    }

    /// Random inputs, also for parameters with a default: a cotangent that is left out would be zero, and so all that is checked.
    fn inputs(&self, program: &Program) -> Result<Vec<Option<Tensor>>, Error> {
        let mut rng = Rng::new(0xd157);
        let sizes: Vec<usize> = program.axes.iter().map(|axis| self.case.size(axis, self.case.checked, 2)).collect();
        let mut tensor = |param: &Param| {
            let array = array(program, param, Elem::F32, &sizes, Fill::Random, &mut rng);
            of_array(&array, param.elem.in_call(Elem::F32))
        };
        program.params.iter().map(|param| tensor(param).map(Some)).collect()
    }
}
