//! Mamba-2's state-space dual in chunks, as plain loops, with gradients derived by hand chunk by chunk.
//!
//! Nothing here comes from the compiler. Dao and Gu, "Transformers are SSMs", 2024, §6: inside a chunk the quadratic form,
//! across chunks the state. For one head, with u[t] = dt[t]·x[t], s the running sum of dt·a from the chunk's start, and
//! L[i, j] = exp(s[i] − s[j]) for j ≤ i:
//!
//! ```text
//! y[i]   = Σ over j of L[i, j]·(c[i]·b[j])·u[j] + exp(s[i])·S·c[i]
//! S_next = exp(s_end)·S + Σ over j of exp(s_end − s[j])·u[j]⊗b[j]
//! ```

use std::ops::Range;

/// Sizes: batch, times, groups, heads of a group, channels, states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) b: usize,
    pub(crate) t: usize,
    pub(crate) g: usize,
    pub(crate) h: usize,
    pub(crate) p: usize,
    pub(crate) n: usize,
}

/// The inputs of the model, or their gradients. Row-major, axes as in the model's text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tensors {
    pub(crate) x: Vec<f64>,
    pub(crate) dt: Vec<f64>,
    pub(crate) a: Vec<f64>,
    pub(crate) b: Vec<f64>,
    pub(crate) c: Vec<f64>,
    pub(crate) z: Option<Vec<f64>>,
    pub(crate) skip: Vec<f64>,
    pub(crate) dt_bias: Vec<f64>,
    pub(crate) h0: Vec<f64>,
}

/// The options of SSD.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The step size is softplus(dt + bias) instead of dt + bias.
    pub(crate) softplus: bool,
    /// Times before which the state is forgotten.
    pub(crate) starts: Vec<usize>,
    /// The longest chunk.
    pub(crate) chunk: usize,
}

/// The outputs, or their cotangents.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    pub(crate) y: Vec<f64>,
    pub(crate) h_last: Vec<f64>,
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}

/// One head of one batch.
#[derive(Clone, Copy)]
struct Head {
    /// Its number among all heads of all batches.
    index: usize,
    /// Its number among the heads of a batch.
    own: usize,
    batch: usize,
    group: usize,
}

/// The model at a point.
struct Model<'a> {
    s: Sizes,
    x: &'a Tensors,
    o: &'a Options,
}

/// A chunk of a head: the state before it, its step sizes with their derivatives by dt, and running sums of the decays.
struct Chunk {
    times: Range<usize>,
    before: Vec<f64>,
    step: Vec<(f64, f64)>,
    sums: Vec<f64>,
}

impl Chunk {
    fn decay(&self, i: usize, j: usize) -> f64 {
        (self.sums[i] - self.sums[j]).exp()
    }

    /// exp(s_end − s[j]).
    fn to_end(&self, j: usize) -> f64 {
        self.decay(self.sums.len() - 1, j)
    }

    fn whole(&self) -> f64 {
        self.sums[self.sums.len() - 1].exp()
    }
}

