//! Facts that a PTX text says of itself.

use std::collections::BTreeMap;
use std::fmt;

/// The facts that a PTX text says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PtxFacts {
    /// Instructions of the PTX text.
    pub instructions: usize,
    /// How many there are of each kind: the operation and, for memory, the space (`ld.global`).
    pub kinds: BTreeMap<String, usize>,
}

impl PtxFacts {
    /// Counts the instructions of a PTX text.
    pub fn of(text: &str) -> PtxFacts {
        let mut facts = PtxFacts::default();
        let code = text.lines().filter_map(|line| line.split("//").next());
        for kind in code.flat_map(|line| line.split(';')).filter_map(instruction) {
            facts.instructions += 1;
            *facts.kinds.entry(kind).or_default() += 1;
        }
        facts
    }
}

/// The kind of instruction of a statement; `None` for directives, labels and braces.
fn instruction(statement: &str) -> Option<String> {
    let code = statement.trim_start_matches(|c: char| c == '{' || c.is_whitespace());
    let code = if code.starts_with('@') { code.split_once(char::is_whitespace)?.1.trim() } else { code };
    let operation = code.split_whitespace().next()?;
    let is_name = operation.starts_with(|c: char| c.is_ascii_lowercase()) && !operation.ends_with(':');
    is_name.then(|| kind(operation))
}

/// `ld.global` for `ld.relaxed.gpu.global.v2.b64`, `add` for `add.rn.f32`.
fn kind(operation: &str) -> String {
    let mut parts = operation.split('.');
    let name = parts.next().unwrap_or_default();
    let space = parts.find(|part| matches!(part.split("::").next(), Some("global" | "shared" | "local" | "param")));
    match (name, space) {
        ("ld" | "st" | "atom" | "red" | "cp", Some(space)) => {
            format!("{name}.{}", space.split("::").next().unwrap_or(""))
        }
        _ => name.to_owned(),
    }
}

impl fmt::Display for PtxFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: Vec<(&String, &usize)> = self.kinds.iter().collect();
        kinds.sort_by_key(|(kind, count)| (std::cmp::Reverse(**count), *kind));
        let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        write!(f, "{} instructions: {}", self.instructions, kinds.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
.version 7.8
.target sm_80
// mov in a comment
.visible .entry k(.param .u64 k_param_0)
{
	.reg .b32 %r<4>;
	ld.param.u64 	%rd1, [k_param_0];
$L__BB0_1:
	ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];  // add
	{ // begin inline asm
	{.reg .pred p; setp.ne.u32 p, %r1, %r2; }
	@%p1 ld.relaxed.gpu.global.v2.b64 {%rd2, %rd3}, [%rd1];
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3];
	@%p1 bra $L__BB0_1;
	add.rn.f32 %f1, %f1, %f2;
	ret;
}
";

    #[test]
    fn instructions_are_counted_by_kind() {
        let facts = PtxFacts::of(TEXT);
        let kinds: Vec<(&str, usize)> = facts.kinds.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
        let expected =
            [("add", 1), ("bra", 1), ("cp.shared", 1), ("ld.global", 2), ("ld.param", 1), ("ret", 1), ("setp", 1)];
        assert_eq!(kinds, expected);
        assert_eq!(facts.instructions, 8);
        assert!(facts.to_string().starts_with("8 instructions: 2 ld.global, 1 add"));
    }
}
