//! Programs with one more axis: all of the standard library, against the program itself at each index.

use oplus_dsl::batched::{batched, with_axes_of};
use oplus_dsl::interpret::{Array, Data, Mode, Order, Precision, interpret};
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::testing::inputs;
use oplus_dsl::verify::verify;

const EXACT: Mode = Mode { precision: Precision::Exact, order: Order::Sequential };
const WIDE: usize = 2;

fn library() -> Vec<Program> {
    let items =
        [oplus_front::KERNELS, oplus_front::MODELS].map(|text| oplus_front::compile(text).expect("the library"));
    items.iter().flatten().filter_map(|item| item.kernel()).map(|kernel| kernel.program.clone()).collect()
}

/// Arrays one behind the other along a new first axis.
fn stacked(parts: &[Array]) -> Array {
    let mut sizes = vec![parts.len()];
    sizes.extend(&parts[0].sizes);
    match &parts[0].data {
        Data::Float(_) => {
            Array::floats(&sizes, parts.iter().flat_map(|p| p.as_floats().unwrap().to_vec()).collect::<Vec<_>>())
        }
        Data::Int(_) => {
            Array::ints(&sizes, parts.iter().flat_map(|p| p.as_ints().unwrap().to_vec()).collect::<Vec<_>>())
        }
        Data::Bool(_) => {
            Array::bools(&sizes, parts.iter().flat_map(|p| p.as_bools().unwrap().to_vec()).collect::<Vec<_>>())
        }
    }
}

/// Maps a program over the parameters of a mask and compares.
fn check(program: &Program, mask: u64) {
    let mut sizes: Vec<usize> = (0..program.axes.len()).map(|axis| 2 + axis % 2).collect();
    for list in 0..sizes.len() {
        if let Some(axis) = program.ends(Axis(list as u32)) {
            sizes[list] = sizes[axis.0 as usize] + 1;
        }
    }
    let mut given: Vec<Vec<Option<Array>>> =
        (0..WIDE as u64).map(|at| inputs(program, &sizes, 7 * mask + at)).collect();
    let mapped: Vec<bool> = (0..program.params.len()).map(|k| mask >> k & 1 == 1 && given[0][k].is_some()).collect();
    if !mapped.contains(&true) {
        return;
    }
    for k in 0..program.params.len() {
        // An operand that is not mapped is given once; one that is mapped is given at every index.
        let first = given[0][k].clone();
        given.iter_mut().skip(1).for_each(|inputs| {
            if !mapped[k] || inputs[k].is_none() {
                inputs[k].clone_from(&first);
            }
        });
    }
    let is_list = |k: usize| program.params[k].name.starts_with("cu_");
    let found = batched(program, &mapped);
    if (0..mapped.len()).any(|k| mapped[k] && is_list(k)) && found.is_err() {
        return;
    }
    let (wider, has_axis) = found.unwrap_or_else(|e| panic!("{} {mapped:?}: {e}", program.name));
    let each: Vec<Vec<Array>> = given.iter().map(|inputs| interpret(program, inputs, EXACT).unwrap()).collect();
    let column = |k: usize| given.iter().filter_map(|inputs| inputs[k].clone()).collect::<Vec<Array>>();
    let whole = |k: usize| if mapped[k] { Some(stacked(&column(k))) } else { given[0][k].clone() };
    let all: Vec<Option<Array>> = (0..mapped.len()).map(whole).collect();
    for (at, output) in interpret(&wider, &all, EXACT).unwrap().iter().enumerate() {
        let parts: Vec<Array> = each.iter().map(|outputs| outputs[at].clone()).collect();
        let wanted = if has_axis[at] { stacked(&parts) } else { parts[0].clone() };
        assert_eq!(format!("{output:?}"), format!("{wanted:?}"), "{} {mapped:?}: output {at}", program.name);
    }
}

#[test]
fn every_kernel_of_the_library_can_be_mapped_over_any_of_its_parameters() {
    for program in library() {
        let all = (1_u64 << program.params.len()) - 1;
        (0..program.params.len()).for_each(|k| check(&program, 1 << k));
        [all, all & 0x5555, all & 0xaaaa].into_iter().filter(|mask| *mask > 0).for_each(|mask| check(&program, mask));
    }
}

#[test]
fn gradients_that_are_called_by_themselves_know_all_sizes_and_the_type() {
    for program in library() {
        let Ok(gradient) = oplus_dsl::adjoint::adjoint(&program) else { continue };
        let complete = with_axes_of(&gradient, &program);
        verify(&complete).unwrap_or_else(|e| panic!("{}: {e:?}", program.name));
        let told = |axis: usize| {
            let has = |p: &oplus_dsl::ir::Param| p.default.is_none() && p.axes.iter().any(|a| a.0 as usize == axis);
            complete.params.iter().any(has)
        };
        // The number of sequences is told by the list of their ends.
        let list = |axis: usize| {
            (0..complete.axes.len()).find(|list| complete.ends(Axis(*list as u32)) == Some(Axis(axis as u32)))
        };
        let known = |axis: usize| told(axis) || list(axis).is_some_and(told);
        assert!((0..complete.axes.len()).all(known), "{}", program.name);
    }
}
