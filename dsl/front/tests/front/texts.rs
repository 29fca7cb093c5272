//! Texts that are compiled at run time: what is given, and what is said of mistakes.

use oplus_dsl::Elem;
use oplus_dsl::ir::Literal;
use oplus_front::items::{Kernel, Meaning, Operator};
use oplus_front::{Item, TextError, compile, compile_source_file, programs};
use proc_macro2::TokenStream;

const PEAKS: &str = "
    /// Peaks that sink: first by d, then overtaken by h.
    pub op Leaky(d, h) {
        identity (0, -inf);
        combine(l, r) (l.d + r.d, max(l.h - r.d, r.h));
    }

    fn double(x) { 2 * x }

    /// h[t] = max(h[t−1] − d[t], x[t]).
    ///
    ///     an example
    #[allow(unused)]
    pub fn peaks(x: [B, T], d: [B, T], h0: state[B] = -inf, n: i32 | i64[B] = 3) -> (h: [B, T], h_last: state[B], m: i64[B]) {
        let state = scan(T, Leaky(d, double(x)), init = (h: h0));
        h = state.h;
        h_last = last(T, state.h);
        m = n + 1;
    }

    op Later(s: i64) { identity (0); combine(l, r) (l.s + r.s); }

    fn count(x: i64[T]) -> (n: i64) { n = reduce(T, Later(x)); }
";

fn compiled(text: &str) -> Vec<Item> {
    compile(text).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &str) -> TextError {
    compile(text).expect_err("the text has a mistake")
}

fn kernel(items: &[Item], name: &str) -> Kernel {
    let found = items.iter().filter_map(Item::kernel).find(|kernel| kernel.name == name);
    found.unwrap_or_else(|| panic!("there is no kernel {name}")).clone()
}

#[test]
fn items_come_in_the_order_of_the_text() {
    let items = compiled(PEAKS);
    assert_eq!(items.iter().map(Item::name).collect::<Vec<_>>(), ["Leaky", "peaks", "Later", "count"]);
    assert!(compiled("").is_empty() && compiled(" /* nothing */ \n").is_empty());
}

#[test]
fn a_kernel_says_what_a_binding_needs() {
    let peaks = kernel(&compiled(PEAKS), "peaks");
    assert!(peaks.is_public && peaks.gradient.is_ok());
    assert_eq!(peaks.docs.written, "h[t] = max(h[t−1] − d[t], x[t]).\n\n    an example");
    let of = |k: usize| (peaks.params[k].elem, peaks.params[k].or, peaks.params[k].default);
    assert_eq!(of(0), (Elem::Call, None, None));
    assert_eq!(of(2), (Elem::State, None, Some(Literal::Float(f64::NEG_INFINITY))));
    assert_eq!(of(3), (Elem::I32, Some(Elem::I64), Some(Literal::Int(3))));
    assert_eq!(peaks.params.iter().map(|p| p.axes.join(",")).collect::<Vec<_>>(), ["B,T", "B,T", "B", "B"]);
    assert_eq!(peaks.params.iter().map(|p| p.has_gradient).collect::<Vec<_>>(), [true, true, true, false]);
    let states: Vec<_> = peaks.params.iter().map(|p| p.state.as_deref()).collect();
    assert_eq!(states, [None, None, Some("h_last"), None]);
    let states: Vec<_> = peaks.outputs.iter().map(|o| (o.state.as_deref(), o.has_cotangent)).collect();
    assert_eq!(states, [(None, true), (Some("h0"), true), (None, false)]);
    assert_eq!(
        peaks.params[2].docs,
        "`[B]` of the call's element type, at least `f32`. Left out, it is −inf everywhere."
    );
}

