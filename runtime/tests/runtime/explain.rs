//! Explanations: of calls on the CPU, and of plans for GPUs that are not here.

use std::sync::{Arc, LazyLock};

use crate::common::AFFINE;
use oplus::explain::Explained;
use oplus::source::{Code, Isa, KernelSource, Launch, register};
use oplus::{Elem, Error, Kernel, Shapes, Target};

fn shapes(rows: usize, len: usize) -> Shapes {
    Shapes::new().axis("B", rows).axis("L", len)
}

/// The launches of a program that is explained for a GPU.
fn launches(explained: &Explained) -> &[oplus_codegen::explain::Explained] {
    let Explained::Gpu(planned) = explained else { panic!("{explained}") };
    &planned.launches
}

#[test]
fn on_the_cpu_there_are_equations_and_no_launches() {
    let explained = AFFINE.explain(&shapes(2, 100)).unwrap();
    let text = explained.to_string();
    assert!(text.starts_with("affine\n") && text.contains("gradient") && text.contains("on the threads of the CPU"));
    assert!(text.contains("λ[t]") && text.contains("h̄[t]"), "{text}");
    assert!(matches!(explained.gradient, Ok(Explained::Cpu(_))));
}

#[test]
fn sizes_decide_the_schedule_and_every_candidate_is_shown() {
    let schedules = |rows, len| {
        let explained = AFFINE.explain(&shapes(rows, len).target(Target::H200)).unwrap();
        let taken =
            launches(&explained.forward).iter().map(|l| l.candidates[0].0.split('(').next().unwrap().to_owned());
        taken.collect::<Vec<_>>()
    };
    assert!(schedules(1, 1 << 24).contains(&"lookback".to_owned()));
    assert!(schedules(1 << 16, 256).contains(&"rows".to_owned()));
}

#[test]
fn a_kernel_that_no_source_has_is_explained_but_for_its_ptx() {
    let explained = AFFINE.explain(&shapes(1, 1 << 20).target(Target::H200)).unwrap();
    let expected = if cfg!(feature = "jit") { "ld.global" } else { "oplus bake" };
    let ptx = launches(&explained.forward).iter().flat_map(|l| &l.facts);
    let ptx: Vec<&String> = ptx.filter(|(name, _)| name == "PTX").map(|(_, fact)| fact).collect();
    assert!(!ptx.is_empty() && ptx.iter().all(|fact| fact.contains(expected)), "{ptx:?}");
    assert!(explained.to_string().contains(expected));
}

/// The kernels under one sort of schedule of a program that no other test has.
struct OnlyRows;

impl KernelSource for OnlyRows {
    fn find(&self, launch: &Launch, _: Isa) -> Result<Option<Code>, Error> {
        let has = launch.stage.program.name.starts_with("only_rows") && launch.schedule.name() == "rows";
        Ok(has.then(|| Code::from(".version 7.8".to_owned())))
    }
}

#[test]
fn a_plan_whose_kernels_are_there_takes_the_place_of_one_that_lacks_some() {
    static ONLY_ROWS: LazyLock<Kernel> = LazyLock::new(|| {
        let text = AFFINE.program().unwrap().to_string().replacen("program affine", "program only_rows", 1);
        Kernel::new("only_rows", text.leak())
    });
    register(Arc::new(OnlyRows));
    let taken = |rows, len| {
        let explained = ONLY_ROWS.explain(&shapes(rows, len).target(Target::H200)).unwrap().forward;
        let schedules = launches(&explained).iter().map(|l| l.candidates[0].0.split('(').next().unwrap().to_owned());
        (schedules.collect::<Vec<_>>(), explained.to_string())
    };
    let (schedules, text) = taken(1, 1 << 24);
    let is_slower =
        text.contains("taken instead of the fastest plan, ") && text.contains("oplus bake --kernel only_rows");
    if cfg!(feature = "jit") {
        assert!(schedules.contains(&"lookback".to_owned()) && !is_slower, "{text}");
    } else {
        assert!(schedules.iter().all(|s| s == "rows") && is_slower, "{text}");
    }
    let (schedules, text) = taken(1 << 16, 256);
    assert!(schedules.iter().all(|s| s == "rows") && !text.contains("instead"), "{text}");
}

#[test]
fn what_is_left_out_is_not_explained() {
    let explained = AFFINE.explain(&shapes(2, 100).without("h0").without("h.bar")).unwrap();
    let (forward, gradient) = (explained.forward.to_string(), explained.gradient.unwrap().to_string());
    assert!(!forward.contains("h0"), "{forward}");
    assert!(!gradient.contains("h̄0") && !gradient.contains("h̄[t]") && gradient.contains("x̄"), "{gradient}");
}

#[test]
fn a_size_of_an_axis_that_the_kernel_lacks_is_refused() {
    let error = AFFINE.explain(&shapes(2, 100).axis("T", 3)).unwrap_err();
    let (axis, kernel, known) = ("T".into(), "affine".into(), "B, L".into());
    assert_eq!(error, Error::UnknownAxis { axis, kernel, known });
}

#[test]
fn an_axis_without_a_size_is_named() {
    let error = AFFINE.explain(&Shapes::new().axis("B", 2).elem(Elem::F64)).unwrap_err();
    assert_eq!(error, Error::UnknownSize { axis: "L".into() });
}
