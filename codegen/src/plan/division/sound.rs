//! Only kernels that keep the rules of the tile IR are taken.
//!
//! A lowering has no fault that is known, but the verifier would find one. A plan that asks for it takes another schedule
//! then, and `explain` shows the reason among those that the plan has refused. Other plans are not slowed by it: a kernel
//! that is compiled is verified in any case.

use super::{Division, Form, Offers};
use crate::plan::choosing::Choosing;
use crate::schedules::{Misfit, Schedule, lower_sound};

/// Puts the candidate of a rank first, or the slowest where there are fewer.
fn ranked(Offers { mut candidates, refused }: Offers, rank: usize) -> Offers {
    let taken = rank.min(candidates.len().saturating_sub(1));
    if let Some(better) = candidates.get_mut(..=taken) {
        better.rotate_right(1);
    }
    Offers { candidates, refused }
}

impl Division {
    /// Puts the candidate that is taken first. Where soundness is asked for, one whose kernels cannot run is refused, and the
    /// next one takes its place: only kernels that are taken are lowered here, each once.
    pub(super) fn take(&self, form: &Form, offers: Offers, choosing: Choosing<'_>) -> Offers {
        let (rank, Offers { mut candidates, mut refused }) = (choosing.rank, offers);
        if !choosing.sound {
            return ranked(Offers { candidates, refused }, rank);
        }
        while !candidates.is_empty() {
            let taken = rank.min(candidates.len() - 1);
            let Some(why) = self.fault(form, candidates[taken].schedule) else {
                candidates[..=taken].rotate_right(1);
                break;
            };
            refused.push((candidates.remove(taken).schedule, why));
        }
        Offers { candidates, refused }
    }

    /// Why the kernels of a schedule cannot run, if they cannot.
    fn fault(&self, form: &Form, schedule: Schedule) -> Option<Misfit> {
        let mut faults = self.faults.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let find = || {
            let all = schedule.kernels(&form.stage, self.target.isa);
            all.iter().find_map(|own| lower_sound(&form.stage, own, &self.target).err()).map(Misfit::from)
        };
        faults.entry((form.id, schedule)).or_insert_with(find).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::Explanation;
    use crate::plan::division::FormId;
    use crate::plan::{Call, Launch, Layout, PlanError};
    use crate::schedules::Unsound;
    use crate::stage::{CutKind, cut};
    use crate::target::Target;
    use crate::tile::path::Path;
    use crate::verify::{Fault, VerifyError};
    use oplus_dsl::ir::Program;

    fn cumsum() -> Program {
        let text = "program cumsum { axes B, H, L; param x: f32[B, H, L];
            operator Sum(s: f32) { identity (0.0); %0: f32 = input l.s; %1: f32 = input r.s; %2: f32 = %0 + %1; combine (%2); }
            %0: f32[B, H, L] = param x; %1: tuple[B, H, L] = scan(L, Sum, (%0)); %2: f32[B, H, L] = %1.s;
            output y: f32[B, H, L] = %2; }";
        oplus_dsl::parse::parse(text).expect("a program")
    }

    fn call() -> Call {
        let layout = Layout { strides: vec![8192, 4096, 1], align: 16 };
        Call { sizes: vec![4, 2, 4096], params: vec![Some(layout.clone())], outputs: vec![layout] }
    }

    fn division() -> Division {
        Division::new(
            CutKind::Plain,
            cut(&cumsum()).expect("cuts"),
            &Target::H200,
            &mut crate::plan::division::KnownStages::default(),
        )
    }

    fn fault() -> Misfit {
        let name = VerifyError { path: Path::default(), line: String::new(), fault: Fault::Name("?".into()) };
        Misfit::from(Unsound::Invalid(vec![name]))
    }

    impl Division {
        fn has_fault(&self, is_merged: bool, schedule: Schedule) {
            self.faults.lock().unwrap().insert((FormId { index: 0, is_merged }, schedule), Some(fault()));
        }
    }

    #[test]
    fn a_schedule_whose_kernel_is_not_valid_is_refused_and_the_next_is_taken() {
        let division = division();
        let plan = |rank| division.plan(&call(), Choosing { rank, ..Choosing::sound() }).expect("plans");
        let (best, second) = (plan(0), plan(1));
        division.has_fault(true, best.steps[0].schedule);
        let is_there = |_: &Launch| true;
        for found in
            [plan(0), division.plan(&call(), Choosing { sound: true, ..Choosing::among(&is_there) }).expect("plans")]
        {
            assert_eq!(found.steps, second.steps);
            assert!(found.choices[0].refused.contains(&(best.steps[0].schedule, fault())));
            let shown = Explanation::of(&cumsum(), &found).to_string();
            assert!(shown.contains(&format!("{}: {}", best.steps[0].schedule, fault())), "{shown}");
        }
    }

    #[test]
    fn schedules_of_the_axes_as_they_are_remain() {
        let division = division();
        let merged = division.plan(&call(), Choosing::sound()).expect("plans").choices.remove(0);
        merged.candidates.iter().for_each(|candidate| division.has_fault(true, candidate.schedule));
        let plan = division.plan(&call(), Choosing::sound()).expect("plans");
        assert_eq!(plan.steps[0].stage.program.axes.len(), 3);
        plan.choices[0].candidates.iter().for_each(|candidate| division.has_fault(false, candidate.schedule));
        let Err(PlanError::NoSchedule { reasons, .. }) = division.plan(&call(), Choosing::sound()) else {
            panic!("no kernel can run it")
        };
        assert!(reasons.0.iter().any(|(_, why)| *why == fault()), "{reasons}");
    }
}
