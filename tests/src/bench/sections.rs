//! Which cases stand together in the tables of the book and in the picture, and what they are called there.

use super::results::{Results, Time};

/// Cases that stand together.
pub struct Section {
    /// The mark of the section's table in the book.
    pub name: &'static str,
    /// The heading in the picture.
    pub title: &'static str,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A row: what is computed, forward and backward.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name.
    pub label: String,
    /// The case of the kernel itself.
    pub forward: String,
    /// The case of its gradient.
    pub backward: Option<String>,
}

impl Row {
    fn forward(label: &str, case: &str) -> Row {
        Row { label: label.into(), forward: case.into(), backward: None }
    }

    /// Both passes of cases whose names end with them.
    fn both(label: &str, case: &str) -> Row {
        Row { label: label.into(), forward: format!("{case}-fwd"), backward: Some(format!("{case}-bwd")) }
    }

    /// The times that are known, forward and backward.
    pub fn times(&self, results: &Results) -> [Option<Time>; 2] {
        [results.time(&self.forward), self.backward.as_ref().and_then(|case| results.time(case))]
    }
}

/// All sections.
pub fn sections() -> Vec<Section> {
    let section = |name, title, rows| Section { name, title, rows };
    vec![
        section("scans", "Sums and linear recurrences", scans()),
        section("states", "Log-decays and states, f32", states()),
        section("selective", "Mamba's selective scan", selective()),
        section("attention", "Softmax attention, bf16", attention()),
        section("decoding", "Softmax attention of few queries, bf16", decoding()),
        section("ssd", "Mamba-2's dual (SSD), bf16", dual()),
        section("linear", "Other recurrences of matrices", linear()),
        section("delta", "Delta rules", delta()),
    ]
}

fn scans() -> Vec<Row> {
    let exponents = [("2²⁰", 20), ("2²⁵", 25), ("2²⁸", 28)];
    let long = ["cumsum", "affine"].into_iter().flat_map(|kind| {
        exponents.map(|(n, e)| Row::forward(&format!("{kind} f32 {n}"), &format!("{kind}-f32-2^{e}")))
    });
    let first = ["1", "32"].map(|width| {
        Row::forward(
            &format!("cumsum f32 [2²⁰, {width}] along the first axis"),
            &format!("cumsum-f32-1048576x{width}-dim0"),
        )
    });
    let shapes = ["8192 × 4096", "131072 × 256", "64 × 262144"];
    let case = |kind: &str, shape: &str| format!("{kind}-{}", shape.replace(" × ", "x"));
    let sums = shapes.map(|shape| Row::forward(&format!("cumsum f32 {shape}"), &case("cumsum-f32", shape)));
    let affine = ["f32", "bf16"].into_iter().flat_map(|elem| {
        shapes.map(|shape| Row::both(&format!("affine {elem} {shape}"), &case(&format!("affine-{elem}"), shape)))
    });
    long.chain(first).chain(sums).chain(affine).collect()
}

fn states() -> Vec<Row> {
    let decays = [("16 × 16384 × 128", "b16t16384d128"), ("1 × 131072 × 256", "b1t131072d256")];
    let decays = decays.map(|(shape, case)| Row::both(&format!("log-decay {shape}"), &format!("decay-f32-{case}")));
    let all = [
        ("2 × 16 × 2048 × 64 × 64", "b2h16t2048k64v64"),
        ("4 × 32 × 512 × 64 × 64", "b4h32t512k64v64"),
        ("1 × 8 × 16384 × 64 × 64", "b1h8t16384k64v64"),
    ];
    let all = all.map(|(shape, case)| Row::both(&format!("states {shape}"), &format!("monoid-f32-{case}")));
    decays.into_iter().chain(all).collect()
}

