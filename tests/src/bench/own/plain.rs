//! Plain loops, one thread's.
//!
//! Each takes the steps of a row, its inputs, the forward pass's outputs with the cotangent of the first of them behind
//! them (for a gradient), and writes its results, all row by row.

/// A plain loop over rows of so many steps: inputs, results.
pub(in super::super) type Plain = fn(usize, &[&[f32]], &mut [Vec<f32>]);

/// The rows of N tensors, side by side.
fn rows<'a, const N: usize>(steps: usize, all: &[&'a [f32]]) -> impl Iterator<Item = [&'a [f32]; N]> {
    let all: [&[f32]; N] = std::array::from_fn(|k| all[k]);
    (0..all[0].len()).step_by(steps).map(move |at| all.map(|tensor| &tensor[at..][..steps]))
}

/// The rows of N results, side by side.
fn rows_mut<const N: usize>(steps: usize, all: &mut [Vec<f32>]) -> impl Iterator<Item = [&mut [f32]; N]> {
    let mut chunks: Vec<_> = all.iter_mut().map(|tensor| tensor.chunks_exact_mut(steps)).collect();
    std::iter::from_fn(move || {
        let rows: Vec<&mut [f32]> = chunks.iter_mut().map_while(Iterator::next).collect();
        rows.try_into().ok()
    })
}

/// h\[t\] = a\[t\]·h\[t−1\] + b\[t\]
pub(super) fn affine(steps: usize, inputs: &[&[f32]], results: &mut [Vec<f32>]) {
    for ([a, b], [h]) in rows(steps, inputs).zip(rows_mut(steps, results)) {
        let mut state = 0.0;
        for ((a, b), h) in a.iter().zip(b).zip(h) {
            state = a * state + b;
            *h = state;
        }
    }
}

/// b̄\[t\] = h̄\[t\] + a\[t+1\]·b̄\[t+1\], ā\[t\] = b̄\[t\]·h\[t−1\]
pub(super) fn affine_backward(steps: usize, inputs: &[&[f32]], results: &mut [Vec<f32>]) {
    for ([a, _, h, cotangent], [of_a, of_b]) in rows(steps, inputs).zip(rows_mut(steps, results)) {
        let mut carry = 0.0;
        for t in (0..steps).rev() {
            let g = cotangent[t] + carry;
            of_b[t] = g;
            of_a[t] = if t == 0 { 0.0 } else { g * h[t - 1] };
            carry = a[t] * g;
        }
    }
}

/// h\[t\] = max(h\[t−1\] − d\[t\], x\[t\])
pub(super) fn peaks(steps: usize, inputs: &[&[f32]], results: &mut [Vec<f32>]) {
    for ([d, x], [h]) in rows(steps, inputs).zip(rows_mut(steps, results)) {
        let mut state = f32::NEG_INFINITY;
        for ((d, x), h) in d.iter().zip(x).zip(h) {
            state = (state - d).max(*x);
            *h = state;
        }
    }
}

/// The cotangent goes to the element that is the peak, or on to the step before.
pub(super) fn peaks_backward(steps: usize, inputs: &[&[f32]], results: &mut [Vec<f32>]) {
    for ([d, x, h, cotangent], [of_d, of_x]) in rows(steps, inputs).zip(rows_mut(steps, results)) {
        let mut carry = 0.0;
        for t in (0..steps).rev() {
            let g = cotangent[t] + carry;
            let before = if t == 0 { f32::NEG_INFINITY } else { h[t - 1] };
            // Of two equal ones the earlier is the peak, as `max` has it.
            let passes = before - d[t] >= x[t];
            of_x[t] = if passes { 0.0 } else { g };
            of_d[t] = if passes { -g } else { 0.0 };
            carry = if passes { g } else { 0.0 };
        }
    }
}

/// Hamilton's product.
#[inline(always)]
fn product([lw, lx, ly, lz]: [f32; 4], [rw, rx, ry, rz]: [f32; 4]) -> [f32; 4] {
    [
        lw * rw - lx * rx - ly * ry - lz * rz,
        lw * rx + lx * rw + ly * rz - lz * ry,
        lw * ry - lx * rz + ly * rw + lz * rx,
        lw * rz + lx * ry - ly * rx + lz * rw,
    ]
}

#[inline(always)]
fn conjugate([w, x, y, z]: [f32; 4]) -> [f32; 4] {
    [w, -x, -y, -z]
}

/// q\[t\] = q\[t−1\]·p\[t\]
pub(super) fn rotations(steps: usize, inputs: &[&[f32]], results: &mut [Vec<f32>]) {
    for (p, [w, x, y, z]) in rows::<4>(steps, inputs).zip(rows_mut(steps, results)) {
        let mut state = [1.0, 0.0, 0.0, 0.0];
        for t in 0..steps {
            state = product(state, p.map(|p| p[t]));
            [w[t], x[t], y[t], z[t]] = state;
        }
    }
}

/// q̄\[t\] + what comes from later is q; p̄\[t\] = conj(q\[t−1\])·q, and q·conj(p\[t\]) goes to the step before.
pub(super) fn rotations_backward(steps: usize, inputs: &[&[f32]], results: &mut [Vec<f32>]) {
    for (all, [w, x, y, z]) in rows::<9>(steps, inputs).zip(rows_mut(steps, results)) {
        let mut carry = [0.0; 4];
        for t in (0..steps).rev() {
            let g = [carry[0] + all[8][t], carry[1], carry[2], carry[3]];
            let before = if t == 0 { [1.0, 0.0, 0.0, 0.0] } else { [4, 5, 6, 7].map(|k| all[k][t - 1]) };
            [w[t], x[t], y[t], z[t]] = product(conjugate(before), g);
            carry = product(g, conjugate([0, 1, 2, 3].map(|k| all[k][t])));
        }
    }
}

/// u\[t\] = a·u\[t−1\] + b·v\[t−1\] + p, v\[t\] = c·u\[t−1\] + d·v\[t−1\] + q
pub(super) fn matrices(steps: usize, inputs: &[&[f32]], results: &mut [Vec<f32>]) {
    for ([a, b, c, d, p, q], [out_u, out_v]) in rows(steps, inputs).zip(rows_mut(steps, results)) {
        let (mut u, mut v) = (0.0, 0.0);
        for t in 0..steps {
            (u, v) = (a[t] * u + b[t] * v + p[t], c[t] * u + d[t] * v + q[t]);
            (out_u[t], out_v[t]) = (u, v);
        }
    }
}

/// The transposed matrices, in reverse; each matrix's cotangent is an outer product with the state before it.
pub(super) fn matrices_backward(steps: usize, inputs: &[&[f32]], results: &mut [Vec<f32>]) {
    for ([a, b, c, d, _, _, u, v, cotangent], [of_a, of_b, of_c, of_d, of_p, of_q]) in
        rows(steps, inputs).zip(rows_mut(steps, results))
    {
        let (mut carry_u, mut carry_v) = (0.0, 0.0);
        for t in (0..steps).rev() {
            let (g, k) = (cotangent[t] + carry_u, carry_v);
            let (before_u, before_v) = if t == 0 { (0.0, 0.0) } else { (u[t - 1], v[t - 1]) };
            (of_p[t], of_q[t]) = (g, k);
            (of_a[t], of_b[t], of_c[t], of_d[t]) = (g * before_u, g * before_v, k * before_u, k * before_v);
            (carry_u, carry_v) = (a[t] * g + c[t] * k, b[t] * g + d[t] * k);
        }
    }
}
