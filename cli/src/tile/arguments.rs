//! The arguments of a simulated kernel: `--arg x=iota:1024`.

use oplus_codegen::simulate::{Arg, Buffer, BufferId, Memory};
use oplus_codegen::tile::{Kernel, Param, ParamKind};
use oplus_dsl::ir::Literal;
use oplus_dsl::rng::Rng;
use oplus_dsl::{Elem, Ty};

/// Message words where the command line says nothing of them.
const WORDS: usize = 1 << 16;
/// The most elements of an argument.
const MOST: usize = 1 << 28;

/// The argument that the command line gives a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Given {
    /// A number, as written.
    Number(String),
    /// 0, 1, 2, …
    Iota(usize),
    /// As many of one number, as written.
    Fill(String, usize),
    /// Uniform between −1 and 1, of integers between −100 and 100.
    Random(usize),
    /// These, as written.
    Values(Vec<String>),
    /// Elements that nobody has written.
    Empty(usize),
    /// Message words.
    Words(usize),
}

/// Reads `NAME=VALUE`.
pub(super) fn parse(text: &str) -> Result<(String, Given), String> {
    let (name, value) = text.split_once('=').ok_or("must be a parameter and its value, such as x=iota:1024")?;
    Ok((name.to_owned(), given(value)?))
}

fn given(value: &str) -> Result<Given, String> {
    let Some((kind, rest)) = value.split_once(':') else { return Ok(Given::Number(value.to_owned())) };
    let len = |text: &str| match text.parse::<usize>() {
        Ok(len) if len <= MOST => Ok(len),
        _ => Err(format!("`{text}` is not a number of elements up to {MOST}")),
    };
    Ok(match kind {
        "iota" => Given::Iota(len(rest)?),
        "zeros" => Given::Fill("0".to_owned(), len(rest)?),
        "ones" => Given::Fill("1".to_owned(), len(rest)?),
        "random" => Given::Random(len(rest)?),
        "empty" => Given::Empty(len(rest)?),
        "words" => Given::Words(len(rest)?),
        "values" => Given::Values(rest.split(',').map(|v| v.trim().to_owned()).collect()),
        "fill" => {
            let (number, rest) = rest.split_once(':').ok_or("must be `fill:NUMBER:COUNT`, such as fill:0.5:64")?;
            Given::Fill(number.to_owned(), len(rest)?)
        }
        _ => {
            return Err(format!(
                "`{kind}` is no kind of elements; there are iota, zeros, ones, fill, random, values, empty and words"
            ));
        }
    })
}

/// The arguments of a launch, and the buffers that the kernel may write, with their names.
pub(super) struct Arguments {
    pub(super) memory: Memory,
    pub(super) args: Vec<Arg>,
    pub(super) written: Vec<(String, BufferId)>,
}

impl Arguments {
    /// Makes the arguments of a kernel from what the command line gives.
    pub(super) fn new(kernel: &Kernel, given: &[(String, Given)]) -> Result<Arguments, String> {
        if let Some((unknown, _)) = given.iter().find(|(name, _)| kernel.params.iter().all(|p| p.name != *name)) {
            let known: Vec<&str> = kernel.params.iter().map(|p| p.name.as_str()).collect();
            return Err(format!("the kernel has no parameter `{unknown}`; its parameters are {}", known.join(", ")));
        }
        let mut all = Arguments { memory: Memory::new(), args: vec![], written: vec![] };
        for (index, param) in kernel.params.iter().enumerate() {
            let given = given.iter().rev().find(|(name, _)| *name == param.name).map(|(_, given)| given);
            let arg = all.argument(index, param, given).map_err(|why| format!("`{}`: {why}", param.name))?;
            all.args.push(arg);
        }
        Ok(all)
    }

    fn argument(&mut self, index: usize, param: &Param, given: Option<&Given>) -> Result<Arg, String> {
        let buffer = match (param.kind, given) {
            (ParamKind::Scalar(ty), Some(Given::Number(text))) => return number(text, ty).map(Arg::Scalar),
            (ParamKind::Scalar(ty), _) => {
                return Err(format!("it is a number of type {ty}: say which, such as --arg {}=1024", param.name));
            }
            (ParamKind::Control, None) => Buffer::control(),
            (ParamKind::Control, Some(_)) => return Err("the control word is as before a first launch".to_owned()),
            (ParamKind::Messages, None) => Buffer::messages(WORDS),
            (ParamKind::Messages, Some(Given::Words(words))) => Buffer::messages(*words),
            (ParamKind::Messages, Some(_)) => return Err("messages are given as words:COUNT".to_owned()),
            (ParamKind::Read(elem) | ParamKind::Write(elem), Some(given)) => elements(elem, given, index as u64)?,
            (kind, None) => {
                let example = if matches!(kind, ParamKind::Write(_)) { "empty" } else { "iota" };
                return Err(format!("it is `{kind}`: say which elements, such as --arg {}={example}:1024", param.name));
            }
        };
        let id = self.memory.add(buffer);
        if matches!(param.kind, ParamKind::Write(_)) {
            self.written.push((param.name.clone(), id));
        }
        Ok(id.into())
    }
}

