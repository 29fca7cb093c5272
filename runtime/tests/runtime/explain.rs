//! Explanations: of calls on the CPU, and of plans for GPUs that are not here.

use crate::common::AFFINE;
use oplus::{Elem, Error, Shapes, Target};

fn shapes(rows: usize, len: usize) -> Shapes {
    Shapes::new().axis("B", rows).axis("L", len)
}

#[test]
fn on_the_cpu_there_are_equations_and_no_launches() {
    let explained = AFFINE.explain(&shapes(2, 100)).unwrap();
    assert_eq!((explained.kernel.as_str(), &explained.forward.launches), ("affine", &None));
    let text = explained.to_string();
    assert!(text.contains("gradient") && text.contains("on the threads of the CPU"), "{text}");
}

#[test]
fn sizes_decide_the_schedule_and_every_candidate_is_shown() {
    let schedule = |rows, len| {
        let explained = AFFINE.explain(&shapes(rows, len).target(Target::H200)).unwrap();
        let launches = explained.forward.launches.unwrap();
        let weighed = launches.iter().all(|l| l.candidates.first().is_some_and(|c| c.schedule == l.schedule));
        assert!(weighed && launches.iter().all(|l| l.threads % 32 == 0 && l.key.len() == 64));
        launches.iter().map(|l| l.schedule.split('(').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(schedule(1, 1 << 24).contains(&"lookback".to_owned()));
    assert!(schedule(1 << 16, 256).contains(&"rows".to_owned()));
}

#[test]
fn a_kernel_that_no_source_has_is_explained_but_for_its_ptx() {
    let explained = AFFINE.explain(&shapes(1, 1 << 20).target(Target::H200)).unwrap();
    let launches = explained.forward.launches.clone().unwrap();
    if cfg!(feature = "jit") {
        assert!(launches.iter().all(|l| l.ptx.as_ref().is_ok_and(|facts| facts.kinds.contains_key("ld.global"))));
    } else {
        assert!(launches.iter().all(|l| matches!(l.ptx, Err(Error::NoKernel { .. }))));
        assert!(explained.to_string().contains("oplus bake"));
    }
}

#[test]
fn what_is_left_out_is_not_explained() {
    let explained = AFFINE.explain(&shapes(2, 100).without("h0").without("h.bar")).unwrap();
    let gradient = explained.gradient.unwrap().equations;
    assert!(!explained.forward.equations.contains("param h0"), "{}", explained.forward.equations);
    assert!(!gradient.contains("output h0.bar") && !gradient.contains("param h.bar"), "{gradient}");
    assert!(gradient.contains("output x.bar"));
}

#[test]
fn an_axis_without_a_size_is_named() {
    let error = AFFINE.explain(&Shapes::new().axis("B", 2).elem(Elem::F64)).unwrap_err();
    assert_eq!(error, Error::UnknownSize { axis: "L".into() });
}
