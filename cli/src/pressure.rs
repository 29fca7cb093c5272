//! The committed table of registers and spills: what `ptxas` says of kernels, so that no rule in code has to.
//!
//! A line is a kernel: the stage's program, the element types of its tensors, instruction set, schedule, registers of a thread, bytes
//! of a thread that spill, with tabs between them. `oplus survey --models --table` writes it.

use oplus_codegen::schedules::Schedule;
use oplus_codegen::stage::Stage;
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// The table as it is committed.
const COMMITTED: &str = include_str!("../survey/pressure.tsv");

/// The key of a kernel in the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    program: String,
    elements: String,
    isa: String,
    schedule: String,
}

/// The report of `ptxas` on a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    /// Registers of a thread.
    pub(crate) count: u32,
    /// Bytes of a thread that spill.
    pub(crate) spilled: u32,
}

/// Kernels and what `ptxas` says of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pressure(BTreeMap<Shape, Registers>);

impl Shape {
    /// The shape of a stage's kernel.
    pub(crate) fn of(stage: &Stage, schedule: &Schedule, isa: Isa) -> Shape {
        let (params, outputs) = (&stage.program.params, &stage.program.outputs);
        let mut elements: Vec<&str> = vec![];
        for elem in params.iter().map(|p| p.elem).chain(outputs.iter().map(|o| o.elem)).map(Elem::name) {
            if !elements.contains(&elem) {
                elements.push(elem);
            }
        }
        Shape {
            program: stage.program.name.clone(),
            elements: elements.join(" "),
            isa: schedule.isa(isa).name().to_owned(),
            schedule: schedule.to_string(),
        }
    }
}

impl Pressure {
    /// The committed table.
    pub(crate) fn committed() -> Result<Pressure, String> {
        Pressure::read(COMMITTED)
    }

    /// Reads a table.
    fn read(text: &str) -> Result<Pressure, String> {
        let mut all = Pressure::default();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [program, elements, isa, schedule, count, spilled] = fields[..] else {
                return Err(format!("line {number} has {} fields, not 6", fields.len()));
            };
            let [program, elements, isa, schedule] = [program, elements, isa, schedule].map(str::to_owned);
            let whole = |text: &str| text.parse().map_err(|_| format!("line {number}: `{text}` is not a whole number"));
            let registers = Registers { count: whole(count)?, spilled: whole(spilled)? };
            all.insert(Shape { program, elements, isa, schedule }, registers);
        }
        Ok(all)
    }

    /// Adds a kernel; of several of one shape the one counts that spills most, or else has most registers.
    pub(crate) fn insert(&mut self, shape: Shape, registers: Registers) {
        let rank = |r: Registers| (r.spilled, r.count);
        let known = self.0.entry(shape).or_insert(registers);
        if rank(registers) > rank(*known) {
            *known = registers;
        }
    }

    /// The table's line for a kernel, if it has one.
    pub(crate) fn of(&self, shape: &Shape) -> Option<Registers> {
        self.0.get(shape).copied()
    }
}

impl Display for Pressure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# program, elements, isa, schedule, registers, bytes spilled; written by `oplus survey --models --table`"
        )?;
        for (Shape { program, elements, isa, schedule }, Registers { count, spilled }) in &self.0 {
            writeln!(f, "{program}\t{elements}\t{isa}\t{schedule}\t{count}\t{spilled}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_read_back() {
        let text = "# a comment\np\tf32\tsm_80\trows(a=1)\t40\t0\np\tf32\tsm_80\trows(a=1)\t38\t8\n";
        let table = Pressure::read(text).unwrap();
        assert_eq!(table.0.values().collect::<Vec<_>>(), [&Registers { count: 38, spilled: 8 }]);
        assert_eq!(Pressure::read(&table.to_string()), Ok(table));
        assert_eq!(Pressure::read("p\tf32").unwrap_err(), "line 1 has 2 fields, not 6");
        let wrong = Pressure::read("#\np\tf32\tsm_80\trows\tx\t0").unwrap_err();
        assert_eq!(wrong, "line 2: `x` is not a whole number");
    }
}