fn elements(elem: Elem, given: &Given, seed: u64) -> Result<Buffer, String> {
    let ty = elem.value();
    Ok(match given {
        Given::Empty(len) => Buffer::unwritten(elem, *len),
        Given::Iota(len) => Buffer::of(elem, (0..*len).map(|i| whole(i as i64, ty))),
        Given::Fill(text, len) => Buffer::of(elem, vec![number(text, ty)?; *len]),
        Given::Values(texts) => {
            Buffer::of(elem, texts.iter().map(|text| number(text, ty)).collect::<Result<Vec<_>, _>>()?)
        }
        Given::Random(len) => {
            let mut rng = Rng::new(seed);
            Buffer::of(elem, (0..*len).map(|_| random(&mut rng, ty)).collect::<Vec<_>>())
        }
        Given::Number(_) => return Err(format!("it is a pointer to {elem}: give elements, such as iota:1024")),
        Given::Words(_) => return Err(format!("it is a pointer to {elem}, not messages")),
    })
}

fn whole(i: i64, ty: Ty) -> Literal {
    match ty {
        Ty::Bool => Literal::Bool(i % 2 == 1),
        ty if ty.is_float() => Literal::Float(i as f64),
        _ => Literal::Int(i),
    }
}

fn random(rng: &mut Rng, ty: Ty) -> Literal {
    match ty {
        Ty::Bool => Literal::Bool(rng.once_in(2)),
        Ty::U32 | Ty::U64 => Literal::Int(rng.below(101) as i64),
        ty if ty.is_float() => Literal::Float(rng.between(-1.0, 1.0)),
        _ => Literal::Int(rng.below(201) as i64 - 100),
    }
}

/// A number of a type.
fn number(text: &str, ty: Ty) -> Result<Literal, String> {
    let read = match ty {
        Ty::Bool => match text {
            "true" | "1" => Some(Literal::Bool(true)),
            "false" | "0" => Some(Literal::Bool(false)),
            _ => None,
        },
        ty if ty.is_float() => text.parse().ok().map(Literal::Float),
        Ty::I32 => text.parse::<i32>().ok().map(|i| Literal::Int(i.into())),
        Ty::U32 => text.parse::<u32>().ok().map(|i| Literal::Int(i.into())),
        Ty::U64 => text.parse::<u64>().ok().map(|i| Literal::Int(i as i64)),
        _ => text.parse::<i64>().ok().map(Literal::Int),
    };
    read.ok_or_else(|| format!("`{text}` is not a number of type {ty}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_a_name_and_a_value() {
        let of = |text: &str| parse(text).unwrap().1;
        assert_eq!(of("x=iota:4"), Given::Iota(4));
        assert_eq!(of("x=fill:-0.5:3"), Given::Fill("-0.5".into(), 3));
        assert_eq!(of("x=values:1, 2"), Given::Values(vec!["1".into(), "2".into()]));
        assert_eq!(of("n=12"), Given::Number("12".into()));
        let refused = ["x", "x=iota:-1", "x=iota:x", "x=fill:3", "x=steps:3", "x=iota:9999999999"];
        let reasons = refused.map(|text| parse(text).unwrap_err());
        assert!(reasons[4].contains("`steps` is no kind of elements") && reasons[1].contains("`-1`"), "{reasons:?}");
    }

    #[test]
    fn elements_are_of_the_type_of_the_parameter() {
        let of = |elem, given: &Given| elements(elem, given, 1).unwrap().to_floats();
        assert_eq!(of(Elem::F32, &Given::Iota(3)), [0.0, 1.0, 2.0]);
        assert_eq!(of(Elem::Bool, &Given::Iota(3)), [0.0, 1.0, 0.0]);
        assert_eq!(of(Elem::I64, &Given::Fill("-2".into(), 2)), [-2.0, -2.0]);
        assert!(of(Elem::F32, &Given::Random(100)).iter().all(|x| x.abs() <= 1.0));
        assert!(of(Elem::F32, &Given::Empty(2)).iter().all(|x| x.is_nan()));
        let wrong = elements(Elem::I32, &Given::Fill("0.5".into(), 1), 1).unwrap_err();
        assert_eq!(wrong, "`0.5` is not a number of type i32");
    }
}
