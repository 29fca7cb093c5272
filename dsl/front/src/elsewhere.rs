//! Functions that are called so elsewhere, and what to write for them here.

/// Names of other libraries and languages.
const ELSEWHERE: [(&str, &str); 35] = [
    ("log", "ln(x)"),
    ("log10", "ln(x) / ln(10)"),
    ("powf", "pow(x, y)"),
    ("square", "x * x"),
    ("tan", "sin(x) / cos(x)"),
    ("atan", "atan2(x, 1)"),
    ("erfc", "1 - erf(x)"),
    ("sinh", "(exp(x) - exp(-x)) / 2"),
    ("cosh", "(exp(x) + exp(-x)) / 2"),
    ("ceil", "-floor(-x)"),
    ("trunc", "x as i64"),
    ("clamp", "min(max(x, low), high)"),
    ("clip", "min(max(x, low), high)"),
    ("maximum", "max(x, y)"),
    ("minimum", "min(x, y)"),
    ("swish", "silu(x)"),
    ("logistic", "sigmoid(x)"),
    ("expit", "sigmoid(x)"),
    ("leaky_relu", "max(x, 0.01 * x)"),
    ("where", "select(c, x, y)"),
    ("mean", "sum(L, x) / (size(L) as f32)"),
    ("average", "sum(L, x) / (size(L) as f32)"),
    ("prod", "reduce(L, Product(x))"),
    ("amax", "reduce(L, Max(x))"),
    ("amin", "reduce(L, Min(x))"),
    ("logsumexp", "reduce(L, LogSumExp(x))"),
    ("cumsum", "scan(L, Sum(x))"),
    ("cumprod", "scan(L, Product(x))"),
    ("cummax", "scan(L, Max(x))"),
    ("cummin", "scan(L, Min(x))"),
    ("matmul", "sum(K, a * b)"),
    ("dot", "sum(K, a * b)"),
    ("einsum", "sum(K, a * b)"),
    ("roll", "shift(L, x, 1)"),
    ("len", "size(L)"),
];

/// The advice for a function that other languages have.
pub(crate) fn write_instead(name: &str) -> Option<&'static str> {
    let found = ELSEWHERE.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
    found.map(|(_, instead)| *instead)
}
