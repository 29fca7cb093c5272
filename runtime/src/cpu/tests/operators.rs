//! Operators whose fields feed one another.

use oplus_dsl::ir::Program;

/// The product of quaternions.
pub(super) const ROTATIONS: &str = "
    op Quaternion(w, x, y, z) {
        identity (1, 0, 0, 0);
        combine(l, r) (
            l.w * r.w - l.x * r.x - l.y * r.y - l.z * r.z,
            l.w * r.x + l.x * r.w + l.y * r.z - l.z * r.y,
            l.w * r.y - l.x * r.z + l.y * r.w + l.z * r.x,
            l.w * r.z + l.x * r.y - l.y * r.x + l.z * r.w,
        );
    }
    fn rotations(w: [B, T], x: [B, T], y: [B, T], z: [B, T])
        -> (a: [B, T], b: [B, T], c: [B, T], d: [B, T], last: [B]) {
        let q = scan(T, Quaternion(w, x, y, z));
        (a, b, c, d) = (q.w, q.x, q.y, q.z);
        last = last(T, q.x);
    }
";

/// The kernels of a text.
pub(super) fn programs(text: &str) -> Vec<Program> {
    oplus_front::programs(text.parse().unwrap()).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}
