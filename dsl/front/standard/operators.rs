// The standard operators: the body of a `scan!`, see the crate `oplus-front`.

/// Addition, s: l.s + r.s. Cumulative sums, `cumsum` of NumPy.
pub op Sum(s) {
    identity (0);
    combine(l, r) (l.s + r.s);
}

/// Multiplication, p: l.p·r.p. Cumulative products, `cumprod` of NumPy.
pub op Product(p) {
    identity (1);
    combine(l, r) (l.p * r.p);
}

/// The larger, m: max(l.m, r.m). The identity of integers is their smallest value.
pub op Max(m) {
    identity (-inf);
    combine(l, r) (max(l.m, r.m));
}

/// The smaller, m: min(l.m, r.m). The identity of integers is their largest value.
pub op Min(m) {
    identity (inf);
    combine(l, r) (min(l.m, r.m));
}

/// The larger value with its index; at ties the lowest index, in either direction.
///
/// Give the index as an element: `scan(L, ArgMax(x, index(L)))`. The identity's index is the largest `i64`: that is what
/// a reduction of nothing gives.
pub op ArgMax(value, index: i64) {
    identity (-inf, inf);
    combine(l, r) {
        let right = r.value > l.value || r.value == l.value && r.index < l.index;
        if right { (r.value, r.index) } else { (l.value, l.index) }
    }
}

/// The smaller value with its index; at ties the lowest index, in either direction. See `ArgMax`.
pub op ArgMin(value, index: i64) {
    identity (inf, inf);
    combine(l, r) {
        let right = r.value < l.value || r.value == l.value && r.index < l.index;
        if right { (r.value, r.index) } else { (l.value, l.index) }
    }
}

/// First-order affine recurrence, h[t] = a[t]·h[t−1] + b[t]: composition of the maps h ↦ a·h + b.
///
/// A semidirect product with the base a (product) and the payload b. Exponential moving averages, linear state spaces,
/// Mamba's S6 (Blelloch, "Prefix sums and their applications", 1990, §1.4).
pub op Affine(a, b) {
    identity (1, 0);
    combine(l, r) (l.a * r.a, r.a * l.b + r.b);
}

// w·x, and 0 where the weight is 0: a decay of −∞ forgets even an infinite state.
fn weighted(w, x) {
    if w == 0 { 0 } else { w * x }
}

/// Recurrence with a decay in logarithms, s[t] = exp(g[t])·s[t−1] + x[t].
///
/// A semidirect product with the base g (sum) and the payload x: log-decay ("monoid") attention, gated linear attention,
/// retention. g = −∞ forgets the past entirely, also an infinite one: no 0·∞ appears.
pub op LogDecay(g, x) {
    identity (0, 0);
    combine(l, r) (l.g + r.g, weighted(exp(r.g), l.x) + r.x);
}

/// The logarithm of a sum of exponentials, x: ln(exp(l.x) + exp(r.x)), without overflow; −∞ is the identity.
pub op LogSumExp(x) {
    identity (-inf);
    combine(l, r) {
        let larger = max(l.x, r.x);
        let apart = larger + log1p(exp(min(l.x, r.x) - larger));
        // Equal operands may both be infinite, where their difference is not a number.
        if l.x == r.x { 0.5 * l.x + 0.5 * r.x + ln(2) } else { apart }
    }
}

/// Merging of softmax-weighted sums: with M = max(l.m, r.m), each payload p is l.p·exp(l.m − M) + r.p·exp(r.m − M).
///
/// An element of score m with the value v is (m, 1, v); the result of attention is o/d, its log-sum-exp m + ln d. Neither
/// depends on the maximum m itself, which is therefore a gauge: no gradient flows through it. Scores of −∞ are masked and
/// make no NaN (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
pub op Softmax(m, d, o) {
    identity (-inf, 0, 0);
    gauge m;
    combine(l, r) {
        let m = max(l.m, r.m);
        let left = if l.m == m { 1 } else { exp(l.m - m) };
        let right = if r.m == m { 1 } else { exp(r.m - m) };
        (m, left * l.d + right * r.d, left * l.o + right * r.o)
    }
}

