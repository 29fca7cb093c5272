//! Softmax attention whose keys are divided over ranks: a ring of keys and values.

use std::ops::Range;

use super::agree::{Intent, hash};
use super::{Group, Rows};
use crate::models;
use crate::{Call, Error, Kernel, Tensor};

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mask {
    /// All.
    All,
    /// The keys up to its own position. The queries are dealt as the keys are.
    Causal,
}

/// A rank's queries, keys and values, as [`models::attention`](fn@models::attention) takes them.
#[derive(Clone)]
pub struct Attention {
    /// Queries `[B, G, R, M, E]`: this rank's rows along M.
    pub q: Tensor,
    /// Keys `[B, G, N, E]`: this rank's rows along N.
    pub k: Tensor,
    /// Values `[B, G, N, F]`: this rank's rows along N.
    pub v: Tensor,
}

/// A rank's rows of the result, and what the gradient needs.
#[derive(Clone)]
pub struct Attended {
    /// The means of the values, `[B, G, R, M, F]`.
    pub o: Tensor,
    /// The log-sum-exp of the scores, `[B, G, R, M]`.
    pub lse: Tensor,
    ring: Ring,
    inputs: Attention,
}

/// Softmax attention of this rank's queries to the keys of all ranks, of which each holds those that `rows` says: the equations of
/// [`models::attention`](fn@models::attention), or of [`models::attention_causal`](fn@models::attention_causal).
///
/// Keys and values pass from rank to rank in a ring. Each rank attends to those that it has while the next ones are on their
/// way, and [merges](fn@models::merge) the parts in the order of the ranks that the keys belong to, whenever they come: the bits
/// are the same in every run. A rank holds its own rows and those of one other. With [`Mask::Causal`],
/// [`Rows::zigzag`] gives every rank as much work. Liu, Zaharia and Abbeel, "Ring attention with blockwise transformers for
/// near-infinite context", 2023; Brandon et al., "Striped attention", 2023, on causal work that is even.
///
/// ```
/// use oplus::Tensor;
/// use oplus::dist::{Attention, Group, Mask, Rows, attention};
///
/// let (rows, whole) = (Rows::zigzag(4, 2), Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], &[1, 1, 4, 1])?);
/// let ranks: Vec<Tensor> = std::thread::scope(|scope| {
///     let (rows, whole) = (&rows, &whole);
///     let rank = |group: Group| -> Result<Tensor, oplus::Error> {
///         let k = rows.deal(whole, 2, group.rank())?;
///         let (q, v) = (k.unsqueeze(1)?, k.clone());
///         Ok(attention(&group, rows, Mask::Causal, Attention { q, k, v })?.o)
///     };
///     let ranks: Vec<_> = Group::threads(2).into_iter().map(|group| scope.spawn(move || rank(group))).collect();
///     ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Result<_, _>>()
/// })?;
/// let o = rows.undo(&ranks, 3)?.to_vec::<f32>()?;
/// assert_eq!(o[0], 1.0); // the first query sees the first key alone
/// assert!(o.is_sorted());
/// # Ok::<(), oplus::Error>(())
/// ```
///
/// # Errors
/// [`Error::Rank`] and [`Error::ShapeMismatch`] for tensors that do not fit or do not have the rows, [`Error::Count`] when `rows`
/// are dealt to another number of ranks, [`Error::RanksDisagree`], [`Error::LostRank`], [`Error::LostRanks`], errors of
/// [`Kernel::call`].
pub fn attention(group: &Group, rows: &Rows, mask: Mask, inputs: Attention) -> Result<Attended, Error> {
    let ring = Ring::new(group, rows, mask, &inputs)?;
    let (o, lse) = ring.forward(&inputs)?;
    Ok(Attended { o, lse, ring, inputs })
}