#[test]
fn a_step_is_a_kernel_without_the_axis() {
    let peaks = kernel(&compiled(PEAKS), "peaks");
    let step = peaks.step.expect("its state goes in and out");
    assert_eq!((step.axis.as_str(), step.states.len()), ("T", 1));
    assert_eq!(step.kernel.params.iter().map(|p| p.axes.join(",")).collect::<Vec<_>>(), ["B", "B", "B", "B"]);
    assert_eq!(step.kernel.params[2].state.as_deref(), Some("h_last"));
    let expected = oplus_dsl::step::step(&peaks.program).expect("the program has a step");
    assert_eq!((step.kernel.name.as_str(), &step.kernel.program), ("step", &expected.program));
    assert!(step.kernel.docs.written.starts_with("One step of `peaks`"), "{}", step.kernel.docs.written);
    assert_eq!(step.kernel.step, Err("it is one step itself".into()));
}

#[test]
fn what_a_kernel_lacks_has_a_reason() {
    let count = kernel(&compiled(PEAKS), "count");
    assert!(!count.is_public && count.docs.written.is_empty());
    assert_eq!(count.step, Err("nothing is scanned".into()));
    assert!(count.gradient.is_err_and(|reason| !reason.is_empty()));
    assert!(!count.params[0].has_gradient && !count.outputs[0].has_cotangent);
}

/// The sections that rustdoc shows of a `scan!` block are those that a binding is given.
#[test]
fn the_documentation_is_that_of_the_macro() {
    let items = compiled(PEAKS);
    let tokens: TokenStream = PEAKS.parse().expect("tokens");
    let file = syn::parse2(oplus_front::expand(tokens)).expect("the expansion is Rust");
    let shown = prettyplease::unparse(&file);
    for item in &items {
        assert!(item.docs().to_string().contains(&item.docs().written));
        let lines = item.docs().derived.lines().chain(item.docs().written.lines());
        for line in lines.filter(|line| !line.is_empty()) {
            assert!(shown.contains(&format!("/// {line}")), "{line}\nis not in\n{shown}");
        }
    }
    let Item::Operator(found) = &items[0] else { panic!("{:?}", items[0]) };
    let Operator { meaning: Meaning::Associative(operator), docs, is_public, .. } = &**found else {
        panic!("{found:?}")
    };
    assert!(*is_public && operator.fields.len() == 2 && docs.derived.contains("# Laws"), "{docs}");
    assert_eq!(docs.written, "Peaks that sink: first by d, then overtaken by h.");
}

#[test]
fn the_programs_are_those_of_the_macro() {
    let standard = [
        include_str!("../../standard/kernels.rs"),
        include_str!("../../standard/models.rs"),
        include_str!("../../standard/attention.rs"),
        PEAKS,
    ];
    for text in standard {
        let expected = programs(text.parse().expect("tokens")).expect("a correct block");
        let items = compiled(text);
        let found: Vec<_> = items.iter().filter_map(Item::kernel).map(|kernel| kernel.program.clone()).collect();
        assert_eq!(found, expected);
        for kernel in items.iter().filter_map(Item::kernel) {
            assert_eq!(kernel.step.is_ok(), oplus_dsl::step::step(&kernel.program).is_ok(), "{}", kernel.name);
            let names = (kernel.params.iter().map(|p| &p.name), kernel.program.params.iter().map(|p| &p.name));
            assert!(names.0.eq(names.1), "{}", kernel.name);
        }
    }
}

#[test]
fn every_mistake_is_told_with_its_place() {
    let text = "fn f(x: [T]) -> (y: [T]) { y = x + z; }\n\n  op Bad(s) { identity (1); combine(l, r) (l.s + r.s); }\n fn g(x: [T]) -> (y: [U]) { y = 𝛼βx; }";
    let error = refused(text);
    let places: Vec<_> = error.mistakes.iter().map(|m| (m.code, m.start.line, m.start.column, m.end.column)).collect();
    assert_eq!(
        places,
        [("unknown-name", 1, 36, 37), ("law", 3, 25, 26), ("unknown-axis", 4, 23, 24), ("unknown-name", 4, 33, 36)]
    );
    for mistake in &error.mistakes {
        let chars = mistake.end.column - mistake.start.column;
        assert_eq!(text[mistake.start.byte..mistake.end.byte].chars().count(), chars, "{mistake}");
    }
    let tokens: TokenStream = text.parse().expect("tokens");
    let messages = programs(tokens).expect_err("mistakes").iter().map(|d| d.mistake.to_string()).collect::<Vec<_>>();
    assert_eq!(messages.len(), error.mistakes.len());
    assert!(error.mistakes.iter().all(|mistake| messages.contains(&mistake.message)), "{error}");
    assert_eq!(error.to_string().lines().count(), 4);
    assert!(
        error.to_string().starts_with("1:36: there is no value `z` here\n3:25: the identity of `Bad` is wrong"),
        "{error}"
    );
}

