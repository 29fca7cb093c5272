//! Processes that run a scenario on the test driver.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The test that runs the scenario that the environment names, in a process of its own.
const RUNNER: &str = "scenario::the_one_that_the_environment_names";
/// The variable that names the scenario.
pub(crate) const SCENARIO: &str = "OPLUS_TEST_DRIVER_SCENARIO";
/// Scenarios whose kernels are committed for Hopper alone.
const ON_HOPPER: &[&str] = &["memory::of_saved_states"];
/// How long a scenario may take before it counts as one that waits for ever.
const PATIENCE: Duration = Duration::from_secs(120);
/// The exit codes of a process whose scenario gave an error, and of one whose driver's report is not empty.
pub(crate) const REFUSED: i32 = 3;
pub(crate) const REPORTED: i32 = 4;

/// How a scenario has ended.
#[derive(Debug)]
pub(crate) struct Ending {
    /// Whether it succeeded; otherwise it gave an error.
    pub(crate) succeeded: bool,
    /// Calls of the driver.
    pub(crate) calls: u64,
    /// Whether one of them was made to fail.
    pub(crate) failed: bool,
    /// The output of the process.
    pub(crate) said: String,
}

/// A folder that has the test driver under the names of the system's driver and of NCCL.
pub(crate) fn folder_of_driver() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libcuda.so", "libnccl.so.2"] {
            std::os::unix::fs::symlink(library(), folder.path().join(name)).unwrap();
        }
        folder
    });
    folder.path()
}

/// The library of this package, which cargo builds before its tests and puts beside them.
fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("liboplus_test_driver.so");
    assert!(library.exists(), "cargo has not built {}", library.display());
    library
}

/// The process of a scenario that finds its driver in a folder.
pub(crate) fn process(scenario: &str, folder: &Path, variables: &[(&str, String)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", RUNNER, "--nocapture", "--test-threads=1"]);
    command.env("LD_LIBRARY_PATH", folder).env(SCENARIO, scenario).envs(variables.iter().cloned());
    if ON_HOPPER.contains(&scenario) {
        command.env("OPLUS_TEST_DRIVER_CAPABILITY", "9.0");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let in_time = ends(&mut child);
    if !in_time {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(in_time, "{scenario} {variables:?} waits for ever:\n{}", said(&output));
    output
}

fn ends(child: &mut Child) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

pub(crate) fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Runs a scenario. It must end in success or a typed error, with nothing in the driver's report; otherwise this says how
/// it ended.
pub(crate) fn run(scenario: &str, variables: &[(&str, String)]) -> Result<Ending, String> {
    let output = process(scenario, folder_of_driver(), variables);
    let (code, said) = (output.status.code(), said(&output));
    let known = code == Some(0) || code == Some(REFUSED);
    if !known {
        return Err(format!("{scenario} {variables:?} ended with {:?}:\n{said}", output.status));
    }
    let number = |name: &str| {
        let (_, rest) = said.split_once(name).unwrap_or_else(|| panic!("no `{name}` in:\n{said}"));
        rest.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap()
    };
    Ok(Ending { succeeded: code == Some(0), calls: number("calls:"), failed: number("failures:") == 1, said })
}