impl Attended {
    /// The gradients of this rank's queries, keys and values; no cotangent stands for zero. All ranks call it. The ring goes round
    /// once more, and the gradients of keys and values travel with these.
    ///
    /// # Errors
    /// The errors of [`attention`].
    pub fn backward(&self, o_bar: Option<&Tensor>, lse_bar: Option<&Tensor>) -> Result<Attention, Error> {
        self.ring.backward(self, [o_bar, lse_bar])
    }
}

/// Copies rows, whatever their strides.
static COPY: Kernel = Kernel::new(
    "rows_copy",
    "program rows_copy { axes B, N, E; param x: call[B, N, E]; %0: call[B, N, E] = param x; output y: call[B, N, E] = %0; }",
);
/// The sum of two tensors.
static ADD: Kernel = Kernel::new(
    "rows_add",
    "program rows_add {
        axes N; param x: call[N]; param y: call[N];
        %0: call[N] = param x; %1: call[N] = param y; %2: call[N] = %0 + %1; output z: call[N] = %2;
    }",
);

/// A part of the result: o and lse.
type Part = [Tensor; 2];

/// The ranks, and what they do.
#[derive(Clone)]
struct Ring {
    group: Group,
    rows: Rows,
    mask: Mask,
    /// Where the own chunks of queries lie.
    queries: Vec<Range<usize>>,
}

/// The place of the queries' axis M in q, o and lse, and of the keys' axis N in k and v.
const M: usize = 3;
const N: usize = 2;

impl Ring {
    fn new(group: &Group, rows: &Rows, mask: Mask, inputs: &Attention) -> Result<Ring, Error> {
        let Attention { q, k, v } = inputs;
        check_axes("q", "B, G, R, M, E", q)?;
        check_axes("k", "B, G, N, E", k)?;
        check_axes("v", "B, G, N, F", v)?;
        let sizes: Vec<usize> = (0..rows.ranks()).map(|rank| rows.held(rank)).collect();
        let group = group.with_shards(&sizes)?;
        let held = sizes[group.rank()];
        check_rows(("k", "N"), k.shape()[N], held)?;
        check_rows(("v", "N"), v.shape()[N], held)?;
        let queries = match mask {
            Mask::All => Rows::in_order(&[q.shape()[M]]).places(0),
            Mask::Causal => {
                check_rows(("q", "M"), q.shape()[M], held)?;
                rows.places(group.rank())
            }
        };
        let ring = Ring { group, rows: rows.clone(), mask, queries };
        ring.agree(inputs)?;
        Ok(ring)
    }

    /// Shows the other ranks what this one is about to do.
    fn agree(&self, Attention { q, k, v }: &Attention) -> Result<(), Error> {
        let program = hash(&format!("ring attention {:?} {:?}", self.mask, self.rows));
        let sizes = [&q.shape()[..M], &q.shape()[M + 1..], &v.shape()[N + 1..]].concat();
        let elems = [q.elem(), k.elem(), v.elem()];
        let intent = Intent { program, sizes: hash(&format!("{sizes:?}")), tensors: hash(&format!("{elems:?}")) };
        self.group.agree(intent, k.shape()[N]).map(drop)
    }

    fn rank(&self) -> usize {
        self.group.rank()
    }

    /// Whose keys this rank has in a step.
    fn owner(&self, step: usize) -> usize {
        let ranks = self.group.size();
        (self.rank() + ranks - step) % ranks
    }

    /// Passes tensors to the next rank, and takes those of the rank before, of the shapes that are said.
    fn pass(&self, tensors: &[&Tensor], shapes: &[Vec<usize>]) -> Result<Vec<Tensor>, Error> {
        let (ranks, rank) = (self.group.size(), self.rank());
        self.group.pass(tensors, (rank + 1) % ranks, (rank + ranks - 1) % ranks, shapes)
    }

    /// Keys and values of the next step.
    fn next(&self, held: &[Tensor], step: usize) -> Result<Vec<Tensor>, Error> {
        let rows = self.rows.held(self.owner(step + 1));
        let shapes: Vec<Vec<usize>> = held.iter().map(|tensor| with_rows(tensor, rows)).collect();
        self.pass(&held.iter().collect::<Vec<_>>(), &shapes)
    }

