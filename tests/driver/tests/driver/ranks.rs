//! Ranks that an NCCL without GPUs connects: what they exchange, in which order it is used, and what goes wrong.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use oplus::dist::{Group, UniqueId};
use oplus::{Device, Error, Tensor, kernels};

use crate::harness::{folder_of_driver, process, run, said};
use crate::scenario::{Done, new_stream, ramp};

/// How long ranks wait for each other.
const PATIENCE: Duration = Duration::from_secs(2);

/// Two ranks on two streams of the device, each on its own thread.
fn ranks<T: Send>(work: impl Fn(&Group, &Device) -> Result<T, Error> + Sync) -> Result<Vec<Result<T, Error>>, Error> {
    let id = UniqueId::new()?;
    Ok(thread::scope(|scope| {
        let rank = |rank: usize| {
            let device = new_stream().map_err(|error| match error.downcast::<Error>() {
                Ok(error) => *error,
                Err(other) => Error::UniqueId { path: "a stream".into(), reason: other.to_string() },
            })?;
            work(&Group::nccl_with_timeout(&id, rank, 2, &device.1, PATIENCE)?, &device.1)
        };
        let ranks = [0, 1].map(|k| scope.spawn(move || rank(k)));
        ranks.map(|rank| rank.join().unwrap()).into_iter().collect()
    }))
}

/// All exchanges, of tensors on the GPU and on the CPU.
fn all_exchanges(group: &Group, device: &Device) -> Result<(), Error> {
    let own = |rank: usize| (0..3).map(|k| (10 * rank + k) as f32).collect::<Vec<f32>>();
    let rank = group.rank();
    let host = Tensor::from_vec(own(rank), &[3])?;
    for x in [host.to_device(device)?, host] {
        let both = group.all_gather(&x)?;
        assert_eq!((both.shape(), both.device()), (&[2, 3][..], x.device()));
        assert_eq!(both.to_vec::<f32>()?, [own(0), own(1)].concat());
        let twice = group.all_gather_many(&[&x, &both])?;
        assert_eq!(twice[1].to_vec::<f32>()?, [own(0), own(1), own(0), own(1)].concat());
        assert_eq!(group.broadcast(&x, 1)?.to_vec::<f32>()?, own(1));
        assert_eq!(group.send_receive(&x, 1 - rank, 1 - rank)?.to_vec::<f32>()?, own(1 - rank));
        drop(x);
        // A view is sent in row-major order, and what was received can be sent on at once.
        let on = group.all_gather(&group.broadcast(&both, 0)?.select(0, 1)?)?;
        assert_eq!(on.to_vec::<f32>()?, [own(1), own(1)].concat());
    }
    let nothing = group.all_gather(&Tensor::zeros(oplus::Elem::F32, &[0, 4], device)?)?;
    assert_eq!(nothing.shape(), [2, 0, 4]);
    Ok(())
}

pub(crate) fn exchange() -> Done {
    ranks(all_exchanges)?.into_iter().collect::<Result<(), _>>()?;
    Ok(())
}

/// Ranks that call different kernels.
pub(crate) fn disagree() -> Done {
    let results = ranks(|group, device| {
        let x = ramp(&[2, 3]).to_device(device)?;
        match group.rank() {
            0 => kernels::cumsum::kernel().call_sharded(group, "T", &[Some(&x)]).map(drop),
            _ => kernels::affine::kernel().call_sharded(group, "T", &[Some(&x), Some(&x), None]).map(drop),
        }
    })?;
    for result in results {
        assert!(matches!(&result, Err(Error::RanksDisagree { what, .. }) if what == "the program"), "{result:?}");
    }
    Ok(())
}

/// A rank waits for another that is silent: it is told so in time, and ever after.
pub(crate) fn silence() -> Done {
    let end = Barrier::new(2);
    let results = ranks(|group, device| {
        let x = ramp(&[4]).to_device(device)?;
        let start = Instant::now();
        let found = if group.rank() == 0 { group.all_gather(&x).map(drop) } else { Ok(()) };
        let again = if group.rank() == 0 { group.broadcast(&x, 0).map(drop) } else { Ok(()) };
        let waited = device.synchronize();
        end.wait();
        Ok((found, again, waited, start.elapsed()))
    })?;
    let (found, again, waited, took) = results[0].clone()?;
    let reason = "all-gather has not ended after 2s".to_owned();
    assert_eq!(found, Err(Error::LostRanks { rank: 0, size: 2, reason }));
    assert_eq!((&again, &waited), (&found, &found));
    assert!(took < Duration::from_secs(20), "{took:?}");
    Ok(())
}

