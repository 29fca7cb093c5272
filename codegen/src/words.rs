//! Numbers in words, for people who read a plan.

use std::fmt::{self, Display, Formatter};

/// A count of something in words: `1 row`, `2 rows`.
pub fn counted(n: impl Display, noun: &str) -> String {
    let n = n.to_string();
    let plural = match n.as_str() {
        "1" => "",
        _ if noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{n} {noun}{plural}")
}

/// A number of bytes, with a unit that fits it: `512 bytes`, `1.5 MB`. Prefixes are powers of 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let x = self.0 as f64;
        match self.0 {
            0..10_000 => f.write_str(&counted(self.0, "byte")),
            10_000..10_000_000 => write!(f, "{:.1} kB", x / 1e3),
            10_000_000..10_000_000_000 => write!(f, "{:.1} MB", x / 1e6),
            _ => write!(f, "{:.1} GB", x / 1e9),
        }
    }
}

/// The columns of a terminal that a text takes: combining marks take none.
pub fn width(text: &str) -> usize {
    text.chars().filter(|c| !('\u{300}'..='\u{36f}').contains(c)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!(["row"].map(|noun| [0, 1, 2].map(|n| counted(n, noun))), [["0 rows", "1 row", "2 rows"]]);
        assert_eq!(counted(2, "launch"), "2 launches");
        assert_eq!(
            [1, 9_999, 10_000, 20_000_000].map(|n| Bytes(n).to_string()),
            ["1 byte", "9999 bytes", "10.0 kB", "20.0 MB"]
        );
        assert_eq!(width("h̄[t]"), 4);
    }
}
