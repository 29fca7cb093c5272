//! Squares of numbers, turned in registers.

use std::fmt::Write;

use super::{LINE, Writer};

impl Writer<'_> {
    /// The functions that turn squares, and what LLVM has functions for.
    pub(super) fn turns(&mut self) {
        self.turn("turn", true, Self::store);
        self.turn("turn_back", false, Self::store);
        if self.writes_lines() {
            self.turn("turn_past", false, Self::store_past);
            self.text.push_str("!0 = !{i32 1}\n");
        }
        self.text.push_str("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n");
        for name in ["fabs", "sqrt"] {
            let (vector, name) = (self.vector.clone(), self.intrinsic(name));
            let _ = writeln!(self.text, "declare {vector} @{name}({vector})");
        }
    }

    /// The name of LLVM's function of a vector.
    pub(super) fn intrinsic(&self, name: &str) -> String {
        format!("llvm.{name}.v{}f{}", self.lanes, self.bytes * 8)
    }

    /// A function that reads a square by vectors and writes them turned. One side lies in rows that are a pitch apart, the other densely.
    fn turn(&mut self, name: &str, from_rows: bool, store: impl Fn(&mut Self, &str, &str)) {
        let (lanes, inline) = (self.lanes, if self.lanes == 1 { "alwaysinline" } else { "noinline" });
        let _ = writeln!(self.text, "define internal void @{name}(ptr %from, ptr %to, i64 %pitch) {inline} {{");
        let mut vectors = vec![];
        for k in 0..lanes {
            let pointer = self.vector_of("%from", k, from_rows);
            let vector = format!("%r{k}");
            self.load(&vector, &pointer);
            vectors.push(vector);
        }
        let mut distance = 1;
        while distance < lanes {
            for k in (0..lanes).filter(|k| k & distance == 0) {
                let pair = [vectors[k].clone(), vectors[k + distance].clone()];
                vectors[k] = self.blend(&pair, |e| if e & distance == 0 { e } else { lanes + e - distance });
                vectors[k + distance] = self.blend(&pair, |e| if e & distance == 0 { e + distance } else { lanes + e });
            }
            distance *= 2;
        }
        for (k, vector) in vectors.iter().enumerate() {
            let pointer = self.vector_of("%to", k, !from_rows);
            store(self, vector, &pointer);
        }
        self.line("ret void");
        self.text.push_str("}\n");
    }

    /// Stores a vector that is a line of the cache past the caches.
    pub(super) fn store_past(&mut self, value: &str, pointer: &str) {
        self.line(format!("store {} {value}, ptr {pointer}, align {LINE}, !nontemporal !0", self.vector));
    }

    /// Where a vector of a square begins.
    fn vector_of(&mut self, square: &str, k: usize, in_rows: bool) -> String {
        let place = if in_rows { self.value(format!("mul i64 %pitch, {k}")) } else { (k * self.lanes).to_string() };
        self.behind(square, &place)
    }

    /// Numbers of two vectors, by their places in both.
    fn blend(&mut self, [a, b]: &[String; 2], place: impl Fn(usize) -> usize) -> String {
        let (vector, lanes) = (self.vector.clone(), self.lanes);
        let places: Vec<String> = (0..lanes).map(|e| format!("i32 {}", place(e))).collect();
        self.value(format!("shufflevector {vector} {a}, {vector} {b}, <{lanes} x i32> <{}>", places.join(", ")))
    }
}