/// A rank that meets nobody.
pub(crate) fn alone() -> Done {
    let (_, device) = new_stream()?;
    let group = Group::nccl_with_timeout(&UniqueId::new()?, 0, 2, &device, PATIENCE);
    let Err(Error::LostRanks { rank: 0, size: 2, reason }) = group else { panic!("{group:?}") };
    assert!(reason.contains("ncclCommInitRankConfig"), "{reason}");
    let refused = [(2, &device), (0, &Device::Cpu)]
        .map(|(rank, device)| Group::nccl(&UniqueId::from_bytes([0; 128]), rank, 2, device).unwrap_err().to_string());
    assert_eq!(refused[0], "there is no rank 2 in a group of 2");
    assert_eq!(refused[1], "NCCL is not available: it connects GPUs, and the device is the CPU");
    Ok(())
}

/// A refusal of NCCL in words: the error of the first rank.
pub(crate) fn refusal() -> Done {
    let error = match ranks(all_exchanges) {
        Err(error) => error,
        Ok(mut results) => results.remove(0).expect_err("a function of NCCL fails"),
    };
    println!("refused: {error}");
    assert!(matches!(error, Error::Nccl { .. } | Error::NoNccl { .. }), "{error:?}");
    Ok(())
}

/// The id comes through a file.
pub(crate) fn through_a_file() -> Done {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("id");
    let ids = thread::scope(|scope| {
        let id = |rank| UniqueId::through_file(&path, rank, Duration::from_secs(30));
        [1, 0].map(|rank| scope.spawn(move || id(rank))).map(|id| id.join().unwrap())
    });
    assert_eq!(ids[0], ids[1]);
    std::fs::write(&path, [1, 2, 3])?;
    let wrong = UniqueId::through_file(&path, 1, PATIENCE).unwrap_err().to_string();
    assert!(wrong.ends_with("it has 3 bytes, a unique id has 128"), "{wrong}");
    let late = UniqueId::through_file(folder.path().join("none"), 1, PATIENCE).unwrap_err().to_string();
    assert!(late.ends_with("rank 0 has not written it in 2s"), "{late}");
    Ok(())
}

/// A machine that has a GPU and no NCCL.
pub(crate) fn without_nccl() -> Done {
    let error = UniqueId::new().unwrap_err();
    println!("refused: {error}");
    assert!(matches!(error, Error::NoNccl { .. }), "{error:?}");
    Ok(())
}

fn said_by(scenario: &str, variables: &[(&str, String)]) -> String {
    let ending = run(scenario, variables).unwrap();
    assert!(ending.succeeded, "{}", ending.said);
    ending.said
}

#[test]
fn ranks_exchange_in_order() {
    for scenario in ["ranks::exchange", "ranks::disagree", "ranks::silence", "ranks::alone", "ranks::through_a_file"] {
        said_by(scenario, &[]);
    }
}

#[test]
fn what_nccl_refuses_is_said() {
    let functions = ["ncclGetUniqueId", "ncclCommInitRankConfig", "ncclGroupStart", "ncclAllGather", "ncclGroupEnd"];
    for function in functions {
        let said = said_by("ranks::refusal", &[("OPLUS_TEST_NCCL_FAIL", function.into())]);
        assert!(said.contains(&format!("refused: NCCL: {function} failed: unhandled system error")), "{said}");
    }
    let said = said_by("ranks::refusal", &[("OPLUS_TEST_NCCL_VERSION", "21005".into())]);
    assert!(said.contains("refused: NCCL is not available: it is version 2.10; 2.18 or newer is needed"), "{said}");
}

#[test]
fn a_machine_without_nccl_says_so() {
    let named = |path: &str| [("OPLUS_NCCL", path.to_owned())];
    let said = said_by("ranks::without_nccl", &named("/nowhere/libnccl.so.2"));
    assert!(said.contains("refused: NCCL is not available: $OPLUS_NCCL is /nowhere/libnccl.so.2: "), "{said}");
    // Any library will do that is on every machine.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.split_whitespace().find(|word| word.contains("/libc.so")).unwrap();
    let said = said_by("ranks::without_nccl", &named(library));
    assert!(said.contains("its library has no function `nccl"), "{said}");
}

/// The driver is there, NCCL is not.
#[test]
fn a_system_without_nccl_says_where_it_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(folder_of_driver().join("libcuda.so"), folder.path().join("libcuda.so")).unwrap();
    let output = process("ranks::without_nccl", folder.path(), &[]);
    let words = "the system does not find libnccl.so.2; $OPLUS_NCCL can have its path";
    assert!(output.status.success() && said(&output).contains(words), "{}", said(&output));
}
