//! Schedules as texts, and what follows from their numbers.

use super::*;
use crate::schedules::chunkwise::KeyParts;
use crate::schedules::flash::SumsOver;

fn chunkwise() -> Chunkwise {
    Chunkwise {
        ends: false,
        warps: 4,
        unit: Unit::Warpgroup,
        depth: 128,
        padded: false,
        wide: false,
        stages: 2,
        vector: 8,
        blocks: 2,
        copiers: 4,
        heads: 1,
        key_parts: KeyParts::Divided,
        readers: 0,
    }
}

fn lookback() -> LookBack {
    LookBack {
        scan_warps: 8,
        reduce_warps: 4,
        vector: 4,
        vectors: 8,
        stages: 3,
        window: 6,
        fold: Fold::Strict,
        loader: Loader::Bulk,
    }
}

fn columns() -> Columns {
    Columns {
        lane: 1,
        form: Form::Walk,
        warps: 4,
        reduce_warps: 0,
        lanes: 32,
        vector: 4,
        steps: 8,
        stages: 0,
        group: 0,
        window: 0,
        points: 1,
    }
}

fn state_space() -> StateSpace {
    StateSpace {
        warps: 4,
        copy_warps: 2,
        teams: 1,
        states: 8,
        lanes: 2,
        padded: false,
        steps: 32,
        stages: 3,
        unroll: 4,
        vector: 4,
        blocks: 2,
        save: true,
        segmented: true,
        ends: false,
    }
}

fn flash() -> Flash {
    Flash {
        warps: 4,
        repeat: 2,
        unit: Unit::Warpgroup,
        columns: 64,
        depth: 128,
        width: 64,
        padded: true,
        stages: 2,
        vector: 8,
        blocks: 2,
        copiers: 0,
        persistent: false,
        turns: false,
        slack: 0,
        sums: SumsOver::Columns,
    }
}

fn chunkwise_backward() -> ChunkwiseBackward {
    ChunkwiseBackward {
        sweep: Sweep::StateEnds,
        depth: 64,
        padded: true,
        wide: false,
        stages: 2,
        vector: 1,
        blocks: 1,
        copiers: 4,
        warpgroups: false,
        overlaid: true,
        walk_stages: 2,
    }
}

fn state_space_backward() -> StateSpaceBackward {
    StateSpaceBackward {
        pass: Pass::Walk,
        warps: 8,
        copy_warps: 4,
        states: 4,
        rows: 2,
        lanes: 4,
        padded: true,
        steps: 32,
        stages: 2,
        vector: 4,
        blocks: 1,
        registers: 216,
        segmented: false,
        saved_ahead: 0,
    }
}

fn chunk_delta_backward() -> ChunkDeltaBackward {
    ChunkDeltaBackward {
        concurrent: false,
        persistent: false,
        prepared: false,
        overlaid: false,
        sweep: DeltaSweep::Gradients,
        depth: 64,
        padded: true,
        wide: false,
        places: 64,
        vector: 1,
        blocks: 1,
        stages: 3,
    }
}

fn examples() -> [Schedule; 12] {
    [
        Schedule::Map(Map { lane: 0, warps: 8, vector: 4, vectors: 4 }),
        Schedule::Rows(Rows { warps: 4, row_warps: 4, lanes: 32, rows: 1, vector: 4, vectors: 8 }),
        Schedule::LookBack(lookback()),
        Schedule::Columns(columns()),
        Schedule::StateSpace(state_space()),
        Schedule::Flash(flash()),
        Schedule::StateSpaceBackward(state_space_backward()),
        Schedule::Chunkwise(chunkwise()),
        Schedule::ChunkwiseBackward(chunkwise_backward()),
        Schedule::Recurrence(Recurrence {
            lanes: 8,
            warps: 4,
            states: 8,
            ahead: 2,
            vector: 4,
            padded: true,
            ordered: false,
        }),
        Schedule::ChunkDeltaBackward(chunk_delta_backward()),
        Schedule::ChunkDelta(ChunkDelta {
            depth: 64,
            padded: false,
            wide: true,
            places: 32,
            stages: 3,
            vector: 8,
            blocks: 2,
            readers: true,
            sweep: RuleSweep::Walk,
        }),
    ]
}

#[test]
fn every_schedule_prints_and_parses_back() {
    for schedule in examples() {
        assert_eq!(schedule.to_string().parse(), Ok(schedule));
    }
}

#[test]
fn a_usual_value_is_left_out_of_the_text() {
    let usual = "flash(warps=4, repeat=2, unit=warpgroup, columns=64, depth=128, width=64, padded=true, stages=2, vector=8, blocks=2)";
    assert_eq!(flash().to_string(), usual);
    let other = Schedule::Flash(Flash { copiers: 4, turns: true, ..flash() });
    assert_eq!(other.to_string(), usual.replace(')', ", copiers=4, turns=true)"));
    assert_eq!(other.to_string().parse(), Ok(other));
    assert_eq!(usual.replace(')', ", copiers=0)").parse(), Ok(Schedule::Flash(flash())));
}

#[test]
fn a_bad_text_says_what_is_wrong() {
    let error = |text: &str| text.parse::<Schedule>().unwrap_err();
    assert_eq!(error("tiles(a=1)"), ParseScheduleError::Name("tiles(a=1)".into()));
    assert_eq!(error("map(lane=0, warps=8, vector=4)"), ParseScheduleError::Missing("vectors"));
    assert_eq!(error("map(lane=0, warps=x, vector=4, vectors=4)"), ParseScheduleError::Value("x".into()));
    assert_eq!(error("map(lane=0, warps=8, vector=4, vectors=4, b=1)"), ParseScheduleError::Field("b".into()));
    assert_eq!(error("map(lane=0, lane=0, warps=8, vector=4, vectors=4)"), ParseScheduleError::Field("lane".into()));
}
