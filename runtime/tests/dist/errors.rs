//! Errors of calls that ranks make together.

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
fn shards_may_have_other_sizes_in_every_call() {
    let last = |group: &Group, times: usize| {
        let y = cumsum::kernel().call_sharded(group, "T", &[Some(&tensor(&[1, times]))])?.0.remove(0);
        Ok::<f32, Error>(y.to_vec::<f32>()?.last().copied().unwrap_or(0.0))
    };
    let errors = both(
        |group| [3, 3, 1].into_iter().try_for_each(|times| last(group, times).map(drop)),
        |group| {
            let sums = [3, 5, 5].map(|times| last(group, times));
            assert_eq!(sums, [Ok(6.0), Ok(8.0), Ok(6.0)]);
            Ok(())
        },
    );
    assert_eq!(errors, [None, None]);
}

#[test]
fn a_rank_whose_shard_has_another_size_than_was_said_is_told() {
    let x = tensor(&[2, 3]);
    let errors = both(
        |group| {
            let group = group.with_shards(&[3, 3])?;
            (0..2).try_for_each(|_| call(cumsum::kernel(), &group, "T", &[Some(&x)]))
        },
        |group| {
            let group = group.with_shards(&[3, 3])?;
            call(cumsum::kernel(), &group, "T", &[Some(&x)])?;
            call(cumsum::kernel(), &group, "T", &[Some(&tensor(&[2, 5]))])
        },
    );
    let words = "axis T has size 3 in `Group::with_shards` but 5 in `the tensors of this rank`";
    assert_eq!(errors[1].as_ref().unwrap().to_string(), words);
    assert!(matches!(errors[0], Some(Error::LostRank { rank: 1, .. })), "{errors:?}");
}

#[test]
fn ranks_that_were_told_other_sizes_disagree() {
    let x = tensor(&[2, 3]);
    let with = |sizes: [usize; 2]| {
        let x = &x;
        move |group: &Group| call(cumsum::kernel(), &group.with_shards(&sizes)?, "T", &[Some(x)])
    };
    let errors = both(with([3, 3]), with([4, 3]));
    assert_eq!(disagreement(&errors).as_deref(), Some("the sizes of shards that they were told"), "{errors:?}");
    let errors = both(with([3, 4]), |group| call(cumsum::kernel(), group, "T", &[Some(&x)]));
    assert_eq!(disagreement(&errors).as_deref(), Some("the sizes of shards that they were told"), "{errors:?}");
    let count = Group::threads(2)[0].with_shards(&[1]).unwrap_err().to_string();
    assert_eq!(count, "2 sizes of shards are needed, 1 were given");
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
