//! Kernels of texts that are compiled at run time, beside those that `scan!` has made of the same texts.

use oplus::{Elem, Error, Kernel, Shapes, Target, Tensor, kernels};
use oplus_dsl::rng::Rng;
use oplus_front::{Item, compile};

use crate::common::{named, random_inputs};

const STANDARD: &str = include_str!("../../../dsl/front/standard/kernels.rs");

/// The kernel of that name of a text.
fn kernel(text: &str, name: &str) -> Kernel {
    let items = compile(text).unwrap();
    let found = items.iter().filter_map(Item::kernel).find(|kernel| kernel.name == name).unwrap();
    Kernel::from_program(found.program.clone()).unwrap()
}

fn beside() -> [(Kernel, &'static Kernel); 3] {
    [
        (kernel(STANDARD, "cumsum"), kernels::cumsum::kernel()),
        (kernel(STANDARD, "affine"), kernels::affine::kernel()),
        (kernel(STANDARD, "log_decay"), kernels::log_decay::kernel()),
    ]
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

/// Plans name the keys of their kernels, of which the committed ones are found.
#[test]
fn programs_plans_and_keys_are_those_of_the_macro() {
    for (made, written) in beside() {
        assert_eq!((made.name(), made.program()), (written.name(), written.program()));
        for (elem, rows, times) in [(Elem::F32, 1, 1 << 20), (Elem::F32, 8192, 4096), (Elem::Bf16, 64, 1000)] {
            let shapes = Shapes::new().axis("B", rows).axis("T", times).elem(elem).target(Target::H200);
            let sized = |kernel: &Kernel| {
                let axes = kernel.program().unwrap().axes.clone();
                let rest = axes.iter().filter(|axis| !["B", "T"].contains(&axis.as_str()));
                kernel.explain(&rest.fold(shapes.clone(), |shapes, axis| shapes.axis(axis, 16))).unwrap().to_string()
            };
            assert_eq!(sized(&made), sized(written));
        }
    }
}

#[test]
fn outputs_and_gradients_have_the_bits_of_the_macro() {
    for (made, written) in beside() {
        let program = written.program().unwrap();
        let inputs = random_inputs(program, &[("B", 3), ("T", 20011)], &mut Rng::new(7));
        let inputs = named(program, &inputs);
        let [a, b] = [&made, written].map(|kernel| {
            let (outputs, call) = kernel.call(&inputs).unwrap();
            let gradients = kernel.backward(&call, &outputs.iter().map(Some).collect::<Vec<_>>()).unwrap();
            outputs.iter().chain(gradients.iter().flatten()).map(bits).collect::<Vec<_>>()
        });
        assert!(a == b, "{}", written.name());
    }
}

/// A call belongs to the kernel that made it, whatever its program.
#[test]
fn a_call_of_another_kernel_of_the_same_program_is_refused() {
    let [(made, written), ..] = beside();
    let x = Tensor::from_slice(&[1.0_f32, 2.0], &[1, 2]).unwrap();
    let (outputs, call) = made.call(&[Some(&x)]).unwrap();
    let refused = written.backward(&call, &[Some(&outputs[0])]);
    assert!(matches!(refused, Err(Error::NoGradient { .. })), "{refused:?}");
}

/// Kernels are made and dropped by threads; calls and tensors outlive them.
#[test]
fn what_a_kernel_gave_outlives_it() {
    let run = || {
        let (outputs, call) = {
            let kernel = kernel("fn twice(x: [T]) -> (y: [T]) { y = 2 * x; }", "twice");
            kernel.call(&[Some(&Tensor::from_slice(&[1.5_f32], &[1]).unwrap())]).unwrap()
        };
        drop(call);
        outputs[0].to_vec::<f32>().unwrap()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), [3.0]));
    });
}

#[test]
fn a_program_whose_operator_breaks_a_law_is_refused_with_an_example() {
    let mut program = kernel(STANDARD, "cumsum").program().unwrap().clone();
    program.operators[0].identity[0] = oplus_dsl::ir::Literal::Float(1.0);
    let refused = Kernel::from_program(program).err().unwrap();
    let Error::Program { kernel, reason } = &refused else { panic!("{refused}") };
    assert!(kernel == "cumsum" && reason.contains("identity"), "{refused}");
}

#[test]
fn a_program_that_does_not_verify_is_refused_and_runs_nowhere() {
    let mut program = kernel(STANDARD, "affine").program().unwrap().clone();
    program.nodes.truncate(1);
    let refused = Kernel::from_program(program).err().unwrap();
    assert!(matches!(&refused, Error::Program { kernel, .. } if kernel == "affine"), "{refused}");
}

/// Gradients' operators are derived; their laws are checked like all others.
#[test]
fn gradients_and_steps_of_the_standard_library_are_programs_like_any_other() {
    let programs = oplus_front::library_programs();
    assert!(programs.len() > 60);
    for program in programs {
        let gradient = oplus_dsl::adjoint::adjoint(&program).ok();
        for program in [Some(program), gradient].into_iter().flatten() {
            let name = program.name.clone();
            Kernel::from_program(program).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

/// The tangent of an infinite field is 0, which samples of the laws do not know.
#[test]
fn tangents_of_the_standard_library_are_kernels() {
    let mut refused = vec![];
    for program in oplus_front::library_programs() {
        let tangent = oplus_dsl::forward::tangent(&program).unwrap_or_else(|error| panic!("{}: {error}", program.name));
        let name = tangent.name.clone();
        Kernel::from_derived(tangent.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        refused.extend(Kernel::from_program(tangent).err().map(|_| name));
    }
    assert!(refused.iter().any(|name| name == "attention_causal.dot"), "{refused:?}");
    let mut broken = kernel(STANDARD, "affine").program().unwrap().clone();
    broken.nodes.truncate(1);
    assert!(matches!(Kernel::from_derived(broken), Err(Error::Program { .. })));
}
