//! The doc comments of an item, as they were written.

use litrs::StringLit;
use proc_macro2::{TokenStream, TokenTree};

/// The text of the doc comments among attributes, without the indentation that all its lines share.
pub(super) fn written(attributes: &TokenStream) -> String {
    let tokens: Vec<TokenTree> = attributes.clone().into_iter().collect();
    let comments: Vec<String> = tokens.chunks(2).filter_map(|pair| comment(pair.get(1)?)).collect();
    let lines: Vec<&str> = comments.iter().flat_map(|comment| lines(comment)).collect();
    let indented = lines.iter().filter(|line| !line.trim().is_empty());
    let indent = indented.map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    let lines: Vec<&str> = lines.iter().map(|line| line.get(indent..).unwrap_or("").trim_end()).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// The text of `[doc = "…"]`; nothing of other attributes.
fn comment(attribute: &TokenTree) -> Option<String> {
    let TokenTree::Group(group) = attribute else { return None };
    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
    let [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Literal(text)] = &tokens[..] else { return None };
    let text = StringLit::parse(text.to_string()).ok().filter(|_| name == "doc")?;
    Some(text.into_value())
}

/// The lines of a comment; those of a block without the column of stars at their left.
fn lines(comment: &str) -> Vec<&str> {
    let lines: Vec<&str> = comment.lines().collect();
    let starred = |line: &&str| line.trim_start().starts_with('*') || line.trim().is_empty();
    let is_starred = lines.len() > 1 && lines[1..].iter().all(starred);
    let unstarred = |line: &&'_ str| line.trim_start().strip_prefix('*').map_or(0, |rest| line.len() - rest.len());
    match lines[..] {
        [] => vec![""],
        _ if is_starred => lines.iter().map(|line| &line[unstarred(line)..]).collect(),
        _ => lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn docs(text: &str) -> String {
        written(&text.parse().expect("attributes"))
    }

    #[test]
    fn lines_keep_their_words_and_lose_the_indentation_that_they_share() {
        assert_eq!(docs("/// One.\n///\n///     code\n/// Two: \"\\n\", h̄."), "One.\n\n    code\nTwo: \"\\n\", h̄.");
        assert_eq!(docs("///One.\n#[doc = \" T\\u{77}o.\"] #[doc = r#\" \"x\" \"#]"), "One.\n Two.\n \"x\"");
        assert_eq!(docs("/** One.\n  * Two.\n  *\n  *  Three. */"), "One.\nTwo.\n\n Three.");
        assert_eq!(docs("/** One.\n Two. */"), "One.\nTwo.");
    }

    #[test]
    fn other_attributes_are_no_docs() {
        assert_eq!(docs("#[cfg(test)] #[doc(hidden)] #[allow(unused)] #[doc = concat!(\"a\")]"), "");
        assert_eq!(docs("#[other = \"text\"]"), "");
        assert_eq!(docs(""), "");
        assert_eq!(docs("///"), "");
    }
}
