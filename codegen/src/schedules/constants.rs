//! The constants of the cost model, in one table that `oplus tune --fit` writes.

use std::sync::LazyLock;

use thiserror::Error;

/// Declares [`Constants`]: a number for each line.
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// The numbers that estimates of time are made with. Times are microseconds; rates are those of one multiprocessor.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Constants { $($(#[$doc])* pub $name: f64,)+ }

        impl Constants {
            /// The names of the constants, in order.
            pub const NAMES: &[&str] = &[$(stringify!($name)),+];

            /// The numbers, in the order of the names.
            pub fn numbers(&self) -> Vec<f64> {
                vec![$(self.$name),+]
            }

            /// The numbers, in the order of the names, to be replaced.
            pub fn numbers_mut(&mut self) -> Vec<&mut f64> {
                vec![$(&mut self.$name),+]
            }

            const ZEROS: Constants = Constants { $($name: 0.0,)+ };
        }
    };
}

constants! {
    /// From a launch to its first useful load, and from the last store to the end.
    launch,
    /// Share of the bandwidth that scalar accesses reach.
    scalar_share,
    /// Bytes per microsecond of one multiprocessor's share of the bandwidth of memory.
    bandwidth_sm_80,
    /// Bytes per microsecond of one multiprocessor's share of the bandwidth of memory on Hopper.
    bandwidth_sm_90a,
    /// Cycles per microsecond, under the load of a walk.
    clock,
    /// Least time between two tiles of a persistent block: a look-ahead must be hidden behind it.
    tile,
    /// Least time where the carry begins at every row, and so fewer aggregates are folded.
    row_tile,
    /// Rows: one load, scan and store with nothing else in flight.
    rows_iteration,
    /// Rows: the time that an element of a thread takes in an iteration, whether it exists or not.
    rows_element,
    /// Rows: the price of an iteration beside its time: fewer, larger iterations vary less.
    rows_iteration_price,
    /// Look-back: filling the pipeline, and the first look-back.
    lookback_start,
    /// Look-back: every poll beyond the first that it takes to see the aggregates of all other blocks.
    lookback_poll,
    /// Look-back: the share of the bandwidth that persistent blocks reach.
    lookback_bulk,
    /// Look-back: the share without bulk copies. Blocks read their input twice then, once from the L2 cache.
    lookback_registers,
    /// Columns: the time of a chunk beside that of its bytes, with one block on a multiprocessor.
    columns_ahead,
    /// Columns: filling the pipeline, and the first look-back over two levels.
    columns_start,
    /// Columns, walk: what a block takes at least, after those that run from the beginning.
    columns_block,
    /// Columns: the share of the bandwidth that tiles reach.
    columns_ring,
    /// State space: time against a scheduler that never waits, with two or more walking warps.
    state_space_latency,
    /// State space: time against a scheduler that never waits, with one walking warp.
    state_space_latency_of_one,
    /// State space: the time of the kernel that finds the carries of segments, as a share of that of the walk.
    state_space_carries,
    /// State space: from a block's start to its first tile, and from its last one to its end.
    state_space_block,
    /// State space: taking up the carry of one segment.
    state_space_join,
    /// Backward: issue slots of the walk per update of a state.
    backward_walk_update,
    /// Backward: issue slots of the walk per step of a row.
    backward_walk_step,
    /// Backward: issue slots of the pass that saves states, per update of a state.
    backward_save_update,
    /// Backward: issue slots of the pass that saves states, per step of a row.
    backward_save_step,
    /// Backward: issue slots of the pass that carries cotangents over segments, per update of a state.
    backward_carry_update,
    /// Backward: issue slots of the pass that carries cotangents over segments, per step of a row.
    backward_carry_step,
    /// Backward: the walk's issue slots with one row per lane against those with two.
    backward_one_row,
    /// Backward: from a block's start to its first tile, and from its last one to its end.
    backward_block,
    /// Backward: taking up the carry of one segment.
    backward_join,
    /// Backward: time against a scheduler that never waits, with two or more walking warps.
    backward_latency,
    /// Backward: time against a scheduler that never waits, with one walking warp.
    backward_latency_of_one,
    /// Flash: multiply-adds per microsecond that tensor cores reach in such kernels.
    flash_products,
    /// Flash: bytes per microsecond that are copied to shared memory.
    flash_copies,
    /// Flash: from a block's start to its first tiles and from its last one to its end, while other blocks compute.
    flash_start,
    /// Flash: between a tile and the next one.
    flash_iteration,
    /// Flash: multiply-adds per microsecond where warps overlap products with weights.
    flash_overlapped,
    /// Flash: bytes per microsecond that such blocks copy to shared memory.
    flash_overlapped_copies,
    /// Flash: between a tile of such a block and the next one.
    flash_overlapped_iteration,
    /// Flash: from such a block's start to its first tiles and from its last one to its end, while no other block computes.
    flash_overlapped_start,
    /// Flash: this time for a tile of rows of a persistent block, which begins its next tile while it ends this one.
    flash_persistent_start,
    /// Flash: this time for a tile of rows of a pair of tiles, where rows see different columns.
    flash_pairs_start,
    /// Flash: multiply-adds per microsecond of blocks that also have sums over rows.
    flash_both_products,
    /// Flash: pairs whose weights such blocks evaluate per microsecond, beside the products.
    flash_both_pairs,
    /// Flash: until such a block has its first tiles and after its last one, for each outer point.
    flash_both_start,
    /// Flash: until such a block's sums over rows have been added and the next one's may be.
    flash_both_add,
    /// Chunkwise: multiply-adds per microsecond by warps.
    chunkwise_warps,
    /// Chunkwise: multiply-adds per microsecond by warpgroups.
    chunkwise_warpgroups,
    /// Chunkwise: multiply-adds per microsecond by warpgroups beside warps that only copy.
    chunkwise_copied,
    /// Chunkwise: multiply-adds per microsecond by warpgroups of factors in two parts.
    chunkwise_parts,
    /// Chunkwise: multiply-adds per microsecond in split tf32.
    chunkwise_split,
    /// Chunkwise: multiply-adds per microsecond where packed pairs are unpacked.
    chunkwise_unpacked,
    /// Chunkwise: the time of an iteration beside its products and powers.
    chunkwise_iteration,
    /// Chunkwise: the factor by which time grows where too few warps hide one another's waits.
    chunkwise_alone,
    /// Chunkwise: powers of two per microsecond.
    chunkwise_powers,
    /// Chunkwise: powers of two for each time and channel where decays are those of channels: of pairs, and to scale queries and keys.
    chunkwise_powers_each,
    /// Chunkwise: a block's start, in iterations.
    chunkwise_start,
    /// Chunkwise: taking up a segment, in iterations.
    chunkwise_join,
    /// Chunkwise backward: multiply-adds per microsecond of packed pairs.
    chunkwise_backward_products,
    /// Chunkwise backward: multiply-adds per microsecond of the third sweep by warpgroups.
    chunkwise_backward_warpgroups,
    /// Chunkwise backward: multiply-adds per microsecond of walks whose factors are in two parts.
    chunkwise_backward_parts_walk,
    /// Chunkwise backward: multiply-adds per microsecond of the third sweep whose factors are in two parts.
    chunkwise_backward_parts,
    /// Chunkwise backward: multiply-adds per microsecond of packed pairs beside states in tf32.
    chunkwise_backward_unpacked,
    /// Chunkwise backward: multiply-adds per microsecond in split tf32.
    chunkwise_backward_split,
    /// Chunkwise backward: bytes per microsecond that are copied to shared memory.
    chunkwise_backward_copies,
    /// Chunkwise backward: powers of two in a walk, for each time and channel where decays are those of channels.
    chunkwise_backward_powers_walk,
    /// Chunkwise backward: such powers of two in the third sweep.
    chunkwise_backward_powers_back,
    /// Recurrence: time against schedulers that never wait.
    recurrence_latency,
    /// Recurrence: cycles of a step beside its sums.
    recurrence_step,
    /// Recurrence: cycles of a shuffle that a step waits for.
    recurrence_shuffle,
    /// Delta rules in chunks: the work on a tile of times at a depth of 64.
    chunk_delta_tile,
    /// Delta rules in chunks: the waits of a tile of times, which blocks of a multiprocessor share.
    chunk_delta_wait,
    /// Delta rules in chunks: the factor of both where decays differ along the depth, at a depth of 64.
    chunk_delta_channels,
}