/// Affine recurrence over the complex numbers, h[t] = a[t]·h[t−1] + b[t] with a = ar + i·ai and b = br + i·bi: the
/// diagonal of S4 and of the LRU.
pub op ComplexAffine(ar, ai, br, bi) {
    identity (1, 0, 0, 0);
    combine(l, r) (
        r.ar * l.ar - r.ai * l.ai,
        r.ar * l.ai + r.ai * l.ar,
        r.ar * l.br - r.ai * l.bi + r.br,
        r.ar * l.bi + r.ai * l.br + r.bi,
    );
}

/// Products of 2×2 matrices, P[t] = M[t]·P[t−1], with M = (a b; c d) by rows: composition of linear maps of the plane.
/// Second-order linear recurrences, continued fractions, Fibonacci numbers.
pub op Matrix2(a, b, c, d) {
    identity (1, 0, 0, 1);
    combine(l, r) (
        r.a * l.a + r.b * l.c,
        r.a * l.b + r.b * l.d,
        r.c * l.a + r.d * l.c,
        r.c * l.b + r.d * l.d,
    );
}

/// Affine recurrence of the tropical semiring, h[t] = max(a[t] + h[t−1], b[t]): Viterbi scores, local alignment.
pub op MaxPlus(a, b) {
    identity (0, -inf);
    combine(l, r) (l.a + r.a, max(r.a + l.b, r.b));
}

// Where state s goes under the map f, put at the place of state s0.
fn goes(f, s, s0) {
    (f >> 3 * s & 7) << 3 * s0
}

fn composed(l, r, s0) {
    goes(r, l >> 3 * s0 & 7, s0)
}

/// Composition of maps on up to eight states: the state s goes to bits 3s … 3s + 2 of f. A finite automaton's run over a
/// text, in parallel (Hillis and Steele, "Data parallel algorithms", 1986).
///
/// The eight bits above the map are flags of the element; those of a run are the flags of any of its elements.
pub op Automaton(f: u32) {
    identity (0o76543210);
    combine(l, r) (
        composed(l.f, r.f, 0) | composed(l.f, r.f, 1) | composed(l.f, r.f, 2) | composed(l.f, r.f, 3)
            | composed(l.f, r.f, 4) | composed(l.f, r.f, 5) | composed(l.f, r.f, 6) | composed(l.f, r.f, 7)
            | (l.f | r.f) & 0xff000000
    );
}

/// The delta rule for a state of K × V: what the state gives for the key k is moved by β towards the value v.
pub op DeltaRule(beta, k: [K], v: [V]) -> (s: [K, V]) {
    combine(l, r) (l.s + r.beta * r.k * (r.v - sum(K, l.s * r.k)));
}

/// The delta rule for a state that decays by exp(g) before.
pub op GatedDeltaRule(g, beta, k: [K], v: [V]) -> (s: [K, V]) {
    combine(l, r) {
        let s = exp(r.g) * l.s;
        s + r.beta * r.k * (r.v - sum(K, s * r.k))
    }
}

/// The delta rule for a state whose channels K decay by exp(g) before.
pub op ChannelDeltaRule(g: [K], beta, k: [K], v: [V]) -> (s: [K, V]) {
    combine(l, r) {
        let s = exp(r.g) * l.s;
        s + r.beta * r.k * (r.v - sum(K, s * r.k))
    }
}

/// A state of K × V that is multiplied by a diagonal matrix plus one of rank one, along K: s ← w·s + b⊗(Σ over K of z·s) + x.
pub op DiagonalPlusPair(w: [K], z: [K], b: [K], x: [K, V]) -> (s: [K, V]) {
    combine(l, r) (r.w * l.s + sum(K, l.s * r.z) * r.b + r.x);
}

/// A state of K × V that is multiplied by a whole matrix, along K: s[k] ← Σ over J of m[k, j]·s[j] + x[k]. J and K have one size.
pub op MatrixAffine(m: [K, J], x: [K, V]) -> (s: [K, V]) {
    combine(l, r) (sum(J, r.m * rename(l.s, K = J)) + r.x);
}
