//! Nodes of results, row by row.
//!
//! A node computes each number by itself, so it may as well do so where numbers lie in rows of memory. Then its operands that lie there are not turned, and of
//! its results only the states that they are made of: of a gradient with six results and two states two squares instead of eight.

use super::super::{Input, Source, Sweep};
use super::Writer;
use crate::CompileError;

/// The operands of nodes of results.
pub(super) struct Rows {
    /// Numbers of steps, whose squares are turned back.
    pub(super) turned: Vec<Source>,
    /// Inputs that lie in rows and that no step reads.
    pub(super) inputs: Vec<usize>,
}

impl Rows {
    /// `None` if it turns as much to compute them step by step.
    pub(super) fn of(sweep: &Sweep) -> Option<Rows> {
        let is_of_steps = |source: &Source| {
            let operands = sweep.nodes.iter().flat_map(|node| &node.operands);
            operands.chain(sweep.next.iter().flatten()).any(|other| other == source)
        };
        let mut rows = Rows { turned: vec![], inputs: vec![] };
        let operands = sweep.after.iter().flat_map(|node| &node.operands);
        for source in operands.chain(&sweep.outputs) {
            match source {
                Source::Node(k) if *k < sweep.nodes.len() => return None,
                Source::Node(_) => {}
                Source::Input(k) => match sweep.inputs.get(*k)? {
                    Input::One => {}
                    Input::Each if !sweep.keeps && !is_of_steps(source) => rows.inputs.push(*k),
                    _ => rows.turned.push(*source),
                },
                _ => rows.turned.push(*source),
            }
        }
        rows.inputs.sort_unstable();
        rows.inputs.dedup();
        let all = std::mem::take(&mut rows.turned);
        for source in all {
            if !rows.turned.contains(&source) {
                rows.turned.push(source);
            }
        }
        (rows.turned.len() < rows.inputs.len() + sweep.outputs.len()).then_some(rows)
    }
}

impl Writer<'_> {
    /// Computes and stores the results of a strip.
    pub(super) fn rows(&mut self) -> Result<(), CompileError> {
        let Some(Rows { turned, inputs }) = self.rows.take() else { return Ok(()) };
        let lanes = self.lanes;
        for square in 0..turned.len() {
            let at = self.behind("%results", &(square * lanes * lanes).to_string());
            self.line(format!("call void @turn_back(ptr {at}, ptr {at}, i64 {lanes})"));
        }
        self.line("br label %row.begin");
        self.label("row.begin");
        self.line("%i = phi i64 [0, %strip.end], [%i.next, %row.end]");
        let across = self.value("mul i64 %i, %pitch");
        self.line(format!("%place = add i64 %row, {across}"));
        for (square, source) in turned.iter().enumerate() {
            let at = self.value(format!("add i64 %i, {}", square * lanes));
            let pointer = self.value(format!("getelementptr {}, ptr %results, i64 {at}", self.vector));
            let name = match source {
                Source::Before(field) => format!("%o{field}"),
                Source::After(field) => format!("%h{field}"),
                Source::Input(k) | Source::Node(k) => format!("%g{k}"),
            };
            self.load(&name, &pointer);
        }
        for k in inputs {
            let pointer = self.behind(&format!("%x{k}"), "%place");
            self.load(&format!("%g{k}"), &pointer);
        }
        self.is_in_rows = true;
        self.nodes(self.sweep.nodes.len(), &self.sweep.after)?;
        self.store_rows()?;
        self.is_in_rows = false;
        self.label("row.end");
        self.line("%i.next = add i64 %i, 1");
        let is_more = self.value(format!("icmp ult i64 %i.next, {lanes}"));
        self.line(format!("br i1 {is_more}, label %row.begin, label %strip.stored"));
        Ok(())
    }

    fn store_rows(&mut self) -> Result<(), CompileError> {
        let mut results = vec![];
        for (k, source) in self.sweep.outputs.iter().enumerate() {
            let value = self.find(*source, self.sweep.nodes.len() + self.sweep.after.len(), true)?;
            results.push((value, self.behind(&format!("%y{k}"), "%place")));
        }
        if self.writes_lines() {
            self.line("br i1 %streams, label %row.past, label %row.cached");
            self.label("row.past");
            results.iter().for_each(|(value, pointer)| self.store_past(value, pointer));
            self.line("br label %row.end");
        } else {
            self.line("br label %row.cached");
        }
        self.label("row.cached");
        results.iter().for_each(|(value, pointer)| self.store(value, pointer));
        self.line("br label %row.end");
        Ok(())
    }
}
