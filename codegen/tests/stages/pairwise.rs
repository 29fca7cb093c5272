//! Pair sums: attention and its gradient are few stages, and give what the program gives.

use oplus_codegen::stage::{
    Cut, Kind, Sink, Stage, cut_grouped_query, cut_pairwise, cut_pairwise_separate, cut_split_k,
};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::{Op, Program};

use super::run::check_at;

/// A standard model.
fn model(name: &str) -> Program {
    let models = oplus_front::model_programs();
    models.into_iter().find(|program| program.name == name).expect("a model").instantiate(Elem::F32)
}

/// The stages of a program, after checking that they compute what it does.
fn paired(program: &Program) -> Cut {
    checked(program, cut_pairwise(program).expect("cuts").expect("pair sums"))
}

/// The cut, after checking that its stages compute what the program does.
fn checked(program: &Program, cut: Cut) -> Cut {
    let size = |axis: &str, m: usize, n: usize| match axis {
        "M" => m,
        "N" => n,
        "E" | "S" => 3,
        _ => 2,
    };
    for (m, n) in [(3, 5), (5, 3), (1, 1), (2, 0), (0, 2)] {
        let sizes: Vec<usize> = program.axes.iter().map(|axis| size(axis, m, n)).collect();
        check_at(program, &cut, &sizes);
    }
    cut
}

/// The axes that a stage reduces, outermost reduction last.
fn reduced(stage: &Stage) -> Vec<&str> {
    let axis = |op: &Op| match op {
        Op::Reduce { axis, .. } | Op::Scan { axis, .. } => Some(stage.program.axis_name(*axis)),
        _ => None,
    };
    stage.program.nodes.iter().filter_map(|node| axis(&node.op)).collect()
}

#[test]
fn attention_is_one_stage() {
    for name in ["attention", "attention_causal", "attention_window", "attention_bias", "attention_softcap"] {
        let cut = paired(&model(name));
        assert_eq!(cut.stages.iter().map(reduced).collect::<Vec<_>>(), [["E", "N"]], "{name}");
        assert!(cut.buffers.is_empty(), "{name}");
        let sinks: Vec<usize> = cut.stages.iter().map(|stage| stage.sinks.len()).collect();
        assert_eq!(sinks, [2], "{name}");
    }
}

#[test]
fn packed_sequences_are_found_first() {
    for name in ["attention_packed", "attention_packed_causal"] {
        let cut = paired(&model(name));
        let last = cut.stages.last().expect("a stage");
        assert_eq!(reduced(last), ["E", "N"], "{name}");
        assert!(cut.stages.iter().rev().skip(1).all(|stage| stage.axis().is_some()), "{name}");
    }
}

#[test]
fn the_gradient_of_attention_is_two_stages_of_pairs() {
    for name in ["attention", "attention_causal", "attention_window", "attention_softcap", "attention_packed_causal"] {
        let cut = paired(&adjoint(&model(name)).expect("a gradient"));
        let pairs: Vec<Vec<&str>> = cut.stages.iter().map(reduced).filter(|axes| axes.contains(&"E")).collect();
        assert_eq!(pairs.len(), 2, "{name}: {pairs:?}");
        for axes in pairs {
            let contracted = axes.iter().filter(|axis| ["E", "F"].contains(axis)).count();
            let summed: Vec<&&str> = axes.iter().filter(|axis| ["M", "N"].contains(axis)).collect();
            assert_eq!((contracted, summed.windows(2).all(|pair| pair[0] == pair[1])), (2, true), "{name}: {axes:?}");
        }
    }
}

#[test]
fn recurrences_have_no_pair_sums() {
    for name in ["mamba", "ssd", "monoid_attention", "merge", "merge_parts"] {
        assert_eq!(cut_pairwise(&model(name)), Ok(None), "{name}");
    }
}

#[test]
fn the_schedule_of_pairs_takes_the_stages() {
    for name in ["attention", "attention_causal", "attention_window", "attention_softcap", "attention_packed_causal"] {
        let program = model(name);
        for program in [adjoint(&program).expect("a gradient"), program] {
            for stage in cut_pairwise(&program).expect("cuts").expect("pair sums").stages {
                if reduced(&stage).contains(&"E") {
                    assert_eq!(stage.kind().pairwise().map(|_| ()), Ok(()), "{}", stage.program);
                }
            }
        }
    }
}

#[test]
fn every_gradient_alone_if_need_be() {
    for name in ["attention", "attention_causal"] {
        let gradient = adjoint(&model(name)).expect("a gradient");
        let cut = checked(&gradient, cut_pairwise_separate(&gradient).expect("cuts").expect("several sums in a stage"));
        let sums = cut.stages.iter().filter(|stage| stage.is_pairwise()).map(|stage| {
            let form = stage.kind().pairwise().expect("the form of pairs");
            (form.contractions.len(), form.payloads.len())
        });
        let mut sums: Vec<(usize, usize)> = sums.collect();
        sums.sort_unstable();
        assert_eq!(sums, [(1, 1), (2, 1), (2, 1)], "{name}");
    }
    assert_eq!(cut_pairwise_separate(&model("attention")), Ok(None));
}

#[test]
fn heads_that_share_keys_are_added_up_at_once() {
    for name in ["attention", "attention_causal", "attention_window", "attention_softcap", "attention_packed_causal"] {
        let gradient = adjoint(&model(name)).expect("a gradient");
        let cut = checked(&gradient, cut_grouped_query(&gradient).expect("cuts").expect("heads share keys"));
        let of_pairs: Vec<&Stage> = cut.stages.iter().filter(|stage| reduced(stage).contains(&"E")).collect();
        let over = |stage: &&Stage| {
            let form = stage.kind().pairwise().unwrap_or_else(|e| panic!("{name}: {e}"));
            form.grouped.map(|axis| stage.program.axis_name(axis).to_owned())
        };
        let gathered: Vec<&&Stage> = of_pairs.iter().filter(|stage| over(stage).is_some()).collect();
        let [of_keys] = gathered[..] else { panic!("{name}: {} stages", gathered.len()) };
        assert_eq!((over(of_keys).as_deref(), of_keys.sinks.len()), (Some("R"), 2), "{name}");
        assert!(of_keys.sinks.iter().all(|sink| matches!(sink, Sink::Output(_))), "{name}");
    }
    assert_eq!(cut_grouped_query(&model("attention")), Ok(None));
}

#[test]
fn columns_in_parts_are_joined_by_the_same_operator() {
    for name in ["attention", "attention_causal", "attention_bias", "attention_packed"] {
        let program = model(name);
        let cut = checked(&program, cut_split_k(&program).expect("cuts").expect("pair sums"));
        let (paired, joins): (Vec<&Stage>, Vec<&Stage>) =
            cut.stages.iter().filter(|s| reduced(s) != ["S"]).partition(|stage| stage.is_pairwise());
        let [paired] = paired[..] else { panic!("{name}: one stage of pairs") };
        assert!(paired.partial_axis.is_some() && (0..3).all(|k| paired.has_partial_sums(k)), "{name}");
        // The log-sum-exp lacks the places of the output and is joined beside it.
        let [join] = joins[..] else { panic!("{name}: {} stages join", joins.len()) };
        assert!(reduced(join) == ["part"] && *join.kind() == Kind::UnevenReduce && join.sinks.len() == 2, "{name}");
    }
    // Two sums along different axes cannot have parts of one number.
    assert_eq!(cut_split_k(&adjoint(&model("attention")).expect("a gradient")), Ok(None));
}
