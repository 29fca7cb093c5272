//! Attention by flash attention's rule, with the lengths, head sizes and groups of its tests.
//!
//! Errors are those of a few queries and keys of one head of keys, against loops in `f64`.

use oplus::{Call, Device, Elem, Kernel, Tensor, models};
use oplus_dsl::rng::Rng;
use oplus_dsl::scalar;

use super::softmax::{Arithmetic, Head, Loops, Statistic};
use super::{floats, numbers, tensor};
use crate::check::CheckError;
use crate::check::case::Extent;
use crate::check::oracle::Agreement;
use crate::check::scenario::Scenario;

/// How many times the error of a plain implementation in `f32` one of ours may be: factors in two parts, sums in pieces and
/// exponentials are as accurate as `f32`, but errors have other places. Products of one part, tf32, are wrong by thousands of
/// times.
pub const SINGLE: f64 = 16.0;

/// How keys are hidden from queries and scores changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Nothing.
    Full,
    /// Queries see the keys up to their own.
    Causal,
    /// Queries see so many keys to the left and to the right.
    Window(i64, i64),
    /// Causal, with scores kept within ±cap.
    Softcap(f64),
    /// A bias is added.
    Bias,
    /// Sequences of random lengths; causal or not.
    Packed(bool),
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// The pairs of queries and keys that are seen.
    pub kind: Kind,
    /// The element type.
    pub elem: Elem,
    /// Heads of keys, and heads of queries for each.
    pub heads: [usize; 2],
    /// Queries, keys, channels of queries and keys, channels of values.
    pub sizes: [usize; 4],
}

/// Flash attention's lengths of queries and keys.
pub const LENGTHS: [(usize, usize); 25] = [
    (1, 1),
    (64, 128),
    (128, 192),
    (256, 256),
    (239, 1),
    (799, 3),
    (113, 203),
    (113, 128),
    (128, 217),
    (113, 211),
    (108, 256),
    (256, 512),
    (384, 256),
    (640, 128),
    (512, 256),
    (1024, 1024),
    (1023, 1024),
    (1024, 1023),
    (4096, 4096),
    (4224, 4224),
    (1, 147),
    (1, 239),
    (3, 799),
    (127, 512),
    (127, 513),
];
/// Its lengths of packed sequences.
const PACKED: [(usize, usize); 12] = [
    (1, 1),
    (1, 3),
    (2, 1),
    (511, 1),
    (3, 513),
    (64, 128),
    (113, 203),
    (108, 256),
    (307, 256),
    (512, 256),
    (1023, 1024),
    (2048, 2048),
];
/// Its sizes of heads.
pub const CHANNELS: [usize; 12] = [32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256];
/// Few queries of many keys, which are divided among blocks.
const DECODING: [(usize, usize); 5] = [(1, 239), (1, 8192), (2, 4099), (4, 65_536), (1, 131_072)];
/// Rows that are long enough for blocks whose warps copy or multiply, and end inside of a tile or not.
const OVERLAPPED: [(usize, usize); 3] = [(2048, 2048), (2047, 2113), (4224, 4224)];
/// The element types.
const ELEMS: [Elem; 3] = [Elem::Bf16, Elem::F16, Elem::F32];
/// The pairs of queries and keys that are seen.
const KINDS: [Kind; 7] = [
    Kind::Causal,
    Kind::Full,
    Kind::Window(24, 0),
    Kind::Softcap(15.0),
    Kind::Bias,
    Kind::Packed(true),
    Kind::Packed(false),
];
/// Heads of keys, and of queries for each: of its tests with six heads of queries.
const HEADS: [[usize; 2]; 3] = [[6, 1], [2, 3], [1, 6]];
/// Queries and keys whose errors are looked at.
const SAMPLES: usize = 24;
/// Pairs of queries and keys up to which the loops go over all of them; beyond, the log-sum-exp of the kernel serves.
const PAIRS: usize = 1 << 26;

