//! A sweep as LLVM IR.
//!
//! The function goes through the lanes in groups of as many as a vector holds, and through the steps of a group in strips of as many:
//! a strip of an input is a square, whose rows are the lanes as they lie in memory and whose columns are the steps.
//!
//! ```text
//! for group:  states ← starts
//!   for strip:  squares of inputs ← turned, or those that another sweep has kept
//!     for step:  nodes, next states, nodes of results → columns of squares of outputs
//!     squares of outputs → turned back
//!   ends ← states
//! ```
//!
//! Where that turns fewer squares, nodes of results are computed [row by row](rows) after the steps of a strip.
//!
//! Names of values: `%x0` is an input of all steps, `%e0` an element of a step, `%s0`, `%b0` and `%c0` are a field of the state before a strip, before
//! a step and after it, `%d0` is the latter with the state that the sweep ends with in its place, `%n0` is a node. Of rows `%g0`, `%o0` and `%h0` are an input, a field before and
//! a field after.

mod nodes;
mod rows;
mod turn;

use std::fmt::Write;

use super::{Input, Node, Number, Source, Sweep};
use crate::CompileError;
use rows::Rows;

/// How many bytes a line of the cache has.
const LINE: usize = 64;

/// The name of the function.
pub(super) const NAME: &str = "sweep";

/// The module of a sweep with vectors of so many numbers.
///
/// # Errors
/// [`CompileError::Lowering`] for operations that have no machine code here, and for sources that there are not.
pub(super) fn write(sweep: &Sweep, lanes: usize) -> Result<String, CompileError> {
    let mut writer = Writer::new(sweep, lanes);
    writer.entry();
    writer.begin_group();
    writer.begin_strip();
    writer.begin_step();
    writer.nodes(0, &sweep.nodes)?;
    writer.next()?;
    writer.close();
    if writer.rows.is_none() {
        writer.nodes(sweep.nodes.len(), &sweep.after)?;
    }
    writer.end_step()?;
    writer.end_strip()?;
    writer.end_group();
    writer.turns();
    Ok(writer.text)
}

struct Writer<'s> {
    sweep: &'s Sweep,
    lanes: usize,
    /// The type of a number, and of as many as a vector holds, in LLVM's words.
    scalar: &'static str,
    vector: String,
    flags: String,
    /// How many bytes a number has.
    bytes: usize,
    text: String,
    /// How many values have names of no meaning.
    names: usize,
    /// The operands of nodes of results, if these are computed row by row.
    rows: Option<Rows>,
    /// Whether it writes these nodes.
    is_in_rows: bool,
}

