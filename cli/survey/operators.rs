//! Operators as users write them, of 2 to 16 fields: what `oplus survey` counts the registers of.

oplus::scan! {
    /// Peaks that sink: first by d, then overtaken by h.
    pub op LeakyMax(d, h) {
        identity (0, -inf);
        combine(l, r) (l.d + r.d, max(l.h - r.d, r.h));
    }

    pub fn peaks(x: [B, T], d: [B, T]) -> (h: [B, T]) {
        h = scan(T, LeakyMax(d, x)).h;
    }

    /// Sinking peaks and the times at which they were reached.
    pub op LatePeak(d, h, at: i64) where d > -inf, d < inf, h > -inf || at == -1 {
        identity (0, -inf, -1);
        combine(l, r) {
            let sunk = l.h - r.d;
            if r.h >= sunk { (l.d + r.d, r.h, r.at) } else { (l.d + r.d, sunk, l.at) }
        }
    }

    pub fn late_peaks(x: [B, T], d: [B, T]) -> (h: [B, T], at: i64[B, T]) {
        let all = scan(T, LatePeak(d, x, index(T)));
        (h, at) = (all.h, all.at);
    }

    /// Count, mean and sum of squared deviations, after Chan, Golub and LeVeque.
    pub op Welford(n, mean, m2) where n > 0 || n == 0 && mean == 0 && m2 == 0 {
        identity (0, 0, 0);
        combine(l, r) {
            let n = l.n + r.n;
            let part = if n == 0 { 0 } else { r.n / n };
            let apart = r.mean - l.mean;
            (n, l.mean + apart * part, l.m2 + r.m2 + apart * apart * l.n * part)
        }
    }

    pub fn welford_scan(x: [B, T]) -> (mean: [B, T], variance: [B, T]) {
        let all = scan(T, Welford(1, x, 0));
        mean = all.mean;
        variance = all.m2 / all.n;
    }

    pub fn welford_reset(x: [B, T], reset: bool[B, T]) -> (mean: [B, T], variance: [B, T]) {
        let all = scan(T, segmented(Welford)(1, x, 0), reset = reset);
        mean = all.mean;
        variance = all.m2 / all.n;
    }

    /// Count, means of two variables and their covariance.
    pub op Covariance(n, mx, my, xx, xy, yy)
    where n > 0 || n == 0 && mx == 0 && my == 0 && xx == 0 && xy == 0 && yy == 0 {
        identity (0, 0, 0, 0, 0, 0);
        combine(l, r) {
            let n = l.n + r.n;
            let part = if n == 0 { 0 } else { r.n / n };
            let (dx, dy) = (r.mx - l.mx, r.my - l.my);
            let w = l.n * part;
            (
                n, l.mx + dx * part, l.my + dy * part,
                l.xx + r.xx + dx * dx * w, l.xy + r.xy + dx * dy * w, l.yy + r.yy + dy * dy * w,
            )
        }
    }

    pub fn covariance_scan(x: [B, T], y: [B, T]) -> (slope: [B, T]) {
        let all = scan(T, Covariance(1, x, y, 0, 0, 0));
        slope = all.xy / all.xx;
    }

    /// Sums for a line through weighted points.
    pub op Line(w, x, y, xx, xy, yy) {
        identity (0, 0, 0, 0, 0, 0);
        combine(l, r) (l.w + r.w, l.x + r.x, l.y + r.y, l.xx + r.xx, l.xy + r.xy, l.yy + r.yy);
    }

    pub fn line_scan(w: [B, T], x: [B, T], y: [B, T]) -> (slope: [B, T], offset: [B, T]) {
        let all = scan(T, Line(w, w * x, w * y, w * x * x, w * x * y, w * y * y));
        let between = all.w * all.xx - all.x * all.x;
        slope = (all.w * all.xy - all.x * all.y) / between;
        offset = (all.xx * all.y - all.x * all.xy) / between;
    }

    /// Products of quaternions: rotations one after the other.
    pub op Quaternion(w, x, y, z) {
        identity (1, 0, 0, 0);
        combine(l, r) (
            r.w * l.w - r.x * l.x - r.y * l.y - r.z * l.z,
            r.w * l.x + r.x * l.w + r.y * l.z - r.z * l.y,
            r.w * l.y - r.x * l.z + r.y * l.w + r.z * l.x,
            r.w * l.z + r.x * l.y - r.y * l.x + r.z * l.w,
        );
    }

    pub fn quaternion_scan(
        w: [B, T], x: [B, T], y: [B, T], z: [B, T],
    ) -> (ow: [B, T], ox: [B, T], oy: [B, T], oz: [B, T]) {
        (ow, ox, oy, oz) = scan(T, Quaternion(w, x, y, z));
    }

    pub fn quaternion_reset(
        w: [B, T], x: [B, T], y: [B, T], z: [B, T], reset: bool[B, T],
    ) -> (ow: [B, T], ox: [B, T], oy: [B, T], oz: [B, T]) {
        let all = scan(T, segmented(Quaternion)(w, x, y, z), reset = reset);
        (ow, ox, oy, oz) = (all.w, all.x, all.y, all.z);
    }

    /// Rotations by quaternions of length 1, and shifts.
    pub op Motion(qw, qx, qy, qz, tx, ty, tz) {
        identity (1, 0, 0, 0, 0, 0, 0);
        combine(l, r) {
            let ux = r.qy * l.tz - r.qz * l.ty;
            let uy = r.qz * l.tx - r.qx * l.tz;
            let uz = r.qx * l.ty - r.qy * l.tx;
            let s = r.qw * r.qw - r.qx * r.qx - r.qy * r.qy - r.qz * r.qz;
            let d = 2 * (r.qx * l.tx + r.qy * l.ty + r.qz * l.tz);
            (
                r.qw * l.qw - r.qx * l.qx - r.qy * l.qy - r.qz * l.qz,
                r.qw * l.qx + r.qx * l.qw + r.qy * l.qz - r.qz * l.qy,
                r.qw * l.qy - r.qx * l.qz + r.qy * l.qw + r.qz * l.qx,
                r.qw * l.qz + r.qx * l.qy - r.qy * l.qx + r.qz * l.qw,
                s * l.tx + d * r.qx + 2 * r.qw * ux + r.tx,
                s * l.ty + d * r.qy + 2 * r.qw * uy + r.ty,
                s * l.tz + d * r.qz + 2 * r.qw * uz + r.tz,
            )
        }
    }

    pub fn motion_scan(
        qw: [B, T], qx: [B, T], qy: [B, T], qz: [B, T], tx: [B, T], ty: [B, T], tz: [B, T],
    ) -> (x: [B, T], y: [B, T], z: [B, T]) {
        let all = scan(T, Motion(qw, qx, qy, qz, tx, ty, tz));
        (x, y, z) = (all.tx, all.ty, all.tz);
    }

    /// Products of 2×2 matrices, and their traces.
    pub fn traces(a: [B, T], b: [B, T], c: [B, T], d: [B, T]) -> (trace: [B, T]) {
        let all = scan(T, Matrix2(a, b, c, d));
        trace = all.a + all.d;
    }

    /// Sums of exponentials over the paths of a Markov chain of two states, as logarithms.
    pub op Paths(aa, ab, ba, bb) {
        identity (0, -inf, -inf, 0);
        combine(l, r) (
            either(r.aa + l.aa, r.ab + l.ba),
            either(r.aa + l.ab, r.ab + l.bb),
            either(r.ba + l.aa, r.bb + l.ba),
            either(r.ba + l.ab, r.bb + l.bb),
        );
    }

    fn either(x, y) {
        if x == y { x + ln(2) } else { max(x, y) + log1p(exp(min(x, y) - max(x, y))) }
    }

    pub fn paths_scan(aa: [B, T], ab: [B, T], ba: [B, T], bb: [B, T]) -> (oa: [B, T], ob: [B, T]) {
        let all = scan(T, Paths(aa, ab, ba, bb));
        (oa, ob) = (all.aa, all.ab);
    }

    /// A Kalman filter of one state by scan, after Särkkä and García-Fernández.
    pub op Kalman(a, b, c, eta, j) {
        identity (1, 0, 0, 0, 0);
        combine(l, r) {
            let gain = 1 / (1 + l.c * r.j);
            (
                r.a * l.a * gain,
                r.a * gain * (l.b + l.c * r.eta) + r.b,
                r.a * r.a * gain * l.c + r.c,
                l.a * gain * (r.eta - r.j * l.b) + l.eta,
                l.a * l.a * gain * r.j + l.j,
            )
        }
    }

    pub fn kalman_scan(
        a: [B, T], b: [B, T], c: [B, T], eta: [B, T], j: [B, T],
    ) -> (mean: [B, T], variance: [B, T]) {
        let all = scan(T, Kalman(a, b, c * c, eta, j * j));
        (mean, variance) = (all.b, all.c);
    }

    /// A softmax with four numerators.
    pub op Softmax4(m, d, o0, o1, o2, o3) {
        identity (-inf, 0, 0, 0, 0, 0);
        gauge m;
        combine(l, r) {
            let m = max(l.m, r.m);
            let left = if l.m == m { 1 } else { exp(l.m - m) };
            let right = if r.m == m { 1 } else { exp(r.m - m) };
            (
                m, left * l.d + right * r.d, left * l.o0 + right * r.o0, left * l.o1 + right * r.o1,
                left * l.o2 + right * r.o2, left * l.o3 + right * r.o3,
            )
        }
    }

    pub fn softmax4_scan(
        m: [B, T], a: [B, T], b: [B, T], c: [B, T], d: [B, T],
    ) -> (oa: [B, T], ob: [B, T], oc: [B, T], od: [B, T]) {
        let all = scan(T, Softmax4(m, 1, a, b, c, d));
        (oa, ob, oc, od) = (all.o0 / all.d, all.o1 / all.d, all.o2 / all.d, all.o3 / all.d);
    }

    /// Two complex recurrences at once.
    pub op Oscillators(ar, ai, br, bi, cr, ci, dr, di) {
        identity (1, 0, 0, 0, 1, 0, 0, 0);
        combine(l, r) (
            r.ar * l.ar - r.ai * l.ai, r.ar * l.ai + r.ai * l.ar,
            r.ar * l.br - r.ai * l.bi + r.br, r.ar * l.bi + r.ai * l.br + r.bi,
            r.cr * l.cr - r.ci * l.ci, r.cr * l.ci + r.ci * l.cr,
            r.cr * l.dr - r.ci * l.di + r.dr, r.cr * l.di + r.ci * l.dr + r.di,
        );
    }

    pub fn oscillators_scan(
        ar: [B, T], ai: [B, T], br: [B, T], bi: [B, T], cr: [B, T], ci: [B, T], dr: [B, T], di: [B, T],
    ) -> (y: [B, T], z: [B, T]) {
        let all = scan(T, Oscillators(ar, ai, br, bi, cr, ci, dr, di));
        (y, z) = (all.br + all.dr, all.bi - all.di);
    }

    /// The least and the greatest value so far, and when they were met.
    pub op Extremes(low, low_at: i64, high, high_at: i64)
    where low < inf || low_at == -1, high > -inf || high_at == -1 {
        identity (inf, -1, -inf, -1);
        combine(l, r) (
            min(l.low, r.low),
            if r.low < l.low { r.low_at } else { l.low_at },
            max(l.high, r.high),
            if r.high > l.high { r.high_at } else { l.high_at },
        );
    }

    pub fn extremes_scan(x: [B, T]) -> (low_at: i64[B, T], high_at: i64[B, T], range: [B, T]) {
        let all = scan(T, Extremes(x, index(T), x, index(T)));
        (low_at, high_at, range) = (all.low_at, all.high_at, all.high - all.low);
    }

    /// Steps of a linear congruential generator.
    pub op Congruence(a: u64, c: u64) {
        identity (1, 0);
        combine(l, r) (l.a * r.a, r.a * l.c + r.c);
    }

    pub fn congruence_scan(a: u64[B, T], c: u64[B, T]) -> (x: u64[B, T]) {
        x = scan(T, Congruence(a, c)).c;
    }

    /// Sums of three widths.
    pub op Widths(short: i32, long: i64, bits: u32) {
        identity (0, 0, 0);
        combine(l, r) (l.short + r.short, l.long + r.long, l.bits | r.bits);
    }

    pub fn widths_scan(
        step: i32[B, T], far: i64[B, T], set: u32[B, T],
    ) -> (at: i32[B, T], long: i64[B, T], bits: u32[B, T]) {
        let all = scan(T, Widths(step, far, set));
        (at, long, bits) = (all.short, all.long, all.bits);
    }

    /// Matrices of Fibonacci's kind over 64 bits.
    pub op Words(a: u64, b: u64, c: u64, d: u64) {
        identity (1, 0, 0, 1);
        combine(l, r) (
            r.a * l.a + r.b * l.c, r.a * l.b + r.b * l.d, r.c * l.a + r.d * l.c, r.c * l.b + r.d * l.d,
        );
    }

    pub fn words_scan(a: u64[B, T], b: u64[B, T], c: u64[B, T], d: u64[B, T]) -> (x: u64[B, T], y: u64[B, T]) {
        let all = scan(T, Words(a, b, c, d));
        (x, y) = (all.a, all.b);
    }

    /// Eight counts.
    pub op Counts(a: u32, b: u32, c: u32, d: u32, e: u32, f: u32, g: u32, h: u32) {
        identity (0, 0, 0, 0, 0, 0, 0, 0);
        combine(l, r) (
            l.a + r.a, l.b + r.b, l.c + r.c, l.d + r.d, l.e + r.e, l.f + r.f, l.g + r.g, l.h + r.h,
        );
    }

    pub fn counts_scan(x: u32[B, T]) -> (a: u32[B, T], h: u32[B, T]) {
        let all = scan(T, Counts(
            x & 1, x >> 1 & 1, x >> 2 & 1, x >> 3 & 1, x >> 4 & 1, x >> 5 & 1, x >> 6 & 1, x >> 7 & 1,
        ));
        (a, h) = (all.a + all.b + all.c + all.d, all.e + all.f + all.g + all.h);
    }

    /// h[t] = A[t]·h[t−1] + b[t] of two states.
    pub op Affine2(a00, a01, a10, a11, b0, b1) {
        identity (1, 0, 0, 1, 0, 0);
        combine(l, r) (
            r.a00 * l.a00 + r.a01 * l.a10,
            r.a00 * l.a01 + r.a01 * l.a11,
            r.a10 * l.a00 + r.a11 * l.a10,
            r.a10 * l.a01 + r.a11 * l.a11,
            r.a00 * l.b0 + r.a01 * l.b1 + r.b0,
            r.a10 * l.b0 + r.a11 * l.b1 + r.b1,
        );
    }

    pub fn affine2_scan(
        a00: [B, T], a01: [B, T], a10: [B, T], a11: [B, T], b0: [B, T], b1: [B, T], h0: state[B] = 0, h1:
        state[B] = 0,
    ) -> (
        y0: [B, T], y1: [B, T],
    ) {
        let all = scan(T, Affine2(a00, a01, a10, a11, b0, b1), init = (b0: h0, b1: h1));
        (y0, y1) = (all.b0, all.b1);
    }

    /// The recurrence of three states.
    pub op Affine3(a00, a01, a02, a10, a11, a12, a20, a21, a22, b0, b1, b2) {
        identity (1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0);
        combine(l, r) (
            r.a00 * l.a00 + r.a01 * l.a10 + r.a02 * l.a20,
            r.a00 * l.a01 + r.a01 * l.a11 + r.a02 * l.a21,
            r.a00 * l.a02 + r.a01 * l.a12 + r.a02 * l.a22,
            r.a10 * l.a00 + r.a11 * l.a10 + r.a12 * l.a20,
            r.a10 * l.a01 + r.a11 * l.a11 + r.a12 * l.a21,
            r.a10 * l.a02 + r.a11 * l.a12 + r.a12 * l.a22,
            r.a20 * l.a00 + r.a21 * l.a10 + r.a22 * l.a20,
            r.a20 * l.a01 + r.a21 * l.a11 + r.a22 * l.a21,
            r.a20 * l.a02 + r.a21 * l.a12 + r.a22 * l.a22,
            r.a00 * l.b0 + r.a01 * l.b1 + r.a02 * l.b2 + r.b0,
            r.a10 * l.b0 + r.a11 * l.b1 + r.a12 * l.b2 + r.b1,
            r.a20 * l.b0 + r.a21 * l.b1 + r.a22 * l.b2 + r.b2,
        );
    }

    pub fn affine3_scan(
        a00: [B, T], a01: [B, T], a02: [B, T], a10: [B, T], a11: [B, T], a12: [B, T], a20: [B, T], a21: [B,
        T], a22: [B, T], b0: [B, T], b1: [B, T], b2: [B, T], h0: state[B] = 0, h1: state[B] = 0, h2:
        state[B] = 0,
    ) -> (
        y0: [B, T], y1: [B, T], y2: [B, T],
    ) {
        let all = scan(T, Affine3(
            a00, a01, a02, a10, a11, a12, a20, a21, a22, b0, b1, b2), init = (b0: h0, b1: h1, b2: h2),
        );
        (y0, y1, y2) = (all.b0, all.b1, all.b2);
    }

    /// Products of 3×3 matrices.
    pub op Matrix3(m00, m01, m02, m10, m11, m12, m20, m21, m22) {
        identity (1, 0, 0, 0, 1, 0, 0, 0, 1);
        combine(l, r) (
            r.m00 * l.m00 + r.m01 * l.m10 + r.m02 * l.m20,
            r.m00 * l.m01 + r.m01 * l.m11 + r.m02 * l.m21,
            r.m00 * l.m02 + r.m01 * l.m12 + r.m02 * l.m22,
            r.m10 * l.m00 + r.m11 * l.m10 + r.m12 * l.m20,
            r.m10 * l.m01 + r.m11 * l.m11 + r.m12 * l.m21,
            r.m10 * l.m02 + r.m11 * l.m12 + r.m12 * l.m22,
            r.m20 * l.m00 + r.m21 * l.m10 + r.m22 * l.m20,
            r.m20 * l.m01 + r.m21 * l.m11 + r.m22 * l.m21,
            r.m20 * l.m02 + r.m21 * l.m12 + r.m22 * l.m22,
        );
    }

    pub fn matrix3_scan(
        m00: [B, T], m01: [B, T], m02: [B, T], m10: [B, T], m11: [B, T], m12: [B, T], m20: [B, T], m21: [B,
        T], m22: [B, T],
    ) -> (
        om00: [B, T], om01: [B, T], om02: [B, T], om10: [B, T], om11: [B, T], om12: [B, T], om20: [B, T],
        om21: [B, T], om22: [B, T],
    ) {
        (
            om00, om01, om02, om10, om11, om12, om20, om21, om22,
        ) = scan(T, Matrix3(
            m00, m01, m02, m10, m11, m12, m20, m21, m22,
        ));
    }

    pub fn matrix3_corner(
        m00: [B, T], m01: [B, T], m02: [B, T], m10: [B, T], m11: [B, T], m12: [B, T], m20: [B, T], m21: [B,
        T], m22: [B, T],
    ) -> (
        corner: [B, T],
    ) {
        corner = scan(T, Matrix3(m00, m01, m02, m10, m11, m12, m20, m21, m22)).m00;
    }

    /// Products of 4×4 matrices.
    pub op Matrix4(m00, m01, m02, m03, m10, m11, m12, m13, m20, m21, m22, m23, m30, m31, m32, m33) {
        identity (1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1);
        combine(l, r) (
            r.m00 * l.m00 + r.m01 * l.m10 + r.m02 * l.m20 + r.m03 * l.m30,
            r.m00 * l.m01 + r.m01 * l.m11 + r.m02 * l.m21 + r.m03 * l.m31,
            r.m00 * l.m02 + r.m01 * l.m12 + r.m02 * l.m22 + r.m03 * l.m32,
            r.m00 * l.m03 + r.m01 * l.m13 + r.m02 * l.m23 + r.m03 * l.m33,
            r.m10 * l.m00 + r.m11 * l.m10 + r.m12 * l.m20 + r.m13 * l.m30,
            r.m10 * l.m01 + r.m11 * l.m11 + r.m12 * l.m21 + r.m13 * l.m31,
            r.m10 * l.m02 + r.m11 * l.m12 + r.m12 * l.m22 + r.m13 * l.m32,
            r.m10 * l.m03 + r.m11 * l.m13 + r.m12 * l.m23 + r.m13 * l.m33,
            r.m20 * l.m00 + r.m21 * l.m10 + r.m22 * l.m20 + r.m23 * l.m30,
            r.m20 * l.m01 + r.m21 * l.m11 + r.m22 * l.m21 + r.m23 * l.m31,
            r.m20 * l.m02 + r.m21 * l.m12 + r.m22 * l.m22 + r.m23 * l.m32,
            r.m20 * l.m03 + r.m21 * l.m13 + r.m22 * l.m23 + r.m23 * l.m33,
            r.m30 * l.m00 + r.m31 * l.m10 + r.m32 * l.m20 + r.m33 * l.m30,
            r.m30 * l.m01 + r.m31 * l.m11 + r.m32 * l.m21 + r.m33 * l.m31,
            r.m30 * l.m02 + r.m31 * l.m12 + r.m32 * l.m22 + r.m33 * l.m32,
            r.m30 * l.m03 + r.m31 * l.m13 + r.m32 * l.m23 + r.m33 * l.m33,
        );
    }

    pub fn matrix4_scan(
        m00: [B, T], m01: [B, T], m02: [B, T], m03: [B, T], m10: [B, T], m11: [B, T], m12: [B, T], m13: [B,
        T], m20: [B, T], m21: [B, T], m22: [B, T], m23: [B, T], m30: [B, T], m31: [B, T], m32: [B, T], m33:
        [B, T],
    ) -> (
        om00: [B, T], om01: [B, T], om02: [B, T], om03: [B, T], om10: [B, T], om11: [B, T], om12: [B, T],
        om13: [B, T], om20: [B, T], om21: [B, T], om22: [B, T], om23: [B, T], om30: [B, T], om31: [B, T],
        om32: [B, T], om33: [B, T],
    ) {
        (
            om00, om01, om02, om03, om10, om11, om12, om13, om20, om21, om22, om23, om30, om31, om32, om33,
        ) = scan(T, Matrix4(
            m00, m01, m02, m03, m10, m11, m12, m13, m20, m21, m22, m23, m30, m31, m32, m33,
        ));
    }

    pub fn matrix4_corner(
        m00: [B, T], m01: [B, T], m02: [B, T], m03: [B, T], m10: [B, T], m11: [B, T], m12: [B, T], m13: [B,
        T], m20: [B, T], m21: [B, T], m22: [B, T], m23: [B, T], m30: [B, T], m31: [B, T], m32: [B, T], m33:
        [B, T],
    ) -> (
        corner: [B, T],
    ) {
        corner = scan(T, Matrix4(m00, m01, m02, m03, m10, m11, m12, m13, m20, m21, m22, m23, m30, m31, m32, m33)).m00;
    }

    /// Products of 3×3 matrices whose sum is the maximum: the best path of a Viterbi decoder.
    pub op Tropical3(m00, m01, m02, m10, m11, m12, m20, m21, m22) {
        identity (0, -inf, -inf, -inf, 0, -inf, -inf, -inf, 0);
        combine(l, r) (
            max(max(r.m00 + l.m00, r.m01 + l.m10), r.m02 + l.m20),
            max(max(r.m00 + l.m01, r.m01 + l.m11), r.m02 + l.m21),
            max(max(r.m00 + l.m02, r.m01 + l.m12), r.m02 + l.m22),
            max(max(r.m10 + l.m00, r.m11 + l.m10), r.m12 + l.m20),
            max(max(r.m10 + l.m01, r.m11 + l.m11), r.m12 + l.m21),
            max(max(r.m10 + l.m02, r.m11 + l.m12), r.m12 + l.m22),
            max(max(r.m20 + l.m00, r.m21 + l.m10), r.m22 + l.m20),
            max(max(r.m20 + l.m01, r.m21 + l.m11), r.m22 + l.m21),
            max(max(r.m20 + l.m02, r.m21 + l.m12), r.m22 + l.m22),
        );
    }

    pub fn tropical3_scan(
        m00: [B, T], m01: [B, T], m02: [B, T], m10: [B, T], m11: [B, T], m12: [B, T], m20: [B, T], m21: [B,
        T], m22: [B, T],
    ) -> (
        om00: [B, T], om01: [B, T], om02: [B, T], om10: [B, T], om11: [B, T], om12: [B, T], om20: [B, T],
        om21: [B, T], om22: [B, T],
    ) {
        (
            om00, om01, om02, om10, om11, om12, om20, om21, om22,
        ) = scan(T, Tropical3(
            m00, m01, m02, m10, m11, m12, m20, m21, m22,
        ));
    }

    pub fn tropical3_corner(
        m00: [B, T], m01: [B, T], m02: [B, T], m10: [B, T], m11: [B, T], m12: [B, T], m20: [B, T], m21: [B,
        T], m22: [B, T],
    ) -> (
        corner: [B, T],
    ) {
        corner = scan(T, Tropical3(m00, m01, m02, m10, m11, m12, m20, m21, m22)).m00;
    }

    /// Products of power series, cut off after the eighth term.
    pub op Series(c0, c1, c2, c3, c4, c5, c6, c7) {
        identity (1, 0, 0, 0, 0, 0, 0, 0);
        combine(l, r) (
            l.c0 * r.c0,
            l.c0 * r.c1 + l.c1 * r.c0,
            l.c0 * r.c2 + l.c1 * r.c1 + l.c2 * r.c0,
            l.c0 * r.c3 + l.c1 * r.c2 + l.c2 * r.c1 + l.c3 * r.c0,
            l.c0 * r.c4 + l.c1 * r.c3 + l.c2 * r.c2 + l.c3 * r.c1 + l.c4 * r.c0,
            l.c0 * r.c5 + l.c1 * r.c4 + l.c2 * r.c3 + l.c3 * r.c2 + l.c4 * r.c1 + l.c5 * r.c0,
            l.c0 * r.c6 + l.c1 * r.c5 + l.c2 * r.c4 + l.c3 * r.c3 + l.c4 * r.c2 + l.c5 * r.c1 + l.c6 * r.c0,
            l.c0 * r.c7 + l.c1 * r.c6 + l.c2 * r.c5 + l.c3 * r.c4
                + l.c4 * r.c3 + l.c5 * r.c2 + l.c6 * r.c1 + l.c7 * r.c0,
        );
    }

    pub fn series_scan(
        c0: [B, T], c1: [B, T], c2: [B, T], c3: [B, T], c4: [B, T], c5: [B, T], c6: [B, T], c7: [B, T],
    ) -> (
        last: [B, T],
    ) {
        last = scan(T, Series(c0, c1, c2, c3, c4, c5, c6, c7)).c7;
    }

}