/// All scenarios of attention; in a default check those in which every length, size, type and kind appears.
pub fn scenarios(extent: Extent) -> Vec<Scenario> {
    let mut all: Vec<Subject> = vec![];
    let mut turn = 0;
    let mut add = |lengths: (usize, usize), channels: usize, kinds: &[Kind], elems: &[Elem]| {
        turn += 1;
        let every = elems.iter().flat_map(|elem| kinds.iter().map(|kind| (*kind, *elem)));
        for (i, (kind, elem)) in every.enumerate() {
            if extent == Extent::Long || i == turn % (kinds.len() * elems.len()) {
                let heads = if lengths.0 > 1024 { [2, 1] } else { HEADS[(turn + i) % 3] };
                all.push(Subject { kind, elem, heads, sizes: [lengths.0, lengths.1, channels, channels] });
            }
        }
    };
    for (i, lengths) in LENGTHS.into_iter().enumerate() {
        add(lengths, CHANNELS[(5 * i + 7) % 12], &KINDS[..4], &ELEMS);
    }
    for channels in CHANNELS {
        ELEMS.iter().for_each(|elem| add((113, 203), channels, &KINDS, std::slice::from_ref(elem)));
    }
    PACKED.into_iter().for_each(|lengths| add(lengths, 64, &KINDS[5..], &ELEMS[..1]));
    DECODING.into_iter().for_each(|lengths| add(lengths, 128, &KINDS[..2], &ELEMS[..1]));
    for sizes in OVERLAPPED.into_iter().flat_map(|(m, n)| [64, 128].map(|channels| [m, n, channels, channels])) {
        let kinds =
            [Kind::Full, Kind::Causal].into_iter().flat_map(|kind| [Elem::Bf16, Elem::F16].map(|elem| (kind, elem)));
        all.extend(kinds.map(|(kind, elem)| Subject { kind, elem, heads: [16, 1], sizes }));
    }
    for kind in [Kind::Full, Kind::Causal] {
        all.push(Subject { kind, elem: Elem::Bf16, heads: [1, 1], sizes: [131_072, 131_072, 64, 64] });
    }
    let scenario = |(i, subject): (usize, Subject)| {
        Scenario::new(format!("rules/{i} {subject}"), move |world| subject.check(&world.device()?))
    };
    all.into_iter().enumerate().map(scenario).collect()
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ([g, r], [m, n, e, _]) = (self.heads, self.sizes);
        write!(f, "attention {:?} {} {m}x{n}x{e} heads {g}x{r}", self.kind, self.elem)
    }
}

/// The numbers of a call.
struct Given {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    bias: Vec<f64>,
    o_bar: Vec<f64>,
    /// Where packed sequences begin among queries and keys.
    starts: [Vec<i64>; 2],
}

/// The results of a kernel.
struct Results {
    o: Vec<f64>,
    lse: Vec<f64>,
    q_bar: Vec<f64>,
    k_bar: Vec<f64>,
    v_bar: Vec<f64>,
}

impl Subject {
    /// Runs forward and backward and compares.
    ///
    /// # Errors
    /// [`CheckError::Wrong`] when the error is larger than the rule allows; those of the device.
    pub fn check(&self, device: &Device) -> Result<Agreement, CheckError> {
        let given = self.given();
        let results = self.run(&given, device)?;
        let heads = if self.heads[0] > 1 { vec![0, self.heads[0] - 1] } else { vec![0] };
        let all = heads.into_iter().map(|head| self.compare(&given, &results, head));
        all.reduce(|a, b| Ok(together(a?, b?))).unwrap_or_else(|| Ok(Agreement::default()))
    }