impl<'s> Writer<'s> {
    fn new(sweep: &'s Sweep, lanes: usize) -> Writer<'s> {
        let (scalar, bytes) = match sweep.number {
            Number::F32 => ("float", 4),
            Number::F64 => ("double", 8),
        };
        let (vector, flags) = (format!("<{lanes} x {scalar}>"), format!("<{lanes} x i1>"));
        Writer {
            sweep,
            lanes,
            scalar,
            vector,
            flags,
            bytes,
            text: String::new(),
            names: 0,
            rows: Rows::of(sweep),
            is_in_rows: false,
        }
    }

    fn line(&mut self, line: impl AsRef<str>) {
        let _ = writeln!(self.text, "  {}", line.as_ref());
    }

    fn label(&mut self, name: &str) {
        let _ = writeln!(self.text, "{name}:");
    }

    /// A value with a name of no meaning.
    fn value(&mut self, expression: impl AsRef<str>) -> String {
        let name = format!("%v{}", self.names);
        self.names += 1;
        self.line(format!("{name} = {}", expression.as_ref()));
        name
    }

    /// A pointer so many numbers behind another.
    fn behind(&mut self, pointer: &str, numbers: &str) -> String {
        let scalar = self.scalar;
        self.value(format!("getelementptr {scalar}, ptr {pointer}, i64 {numbers}"))
    }

    /// Loads a vector.
    fn load(&mut self, name: &str, pointer: &str) {
        self.line(format!("{name} = load {}, ptr {pointer}, align {}", self.vector, self.bytes));
    }

    fn store(&mut self, value: &str, pointer: &str) {
        self.line(format!("store {} {value}, ptr {pointer}, align {}", self.vector, self.bytes));
    }

    /// The states of a field in one of several blocks.
    fn phi(&mut self, name: &str, from: [(&str, &str); 2]) {
        let [(a, of_a), (b, of_b)] = from;
        self.line(format!("{name} = phi {} [{a}, %{of_a}], [{b}, %{of_b}]", self.vector));
    }

    fn fields(&self) -> usize {
        self.sweep.next.len()
    }

    /// The inputs that have a number for each step.
    fn series(&self) -> Vec<usize> {
        (0..self.sweep.inputs.len()).filter(|k| self.sweep.inputs[*k] == Input::Each).collect()
    }

    /// The inputs that have a number for each step and are turned, so that steps read them.
    fn squares(&self) -> Vec<usize> {
        let lies_in_rows = |k: &usize| self.rows.as_ref().is_some_and(|rows| rows.inputs.contains(k));
        self.series().into_iter().filter(|k| !lies_in_rows(k)).collect()
    }

    /// The numbers of a step that go to squares behind it.
    fn columns(&self) -> &[Source] {
        self.rows.as_ref().map_or(&self.sweep.outputs, |rows| &rows.turned)
    }

    /// Memory of squares, and the tensors.
    fn entry(&mut self) {
        let sweep = self.sweep;
        let _ = writeln!(
            self.text,
            "define void @{NAME}(ptr %inputs, ptr %outputs, ptr %starts, ptr %last, ptr %ends, ptr %kept, i64 %steps, i1 zeroext %leaves_out, i1 zeroext %streams) {{"
        );
        self.label("entry");
        let own = if sweep.keeps { 0 } else { self.squares().len() };
        for (name, squares) in [("squares", own), ("results", self.columns().len())] {
            let vectors = (squares * self.lanes).max(1);
            self.line(format!("%{name} = alloca [{vectors} x {}], align 64", self.vector));
        }
        self.line(format!("%n = mul i64 %steps, {}", sweep.lanes));
        self.line(if sweep.is_reversed { "%pitch = sub i64 0, %steps" } else { "%pitch = add i64 0, %steps" });
        for (k, input) in sweep.inputs.iter().enumerate() {
            let at = self.value(format!("getelementptr ptr, ptr %inputs, i64 {k}"));
            self.line(format!("%x{k} = load ptr, ptr {at}"));
            if *input == Input::One {
                self.splat(&format!("%e{k}"), &format!("%x{k}"));
            }
        }
        for k in 0..sweep.outputs.len() {
            let at = self.value(format!("getelementptr ptr, ptr %outputs, i64 {k}"));
            self.line(format!("%y{k} = load ptr, ptr {at}"));
        }
        self.line("br label %group");
    }

    /// The number at a place, for every lane.
    fn splat(&mut self, name: &str, pointer: &str) {
        let (vector, scalar, lanes) = (self.vector.clone(), self.scalar, self.lanes);
        let number = self.value(format!("load {scalar}, ptr {pointer}"));
        let one = self.value(format!("insertelement {vector} poison, {scalar} {number}, i64 0"));
        self.line(format!("{name} = shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer"));
    }

    /// The states before the first step of a group.
    fn begin_group(&mut self) {
        self.label("group");
        self.line("%lane = phi i64 [0, %entry], [%lane.next, %group.end]");
        self.line("%group.first = mul i64 %lane, %steps");
        for field in 0..self.fields() {
            let at = self.value(format!("add i64 %lane, {}", field * self.sweep.lanes));
            let pointer = self.behind("%starts", &at);
            self.load(&format!("%start{field}"), &pointer);
        }
        self.line("br label %strip");
    }

    /// Turns the squares of a strip's inputs.
    fn begin_strip(&mut self) {
        self.label("strip");
        self.line("%first = phi i64 [0, %group], [%first.next, %strip.stored]");
        for field in 0..self.fields() {
            let [start, after] = [format!("%start{field}"), format!("%c{field}")];
            self.phi(&format!("%s{field}"), [(&start, "group"), (&after, "strip.stored")]);
        }
        self.line("%visit = add i64 %group.first, %first");
        if self.sweep.is_reversed {
            let last = self.value(format!("add i64 %visit, {}", self.lanes));
            self.line(format!("%row = sub i64 %n, {last}"));
        } else {
            self.line("%row = add i64 0, %visit");
        }
        self.kept_squares();
        for (square, k) in self.squares().into_iter().enumerate() {
            let from = self.behind(&format!("%x{k}"), "%row");
            let to = self.behind(self.turned(), &(square * self.lanes * self.lanes).to_string());
            self.line(format!("call void @turn(ptr {from}, ptr {to}, i64 %pitch)"));
        }
        self.line("br label %step");
    }

    /// Where the strip's squares lie among those that are kept.
    fn kept_squares(&mut self) {
        let of_strip = self.value(format!("mul i64 %first, {}", self.lanes));
        let before = self.value(format!("add i64 %group.first, {of_strip}"));
        let at = self.value(format!("mul i64 {before}, {}", self.sweep.kept().len()));
        let scalar = self.scalar;
        self.line(format!("%strip.kept = getelementptr {scalar}, ptr %kept, i64 {at}"));
    }

    /// Where the squares begin that the strip turns.
    fn turned(&self) -> &'static str {
        if self.sweep.keeps { "%strip.kept" } else { "%squares" }
    }