fn selective() -> Vec<Row> {
    let shapes = [
        ("B 8, D 2048, N 16, L 2048", "b8d2048n16l2048"),
        ("B 8, D 1024, N 4, L 2048", "b8d1024n4l2048"),
        ("B 1, D 4096, N 16, L 65536", "b1d4096n16l65536"),
        ("B 1, D 64, N 16, L 1048576", "b1d64n16l1048576"),
    ];
    let rows = |(shape, case): (&str, &str)| {
        ["f32", "bf16"].map(|elem| {
            let plain = Row::both(&format!("{shape}, {elem}"), &format!("s6-{elem}-{case}"));
            let gated = Row::forward(&format!("{shape}, {elem}, gated"), &format!("s6-{elem}-{case}-z-softplus-fwd"));
            [plain, gated]
        })
    };
    shapes.into_iter().flat_map(rows).flatten().collect()
}

fn attention() -> Vec<Row> {
    let long = [64, 128]
        .into_iter()
        .flat_map(|size| [512, 1024, 2048, 4096, 8192, 16384].map(|keys| (16384 / keys, 2048 / size, keys, size)));
    let short = [(1, 16, 1920, 64), (3, 16, 1111, 64), (3, 16, 1111, 128)];
    let rows = |(batch, heads, keys, size): (usize, usize, usize, usize)| {
        [("", ""), (", causal", "-causal")].map(|(words, mask)| {
            let label = format!("attention {batch} × {heads} × {keys} × {size}{words}");
            Row::both(&label, &format!("attn-bf16-b{batch}h{heads}s{keys}d{size}{mask}"))
        })
    };
    long.chain(short).flat_map(rows).collect()
}

fn decoding() -> Vec<Row> {
    let shapes = [
        (1, 8, 1, 65536, 128),
        (1, 8, 16, 65536, 128),
        (4, 8, 1, 8192, 128),
        (4, 8, 4, 8192, 128),
        (4, 8, 16, 8192, 128),
        (16, 32, 1, 2048, 128),
        (1, 16, 1, 32768, 64),
        (8, 16, 16, 8192, 64),
    ];
    let caches = [("", ""), (", clean cache", "-clean")];
    let rows = |(words, cache): (&str, &str)| {
        shapes.map(|(batch, heads, queries, keys, size)| {
            let plural = if queries == 1 { "y" } else { "ies" };
            let label = format!("{queries} quer{plural}, {batch} × {heads} × {keys} × {size}{words}");
            Row::forward(&label, &format!("decode-bf16-b{batch}h{heads}m{queries}n{keys}d{size}-fwd{cache}"))
        })
    };
    caches.into_iter().flat_map(rows).collect()
}

fn delta() -> Vec<Row> {
    let rules = [("delta rule", "delta"), ("gated delta rule", "gated-delta"), ("KDA", "kda")];
    let shapes = [
        ("bf16, 8 × 16 heads, 4096 steps, 64 × 64", "bf16-b8h16t4096k64v64"),
        ("bf16, 8 × 16 heads, 4096 steps, 128 × 128", "bf16-b8h16t4096k128v128"),
        ("bf16, 16 heads, 65536 steps, 128 × 128", "bf16-b1h16t65536k128v128"),
        ("f16, 8 × 16 heads, 4096 steps, 64 × 64", "f16-b8h16t4096k64v64"),
        ("f16, 8 × 16 heads, 4096 steps, 128 × 128", "f16-b8h16t4096k128v128"),
        ("f32, 8 × 16 heads, 4096 steps, 64 × 64", "f32-b8h16t4096k64v64"),
        ("f32, 8 × 16 heads, 4096 steps, 128 × 128", "f32-b8h16t4096k128v128"),
    ];
    let rows = |(shape, case): (&str, &str)| {
        rules.map(|(rule, name)| Row::both(&format!("{rule} {shape}"), &format!("{name}-{case}")))
    };
    let two_keys = [
        Row::both("RWKV-7 bf16, 8 × 16 heads, 4096 steps, 64 × 64", "rwkv7-bf16-b8h16t4096k64v64"),
        Row::both("RWKV-7 bf16, 16 heads, 65536 steps, 64 × 64", "rwkv7-bf16-b1h16t65536k64v64"),
        Row::both("RWKV-7 f16, 8 × 16 heads, 4096 steps, 64 × 64", "rwkv7-f16-b8h16t4096k64v64"),
        Row::both("RWKV-7 f32, 8 × 16 heads, 4096 steps, 64 × 64", "rwkv7-f32-b8h16t4096k64v64"),
    ];
    shapes.into_iter().flat_map(rows).chain(two_keys).collect()
}

