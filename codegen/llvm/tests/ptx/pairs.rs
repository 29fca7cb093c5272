//! Sums over pairs: the kernels that plans choose fit the registers, and warpgroups are never made to wait in between.

use crate::check::{contains, ptx};
use crate::programs::{SEEN, backward_keys, backward_queries, backward_shared_keys, causal, plain};
use oplus_codegen::plan::variants;
use oplus_codegen::schedules::Schedule;
use oplus_codegen::schedules::lower;
use oplus_codegen::target::Isa;

#[test]
fn attention_and_its_gradient_do_not_spill() {
    let forward = [plain("bf16"), causal("bf16")];
    let backward = [backward_queries, backward_keys, backward_shared_keys].map(|stage| stage("f16", SEEN[1]));
    let stages = [&forward[..], &backward].concat();
    for (stage, isa) in stages.iter().flat_map(|stage| Isa::ALL.map(|isa| (stage, isa))) {
        for (stage, schedule) in variants(stage, isa) {
            let Schedule::Flash(s) = schedule else { panic!("{schedule}") };
            if s.padded || s.depth != 128 {
                continue;
            }
            let own = schedule.isa(isa);
            let text = ptx(&lower(&stage, &schedule, own).expect("lowers"), own);
            contains(&text, if own == Isa::Sm90a { "wgmma.mma_async.sync.aligned" } else { "mma.sync.aligned" });
        }
    }
}
