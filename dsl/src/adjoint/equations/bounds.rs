//! How much is written out, so that equations of any program are readable, and are written without exhausting the stack.

/// How many operations may stand within each other.
pub(super) const DEPTH: u32 = 100;

/// How many operations are written in all.
pub(super) const OPERATIONS: u32 = 4_000;

/// The sign that stands for the rest.
pub(super) const REST: &str = "…";

/// How much is written so far.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    depth: u32,
    written: u32,
    is_passed: bool,
}

impl Bounds {
    /// Whether one more operation may be written within those under way; [`Bounds::leave`] must follow if so.
    pub(super) fn enter(&mut self) -> bool {
        if self.depth == DEPTH || self.is_spent() {
            self.is_passed = true;
            return false;
        }
        self.depth += 1;
        self.written += 1;
        true
    }

    /// The end of an operation.
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Whether nothing more is written.
    pub(super) fn is_spent(&self) -> bool {
        self.written >= OPERATIONS
    }

    /// A line that says what `…` stands for, if it stands anywhere.
    pub(super) fn note(&self) -> Option<String> {
        let note = || {
            format!(
                "{REST} stands for what is left out: more than {DEPTH} operations in one another, or {OPERATIONS} in all"
            )
        };
        self.is_passed.then(note)
    }
}
