//! Where a statement is in a kernel, for error messages.

use std::fmt;

use super::{Kernel, Stmt};

/// The way from a kernel's body to one statement, written `3.then.0.body.2`: the third statement of the loop that is
/// the first statement of the branch taken by statement 3.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(Vec<Step>);

/// One step of a [`Path`]: a statement of a list, or a list of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// The statement of that index.
    At(u32),
    /// The branch of an `If` for true.
    Then,
    /// The branch of an `If` for false.
    Else,
    /// The body of a loop.
    Body,
}

impl Path {
    /// One step further in.
    pub fn push(&mut self, step: Step) {
        self.0.push(step);
    }

    /// One step back out.
    pub fn pop(&mut self) {
        self.0.pop();
    }

    /// The statement of a kernel there; `None` for the kernel as a whole or a path of another kernel.
    pub fn statement<'k>(&self, kernel: &'k Kernel) -> Option<&'k Stmt> {
        let (mut list, mut found): (_, Option<&'k Stmt>) = (&kernel.body, None);
        for step in &self.0 {
            match (step, found) {
                (Step::At(i), _) => found = Some(list.get(*i as usize)?),
                (Step::Then, Some(Stmt::If { then, .. })) => list = then,
                (Step::Else, Some(Stmt::If { otherwise, .. })) => list = otherwise,
                (Step::Body, Some(Stmt::For { body, .. } | Stmt::Loop(body))) => list = body,
                _ => return None,
            }
        }
        found
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("kernel");
        }
        for (i, step) in self.0.iter().enumerate() {
            let dot = if i == 0 { "" } else { "." };
            match step {
                Step::At(index) => write!(f, "{dot}{index}")?,
                Step::Then => write!(f, "{dot}then")?,
                Step::Else => write!(f, "{dot}else")?,
                Step::Body => write!(f, "{dot}body")?,
            }
        }
        Ok(())
    }
}