    /// The kernel by which a chunk of the own queries attends to a chunk of keys; `None` where it sees none of them.
    fn kernel(&self, query: usize, (owner, chunk): (usize, usize)) -> Option<&'static Kernel> {
        let keys = &self.rows.of(owner)[chunk];
        if keys.is_empty() || self.queries[query].is_empty() {
            return None;
        }
        if self.mask == Mask::All {
            return Some(models::attention::kernel());
        }
        let own = &self.rows.of(self.rank())[query];
        match own.start.cmp(&keys.start) {
            std::cmp::Ordering::Less => None,
            std::cmp::Ordering::Equal => Some(models::attention_causal::kernel()),
            std::cmp::Ordering::Greater => Some(models::attention::kernel()),
        }
    }

    fn forward(&self, inputs: &Attention) -> Result<(Tensor, Tensor), Error> {
        let ranks = self.group.size();
        let mut held = vec![inputs.k.clone(), inputs.v.clone()];
        // Of each chunk of queries, what was read from the ranks up to this one, and from those after it.
        let mut read: Vec<[Option<Part>; 2]> = self.queries.iter().map(|_| [None, None]).collect();
        for step in 0..ranks {
            let next = if step + 1 < ranks { self.next(&held, step)? } else { vec![] };
            let owner = self.owner(step);
            let side = usize::from(owner > self.rank());
            for (query, read) in read.iter_mut().enumerate() {
                // Later keys first, as later ranks come first: what comes goes in front of what was read.
                for (chunk, place) in self.rows.places(owner).into_iter().enumerate().rev() {
                    let Some(kernel) = self.kernel(query, (owner, chunk)) else { continue };
                    let q = inputs.q.slice(M, self.queries[query].clone())?;
                    let (k, v) = (held[0].slice(N, place.clone())?, held[1].slice(N, place)?);
                    let part = pair(kernel.call(&[Some(&q), Some(&k), Some(&v)])?.0)?;
                    read[side] = Some(match read[side].take() {
                        None => part,
                        Some(behind) => merged(&part, &behind)?,
                    });
                }
            }
            held = next;
        }
        self.together(inputs, read)
    }

    /// The rows of all chunks of queries, one behind the other.
    fn together(&self, inputs: &Attention, read: Vec<[Option<Part>; 2]>) -> Result<(Tensor, Tensor), Error> {
        let mut chunks = vec![];
        for ([before, after], place) in read.into_iter().zip(&self.queries) {
            chunks.push(match (before, after) {
                (Some(before), Some(after)) => merged(&before, &after)?,
                (Some(part), None) | (None, Some(part)) => part,
                (None, None) => {
                    // Of no keys the kernel gives what it gives.
                    let q = inputs.q.slice(M, place.clone())?;
                    let (k, v) = (inputs.k.slice(N, 0..0)?, inputs.v.slice(N, 0..0)?);
                    pair(models::attention::kernel().call(&[Some(&q), Some(&k), Some(&v)])?.0)?
                }
            });
        }
        let (means, sums): (Vec<Tensor>, Vec<Tensor>) = chunks.into_iter().map(|[o, lse]| (o, lse)).unzip();
        Ok((concatenated(means, M)?, concatenated(sums, M)?))
    }

    fn backward(&self, made: &Attended, bars: [Option<&Tensor>; 2]) -> Result<Attention, Error> {
        let (ranks, inputs) = (self.group.size(), &made.inputs);
        let mut held = vec![inputs.k.clone(), inputs.v.clone()];
        let mut queries: Vec<Option<Tensor>> = self.queries.iter().map(|_| None).collect();
        // Of each chunk of the keys that are here, the gradients of keys and values.
        let mut keys: Vec<[Option<Tensor>; 2]> = vec![[None, None]; self.rows.of(self.rank()).len()];
        for step in 0..ranks {
            let next = if step + 1 < ranks { self.next(&held, step)? } else { vec![] };
            let owner = self.owner(step);
            for (chunk, place) in self.rows.places(owner).into_iter().enumerate() {
                let (k, v) = (held[0].slice(N, place.clone())?, held[1].slice(N, place)?);
                for (query, total) in queries.iter_mut().enumerate() {
                    let Some(kernel) = self.kernel(query, (owner, chunk)) else { continue };
                    let [q, k, v] = self.gradient(kernel, made, bars, query, [&k, &v])?;
                    add(total, q)?;
                    add(&mut keys[chunk][0], k)?;
                    add(&mut keys[chunk][1], v)?;
                }
                fill(&mut keys[chunk], [&k, &v])?;
            }
            keys = self.pass_on(&keys, [&inputs.k, &inputs.v], step)?;
            held = next;
        }
        let zeros = |place: &Range<usize>| zeros(&inputs.q.slice(M, place.clone())?);
        let q = queries.into_iter().zip(&self.queries).map(|(bar, place)| bar.map_or_else(|| zeros(place), Ok));
        let side = |k: usize| concatenated(keys.iter().filter_map(|chunk| chunk[k].clone()).collect(), N);
        Ok(Attention { q: concatenated(q.collect::<Result<_, _>>()?, M)?, k: side(0)?, v: side(1)? })
    }

    /// Gradients by a chunk of the own queries and a chunk of keys: those of the whole, as the log-sum-exp is the whole one's.
    fn gradient(
        &self,
        kernel: &Kernel,
        made: &Attended,
        bars: [Option<&Tensor>; 2],
        query: usize,
        [k, v]: [&Tensor; 2],
    ) -> Result<[Tensor; 3], Error> {
        let rows = |tensor: &Tensor| tensor.slice(M, self.queries[query].clone());
        let (q, o, lse) = (rows(&made.inputs.q)?, rows(&made.o)?, rows(&made.lse)?);
        let call = Call::from_parts(kernel, &[Some(&q), Some(k), Some(v)], &[Some(&o), Some(&lse)], None)?;
        let bars = bars.map(|bar| bar.map(rows).transpose());
        let [o_bar, lse_bar] = bars;
        let gradients = kernel.backward(&call, &[o_bar?.as_ref(), lse_bar?.as_ref()])?;
        let found = gradients.len();
        let gradients: Vec<Tensor> = gradients.into_iter().flatten().collect();
        gradients.try_into().map_err(|_| Error::Count { what: "gradients", expected: 3, found })
    }

    /// Passes on the gradients of the keys that are here, and takes those of the keys of the next step.
    fn pass_on(
        &self,
        keys: &[[Option<Tensor>; 2]],
        own: [&Tensor; 2],
        step: usize,
    ) -> Result<Vec<[Option<Tensor>; 2]>, Error> {
        let next = self.owner(step + 1);
        let tensors: Vec<&Tensor> = keys.iter().flatten().flatten().collect();
        let sizes = self.rows.of(next).iter().map(Range::len);
        let shapes: Vec<Vec<usize>> = sizes.flat_map(|rows| own.map(|tensor| with_rows(tensor, rows))).collect();
        let mut came = self.pass(&tensors, &shapes)?.into_iter();
        let chunks = self.rows.of(next).iter().map(|_| [came.next(), came.next()]);
        Ok(chunks.collect())
    }
}