impl Model<'_> {
    fn heads(&self) -> impl Iterator<Item = Head> + use<> {
        let Sizes { b, g, h, .. } = self.s;
        (0..b * g * h).map(move |index| {
            let own = index % (g * h);
            Head { index, own, batch: index / (g * h), group: own / h }
        })
    }

    /// Where time t of a head begins in [b, t, g, h, p].
    fn row(&self, head: Head, t: usize) -> usize {
        ((head.batch * self.s.t + t) * self.s.g * self.s.h + head.own) * self.s.p
    }

    /// Where time t of a head's group begins in [b, t, g, n].
    fn states(&self, head: Head, t: usize) -> usize {
        ((head.batch * self.s.t + t) * self.s.g + head.group) * self.s.n
    }

    fn x(&self, head: Head, t: usize) -> &[f64] {
        &self.x.x[self.row(head, t)..][..self.s.p]
    }

    fn b(&self, head: Head, t: usize) -> &[f64] {
        &self.x.b[self.states(head, t)..][..self.s.n]
    }

    fn c(&self, head: Head, t: usize) -> &[f64] {
        &self.x.c[self.states(head, t)..][..self.s.n]
    }

    fn u(&self, head: Head, chunk: &Chunk, j: usize) -> Vec<f64> {
        self.x(head, chunk.times.start + j).iter().map(|x| chunk.step[j].0 * x).collect()
    }

    /// The step size at a time, and its derivative by dt.
    fn step(&self, head: Head, t: usize) -> (f64, f64) {
        let raw = self.x.dt[self.row(head, t) / self.s.p] + self.x.dt_bias[head.own];
        if self.o.softplus { (raw.exp().ln_1p(), sigmoid(raw)) } else { (raw, 1.0) }
    }

    /// The times of all chunks: none crosses a start, none is longer than the longest.
    fn chunks(&self) -> Vec<Range<usize>> {
        let mut chunks: Vec<Range<usize>> = vec![];
        for t in 0..self.s.t {
            match chunks.last_mut() {
                Some(chunk) if chunk.len() < self.o.chunk && !self.o.starts.contains(&t) => chunk.end = t + 1,
                _ => chunks.push(t..t + 1),
            }
        }
        chunks
    }

    /// The state S·c (P×N times N), transposed: Sᵀ·v.
    fn times(&self, state: &[f64], c: &[f64]) -> Vec<f64> {
        state.chunks(self.s.n).map(|row| dot(row, c)).collect()
    }

    fn transposed_times(&self, state: &[f64], v: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; self.s.n];
        state.chunks(self.s.n).zip(v).for_each(|(row, v)| add(&mut out, *v, row));
        out
    }

    fn add_outer(&self, state: &mut [f64], factor: f64, p: &[f64], n: &[f64]) {
        state.chunks_mut(self.s.n).zip(p).for_each(|(row, p)| add(row, factor * p, n));
    }

    /// The chunk of a head that begins in this state, and the state behind it.
    fn enter(&self, head: Head, times: Range<usize>, state: &[f64]) -> (Chunk, Vec<f64>) {
        let zeros = || vec![0.0; state.len()];
        let before = if self.o.starts.contains(&times.start) { zeros() } else { state.to_vec() };
        let step: Vec<_> = times.clone().map(|t| self.step(head, t)).collect();
        let mut sum = 0.0;
        let mut running = |step: &(f64, f64)| {
            sum += step.0 * self.x.a[head.own];
            sum
        };
        let sums = step.iter().map(&mut running).collect();
        let chunk = Chunk { times, before, step, sums };
        let mut after: Vec<f64> = chunk.before.iter().map(|s| chunk.whole() * s).collect();
        for j in 0..chunk.sums.len() {
            let b = self.b(head, chunk.times.start + j);
            self.add_outer(&mut after, chunk.to_end(j), &self.u(head, &chunk, j), b);
        }
        (chunk, after)
    }

    /// All chunks of a head in order, and its last state.
    fn walk(&self, head: Head) -> (Vec<Chunk>, Vec<f64>) {
        let mut state = self.x.h0[head.index * self.s.p * self.s.n..][..self.s.p * self.s.n].to_vec();
        let mut enter = |times: Range<usize>| {
            let (chunk, after) = self.enter(head, times, &state);
            state = after;
            chunk
        };
        let chunks = self.chunks().into_iter().map(&mut enter).collect();
        (chunks, state)
    }

    /// y without skip and gate.
    fn inner(&self, head: Head, chunk: &Chunk, y: &mut [f64]) {
        for i in 0..chunk.sums.len() {
            let t = chunk.times.start + i;
            let c = self.c(head, t);
            let row = &mut y[self.row(head, t)..][..self.s.p];
            add(row, chunk.sums[i].exp(), &self.times(&chunk.before, c));
            for j in 0..=i {
                let weight = chunk.decay(i, j) * dot(c, self.b(head, chunk.times.start + j));
                add(row, weight, &self.u(head, chunk, j));
            }
        }
    }

    /// y before the gate, and the last states.
    fn ungated(&self) -> Outputs {
        let mut out = Outputs { y: vec![0.0; self.x.x.len()], h_last: vec![] };
        for head in self.heads() {
            let (chunks, last) = self.walk(head);
            chunks.iter().for_each(|chunk| self.inner(head, chunk, &mut out.y));
            (0..self.s.t).for_each(|t| add(&mut out.y[self.row(head, t)..], self.x.skip[head.own], self.x(head, t)));
            out.h_last.extend(last);
        }
        out
    }

    /// The gradients of a chunk from ȳ and the cotangent D of the state behind it, which becomes that of the state before.
    fn chunk_backward(&self, head: Head, chunk: &Chunk, y_bar: &[f64], d: &mut [f64], grad: &mut Tensors) {
        let (n, t0) = (chunk.sums.len(), chunk.times.start);
        let dy = |i: usize| &y_bar[self.row(head, t0 + i)..][..self.s.p];
        let (b, c) = (|j: usize| self.b(head, t0 + j), |i: usize| self.c(head, t0 + i));
        let u: Vec<Vec<f64>> = (0..n).map(|j| self.u(head, chunk, j)).collect();
        let mut alpha_bar = vec![chunk.whole() * dot(&chunk.before, d); n];
        for j in 0..n {
            let mut u_bar: Vec<f64> = self.times(d, b(j)).iter().map(|x| chunk.to_end(j) * x).collect();
            let flow = dot(&u[j], &u_bar);
            alpha_bar[j + 1..].iter_mut().for_each(|bar| *bar += flow);
            let b_row = self.states(head, t0 + j);
            add(&mut grad.b[b_row..], chunk.to_end(j), &self.transposed_times(d, &u[j]));
            for i in j..n {
                let (scores, decay, m) = (dot(c(i), b(j)), chunk.decay(i, j), dot(dy(i), &u[j]));
                add(&mut u_bar, decay * scores, dy(i));
                add(&mut grad.b[b_row..][..self.s.n], decay * m, c(i));
                let c_row = self.states(head, t0 + i);
                add(&mut grad.c[c_row..][..self.s.n], decay * m, b(j));
                alpha_bar[j + 1..=i].iter_mut().for_each(|bar| *bar += decay * scores * m);
            }
            self.input_backward(head, t0 + j, chunk.step[j], &u_bar, grad);
        }
        d.iter_mut().for_each(|d| *d *= chunk.whole());
        for i in 0..n {
            let weight = chunk.sums[i].exp();
            let read = self.transposed_times(&chunk.before, dy(i));
            let flow = weight * dot(&read, c(i));
            alpha_bar[..=i].iter_mut().for_each(|bar| *bar += flow);
            add(&mut grad.c[self.states(head, t0 + i)..], weight, &read);
            self.add_outer(d, weight, dy(i), c(i));
        }
        for (j, bar) in alpha_bar.iter().enumerate() {
            grad.a[head.own] += chunk.step[j].0 * bar;
            self.step_backward(head, t0 + j, chunk.step[j].1 * self.x.a[head.own] * bar, grad);
        }
    }

    /// Through u = step·x.
    fn input_backward(&self, head: Head, t: usize, (step, slope): (f64, f64), u_bar: &[f64], grad: &mut Tensors) {
        add(&mut grad.x[self.row(head, t)..], step, u_bar);
        self.step_backward(head, t, slope * dot(u_bar, self.x(head, t)), grad);
    }

    fn step_backward(&self, head: Head, t: usize, bar: f64, grad: &mut Tensors) {
        grad.dt[self.row(head, t) / self.s.p] += bar;
        grad.dt_bias[head.own] += bar;
    }

    fn head_backward(&self, head: Head, y_bar: &[f64], last_bar: &[f64], grad: &mut Tensors) {
        let (chunks, _) = self.walk(head);
        let mut d = last_bar[head.index * self.s.p * self.s.n..][..self.s.p * self.s.n].to_vec();
        for chunk in chunks.iter().rev() {
            self.chunk_backward(head, chunk, y_bar, &mut d, grad);
            if self.o.starts.contains(&chunk.times.start) {
                d.fill(0.0);
            }
        }
        for t in 0..self.s.t {
            let dy = &y_bar[self.row(head, t)..][..self.s.p];
            add(&mut grad.x[self.row(head, t)..], self.x.skip[head.own], dy);
            grad.skip[head.own] += dot(dy, self.x(head, t));
        }
        grad.h0[head.index * self.s.p * self.s.n..][..d.len()].copy_from_slice(&d);
    }
}

