//! The characters of a text, taken from its beginning on: what the readers of programs and of tile IR have in common.

/// A text, and the place that it has been read to.
#[derive(Clone, Debug)]
pub struct Characters<'a> {
    /// The characters that are left.
    pub rest: &'a str,
    /// The line of the next one, from 1.
    pub line: u32,
    /// The column of the next one, from 1.
    pub column: u32,
}

impl<'a> Characters<'a> {
    /// All characters of a text.
    pub fn of(text: &'a str) -> Characters<'a> {
        Characters { rest: text, line: 1, column: 1 }
    }

    /// Takes the characters for which the condition holds.
    pub fn take_while(&mut self, mut condition: impl FnMut(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !condition(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    /// Takes so many bytes, which must end between two characters.
    pub fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        for c in taken.chars() {
            (self.line, self.column) = if c == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        }
        self.rest = rest;
        taken
    }

    /// Takes a name and the names that follow it after dots.
    pub fn take_names(&mut self, starts: impl Fn(char) -> bool, continues: impl Fn(char) -> bool) -> String {
        let mut name = self.take_while(&continues).to_owned();
        while self.rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(&starts)) {
            name.push_str(self.take(1));
            name.push_str(self.take_while(&continues));
        }
        name
    }

    /// Takes a number: a decimal with an optional fraction and exponent, or any other word that begins with a digit and has
    /// these characters.
    pub fn take_number(&mut self, is_part: impl Fn(char) -> bool) -> String {
        let mut number = self.take_while(&is_part).to_owned();
        if self.rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            number.push_str(self.take(1));
            number.push_str(self.take_while(&is_part));
        }
        if number.ends_with('e') && self.rest.starts_with(['+', '-']) {
            number.push_str(self.take(1));
            number.push_str(self.take_while(&is_part));
        }
        number
    }

    /// Takes the first of some signs that comes next; longer ones must stand before their beginnings.
    ///
    /// # Errors
    /// A message that quotes the next character, if no sign begins with it.
    pub fn take_sign(&mut self, signs: &[&'static str]) -> Result<&'static str, String> {
        let Some(sign) = signs.iter().copied().find(|sign| self.rest.starts_with(*sign)) else {
            let quoted: String = self.rest.chars().take(1).flat_map(char::escape_default).collect();
            return Err(format!("unexpected character `{quoted}`"));
        };
        self.take(sign.len());
        Ok(sign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_are_those_of_the_next_character() {
        let mut text = Characters::of("ab\nµ.c 1.5e-3x <= ?");
        assert_eq!(text.take_while(|c| c != 'µ'), "ab\n");
        assert_eq!((text.line, text.column), (2, 1));
        assert_eq!(text.take_names(char::is_alphabetic, char::is_alphanumeric), "µ.c");
        assert_eq!((text.line, text.column), (2, 4));
        text.take(1);
        assert_eq!(text.take_number(char::is_alphanumeric), "1.5e-3x");
        text.take(1);
        assert_eq!(text.take_sign(&["<=", "<"]), Ok("<="));
        text.take(1);
        assert_eq!(text.take_sign(&["<"]), Err("unexpected character `?`".to_owned()));
    }
}