fn check_axes(tensor: &str, axes: &str, given: &Tensor) -> Result<(), Error> {
    let (expected, found) = (axes.split(", ").count(), given.shape().len());
    let wrong = || Error::Rank { tensor: tensor.into(), axes: axes.into(), expected, found };
    if expected == found { Ok(()) } else { Err(wrong()) }
}

fn check_rows((tensor, axis): (&str, &str), found: usize, held: usize) -> Result<(), Error> {
    if found == held {
        return Ok(());
    }
    let (axis, first, second) = (axis.into(), "the rows of this rank".into(), tensor.into());
    Err(Error::ShapeMismatch { axis, first, first_size: held, second, second_size: found })
}

/// The shape of a tensor of keys or values with that many rows.
fn with_rows(tensor: &Tensor, rows: usize) -> Vec<usize> {
    let mut shape = tensor.shape().to_vec();
    shape[N] = rows;
    shape
}

fn pair(outputs: Vec<Tensor>) -> Result<Part, Error> {
    let found = outputs.len();
    outputs.try_into().map_err(|_| Error::Count { what: "outputs", expected: 2, found })
}

/// Parts merged, the first in front.
fn merged(first: &Part, second: &Part) -> Result<Part, Error> {
    let flat = |[o, lse]: &Part| -> Result<Part, Error> { Ok([flat(o, M)?, flat(lse, M)?]) };
    let ([o1, lse1], [o2, lse2]) = (flat(first)?, flat(second)?);
    let inputs = [&o1, &lse1, &o2, &lse2].map(Some);
    let [o, lse] = pair(models::merge::kernel().call(&inputs)?.0)?;
    Ok([o.reshape(first[0].shape())?, lse.reshape(first[1].shape())?])
}

