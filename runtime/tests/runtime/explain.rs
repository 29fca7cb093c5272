//! Explanations: of calls on the CPU, and of plans for GPUs that are not here.

use std::sync::LazyLock;

use crate::common::AFFINE;
use oplus::explain::{Explained, GpuPlan};
use oplus::source::{Code, Isa, KernelSource, Launch, register};
use oplus::{Device, Elem, Error, Kernel, Shapes, Target};

fn shapes(rows: usize, len: usize) -> Shapes {
    Shapes::new().axis("B", rows).axis("L", len)
}

/// The launches of a program that is explained for a GPU.
fn launches(explained: &Explained) -> &[oplus_codegen::explain::Explained] {
    let Some(GpuPlan { plan: Ok(planned), .. }) = &explained.gpu else { panic!("{explained}") };
    &planned.launches
}

/// The text of an explanation on a machine with four threads.
fn on_four_threads(kernel: &Kernel, shapes: &Shapes) -> String {
    let mut explained = kernel.explain(shapes).unwrap();
    let gradient = explained.gradient.as_mut().ok();
    for plan in [Some(&mut explained.forward), gradient].into_iter().flatten().filter_map(|e| e.cpu.as_mut()) {
        plan.threads = 4;
    }
    explained.to_string()
}

#[test]
fn on_the_cpu_there_are_equations_and_the_walks_of_its_threads() {
    insta::assert_snapshot!(on_four_threads(&AFFINE, &shapes(2, 1 << 20).device(&Device::Cpu)));
}

#[test]
fn rows_that_are_many_are_not_cut_and_small_calls_have_one_thread() {
    let text = |rows, len| on_four_threads(&AFFINE, &shapes(rows, len).device(&Device::Cpu));
    assert!(!text(64, 1 << 15).contains("is cut into") && text(64, 1 << 15).contains("4 threads, which take"));
    assert!(text(2, 100).contains("1 thread: there is too little to do"), "{}", text(2, 100));
}

#[test]
fn without_a_place_there_is_the_plan_of_the_cpu_and_that_of_a_gpu() {
    let explained = AFFINE.explain(&shapes(2, 100)).unwrap();
    let text = explained.to_string();
    assert!(text.contains("on the CPU\n") && explained.forward.cpu.is_some());
    if Device::cuda_count() == 0 {
        assert!(
            text.contains("on a GPU: H200 (sm_90a, 132 multiprocessors); this machine is not one: it has no GPU"),
            "{text}"
        );
    } else {
        assert!(text.contains(", which is here"), "{text}");
    }
    let on_cpu = AFFINE.explain(&shapes(2, 100).device(&Device::Cpu)).unwrap();
    assert!(on_cpu.forward.gpu.is_none() && on_cpu.gradient.unwrap().gpu.is_none());
}

#[test]
fn each_candidate_is_told_once() {
    let explained = AFFINE.explain(&shapes(3, 5000).target(Target::H200)).unwrap();
    for launch in launches(&explained.forward) {
        let names =
            launch.candidates.iter().map(|fit| &fit.schedule).chain(launch.refused.iter().map(|(name, _)| name));
        let mut names: Vec<&String> = names.collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{explained}");
    }
}

#[test]
fn sizes_decide_the_schedule_and_every_candidate_is_shown() {
    let schedules = |rows, len| {
        let explained = AFFINE.explain(&shapes(rows, len).target(Target::H200)).unwrap();
        let taken =
            launches(&explained.forward).iter().map(|l| l.candidates[0].schedule.split('(').next().unwrap().to_owned());
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
    // SAFETY: no device runs these kernels.
    #[allow(unsafe_code)]
    unsafe {
        register(OnlyRows);
    }
    let taken = |rows, len| {
        let explained = ONLY_ROWS.explain(&shapes(rows, len).target(Target::H200)).unwrap().forward;
        let schedules =
            launches(&explained).iter().map(|l| l.candidates[0].schedule.split('(').next().unwrap().to_owned());
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
