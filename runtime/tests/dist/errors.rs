//! What goes wrong among ranks.

use std::thread;
use std::time::Duration;

use oplus::dist::Group;
use oplus::kernels::{affine, cumsum, segmented_cumsum};
use oplus::{Error, Kernel, Tensor};

fn tensor(shape: &[usize]) -> Tensor {
    Tensor::from_vec(vec![1.0_f32; shape.iter().product()], shape).unwrap()
}

/// The errors of two ranks that do these things.
fn both(
    first: impl FnOnce(&Group) -> Result<(), Error> + Send,
    second: impl FnOnce(&Group) -> Result<(), Error> + Send,
) -> [Option<Error>; 2] {
    let mut groups = Group::threads_with_timeout(2, Duration::from_millis(300)).into_iter();
    let (a, b) = (groups.next().unwrap(), groups.next().unwrap());
    thread::scope(|scope| {
        let (a, b) = (scope.spawn(move || first(&a).err()), scope.spawn(move || second(&b).err()));
        [a.join().unwrap(), b.join().unwrap()]
    })
}

fn call(kernel: &'static Kernel, group: &Group, axis: &str, inputs: &[Option<&Tensor>]) -> Result<(), Error> {
    kernel.call_sharded(group, axis, inputs).map(drop)
}

fn disagreement(errors: &[Option<Error>; 2]) -> Option<String> {
    let what = |error: &Option<Error>| match error {
        Some(Error::RanksDisagree { what, .. }) => Some(what.clone()),
        _ => None,
    };
    errors.iter().find_map(what)
}

#[test]
fn ranks_of_other_programs_disagree() {
    let x = tensor(&[2, 3]);
    let errors = both(
        |group| call(cumsum::kernel(), group, "T", &[Some(&x)]),
        |group| call(affine::kernel(), group, "T", &[Some(&x), Some(&x), None]),
    );
    assert_eq!(disagreement(&errors).as_deref(), Some("the program"), "{errors:?}");
}

#[test]
fn ranks_with_other_sizes_disagree() {
    let errors = both(
        |group| call(cumsum::kernel(), group, "T", &[Some(&tensor(&[2, 3]))]),
        |group| call(cumsum::kernel(), group, "T", &[Some(&tensor(&[4, 3]))]),
    );
    assert_eq!(disagreement(&errors).as_deref(), Some("the sizes of axes that are not divided"), "{errors:?}");
}

#[test]
fn ranks_that_are_given_other_tensors_disagree() {
    let (x, h0) = (tensor(&[2, 3]), tensor(&[2]));
    let errors = both(
        |group| call(affine::kernel(), group, "T", &[Some(&x), Some(&x), None]),
        |group| call(affine::kernel(), group, "T", &[Some(&x), Some(&x), Some(&h0)]),
    );
    assert_eq!(disagreement(&errors).as_deref(), Some("element types and the tensors given"), "{errors:?}");
}

#[test]
fn a_rank_whose_shard_has_another_size_than_before_is_noticed() {
    let errors = both(
        |group| {
            call(cumsum::kernel(), group, "T", &[Some(&tensor(&[2, 3]))])?;
            call(cumsum::kernel(), group, "T", &[Some(&tensor(&[2, 3]))])
        },
        |group| {
            call(cumsum::kernel(), group, "T", &[Some(&tensor(&[2, 3]))])?;
            call(cumsum::kernel(), group, "T", &[Some(&tensor(&[2, 5]))])
        },
    );
    assert!(disagreement(&errors).is_some_and(|what| what.starts_with("the exchange:")), "{errors:?}");
}

#[test]
fn a_rank_that_is_silent_is_lost_and_the_group_stays_unusable() {
    let x = tensor(&[2, 3]);
    let [first, _] = both(
        |group| {
            let first = call(cumsum::kernel(), group, "T", &[Some(&x)]).unwrap_err();
            assert_eq!(call(cumsum::kernel(), group, "T", &[Some(&x)]), Err(first.clone()));
            Err(first)
        },
        |_| {
            thread::sleep(Duration::from_millis(900));
            Ok(())
        },
    );
    let Some(Error::LostRank { rank: 1, reason }) = first else { panic!("{first:?}") };
    assert_eq!(reason, "it has sent nothing for 300ms");
}

#[test]
fn a_rank_that_has_ended_is_lost_at_once() {
    let mut groups = Group::threads(2);
    drop(groups.pop());
    let error = call(cumsum::kernel(), &groups[0], "T", &[Some(&tensor(&[2, 3]))]).unwrap_err();
    assert_eq!(error.to_string(), "rank 1 is lost: it has left: its group was dropped");
}

fn refusal(kernel: &'static Kernel, axis: &str, inputs: &[Option<&Tensor>]) -> String {
    call(kernel, &Group::threads(1)[0], axis, inputs).unwrap_err().to_string()
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let x = tensor(&[2, 3]);
    assert_eq!(
        refusal(cumsum::kernel(), "Q", &[Some(&x)]),
        "kernel `cumsum` cannot be sharded: it has no axis Q; its axes are B, T"
    );
    let offsets = Tensor::from_slice(&[0_i64, 3], &[2]).unwrap();
    assert_eq!(
        refusal(segmented_cumsum::kernel(), "S", &[Some(&x), Some(&offsets)]),
        "kernel `segmented_cumsum` cannot be sharded: the list of offsets along S must be whole on every rank, as offsets \
         count from the start of the sequence"
    );
    static FAR: Kernel = Kernel::new(
        "far",
        "program far { axes T; param x: call[T]; %0: call[T] = param x; %1: call = const 0.0;
         %2: call[T] = shift(T, 65, %0, %1); output y: call[T] = %2; }",
    );
    assert_eq!(
        refusal(&FAR, "T", &[Some(&tensor(&[3]))]),
        "kernel `far` cannot be sharded: `shift` along T by 65 looks more than 64 elements beyond a shard"
    );
    let wrong = refusal(cumsum::kernel(), "T", &[Some(&tensor(&[3]))]);
    assert_eq!(wrong, "`x` has 1 axes, it must have 2: [B, T]");
}

#[test]
fn there_is_no_rank_beyond_the_last() {
    let group = &Group::threads(2)[0];
    assert_eq!(group.broadcast(&tensor(&[1]), 2).unwrap_err().to_string(), "there is no rank 2 in a group of 2");
}