    /// The elements of a step.
    fn begin_step(&mut self) {
        self.label("step");
        self.line("%j = phi i64 [0, %strip], [%j.next, %step.end]");
        for field in 0..self.fields() {
            let [before, after] = [format!("%s{field}"), format!("%c{field}")];
            self.phi(&format!("%b{field}"), [(&before, "strip"), (&after, "step.end")]);
        }
        if self.sweep.is_reversed {
            self.line(format!("%column = sub i64 {}, %j", self.lanes - 1));
        } else {
            self.line("%column = add i64 0, %j");
        }
        for (square, k) in self.squares().into_iter().enumerate() {
            let pointer = self.column(self.turned(), square);
            self.load(&format!("%e{k}"), &pointer);
        }
        let others = if self.sweep.keeps { vec![] } else { self.sweep.kept() };
        for (square, k) in others.into_iter().enumerate() {
            let pointer = self.column("%strip.kept", square);
            self.load(&format!("%e{k}"), &pointer);
        }
        self.line("%time = add i64 %first, %j");
        self.fetch();
    }

    /// Asks for one more line of the lanes of the next group, in the order of memory.
    fn fetch(&mut self) {
        let next = self.value(format!("add i64 %lane, {}", self.lanes));
        let region = self.value(format!("mul i64 {next}, %steps"));
        let ahead = self.value(format!("mul i64 %time, {}", self.lanes));
        let at = self.value(format!("add i64 {region}, {ahead}"));
        let place = if self.sweep.is_reversed {
            let last = self.value(format!("add i64 {at}, {}", self.lanes));
            self.value(format!("sub i64 %n, {last}"))
        } else {
            at
        };
        for k in self.series() {
            let pointer = self.behind(&format!("%x{k}"), &place);
            self.line(format!("call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 2, i32 1)"));
        }
    }

    /// Where the column of a step lies in a square.
    fn column(&mut self, of: &str, square: usize) -> String {
        let vector = self.vector.clone();
        let column = self.value(format!("add i64 %column, {}", square * self.lanes));
        self.value(format!("getelementptr {vector}, ptr {of}, i64 {column}"))
    }

    /// The states after the step: those of the first lane stay what they were where its first step is left out.
    fn next(&mut self) -> Result<(), CompileError> {
        let sweep = self.sweep;
        let mut next = vec![];
        for (field, source) in sweep.next.iter().enumerate() {
            next.push(self.find(source.unwrap_or(Source::Before(field)), sweep.nodes.len(), false)?);
        }
        self.label_after("stepped");
        if sweep.may_leave_out {
            let visit = self.value("add i64 %lane, %time");
            let is_first = self.value(format!("icmp eq i64 {visit}, 0"));
            let is_left_out = self.value(format!("and i1 {is_first}, %leaves_out"));
            self.line(format!("br i1 {is_left_out}, label %leave, label %left"));
            self.label("leave");
            for (field, next) in next.iter().enumerate() {
                let (vector, scalar) = (self.vector.clone(), self.scalar);
                let start = self.value(format!("extractelement {vector} %b{field}, i64 0"));
                self.line(format!("%l{field} = insertelement {vector} {next}, {scalar} {start}, i64 0"));
            }
            self.line("br label %left");
        } else {
            self.line("br label %left");
        }
        self.label("left");
        for (field, next) in next.iter().enumerate() {
            if sweep.may_leave_out {
                let left = format!("%l{field}");
                self.phi(&format!("%c{field}"), [(next, "stepped"), (&left, "leave")]);
            } else {
                self.line(format!("%c{field} = phi {} [{next}, %stepped]", self.vector));
            }
        }
        Ok(())
    }

    /// Ends a block with another that begins here.
    fn label_after(&mut self, name: &str) {
        self.line(format!("br label %{name}"));
        self.label(name);
    }

