//! The logarithms of the decays of channels, and their sums over a chunk, in fragments of left factors.

use super::rates::{forgotten, reset_at};
use super::{COLUMNS, DeltaKernel, ROWS};
use crate::block::args::Args;
use crate::block::pair::{Coordinates, Index, Values};
use crate::block::thread::FragmentPlace;
use crate::build::{Builder, f32};
use crate::schedules::chunkwise::decay::logarithm_at;
use crate::stage::kind::{Channels, DeltaRule};
use crate::tile::{Operand, Shuffle};

/// The logarithm of the least decay from a chunk's start whose reciprocal is taken.
const LEAST: f64 = -90.0;

/// The eight columns, and the column of the thread's two there, of each of a thread's four channels of 16.
pub(in crate::schedules) const CHANNELS: [(u32, u32); 4] = [(0, 0), (0, 1), (1, 0), (1, 1)];

/// Numbers at the elements that a thread has of a left factor's fragment: register r has the row 8·(r mod 2) further and the columns
/// 8·(r / 2) further, two of them.
pub(in crate::schedules) type Fragment = [[Operand; 2]; 4];

/// The logarithms of 16 channels at a thread's elements.
pub(in crate::schedules) struct Logs {
    /// Sums from the chunk's start to after each step.
    pub after: Fragment,
    /// Sums that the state is read with.
    pub read: Fragment,
    /// Sums to the chunk's end, of the thread's channels.
    pub end: [[Operand; 2]; 2],
}

impl Logs {
    /// Whether no decay over the chunk is so strong that its reciprocal would leave the range of the elements, the same for all lanes.
    pub(in crate::schedules) fn is_mild(&self, b: &mut Builder) -> Operand {
        let all = self.after.iter().flatten().fold(Operand::bool(true), |all, sum| {
            let own = b.ge(*sum, f32(LEAST));
            b.and(all, own)
        });
        b.all(all)
    }
}

/// Where a thread reads the logarithms of a rule's decays.
#[derive(Clone, Copy)]
pub(in crate::schedules) struct LogReader<'a> {
    pub form: &'a DeltaRule,
    pub args: &'a Args,
    /// The state that is read at a step.
    pub channels: Option<Channels>,
    pub fragment: FragmentPlace,
}

impl DeltaKernel<'_> {
    /// The reader of the logarithms of the decays.
    pub(super) fn log_reader(&self) -> LogReader<'_> {
        LogReader { form: self.form, args: &self.args, channels: self.form.channels, fragment: self.fragment }
    }
}

impl LogReader<'_> {
    /// The logarithms of the decays of 16 channels.
    pub(super) fn own_logs(&self, b: &mut Builder, values: &Values, sixteen: Operand) -> Fragment {
        let mut values = values.clone();
        let first = b.mul(sixteen, ROWS);
        let column = self.fragment.column(b);
        let first = b.add(first, column);
        self.logs_from(b, &mut values, first)
    }

    /// The logarithms of the decays of 16 channels, of which the thread's first is given. Numbers 0 to 3 of [`Values`] become the thread's
    /// channels.
    pub(in crate::schedules) fn logs_from(&self, b: &mut Builder, values: &mut Values, first: Operand) -> Fragment {
        let mut own = [[f32(0.0); 2]; 4];
        for (eight, c) in CHANNELS {
            let number = 2 * eight + c;
            let at = b.add(first, eight * COLUMNS + c);
            let index = Index::along(b, self.args, at, self.form.depth);
            values.set_inner(number, self.form.depth, index);
            for h in 0..2 {
                let log = self.channel_log(b, values, h, number);
                own[(2 * eight + h) as usize][c as usize] = b.select(index.exists, log, f32(0.0));
            }
        }
        own
    }

    /// Sums of the logarithms of 16 channels.
    pub(in crate::schedules) fn channel_logs(&self, b: &mut Builder, values: &Values, own: &Fragment) -> Logs {
        let mut values = values.clone();
        let none = [[f32(0.0); 2]; 4];
        let mut logs = Logs { after: none, read: none, end: [[f32(0.0); 2]; 2] };
        let last = b.add(self.fragment.member, 28);
        for (eight, c) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let own = [0, 1].map(|h: usize| own[2 * eight + h][c]);
            let sums = self.sums_over_rows(b, own);
            logs.end[eight][c] = b.shuffle(Shuffle::Index, sums[1], last);
            for h in 0..2 {
                logs.after[2 * eight + h][c] = sums[h];
                logs.read[2 * eight + h][c] = self.read_log(b, &mut values, h as u32, sums[h], own[h]);
            }
        }
        logs
    }

    /// The logarithm of a decay at a row and a channel.
    fn channel_log(&self, b: &mut Builder, values: &mut Values, row: u32, inner: u32) -> Operand {
        let here = Coordinates { row: Some(row), inner: Some(inner), ..Coordinates::default() };
        let log = logarithm_at(b, values, self.form.decay, here);
        let reset = reset_at(b, values, self.form, row);
        forgotten(b, log, reset)
    }

    /// The sum of logarithms that the state is read with at a row, from that after the step and the step's own.
    fn read_log(&self, b: &mut Builder, values: &mut Values, row: u32, sum: Operand, own: Operand) -> Operand {
        if self.channels == Some(Channels::ReadAfter) {
            return sum;
        }
        let before = b.sub(sum, own);
        match reset_at(b, values, self.form, row) {
            Some(reset) => b.select(reset, sum, before),
            None => before,
        }
    }

    /// Running sums over the 16 rows of the warp.
    fn sums_over_rows(&self, b: &mut Builder, own: [Operand; 2]) -> [Operand; 2] {
        let [first, second] = own.map(|own| {
            let mut sum = own;
            for by in [1, 2, 4] {
                let other = b.shuffle(Shuffle::Up, sum, Operand::i32(4 * by));
                let both = b.add(sum, other);
                let inside = b.ge(self.fragment.group, by);
                sum = b.select(inside, both, sum);
            }
            sum
        });
        let last = b.add(self.fragment.member, 28);
        let of_first = b.shuffle(Shuffle::Index, first, last);
        [first, b.add(of_first, second)]
    }
}