#[test]
fn a_mistake_over_several_tokens_and_lines_has_both_ends() {
    let error = refused("fn f(x: [T]) -> (y: [T]) {\n  y = scan(T,\n    x\n    + 1);\n}");
    let [mistake] = &error.mistakes[..] else { panic!("{error}") };
    let (start, end) = (mistake.start, mistake.end);
    assert_eq!((mistake.code, start.line, start.column, end.line, end.column), ("not-an-operator", 3, 5, 4, 8));
}

#[test]
fn what_is_not_made_of_tokens_is_told_where_it_begins() {
    let told = |text: &str| {
        let error = refused(text);
        let [mistake] = &error.mistakes[..] else { panic!("{error}") };
        assert!(text.len() == mistake.start.byte || text.is_char_boundary(mistake.end.byte), "{error}");
        error.to_string()
    };
    assert_eq!(told("fn f(x: [T]) -> (y: [T]) {\n y = x;\n"), "1:26: this `{` is never closed");
    assert_eq!(told("fn f(x: [T]) -> (y: [T]) {\n y = x); }"), "2:7: this `)` closes nothing that is open here");
    assert_eq!(told("\n\n  /* never"), "3:3: this comment is never closed");
    assert_eq!(told("h̄ = \"x"), "1:6: the text that begins at this \" is never closed");
    assert!(told("fn f € g").starts_with("1:6: no token of the language begins with `€`"));
}

#[test]
fn an_empty_place_has_a_place_too() {
    for text in ["op", "fn", "pub", "fn f", "fn f(", "?", "fn f() -> ()", "#", "fn f(x: [T]) -> (y: [T])"] {
        let error = refused(text);
        for mistake in &error.mistakes {
            assert!(
                mistake.start.line >= 1 && mistake.start.column >= 1 && mistake.start <= mistake.end,
                "{text}: {error}"
            );
            assert!(mistake.end.byte <= text.len(), "{text}: {mistake:?}");
        }
    }
}

#[test]
fn blocks_of_a_source_file_are_compiled_with_places_in_the_file() {
    let file = "use oplus::scan;\nscan! { fn f(x: [T]) -> (y: [T]) { y = x; } }\nmod m { scan!(op Or(b: u32) { identity (0); combine(l, r) (l.b | r.b); }); }";
    let items = compile_source_file(file).expect("a valid file");
    assert_eq!(items.iter().map(Item::name).collect::<Vec<_>>(), ["f", "Or"]);
    let wrong = file.replace("y = x;", "y = z;").replace("l.b |", "l.c |");
    let error = compile_source_file(&wrong).expect_err("mistakes");
    let places: Vec<_> = error.mistakes.iter().map(|m| (m.start.line, m.code)).collect();
    assert_eq!(places, [(2, "unknown-name"), (3, "unknown-field")]);
    assert!(compile_source_file("fn main() {}").expect("a valid file").is_empty());
}

/// Texts are read on threads of their own: neither their number nor what other threads read changes places.
#[test]
fn places_do_not_depend_on_what_was_read_before() {
    let first = refused("fn f(x: [T]) -> (y: [T]) { y = z; }");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..8 {
                    let _ = compile(PEAKS);
                    assert_eq!(refused("fn f(x: [T]) -> (y: [T]) { y = z; }"), first);
                }
            });
        }
    });
}