    /// The states after the step as results know them.
    fn close(&mut self) {
        if !self.sweep.is_closed {
            self.line("br label %closed");
            self.label("closed");
            for field in 0..self.fields() {
                self.line(format!("%d{field} = phi {} [%c{field}, %left]", self.vector));
            }
            return;
        }
        let last = self.value("sub i64 %steps, 1");
        let is_last = self.value(format!("icmp eq i64 %time, {last}"));
        let of_group = self.value(format!("icmp eq i64 %lane, {}", self.sweep.lanes - self.lanes));
        let is_end = self.value(format!("and i1 {is_last}, {of_group}"));
        self.line(format!("br i1 {is_end}, label %close, label %closed"));
        self.label("close");
        for field in 0..self.fields() {
            let (vector, scalar, lane) = (self.vector.clone(), self.scalar, self.lanes - 1);
            let pointer = self.behind("%last", &field.to_string());
            let end = self.value(format!("load {scalar}, ptr {pointer}"));
            self.line(format!("%end{field} = insertelement {vector} %c{field}, {scalar} {end}, i64 {lane}"));
        }
        self.line("br label %closed");
        self.label("closed");
        for field in 0..self.fields() {
            let [after, end] = [format!("%c{field}"), format!("%end{field}")];
            self.phi(&format!("%d{field}"), [(&after, "left"), (&end, "close")]);
        }
    }

    /// The results of the step.
    fn end_step(&mut self) -> Result<(), CompileError> {
        let sweep = self.sweep;
        self.label_after("step.end");
        for (k, source) in self.columns().to_vec().into_iter().enumerate() {
            let value = self.find(source, sweep.nodes.len() + sweep.after.len(), true)?;
            let pointer = self.column("%results", k);
            self.store(&value, &pointer);
        }
        self.line("%j.next = add i64 %j, 1");
        let is_more = self.value(format!("icmp ult i64 %j.next, {}", self.lanes));
        self.line(format!("br i1 {is_more}, label %step, label %strip.end"));
        Ok(())
    }

    /// Turns the squares of the results back; behind the last strip come the states of the group.
    fn end_strip(&mut self) -> Result<(), CompileError> {
        self.label("strip.end");
        if self.rows.is_some() {
            self.rows()?;
        } else {
            self.turn_results();
        }
        self.label("strip.stored");
        for field in 0..self.fields() {
            let at = self.value(format!("add i64 %lane, {}", field * self.sweep.lanes));
            let pointer = self.behind("%ends", &at);
            self.store(&format!("%c{field}"), &pointer);
        }
        self.line(format!("%first.next = add i64 %first, {}", self.lanes));
        self.line(format!("%lane.next = add i64 %lane, {}", self.lanes));
        let is_more = self.value("icmp ult i64 %first.next, %steps");
        self.line(format!("br i1 {is_more}, label %strip, label %group.end"));
        Ok(())
    }

    /// Turns the squares of the results back to memory.
    fn turn_results(&mut self) {
        if self.writes_lines() {
            self.line("br i1 %streams, label %past, label %cached");
            self.label("past");
            self.turn_back("turn_past");
        } else {
            self.line("br label %cached");
        }
        self.label("cached");
        self.turn_back("turn_back");
    }

    /// Turns the squares of the results back by one of the functions for it.
    fn turn_back(&mut self, by: &str) {
        for k in 0..self.sweep.outputs.len() {
            let from = self.behind("%results", &(k * self.lanes * self.lanes).to_string());
            let to = self.behind(&format!("%y{k}"), "%row");
            self.line(format!("call void @{by}(ptr {from}, ptr {to}, i64 %pitch)"));
        }
        self.line("br label %strip.stored");
    }

    /// Whether a vector is as long as a line of the cache.
    fn writes_lines(&self) -> bool {
        self.lanes * self.bytes == LINE
    }

    fn end_group(&mut self) {
        self.label("group.end");
        let is_more = self.value(format!("icmp ult i64 %lane.next, {}", self.sweep.lanes));
        self.line(format!("br i1 {is_more}, label %group, label %done"));
        self.label("done");
        self.line("br i1 %streams, label %fence, label %return");
        self.label("fence");
        // Whoever learns that the call is over sees what went past the caches.
        self.line("fence seq_cst");
        self.line("br label %return");
        self.label("return");
        self.line("ret void");
        self.text.push_str("}\n");
    }

    fn nodes(&mut self, first: usize, nodes: &[Node]) -> Result<(), CompileError> {
        nodes.iter().enumerate().try_for_each(|(k, node)| self.node(first + k, node))
    }
}