/// The outputs.
pub(crate) fn forward(s: Sizes, x: &Tensors, o: &Options) -> Outputs {
    let mut out = Model { s, x, o }.ungated();
    if let Some(z) = &x.z {
        out.y.iter_mut().zip(z).for_each(|(y, z)| *y *= z * sigmoid(*z));
    }
    out
}

/// The gradient of Σ y·ȳ + Σ h_last·h̄_last.
pub(crate) fn backward(s: Sizes, x: &Tensors, o: &Options, bar: &Outputs) -> Tensors {
    let (model, zeros) = (Model { s, x, o }, |like: &[f64]| vec![0.0; like.len()]);
    let mut grad = Tensors {
        x: zeros(&x.x),
        dt: zeros(&x.dt),
        a: zeros(&x.a),
        b: zeros(&x.b),
        c: zeros(&x.c),
        z: None,
        skip: zeros(&x.skip),
        dt_bias: zeros(&x.dt_bias),
        h0: zeros(&x.h0),
    };
    let mut y_bar = bar.y.clone();
    if let Some(z) = &x.z {
        let ungated = model.ungated().y;
        let slope = |z: f64| sigmoid(z) * (1.0 + z * (1.0 - sigmoid(z)));
        grad.z = Some((0..z.len()).map(|k| bar.y[k] * ungated[k] * slope(z[k])).collect());
        y_bar.iter_mut().zip(z).for_each(|(y, z)| *y *= z * sigmoid(*z));
    }
    model.heads().for_each(|head| model.head_backward(head, &y_bar, &bar.h_last, &mut grad));
    grad
}