    fn kernel(&self) -> &'static Kernel {
        match self.kind {
            Kind::Full => models::attention::kernel(),
            Kind::Causal => models::attention_causal::kernel(),
            Kind::Window(..) => models::attention_window::kernel(),
            Kind::Softcap(_) => models::attention_softcap::kernel(),
            Kind::Bias => models::attention_bias::kernel(),
            Kind::Packed(true) => models::attention_packed_causal::kernel(),
            Kind::Packed(false) => models::attention_packed::kernel(),
        }
    }

    fn given(&self) -> Given {
        let ([g, r], [m, n, e, f]) = (self.heads, self.sizes);
        let mut rng = Rng::new((m * 31 + n * 7 + e) as u64);
        let mut of = |len| numbers(self.elem, len, &mut rng);
        let (q, k, v) = (of(g * r * m * e), of(g * n * e), of(g * n * f));
        let bias = if self.kind == Kind::Bias { of(g * r * m * n) } else { vec![] };
        let o_bar = of(g * r * m * f);
        let mut start = |len: usize| {
            let mut starts: Vec<i64> = (0..8).map(|_| rng.below(len + 1) as i64).collect();
            starts.sort_unstable();
            starts[0] = 0;
            starts
        };
        Given { q, k, v, bias, o_bar, starts: [start(m), start(n)] }
    }

    fn run(&self, given: &Given, device: &Device) -> Result<Results, CheckError> {
        let ([g, r], [m, n, e, f]) = (self.heads, self.sizes);
        let of = |shape: &[usize], numbers: &[f64]| tensor(self.elem, shape, numbers, device);
        let integer = |numbers: &[i64], shape: &[usize]| {
            Tensor::from_vec(numbers.to_vec(), &[numbers.len()])?.reshape(shape)?.to_device(device)
        };
        let mut inputs =
            vec![of(&[1, g, r, m, e], &given.q)?, of(&[1, g, n, e], &given.k)?, of(&[1, g, n, f], &given.v)?];
        match self.kind {
            Kind::Full | Kind::Causal => {}
            Kind::Window(left, right) => inputs.extend([integer(&[left], &[])?, integer(&[right], &[])?]),
            Kind::Softcap(cap) => inputs.push(tensor(Elem::F32, &[], &[cap], device)?),
            Kind::Bias => inputs.push(of(&[1, g, r, m, n], &given.bias)?),
            Kind::Packed(_) => {
                let [q, k] = &given.starts;
                inputs.extend([integer(q, &[q.len()])?, integer(k, &[k.len()])?]);
            }
        }
        let (outputs, call): (Vec<Tensor>, Call) = self.kernel().call(&inputs.iter().map(Some).collect::<Vec<_>>())?;
        let o_bar = of(&[1, g, r, m, f], &given.o_bar)?;
        let gradients = self.kernel().backward(&call, &[Some(&o_bar), None])?;
        let gradient = |i: usize| gradients[i].as_ref().map_or(Ok(vec![]), floats);
        let (o, lse) = (floats(&outputs[0])?, floats(&outputs[1])?);
        Ok(Results { o, lse, q_bar: gradient(0)?, k_bar: gradient(1)?, v_bar: gradient(2)? })
    }

    /// The loops' head of a number.
    fn head(&self, given: &Given, number: usize) -> Head {
        let ([_, r], [m, n, e, f]) = (self.heads, self.sizes);
        let part = |all: &[f64], len: usize| all[number * len..][..len].to_vec();
        let ((kind, starts), behind) = ((self.kind, given.starts.clone()), n as i64 - m as i64);
        let seen = move |query: usize, key: usize| {
            let (query, key) = (query as i64, key as i64);
            let place = query + behind;
            match kind {
                Kind::Full | Kind::Bias => true,
                Kind::Causal | Kind::Softcap(_) => key <= place,
                Kind::Window(left, right) => (place - left..=place + right).contains(&key),
                Kind::Packed(causal) => {
                    let at = starts[0].partition_point(|start| *start <= query);
                    let end = |list: usize, size: usize| starts[list].get(at).map_or(size as i64, |start| *start);
                    let (from, to) = (starts[1][at - 1], end(1, n));
                    (from..to).contains(&key) && (!causal || key <= query + to - end(0, m))
                }
            }
        };
        Head {
            sizes: self.sizes,
            q: part(&given.q, r * m * e),
            k: part(&given.k, n * e),
            v: part(&given.v, n * f),
            bias: (self.kind == Kind::Bias).then(|| part(&given.bias, r * m * n)),
            cap: if let Kind::Softcap(cap) = self.kind { Some(cap) } else { None },
            o_bar: part(&given.o_bar, r * m * f),
            seen: Box::new(seen),
        }
    }

    fn compare(&self, given: &Given, results: &Results, number: usize) -> Result<Agreement, CheckError> {
        let ([_, r], [m, n, e, f]) = (self.heads, self.sizes);
        let head = self.head(given, number);
        let loops = [Arithmetic::Exact, Arithmetic::Plain(self.elem)].map(|a| Loops::new(&head, a));
        let (rows, first) = (r * m, number * r * m);
        let (queries, keys) = (sampled(rows), sampled(n));
        let statistics = |loops: &Loops| -> Vec<Statistic> {
            if rows * n <= PAIRS {
                return loops.statistics();
            }
            let of_row = |row: usize| {
                let o = &results.o[(first + row) * f..][..f];
                let delta = o.iter().zip(&head.o_bar[row * f..][..f]).map(|(o, bar)| o * bar).sum();
                Statistic { lse: results.lse[first + row], delta }
            };
            (0..rows).map(of_row).collect()
        };
        let statistics = loops.each_ref().map(statistics);
        let mut all = self.compare_sums(results, &loops[0], (&queries, first))?;
        let of_queries = loops.each_ref().map(|l| columns(queries.iter().map(|row| l.of_query(*row))));
        let of_keys = [0, 1].map(|i| columns(keys.iter().map(|n| loops[i].of_key(*n, &statistics[i]))));
        let (at_rows, at_keys) = (at(&queries, first), at(&keys, number * n));
        let found = [
            ("o", picked(&results.o, &at_rows, f), &of_queries, 0, 2.0),
            ("q.bar", picked(&results.q_bar, &at_rows, e), &of_queries, 1, 3.0),
            ("k.bar", picked(&results.k_bar, &at_keys, e), &of_keys, 0, 3.0),
            ("v.bar", picked(&results.v_bar, &at_keys, f), &of_keys, 1, 3.0),
        ];
        for (name, found, loops, k, times) in found {
            all = together(all, self.judge(name, &found, [&loops[0][k], &loops[1][k]], times)?);
        }
        Ok(all)
    }

    /// The rule: what is found, the exact numbers, and those of a plain implementation.
    fn judge(
        &self,
        output: &str,
        found: &[f64],
        [exact, plain]: [&Vec<f64>; 2],
        times: f64,
    ) -> Result<Agreement, CheckError> {
        let times = if self.elem == Elem::F32 { SINGLE } else { times };
        let moved = |x: &f64| scalar::round(self.elem, scalar::round(self.elem, x + 0.3) - 0.3);
        let moved: Vec<f64> = exact.iter().map(moved).collect();
        let bound = times * apart(plain, exact) + 2.0 * apart(&moved, exact) + f64::from(f32::MIN_POSITIVE);
        let worst = found.iter().zip(exact).map(|(a, b)| (a - b).abs() / bound);
        let wrong = worst.clone().position(|ratio| ratio.is_nan() || ratio > 1.0);
        wrong.map_or(Ok(Agreement { worst: worst.fold(0.0, f64::max), compared: found.len(), unbounded: 0 }), |index| {
            let (output, found, wanted) = (output.to_owned(), found[index], exact[index]);
            Err(CheckError::Wrong { output, index, found, wanted, bound })
        })
    }

    /// The log-sum-exps, which are `f32`.
    fn compare_sums(
        &self,
        results: &Results,
        exact: &Loops,
        (queries, first): (&[usize], usize),
    ) -> Result<Agreement, CheckError> {
        let error = if self.elem == Elem::F32 { 1e-5 } else { 2e-4 };
        for row in queries {
            let (index, wanted) = (first + row, exact.statistic(*row).lse);
            let (found, bound) = (results.lse[index], error * (1.0 + wanted.abs()));
            let agrees = found == wanted || (found - wanted).abs() <= bound;
            if !agrees {
                return Err(CheckError::Wrong { output: "lse".into(), index, found, wanted, bound });
            }
        }
        Ok(Agreement { compared: queries.len(), ..Agreement::default() })
    }
}

