//! Sums over pairs that stay with the contractions beneath them.
//!
//! Attention sums over the keys, for every query, a weight that is a map of a *contraction*: a product of a row and a column
//! that is summed over the axis within them. [`cut`](super::cut()) would store the contraction, which is as large as all pairs.
//! Here a *pair sum*, a sum or a softmax merge along an axis of such contractions, is one stage with them:
//!
//! * its outputs are maps of the pair sums of one axis, the *columns*, over the same pairs;
//! * beneath a pair sum there are maps of parameters, indices and sizes, and contractions. Whatever else is computed from
//!   a scan, a reduction or a position is read from memory;
//! * contractions are sums of products of parameters, conditions and maps of other contractions.
//!
//! Everything outside of pair sums is cut as usual. Sums over axes that only repeat pairs (heads that share keys) are taken
//! after the pair sum, see [`outward`].
//!
//! [`cut_pairwise_separate`] gives every pair sum a stage of its own: what two of them compute alike is computed twice, but each has all
//! the registers. [`cut_arranged`] does so for programs that are written otherwise, see [`arrange`]. [`cut_grouped_query`] keeps the sums over axes that only repeat pairs with them: fewer blocks, which walk all
//! that they sum, and nothing in between is stored. [`cut_across`] keeps the sums over rows and over columns of the same pairs
//! together, as a gradient of attention has them. [`cut_split_k`] divides the columns into ranges with partial sums, see [`split_k`]: for few rows.

mod arrange;
mod extract;
mod find;
mod outward;
mod rebuild;
mod split_k;

use std::collections::{BTreeSet, HashMap};

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet, Op, Program, Value};
use oplus_dsl::simplify::simplify;

use super::cut::{cut_narrow, cut_plain, cut_uneven, prepare};
use super::error::CutError;
use super::{Cut, Stage, Temporary};
use arrange::Arranged;
use extract::{Part, Root, Stored};
use find::{PairSum, Pairs, Sharing};
use split_k::SplitK;

/// A program whose sums over pairs can be found: sums over axes that only repeat pairs stand outside of them.
pub(super) struct Outward(Program);

impl Outward {
    /// A program that is prepared.
    pub(super) fn of(program: &Program) -> Outward {
        Outward(simplify(&outward::outward(program)))
    }

    /// [`cut_pairwise`].
    pub(super) fn pairwise(&self) -> Result<Option<Cut>, CutError> {
        let pairs = Pairs::of(&self.0, Sharing::Fused);
        if pairs.sums.is_empty() { Ok(None) } else { cut_with(&self.0, &pairs, None).map(Some) }
    }

    /// [`cut_pairwise_separate`].
    pub(super) fn separate(&self) -> Result<Option<Cut>, CutError> {
        let [fused, separate] = [Sharing::Fused, Sharing::Separate].map(|sharing| Pairs::of(&self.0, sharing));
        let stages = |pairs: &Pairs| pairs.sums.iter().map(Group::of).collect::<BTreeSet<Group>>().len();
        if stages(&fused) == stages(&separate) { Ok(None) } else { cut_with(&self.0, &separate, None).map(Some) }
    }

    /// [`cut_arranged`].
    pub(super) fn arranged(&self) -> Result<Option<Cut>, CutError> {
        let Arranged { program, leaves } = Arranged::of(&self.0);
        let (mut left_out, mut sharing) = (BTreeSet::new(), Sharing::Fused);
        loop {
            let pairs = Pairs::among(&program, sharing, &leaves, &left_out);
            if pairs.sums.is_empty() {
                return Ok(None);
            }
            let mut cutter = Cutter { is_narrow: true, ..Cutter::new(&program, &pairs, None) };
            cutter.outputs()?;
            let is_new = program != self.0 || !leaves.is_empty() || !left_out.is_empty();
            match (cutter.refused.is_empty(), sharing) {
                (true, _) => return Ok(is_new.then(|| cutter.finish())),
                (false, Sharing::Fused) => sharing = Sharing::Separate,
                (false, _) => {
                    left_out.append(&mut cutter.refused);
                    sharing = Sharing::Fused;
                }
            }
        }
    }

    /// [`cut_grouped_query`].
    pub(super) fn grouped_query(&self) -> Result<Option<Cut>, CutError> {
        let pairs = Pairs::of(&self.0, Sharing::GroupedQuery);
        let none = pairs.sums.iter().all(|sum| sum.over.is_none());
        if none { Ok(None) } else { cut_with(&self.0, &pairs, None).map(Some) }
    }

    /// [`cut_across`].
    pub(super) fn across(&self) -> Result<Option<Cut>, CutError> {
        let pairs = Pairs::of(&self.0, Sharing::Across);
        if pairs.has_across() { cut_with(&self.0, &pairs, None).map(Some) } else { Ok(None) }
    }