fn dual() -> Vec<Row> {
    let shapes = [
        ("8 × 2048, 80 heads of 64, 128 states", "b8s2048h80p64g1n128"),
        ("2 × 8192, 80 heads of 64, 128 states", "b2s8192h80p64g1n128"),
        ("1 × 65536, 24 heads of 64, 128 states", "b1s65536h24p64g1n128"),
        ("8 × 2048, 24 heads of 64, 64 states", "b8s2048h24p64g1n64"),
    ];
    shapes.map(|(shape, case)| Row::both(&format!("SSD {shape}"), &format!("ssd-bf16-{case}"))).to_vec()
}

fn linear() -> Vec<Row> {
    let named = [
        ("retention bf16, 8 × 32 heads, 2048 steps, 64 × 64", "retention-bf16-b8h32t2048k64v64"),
        ("retention bf16, 8 × 4 heads, 2048 steps, 256 × 512", "retention-bf16-b8h4t2048k256v512"),
        ("linear attention bf16, 8 × 16 heads, 4096 steps, 128 × 64", "linear-attention-bf16-b8h16t4096k128v64"),
        ("linear attention bf16, 8 × 16 heads, 2048 steps, 128 × 128", "linear-attention-bf16-b8h16t2048k128v128"),
        ("linear attention f16, 8 × 16 heads, 2048 steps, 128 × 128", "linear-attention-f16-b8h16t2048k128v128"),
        (
            "gated linear attention (a decay per channel) bf16, 8 × 16 heads, 2048 steps, 64 × 64",
            "gla-bf16-b8h16t2048k64v64",
        ),
        ("gated linear attention bf16, 8 × 16 heads, 2048 steps, 64 × 128", "gla-bf16-b8h16t2048k64v128"),
        ("Mamba-2 bf16 with gate and softplus, 8 × 2048, 80 heads of 64, 128 states", "mamba2-bf16-b8s2048h80p64n128"),
        ("Mamba-2 bf16 with gate and softplus, 8 × 2048, 80 heads of 64, 256 states", "mamba2-bf16-b8s2048h80p64n256"),
        ("SSD f32, 8 × 2048, 80 heads of 64, 128 states", "ssd-f32-b8s2048h80p64g1n128"),
        ("SSD f16, 8 × 2048, 80 heads of 64, 128 states", "ssd-f16-b8s2048h80p64g1n128"),
        ("retention f32, 8 × 32 heads, 2048 steps, 64 × 64", "retention-f32-b8h32t2048k64v64"),
        ("retention f16, 8 × 32 heads, 2048 steps, 64 × 64", "retention-f16-b8h32t2048k64v64"),
        ("gated linear attention f32, 8 × 16 heads, 2048 steps, 64 × 64", "gla-f32-b8h16t2048k64v64"),
        ("gated linear attention f16, 8 × 16 heads, 2048 steps, 64 × 64", "gla-f16-b8h16t2048k64v64"),
        ("gated linear attention f32, 8 × 16 heads, 2048 steps, 64 × 128", "gla-f32-b8h16t2048k64v128"),
        ("gated linear attention f16, 8 × 16 heads, 2048 steps, 64 × 128", "gla-f16-b8h16t2048k64v128"),
        ("gated linear attention bf16, 8 × 16 heads, 2048 steps, 128 × 128", "gla-bf16-b8h16t2048k128v128"),
        ("gated linear attention f16, 8 × 16 heads, 2048 steps, 128 × 128", "gla-f16-b8h16t2048k128v128"),
        ("gated linear attention f32, 8 × 16 heads, 2048 steps, 128 × 128", "gla-f32-b8h16t2048k128v128"),
    ];
    named.map(|(label, case)| Row::both(label, case)).to_vec()
}