fn together(a: Agreement, b: Agreement) -> Agreement {
    Agreement { worst: a.worst.max(b.worst), compared: a.compared + b.compared, unbounded: 0 }
}

/// Some numbers below n, the first and the last among them.
fn sampled(n: usize) -> Vec<usize> {
    if n <= SAMPLES {
        return (0..n).collect();
    }
    (0..SAMPLES).map(|i| i * (n - 1) / (SAMPLES - 1)).collect()
}

fn at(rows: &[usize], first: usize) -> Vec<usize> {
    rows.iter().map(|row| first + row).collect()
}

/// Rows of a matrix.
fn picked(all: &[f64], rows: &[usize], width: usize) -> Vec<f64> {
    rows.iter().flat_map(|row| all[row * width..][..width].to_vec()).collect()
}

/// Pairs of rows as two matrices.
fn columns(rows: impl Iterator<Item = [Vec<f64>; 2]>) -> [Vec<f64>; 2] {
    rows.fold([vec![], vec![]], |[mut a, mut b], [x, y]| {
        a.extend(x);
        b.extend(y);
        [a, b]
    })
}

/// The largest difference.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).fold(0.0, |m, (a, b)| m.max((a - b).abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs on the CPU.
    fn check(kind: Kind, elem: Elem, heads: [usize; 2], sizes: [usize; 4]) {
        let subject = Subject { kind, elem, heads, sizes };
        let agreement = subject.check(&Device::Cpu).unwrap_or_else(|e| panic!("{subject}: {e}"));
        assert!(agreement.compared > 0 && agreement.worst > 0.0, "{subject}");
    }

    #[test]
    fn the_library_follows_the_rule_on_a_cpu() {
        for (i, kind) in KINDS.into_iter().enumerate() {
            for (j, elem) in ELEMS.into_iter().enumerate() {
                let (m, n) = [(113, 203), (64, 128), (3, 79), (127, 55)][(i + j) % 4];
                check(kind, elem, HEADS[(i + j) % 3], [m, n, CHANNELS[(i + 3 * j) % 12], 24]);
            }
        }
    }

    #[test]
    fn a_wrong_mean_breaks_the_rule() {
        let subject = Subject { kind: Kind::Causal, elem: Elem::Bf16, heads: [1, 1], sizes: [40, 40, 16, 16] };
        let given = subject.given();
        let mut results = subject.run(&given, &Device::Cpu).expect("runs");
        assert!(subject.compare(&given, &results, 0).is_ok());
        results.k_bar[5] += 0.1;
        assert!(matches!(subject.compare(&given, &results, 0), Err(CheckError::Wrong { .. })));
    }

    #[test]
    fn every_length_size_type_and_kind_is_checked() {
        let names: Vec<String> = scenarios(Extent::Default).into_iter().map(|s| s.name).collect();
        let has = |text: String| assert!(names.iter().any(|name| name.contains(&text)), "{text}");
        LENGTHS.into_iter().for_each(|(m, n)| has(format!(" {m}x{n}x")));
        CHANNELS.into_iter().for_each(|e| ELEMS.iter().for_each(|elem| has(format!("{elem} 113x203x{e} "))));
        KINDS.into_iter().for_each(|kind| ELEMS.iter().for_each(|elem| has(format!("{kind:?} {elem}"))));
    }
}