    /// [`cut_split_k`].
    pub(super) fn split_k(&self) -> Result<Option<Cut>, CutError> {
        let Some(split) = SplitK::of(&self.0)? else { return Ok(None) };
        let pairs = Pairs::of(&split.program, Sharing::Fused);
        cut_with(&split.program, &pairs, Some(&split)).map(Some)
    }
}

/// The program in which a sum over an axis that only repeats another sum is taken after it.
pub fn sums_outward(program: &Program) -> Program {
    let exchanged = outward::outward(program);
    if exchanged == *program { exchanged } else { simplify(&exchanged) }
}

/// Cuts a verified, instantiated program into stages, of which some are pair sums; `None` if it has none.
pub fn cut_pairwise(program: &Program) -> Result<Option<Cut>, CutError> {
    Outward::of(&prepare(program)?).pairwise()
}

/// [`cut_pairwise`] with a stage for every pair sum; `None` if no stage of [`cut_pairwise`] has several.
pub fn cut_pairwise_separate(program: &Program) -> Result<Option<Cut>, CutError> {
    Outward::of(&prepare(program)?).separate()
}

/// [`cut_pairwise`] of a program whose sums are taken apart and exchanged, with rows and columns that are computed stored before, and
/// without sums over pairs that no kernel takes; `None` if that changes nothing, or nothing is left.
pub fn cut_arranged(program: &Program) -> Result<Option<Cut>, CutError> {
    Outward::of(&prepare(program)?).arranged()
}

/// [`cut_pairwise`] with sums over an axis that repeats pairs; `None` if there are none.
pub fn cut_grouped_query(program: &Program) -> Result<Option<Cut>, CutError> {
    Outward::of(&prepare(program)?).grouped_query()
}

/// [`cut_grouped_query`] with a sum over the rows of pairs in the stage of the sums over their columns; `None` if there is none.
pub fn cut_across(program: &Program) -> Result<Option<Cut>, CutError> {
    Outward::of(&prepare(program)?).across()
}

/// [`cut_pairwise`] with partial sums over the columns; `None` unless there is one stage of pair sums.
pub fn cut_split_k(program: &Program) -> Result<Option<Cut>, CutError> {
    Outward::of(&prepare(program)?).split_k()
}

fn cut_with(program: &Program, pairs: &Pairs, split: Option<&SplitK>) -> Result<Cut, CutError> {
    let mut cutter = Cutter::new(program, pairs, split);
    cutter.outputs()?;
    Ok(cutter.finish())
}

/// The state of the cut.
struct Cutter<'p> {
    program: &'p Program,
    pairs: &'p Pairs,
    /// The partial sums, if there are any.
    split: Option<&'p SplitK>,
    /// Where values are that were written.
    stored: Stored,
    buffers: Vec<Temporary>,
    stages: Vec<Stage>,
    /// The outputs that stages of pair sums write.
    fused: Vec<Option<Group>>,
    /// The groups whose stages are done.
    done: BTreeSet<Group>,
    /// The sums whose stages no kernel takes.
    refused: BTreeSet<Value>,
    /// Whether other stages store what has the fewest axes.
    is_narrow: bool,
}

/// The pair sums that share a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    level: u32,
    column: Axis,
    pair: AxisSet,
    /// [`PairSum::own`].
    own: u32,
    /// The axis over which the sums are added up.
    over: Option<Axis>,
}

impl Group {
    /// The group of a pair sum.
    fn of(sum: &PairSum) -> Group {
        let PairSum { level, pair, own, .. } = *sum;
        let (column, over) = sum.group.unwrap_or((sum.column, sum.over));
        Group { level, column, pair, own, over }
    }
}

