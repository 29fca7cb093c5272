//! Numbers.

use oplus_dsl::ir::Literal;

/// The value of a numeric token without suffix; `None` for anything else.
pub(super) fn number(text: &str) -> Option<Literal> {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = digits.strip_prefix(prefix) {
            return i64::from_str_radix(digits, radix).ok().map(Literal::Int);
        }
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    match digits.bytes().all(|b| b.is_ascii_digit()) {
        true => digits.parse().ok().map(Literal::Int),
        false => digits.parse().ok().map(Literal::Float),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_floats_are_read() {
        assert_eq!(number("1_000"), Some(Literal::Int(1000)));
        assert_eq!(number("0o76_54"), Some(Literal::Int(0o7654)));
        assert_eq!(number("0xff"), Some(Literal::Int(255)));
        assert_eq!(number("1."), Some(Literal::Float(1.0)));
        assert_eq!(number("2.5e-3"), Some(Literal::Float(0.0025)));
    }

    #[test]
    fn suffixes_strings_and_huge_integers_are_refused() {
        for text in ["1f32", "1.0_f64", "0xfg", "\"1\"", "'a'", "99999999999999999999", "b\"1\"", "0b2"] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
