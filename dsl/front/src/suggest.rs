//! Did you mean …?

/// ``; did you mean `name`?`` for the nearest known name, or nothing if none is near.
pub(crate) fn did_you_mean<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    // Of names equally near the one from which letters are missing: `scn` is `scan` rather than `sin`.
    let near = known.into_iter().map(|name| (distance(wrong, name), name));
    let near = near.min_by_key(|(distance, name)| (*distance, !lacks_letters_of(wrong, name)));
    match near {
        Some((distance, name)) if distance <= wrong.chars().count() / 3 => format!("; did you mean `{name}`?"),
        _ => String::new(),
    }
}

/// Whether a word is a name from which letters were left out.
fn lacks_letters_of(word: &str, name: &str) -> bool {
    let mut letters = name.chars();
    word.chars().all(|letter| letters.any(|other| other == letter))
}

/// Edits between two names, without regard to case.
fn distance(a: &str, b: &str) -> usize {
    strsim::damerau_levenshtein(&a.to_lowercase(), &b.to_lowercase())
}

/// Names as a sentence lists them: `` `a`, `b` and `c` ``.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        None => "none".into(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// A number with its noun: `1 value`, `3 values`.
pub(crate) fn counted(n: usize, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_not() {
        assert_eq!(did_you_mean("affine", ["Sum", "Affine"]), "; did you mean `Affine`?");
        assert_eq!(did_you_mean("sotfplus", ["softplus", "silu"]), "; did you mean `softplus`?");
        assert_eq!(did_you_mean("delta", ["u", "skip"]), "");
        assert_eq!(did_you_mean("x", []), "");
    }

    #[test]
    fn lists_and_counts_read_as_sentences() {
        assert_eq!(listed([]), "none");
        assert_eq!(listed(["a"]), "`a`");
        assert_eq!(listed(["a", "b", "c"]), "`a`, `b` and `c`");
        assert_eq!((counted(1, "value"), counted(0, "value")), ("1 value".into(), "0 values".into()));
    }
}