impl<'p> Cutter<'p> {
    fn new(program: &'p Program, pairs: &'p Pairs, split: Option<&'p SplitK>) -> Cutter<'p> {
        let group = |output: &oplus_dsl::ir::Output| {
            let sums: BTreeSet<Group> = pairs.beneath_maps(program, output.value)?.iter().map(Group::of).collect();
            if sums.len() == 1 { sums.into_iter().next() } else { None }
        };
        let fused = program.outputs.iter().map(group).collect();
        let (stored, buffers, stages, done) = (HashMap::new(), vec![], vec![], BTreeSet::new());
        Cutter {
            program,
            pairs,
            split,
            stored,
            buffers,
            stages,
            fused,
            done,
            refused: BTreeSet::new(),
            is_narrow: false,
        }
    }

    /// Adds the stages that write the outputs.
    fn outputs(&mut self) -> Result<(), CutError> {
        for group in self.fused.clone().into_iter().flatten() {
            self.group(group)?;
        }
        let rest: Vec<Root> = self.written_outputs(None);
        if rest.is_empty() { Ok(()) } else { self.ordinary(&rest) }
    }

    /// The outputs that the stage of a group writes, or those that none does.
    fn written_outputs(&self, group: Option<Group>) -> Vec<Root> {
        let outputs = self.program.outputs.iter().enumerate().zip(&self.fused).filter(|(_, own)| **own == group);
        outputs.map(|((i, o), _)| Root::output(i, o)).collect()
    }

    /// Adds the stage of a group of pair sums, after what it reads.
    fn group(&mut self, group: Group) -> Result<(), CutError> {
        if !self.done.insert(group) {
            return Ok(());
        }
        let mut roots = self.written_outputs(Some(group));
        let is_member = |v: &&Value| self.pairs.of_field(self.program, **v).map(Group::of) == Some(group);
        let demanded: Vec<Value> = self.pairs.demanded.iter().filter(is_member).copied().collect();
        roots.extend(demanded.into_iter().map(|field| self.buffer(self.part_of(field))));
        let members: Vec<&PairSum> = self.pairs.sums.iter().filter(|sum| Group::of(sum) == group).collect();
        let needs: BTreeSet<Value> = members.iter().flat_map(|sum| sum.needs.iter().copied()).collect();
        self.provide(&needs)?;
        let part = Part::of(self.program, &self.stored, &roots)?;
        let stage = part.whole(self.split.map(|split| split.axis));
        if stage.kind().pairwise().is_err() {
            self.refused.extend(self.pairs.tuples(group));
        }
        self.stages.push(stage);
        roots.iter().for_each(|root| self.stored.extend(root.held()));
        Ok(())
    }

    /// Makes sure that values are in memory.
    fn provide(&mut self, values: &BTreeSet<Value>) -> Result<(), CutError> {
        for value in values {
            match self.pairs.of_field(self.program, *value) {
                Some(sum) if !self.stored.contains_key(value) => self.group(Group::of(sum))?,
                _ => {}
            }
        }
        let is_missing = |v: &Value| !self.stored.contains_key(v) && self.pairs.of_field(self.program, *v).is_none();
        let others: Vec<Value> = values.iter().copied().filter(is_missing).collect();
        if others.is_empty() {
            return Ok(());
        }
        let roots: Vec<Root> = others.into_iter().map(|value| self.buffer(value)).collect();
        self.ordinary(&roots)
    }

    /// Adds the stages that write these roots, none of them a pair sum.
    fn ordinary(&mut self, roots: &[Root]) -> Result<(), CutError> {
        let values: Vec<Value> = roots.iter().map(|root| root.value).collect();
        self.provide(&self.pairs.fields_beneath(self.program, &values, &self.stored))?;
        let part = Part::of(self.program, &self.stored, roots)?;
        let program = simplify(&part.program);
        let narrow = if self.is_narrow { cut_narrow(&program)? } else { None };
        let plain = if self.split.is_some() { cut_uneven } else { cut_plain };
        let cut = narrow.map_or_else(|| plain(&program), Ok)?;
        let first = self.buffers.len() as u32;
        self.stages.extend(cut.stages.into_iter().map(|stage| part.stage(stage, first)));
        self.buffers.extend(cut.buffers);
        roots.iter().for_each(|root| self.stored.extend(root.held()));
        Ok(())
    }

    /// The stored form of a field.
    fn part_of(&self, field: Value) -> Value {
        self.split.and_then(|split| split.partial_sums.get(&field)).copied().unwrap_or(field)
    }

    /// A new buffer for a value.
    fn buffer(&mut self, value: Value) -> Root {
        let node = self.program.node(value);
        let elem = match node.op {
            Op::Convert(elem, _) if self.pairs.leaves.contains(&value) => elem,
            _ => node.ty.elem().unwrap_or(Elem::F32),
        };
        let axes = self.memory_order(node.axes);
        let buffer = Temporary { name: format!("v{}", value.0), axes, elem };
        self.buffers.push(buffer.clone());
        Root::buffer(value, self.buffers.len() as u32 - 1, &buffer)
    }

    /// Axes in the order of the tensor that is most like them; those that it lacks come first.
    fn memory_order(&self, axes: AxisSet) -> Vec<Axis> {
        let outputs = self.program.outputs.iter().map(|o| &o.axes);
        let tensors = outputs.chain(self.program.params.iter().map(|p| &p.axes));
        let likeness = |tensor: &&Vec<Axis>| {
            let shared = tensor.iter().filter(|a| axes.contains(**a)).count() as i64;
            2 * shared - tensor.len() as i64
        };
        let like: &[Axis] = tensors.rev().max_by_key(likeness).map_or(&[], |tensor| tensor);
        let known = like.iter().copied().filter(|a| axes.contains(*a));
        axes.iter().filter(|a| !like.contains(a)).chain(known).collect()
    }

    fn finish(mut self) -> Cut {
        let several = self.stages.len() > 1;
        for (i, stage) in self.stages.iter_mut().enumerate().filter(|_| several) {
            stage.program.name = format!("{}_{}", self.program.name, i + 1);
        }
        Cut { stages: self.stages, buffers: self.buffers, partial_axis: self.split.map(|split| split.axis) }
    }
}