/// A tensor with all axes before one as a single axis.
fn flat(tensor: &Tensor, axis: usize) -> Result<Tensor, Error> {
    let (outer, inner) = tensor.shape().split_at(axis);
    tensor.reshape(&[&[outer.iter().product()], inner].concat())
}

/// Tensors one behind the other along an axis.
fn concatenated(mut tensors: Vec<Tensor>, axis: usize) -> Result<Tensor, Error> {
    if tensors.len() == 1 {
        return tensors.pop().ok_or(Error::Count { what: "tensors", expected: 1, found: 0 });
    }
    let sizes: Vec<usize> = tensors.iter().map(|tensor| tensor.shape()[axis]).collect();
    let first = &tensors[0];
    let (mut shape, elem) = (first.shape().to_vec(), first.elem());
    shape[axis] = sizes.iter().sum();
    let whole = Tensor::uninitialised(elem, &shape, &first.device())?;
    for (tensor, place) in tensors.iter().zip(Rows::in_order(&sizes).0.into_iter().flatten()) {
        let [from, to] = [tensor, &whole.slice(axis, place)?].map(|tensor| three(tensor, axis));
        COPY.call_into(&[Some(&from?)], &[&to?])?;
    }
    Ok(whole)
}

/// A tensor with three axes: those before one, that one, and those behind it.
fn three(tensor: &Tensor, axis: usize) -> Result<Tensor, Error> {
    let shape = tensor.shape();
    let product = |sizes: &[usize]| sizes.iter().product();
    tensor.reshape(&[product(&shape[..axis]), shape[axis], product(&shape[axis + 1..])])
}

/// Adds a contribution to a gradient.
fn add(total: &mut Option<Tensor>, term: Tensor) -> Result<(), Error> {
    *total = Some(match total.take() {
        None => term,
        Some(total) => {
            let flat = |tensor: &Tensor| tensor.reshape(&[tensor.len()]);
            ADD.call(&[Some(&flat(&total)?), Some(&flat(&term)?)])?.0[0].reshape(total.shape())?
        }
    });
    Ok(())
}

/// Zeros for gradients to which nothing has contributed.
fn fill(gradients: &mut [Option<Tensor>; 2], like: [&Tensor; 2]) -> Result<(), Error> {
    for (gradient, like) in gradients.iter_mut().zip(like) {
        if gradient.is_none() {
            *gradient = Some(zeros(like)?);
        }
    }
    Ok(())
}

fn zeros(like: &Tensor) -> Result<Tensor, Error> {
    Tensor::zeros(like.elem(), like.shape(), &like.device())
}
