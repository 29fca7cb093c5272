//! NVIDIA's assembler, where it is at hand: the last check of a kernel that needs no GPU.

use oplus_codegen::target::Isa;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, OnceLock};

/// The assembler of the Python package, looked for once.
static IN_PYTHON: LazyLock<Option<PathBuf>> = LazyLock::new(in_python_package);

/// The assembler `ptxas`.
#[derive(Clone, Debug)]
pub struct Ptxas {
    path: PathBuf,
    version: OnceLock<String>,
}

/// The report of `ptxas` on a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of statically declared shared memory.
    pub shared: u32,
    /// Bytes of local memory per thread.
    pub stack: u32,
    /// Bytes of registers spilled, stores and loads together.
    pub spills: u32,
    /// Machine code, bytes.
    pub code: usize,
}

/// A kernel that `ptxas` has assembled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembled {
    /// The report on the kernel.
    pub facts: Facts,
    /// The machine code, a *cubin*.
    pub cubin: Vec<u8>,
}

/// Why a kernel did not pass.
#[derive(Debug, thiserror::Error)]
pub enum PtxasError {
    /// There is no assembler.
    #[error("ptxas not found: `pip install nvidia-cuda-nvcc`, put it on the PATH, or name it in OPLUS_PTXAS")]
    Missing,
    /// It could not be run.
    #[error("{}: {error}", .path.display())]
    Run {
        /// The program.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It refused the text.
    #[error("ptxas refuses the kernel:\n{0}")]
    Refused(String),
    /// It accepted the text with a remark that costs speed.
    #[error("ptxas warns of slow code:\n{0}")]
    Slow(String),
    /// Registers do not suffice.
    #[error("the kernel spills {} bytes and keeps {} bytes in local memory ({} registers)", .0.spills, .0.stack, .0.registers)]
    Spills(Facts),
}

impl Ptxas {
    /// The assembler named in `OPLUS_PTXAS`, else the one on the `PATH`, of a CUDA toolkit, or of the Python package.
    ///
    /// # Errors
    ///
    /// [`PtxasError::Missing`] when there is none.
    pub fn find() -> Result<Ptxas, PtxasError> {
        if let Some(path) = std::env::var_os("OPLUS_PTXAS") {
            return Ok(Ptxas::at(path.into()));
        }
        let on_path = std::env::var_os("PATH").map(|p| std::env::split_paths(&p).collect()).unwrap_or(vec![]);
        let folders = on_path.into_iter().chain([PathBuf::from("/usr/local/cuda/bin")]);
        let found = folders.map(|folder| folder.join("ptxas")).find(|path| path.is_file());
        found.or_else(|| IN_PYTHON.clone()).map(Ptxas::at).ok_or(PtxasError::Missing)
    }

    fn at(path: PathBuf) -> Ptxas {
        Ptxas { path, version: OnceLock::new() }
    }

    /// Its version, such as `13.0.88`. The same version makes the same machine code of the same PTX.
    ///
    /// # Errors
    ///
    /// [`PtxasError::Run`] when it cannot be run.
    pub fn version(&self) -> Result<&str, PtxasError> {
        if let Some(known) = self.version.get() {
            return Ok(known);
        }
        let output = Command::new(&self.path).arg("--version").output().map_err(|e| self.not_run(e))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let said = text.lines().find_map(|line| line.rsplit_once(", V")).map_or(text.trim(), |(_, version)| version);
        Ok(self.version.get_or_init(|| said.to_owned()))
    }

    fn not_run(&self, error: io::Error) -> PtxasError {
        PtxasError::Run { path: self.path.clone(), error }
    }

    /// Assembles a kernel; refuses spills, local memory, and code that `ptxas` itself calls slow.
    ///
    /// # Errors
    ///
    /// See [`PtxasError`].
    pub fn assemble(&self, ptx: &str, isa: Isa) -> Result<Assembled, PtxasError> {
        self.assemble_within(ptx, isa, 0)
    }

    /// Assembles a kernel that may spill so many bytes, stores and loads together.
    ///
    /// # Errors
    ///
    /// See [`PtxasError`].
    pub fn assemble_within(&self, ptx: &str, isa: Isa, spills: u32) -> Result<Assembled, PtxasError> {
        let run = |error| self.not_run(error);
        let folder = tempfile::tempdir().map_err(run)?;
        let [source, binary] = ["kernel.ptx", "kernel.cubin"].map(|name| folder.path().join(name));
        std::fs::write(&source, ptx).map_err(run)?;
        let mut command = Command::new(&self.path);
        command.arg("-v").arg(format!("-arch={}", isa.name())).arg(&source).arg("-o").arg(&binary);
        let output = command.output().map_err(run)?;
        let text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(PtxasError::Refused(text.into_owned()));
        }
        let cubin = std::fs::read(&binary).map_err(run)?;
        Ok(Assembled { facts: judge(&text, cubin.len(), spills)?, cubin })
    }
}

/// The facts in the assembler's messages, or what is wrong with them; up to `most` bytes of spills are not.
fn judge(text: &str, code: usize, most: u32) -> Result<Facts, PtxasError> {
    let number = |unit: &str| number_before(text, unit).unwrap_or(0);
    let facts = Facts {
        registers: number_after(text, "Used ").unwrap_or(0),
        shared: number(" bytes smem"),
        stack: number(" bytes stack frame"),
        spills: number(" bytes spill stores") + number(" bytes spill loads"),
        code,
    };
    if text.contains("Potential Performance Loss") {
        return Err(PtxasError::Slow(text.to_owned()));
    }
    if facts.spills.max(facts.stack) > most { Err(PtxasError::Spills(facts)) } else { Ok(facts) }
}

/// The number that stands right before `unit`.
fn number_before(text: &str, unit: &str) -> Option<u32> {
    let before = &text[..text.find(unit)?];
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The number that stands right after `word`.
fn number_after(text: &str, word: &str) -> Option<u32> {
    let after = &text[text.find(word)? + word.len()..];
    after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// `ptxas` of the package `nvidia-cuda-nvcc`, in any of the layouts it has had.
fn in_python_package() -> Option<PathBuf> {
    let script = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let output = Command::new("python3").args(["-c", script]).output().ok()?;
    let packages = String::from_utf8(output.stdout).ok()?;
    let nvidia = Path::new(packages.trim()).join("nvidia");
    let layouts = ["cu13/bin/ptxas", "cuda_nvcc/bin/ptxas", "cu12/bin/ptxas"];
    layouts.iter().map(|layout| nvidia.join(layout)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n    0 bytes stack frame, \
        0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 25 registers, used 1 barriers, 64 bytes smem\n";

    #[test]
    fn facts_are_read_from_the_messages() {
        let facts = judge(CLEAN, 7, 0).unwrap();
        assert_eq!(facts, Facts { registers: 25, shared: 64, stack: 0, spills: 0, code: 7 });
    }

    #[test]
    fn spills_and_warnings_are_refused() {
        let spilling = CLEAN.replace("0 bytes spill loads", "8 bytes spill loads");
        assert!(matches!(judge(&spilling, 0, 7), Err(PtxasError::Spills(f)) if f.spills == 8));
        assert!(judge(&spilling, 0, 8).is_ok());
        let slow = format!("{CLEAN}(C7510) Potential Performance Loss: wgmma");
        assert!(matches!(judge(&slow, 0, 8), Err(PtxasError::Slow(_))));
    }
}