/// The head of the table.
const HEAD: &str = "# The constants of the cost model: codegen/src/schedules/constants.rs says what they are, `oplus tune --fit` writes this table.\n";

static COMMITTED: LazyLock<Constants> =
    LazyLock::new(|| Constants::parse(include_str!("constants.tsv")).expect("a test reads the committed table"));

/// A table that does not have every constant once.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConstantsError {
    /// A line that is not a name, a tab and a positive number.
    #[error("line {line} of the table of constants is not a name, a tab and a positive number: `{text}`")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A name of no constant, or one that was there before.
    #[error("line {line} of the table of constants: `{name}` is no constant, or is there twice")]
    Name {
        /// The number of the line, from 1.
        line: usize,
        /// The name.
        name: String,
    },
    /// A constant that is not there.
    #[error("the table of constants lacks `{0}`")]
    Missing(&'static str),
}

impl Constants {
    /// The constants of the committed table, `codegen/src/schedules/constants.tsv`.
    pub fn committed() -> &'static Constants {
        &COMMITTED
    }

    /// The constants of a table: a line for each, with its name, a tab and its number. Lines that begin with `#` are comments.
    ///
    /// # Errors
    /// [`ConstantsError`] says which line is wrong or which constant is not there.
    pub fn parse(table: &str) -> Result<Constants, ConstantsError> {
        let mut known: Vec<Option<f64>> = vec![None; Constants::NAMES.len()];
        for (line, text) in (1..).zip(table.lines()).filter(|(_, text)| !text.starts_with('#')) {
            let wrong = || ConstantsError::Line { line, text: text.to_owned() };
            let (name, number) = text.split_once('\t').ok_or_else(wrong)?;
            let number = number.parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0).ok_or_else(wrong)?;
            let place = Constants::NAMES.iter().position(|own| *own == name).filter(|k| known[*k].is_none());
            known[place.ok_or_else(|| ConstantsError::Name { line, name: name.to_owned() })?] = Some(number);
        }
        let mut constants = Constants::ZEROS;
        for ((own, number), name) in constants.numbers_mut().into_iter().zip(known).zip(Constants::NAMES) {
            *own = number.ok_or(ConstantsError::Missing(name))?;
        }
        Ok(constants)
    }

    /// The table of these constants, as [`Constants::parse`] reads it.
    pub fn table(&self) -> String {
        let lines = Constants::NAMES.iter().zip(self.numbers()).map(|(name, number)| format!("{name}\t{number}\n"));
        HEAD.to_owned() + &lines.collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_is_written_as_it_is_read() {
        assert_eq!(Constants::committed().table(), include_str!("constants.tsv"));
    }

    #[test]
    fn a_table_must_have_every_constant_once() {
        let table = Constants::committed().table();
        let wrong = |table: &str| Constants::parse(table).unwrap_err().to_string();
        assert_eq!(wrong(&table.replace("launch\t3\n", "")), "the table of constants lacks `launch`");
        let twice = wrong(&(table.clone() + "launch\t3\n"));
        assert!(twice.ends_with("`launch` is no constant, or is there twice"), "{twice}");
        for number in ["-3", "inf", "NaN", "x", ""] {
            let said = wrong(&table.replace("launch\t3\n", &format!("launch\t{number}\n")));
            assert!(said.starts_with("line 2 of the table of constants is not a name"), "{said}");
        }
    }
}
