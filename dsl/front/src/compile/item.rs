//! Items as data, from what was written and the programs that it stands for.

use oplus_dsl::ir::{self, Program};
use oplus_dsl::step::{Step as OneStep, step};
use proc_macro2::Span;

use super::docs::written;
use crate::expand::docs;
use crate::expand::step::one;
use crate::items::{Docs, Item, Kernel, Meaning, Operator, Output, Param, Step};
use crate::lower::{Declared, Lowered};
use crate::syntax::{Block, Head, KernelItem, Name, OperatorItem, TensorItem};

/// The operators and kernels of a block in the order of the text, without those that are wrong.
pub(super) fn items(block: &Block, lowered: &Lowered) -> Vec<Item> {
    let operators = block.operators.iter().zip(&lowered.operators);
    let operators =
        operators.filter_map(|(item, declared)| Some((place(&item.name), operator(item, declared.as_ref()?))));
    let kernels = block.kernels.iter().zip(&lowered.kernels);
    let kernels = kernels.filter_map(|(item, program)| Some((place(&item.name), whole(item, program.as_ref()?))));
    let mut items: Vec<(usize, Item)> = operators.chain(kernels).collect();
    items.sort_by_key(|(place, _)| *place);
    items.into_iter().map(|(_, item)| item).collect()
}

fn place(name: &Name) -> usize {
    Span::byte_range(&name.ident.span()).start
}

fn operator(item: &OperatorItem, declared: &Declared) -> Item {
    let docs = Docs { written: written(&item.head.attributes), derived: docs::operator(item, Some(declared)).text() };
    let meaning = match declared {
        Declared::Associative(operator, _) => Meaning::Associative(operator.clone()),
        Declared::Transition(program) => Meaning::Transition(program.clone()),
    };
    let (name, is_public) = (item.name.text.clone(), is_public(&item.head));
    Item::Operator(Box::new(Operator { name, docs, is_public, meaning }))
}

/// A kernel with its one-step form.
fn whole(item: &KernelItem, program: &Program) -> Item {
    let step = step(program);
    let about = docs::one_step(item, &step);
    let mut kernel = kernel(item, program, &about);
    kernel.step = match step {
        Ok(step) => {
            link(&mut kernel, &step);
            let mut one = self::kernel(&one(item, Some(&step)), &step.program, "");
            link(&mut one, &step);
            Ok(Box::new(Step { kernel: one, axis: step.axis, states: step.states }))
        }
        Err(reason) => Err(reason.to_string()),
    };
    Item::Kernel(Box::new(kernel))
}

/// A kernel that is a step already.
fn kernel(item: &KernelItem, program: &Program, about_step: &str) -> Kernel {
    let derived = docs::kernel(item, Some(program), about_step);
    let docs = Docs { written: written(&item.head.attributes), derived: derived.function.text() };
    let is_differentiable = derived.gradient.is_ok();
    let params = item.params.iter().zip(&program.params);
    let outputs = item.outputs.iter();
    Kernel {
        name: item.name.text.clone(),
        docs,
        is_public: is_public(&item.head),
        params: params.map(|(item, param)| self::param(item, param, is_differentiable)).collect(),
        outputs: outputs.map(|item| output(item, is_differentiable)).collect(),
        program: program.clone(),
        gradient: derived.gradient,
        step: Err("it is one step itself".into()),
    }
}

fn param(item: &TensorItem, param: &ir::Param, is_differentiable: bool) -> Param {
    Param {
        name: item.name.text.clone(),
        docs: docs::param(item).text(),
        axes: axes(item),
        elem: item.elem,
        or: item.or.map(|(elem, _)| elem),
        default: param.default,
        state: None,
        has_gradient: is_differentiable && item.elem.is_float(),
    }
}

fn output(item: &TensorItem, is_differentiable: bool) -> Output {
    Output {
        name: item.name.text.clone(),
        docs: docs::tensor(item).text(),
        axes: axes(item),
        elem: item.elem,
        state: None,
        has_cotangent: is_differentiable && item.elem.is_float(),
    }
}

/// Notes which parameters and outputs are states.
fn link(kernel: &mut Kernel, step: &OneStep) {
    for state in &step.states {
        kernel.params.iter_mut().filter(|p| p.name == state.param).for_each(|p| p.state = Some(state.output.clone()));
        kernel.outputs.iter_mut().filter(|o| o.name == state.output).for_each(|o| o.state = Some(state.param.clone()));
    }
}

fn axes(item: &TensorItem) -> Vec<String> {
    item.axes.iter().map(|axis| axis.text.clone()).collect()
}

fn is_public(head: &Head) -> bool {
    !head.visibility.is_empty()
}
