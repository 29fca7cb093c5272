//! Types that a parameter may store instead of its own.
//!
//! A parameter `i32 | i64[S]` stores `i32`, or `i64` where the caller's tensor does, and one of `call | wide[B, T]` at least
//! `f32` beside half precision. The program is written for the first; what calls of the other run follows from it by
//! [`choose`]. In both the value is the wider of the two, so that nothing is lost.

use crate::build::Builder;
use crate::copy::Copy;
use crate::elem::{Elem, Ty};
use crate::ir::{AxisSet, Op, Output, Program, Value};
use crate::typing::TypeError;

/// The type of the values that a parameter of these two has; `None` where one cannot stand for the other.
pub fn common(elem: Elem, or: Elem) -> Option<Ty> {
    match (elem, or) {
        (Elem::I32, Elem::I64) | (Elem::I64, Elem::I32) => Some(Ty::I64),
        (Elem::U32, Elem::U64) | (Elem::U64, Elem::U32) => Some(Ty::U64),
        (Elem::Call, Elem::Wide) | (Elem::Wide, Elem::Call) => Some(Ty::Call),
        _ => None,
    }
}

/// The program for calls whose tensor of parameter k stores what it may store instead; the program itself if there is
/// nothing. What it was written for becomes what it may store instead.
///
/// # Errors
/// When the program computes with the narrower of two integers.
pub fn choose(program: &Program, k: usize) -> Result<Program, TypeError> {
    let Some((old, new)) = program.params.get(k).and_then(|param| Some((param.elem, param.or?))) else {
        return Ok(program.clone());
    };
    let mut params = program.params.clone();
    (params[k].elem, params[k].or) = (new, Some(old));
    let empty = Program { params, operators: vec![], nodes: vec![], outputs: vec![], ..program.without_nodes() };
    let (mut into, mut copy) = (Builder::from_program(empty), Copy::of(program));
    for value in reads(program, k) {
        let read = into.append(Op::Param(k as u32), new.value(), AxisSet::EMPTY)?;
        let narrower = common(old, new) == Some(old.value());
        copy.set(value, if narrower { into.convert(old, read)? } else { read });
    }
    let roots: Vec<Value> = program.outputs.iter().map(|output| output.value).collect();
    let roots = copy.run(&mut into, &roots)?;
    let outputs = program.outputs.iter().zip(roots).map(|(output, value)| Output { value, ..output.clone() }).collect();
    Ok(Program { outputs, ..into.finish() })
}

/// The values that read a parameter.
fn reads(program: &Program, k: usize) -> Vec<Value> {
    let reads = |i: &usize| program.nodes[*i].op == Op::Param(k as u32);
    (0..program.nodes.len()).filter(reads).map(|i| Value(i as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adjoint::adjoint;
    use crate::parse::parse;
    use crate::verify::verify;

    const TEXT: &str = "program f {
    axes T, S;
    param x: call[T];
    param g: call | wide[T];
    param at: i64 | i32[S];
    %0: call[T] = param x;
    %1: call[T] = param g;
    %2: i64[S] = param at;
    %3: bool[T] = starts(T, S, %2);
    %4: call[T] = %0 * %1;
    %5: call[T] = select(%3, %4, %0);
    output y: call[T] = %5;
}
";

    #[test]
    fn the_text_names_both() {
        let program = parse(TEXT).expect("a program");
        assert_eq!(program.to_string(), TEXT);
        assert_eq!(verify(&program), Ok(()));
        let instance = program.instantiate(Elem::Bf16);
        assert!(instance.params.iter().all(|param| param.or.is_none()), "{instance}");
    }

    #[test]
    fn what_is_chosen_is_stored_and_comes_back_in_gradients() {
        let program = parse(TEXT).expect("a program");
        let chosen = choose(&choose(&program, 1).expect("g"), 2).expect("at");
        assert_eq!(verify(&chosen), Ok(()), "{chosen}");
        let stored = |program: &Program| program.params.iter().map(|p| (p.elem, p.or)).collect::<Vec<_>>();
        let others = [(Elem::Call, None), (Elem::Wide, Some(Elem::Call)), (Elem::I32, Some(Elem::I64))];
        assert_eq!(stored(&chosen), others);
        let half = adjoint(&chosen).expect("a gradient").instantiate(Elem::Bf16);
        let bars: Vec<Elem> = half.outputs.iter().map(|output| output.elem).collect();
        assert_eq!(bars, [Elem::Bf16, Elem::F32]);
        // Back again.
        let back = choose(&choose(&chosen, 1).expect("g"), 2).expect("at");
        assert_eq!((verify(&back), back.params.clone()), (Ok(()), program.params.clone()));
        assert_eq!(back.nodes.len(), program.nodes.len());
        assert_eq!(choose(&program, 0), Ok(program.clone()));
    }

    #[test]
    fn tangents_store_what_their_parameters_do() {
        let tangent = crate::forward::tangent(&parse(TEXT).expect("a program")).expect("tangents");
        let stored = |name: &str| tangent.params.iter().find(|p| p.name == name).map(|p| (p.elem, p.or));
        assert_eq!(stored("g.dot"), Some((Elem::Call, Some(Elem::Wide))));
        assert_eq!((stored("x.dot"), stored("at.dot")), (Some((Elem::Call, None)), None));
    }

    #[test]
    fn types_that_lose_something_are_no_alternative() {
        for (first, second) in [("f32", "f64"), ("i32", "u32"), ("wide", "i64"), ("bf16", "f32")] {
            let text = TEXT.replace("call | wide", &format!("{first} | {second}"));
            let Ok(program) = parse(&text) else { continue };
            let errors = verify(&program).expect_err("no alternative");
            let expected = format!("a tensor of `{first}` cannot be of `{second}` instead");
            assert!(errors.iter().any(|e| e.reason.to_string() == expected), "{errors:?}");
        }
    }
}
