//! Ranks as threads of this process that share a device, or as a process for each GPU.

use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use oplus::dist::{Group, UniqueId};
use oplus::{Device, Error};

use super::faults::SHORT;
use super::{Line, Member, Settings};

/// A process that is a rank.
#[derive(Clone, Debug)]
pub struct Child {
    /// Its rank.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
    /// The folder in which they find each other.
    pub folder: PathBuf,
}

/// For how long ranks wait for each other.
const PATIENCE: Duration = Duration::from_secs(120);
/// For how long processes may end by themselves after one has failed.
const GRACE: Duration = Duration::from_secs(15);

/// Runs everything on ranks that are threads and share a device.
///
/// # Errors
/// The error of the first rank that has one.
pub fn in_threads(
    ranks: usize,
    device: &Device,
    settings: &Settings,
    print: &mut (dyn FnMut(&Line) + Send),
) -> Result<bool, Error> {
    let fragile = Group::threads_with_timeout(ranks, SHORT);
    let members: Vec<Member> = Group::threads_with_timeout(ranks, PATIENCE)
        .into_iter()
        .zip(fragile)
        .map(|(all, fragile)| Member { device: device.clone(), all, fragile })
        .collect();
    thread::scope(|scope| {
        let mut print = Some(print);
        let start = |member: Member| {
            let mut print = print.take();
            scope.spawn(move || {
                member.run(settings, &mut |line| {
                    if let Some(print) = &mut print {
                        print(line)
                    }
                })
            })
        };
        let ranks: Vec<_> = members.into_iter().map(start).collect();
        let lost = |rank| Error::LostRank { rank, reason: "its thread has panicked".into() };
        ranks.into_iter().enumerate().map(|(k, rank)| rank.join().map_err(|_| lost(k))?).collect::<Result<Vec<_>, _>>()
    })
    .map(|all| all.into_iter().all(|right| right))
}

/// The rank of a process on its GPU, when all have met.
///
/// # Errors
/// The errors of [`Group::nccl`] and [`UniqueId::through_file`].
pub fn meet(child: &Child) -> Result<Member, Error> {
    let device = Device::cuda(child.rank)?;
    let group = |name: &str, timeout: Duration| {
        let id = UniqueId::through_file(child.folder.join(name), child.rank, PATIENCE)?;
        Group::nccl_with_timeout(&id, child.rank, child.size, &device, timeout)
    };
    let (all, fragile) = (group("all", PATIENCE)?, group("fragile", SHORT)?);
    Ok(Member { device, all, fragile })
}

/// Starts this program again for every rank, and waits until all have ended. When one fails, the others are given some seconds
/// to say in what.
///
/// # Errors
/// Errors of the operating system, and a message that names the ranks that failed.
pub fn spawn(ranks: usize, arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let (program, folder) = (std::env::current_exe()?, tempfile::tempdir()?);
    let mut processes = Processes(vec![]);
    for rank in 0..ranks {
        processes.0.push(command(&program, arguments, rank, folder.path()).spawn()?);
    }
    let mut failed: Option<Instant> = None;
    loop {
        let ended = processes.0.iter_mut().map(Process::try_wait).collect::<Result<Vec<_>, _>>()?;
        let wrong = |status: &Option<ExitStatus>| status.is_some_and(|status| !status.success());
        if ended.iter().any(wrong) && failed.is_none() {
            failed = Some(Instant::now());
        }
        let is_over = ended.iter().all(Option::is_some) || failed.is_some_and(|since| since.elapsed() > GRACE);
        if is_over {
            let wrong: Vec<String> = (0..ranks).filter(|k| wrong(&ended[*k])).map(|k| k.to_string()).collect();
            return if wrong.is_empty() { Ok(()) } else { Err(format!("failed: rank {}", wrong.join(", ")).into()) };
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The processes of all ranks; they end with this.
struct Processes(Vec<Process>);

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn command(program: &Path, arguments: &[String], rank: usize, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).arg("--rank").arg(rank.to_string()).arg("--meet").arg(folder);
    command
}
