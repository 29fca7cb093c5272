//! A compiled kernel, and what is checked of it before a driver gets it.

use std::borrow::Cow;

#[cfg(feature = "kernels")]
use super::Isa;
use super::Launch;
use crate::Error;

/// A compiled kernel. Its entry is the launch's symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    ptx: Ptx,
    cubin: Option<Cow<'static, [u8]>>,
}

/// Where a PTX text is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ptx {
    Here(Cow<'static, str>),
    /// In a shard of committed kernels, which takes milliseconds to unpack, under that key.
    #[cfg(feature = "kernels")]
    Committed(String),
}

impl Ptx {
    /// The fault of a text. Committed ones have none: tests of their package read all of them.
    fn fault(&self) -> Option<&'static str> {
        match self {
            Ptx::Here(text) if text.trim().is_empty() => Some("its PTX is empty"),
            Ptx::Here(text) if text.contains('\0') => Some("its PTX has a zero byte"),
            _ => None,
        }
    }
}

impl From<String> for Code {
    fn from(ptx: String) -> Code {
        Code::new(ptx)
    }
}

impl Code {
    /// A kernel as PTX, which the driver compiles when it loads it.
    pub fn new(ptx: impl Into<Cow<'static, str>>) -> Code {
        Code { ptx: Ptx::Here(ptx.into()), cubin: None }
    }

    /// The kernel with its machine code for devices of compute capability 9.0 (a *cubin*), which the driver loads as it is.
    /// Where the driver does not take it, because it is older than the compiler of the machine code, it is given the PTX.
    pub fn with_machine_code(self, cubin: impl Into<Cow<'static, [u8]>>) -> Code {
        Code { cubin: Some(cubin.into()), ..self }
    }

    /// The committed kernel with that key, if there is one. Its PTX is unpacked when it is asked for: a driver that takes the
    /// machine code never needs it.
    #[cfg(feature = "kernels")]
    pub(super) fn committed(key: String) -> Option<Code> {
        if !oplus_kernels::contains(&key) {
            return None;
        }
        #[cfg(feature = "kernels-sm90")]
        let cubin = oplus_kernels_sm90::find(&key).map(Cow::Borrowed);
        #[cfg(not(feature = "kernels-sm90"))]
        let cubin = None;
        Some(Code { ptx: Ptx::Committed(key), cubin })
    }

    /// Makes committed kernels ready, all at the same time: their machine code for devices that take it, else their PTX.
    #[cfg(feature = "kernels")]
    pub(super) fn unpack_committed(keys: &[&str], isa: Isa) {
        #[cfg(feature = "kernels-sm90")]
        if isa == Isa::Sm90a {
            return oplus_kernels_sm90::unpack(keys);
        }
        let _ = isa;
        oplus_kernels::unpack(keys);
    }

    /// The PTX text.
    pub fn ptx(&self) -> &str {
        match &self.ptx {
            Ptx::Here(text) => text,
            #[cfg(feature = "kernels")]
            Ptx::Committed(key) => oplus_kernels::find(key).unwrap_or_default(),
        }
    }

    /// Whether the kernel waits for the launch ahead of it on its stream before it touches memory: it may then be launched before
    /// that one has ended. Committed kernels do not wait.
    pub(crate) fn waits(&self) -> bool {
        matches!(&self.ptx, Ptx::Here(text) if text.contains("griddepcontrol.wait;"))
    }

    /// The machine code for devices of compute capability 9.0, if the kernel has it.
    pub fn machine_code(&self) -> Option<&[u8]> {
        self.cubin.as_deref()
    }

    /// The kernel of a launch, if a driver can read it: drivers are told no lengths, and read to where text and headers end.
    pub(super) fn checked(self, launch: &Launch) -> Result<Code, Error> {
        match self.fault() {
            None => Ok(self),
            Some(reason) => Err(Error::Source { path: format!("for {}", launch.key), reason: reason.to_owned() }),
        }
    }

    fn fault(&self) -> Option<&'static str> {
        self.ptx.fault().or_else(|| self.machine_code().and_then(fault_of_machine_code))
    }
}

/// Where the header of an ELF file of 64 bits describes a table.
#[derive(Clone, Copy)]
struct TableFields {
    /// The place of the table's offset in the file.
    offset: usize,
    /// The place of the size of its entries.
    entry_size: usize,
    /// The place of their number.
    count: usize,
}

const PROGRAM_TABLE: TableFields = TableFields { offset: 32, entry_size: 54, count: 56 };
const SECTION_TABLE: TableFields = TableFields { offset: 40, entry_size: 58, count: 60 };
/// Bytes of that header.
const HEADER: usize = 64;
/// The kind of a section that takes no bytes of the file.
const NO_BITS: u64 = 8;

/// The fault of an ELF file; `None` when its tables, segments and sections lie in it.
fn fault_of_machine_code(code: &[u8]) -> Option<&'static str> {
    const CUT_OFF: &str = "its machine code is cut off";
    if code.is_empty() {
        return Some("its machine code is empty");
    }
    if !code.starts_with(b"\x7fELF\x02\x01") {
        return Some("its machine code is no ELF file of 64 bits");
    }
    if code.len() < HEADER {
        return Some(CUT_OFF);
    }
    let segments = entries(code, PROGRAM_TABLE, 56);
    let sections = entries(code, SECTION_TABLE, 64);
    let is_whole = segments.is_some_and(|all| all.into_iter().all(|at| lies_in(code, at + 8, at + 32)))
        && sections.is_some_and(|all| {
            all.into_iter().all(|at| number(code, at + 4, 4) == NO_BITS || lies_in(code, at + 24, at + 32))
        });
    if is_whole { None } else { Some(CUT_OFF) }
}

/// Where the entries of a table begin; `None` when they are not all in the file.
fn entries(code: &[u8], table: TableFields, least: u64) -> Option<Vec<usize>> {
    let [size, count] = [table.entry_size, table.count].map(|at| number(code, at, 2));
    let offset = number(code, table.offset, 8);
    if count == 0 {
        return Some(vec![]);
    }
    let end = offset.checked_add(size * count)?;
    let fits = size >= least && end <= code.len() as u64;
    fits.then(|| (0..count).map(|i| (offset + i * size) as usize).collect())
}

/// Whether the bytes whose offset and number are found at two places lie in the file.
fn lies_in(code: &[u8], offset: usize, bytes: usize) -> bool {
    let end = number(code, offset, 8).checked_add(number(code, bytes, 8));
    end.is_some_and(|end| end <= code.len() as u64)
}

/// A number of some bytes, the lowest first.
fn number(code: &[u8], at: usize, bytes: usize) -> u64 {
    code[at..at + bytes].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(cubin: &[u8]) -> Option<&'static str> {
        Code::new(".version 7.8").with_machine_code(cubin.to_vec()).fault()
    }

    #[test]
    fn code_that_a_driver_would_read_beyond_its_end_is_refused_in_words() {
        assert_eq!(fault(&[]), Some("its machine code is empty"));
        assert_eq!(fault(b"fatbin"), Some("its machine code is no ELF file of 64 bits"));
        assert_eq!(fault(b"\x7fELF\x02\x01"), Some("its machine code is cut off"));
        assert_eq!(Code::from(" \n".to_owned()).fault(), Some("its PTX is empty"));
        assert_eq!(Code::from(".version\0".to_owned()).fault(), Some("its PTX has a zero byte"));
    }

    #[cfg(feature = "kernels")]
    #[test]
    fn committed_code_has_the_text_of_its_key_and_no_other_key_has_code() {
        let key = oplus_kernels::keys().next().unwrap();
        let code = Code::committed(key.to_owned()).unwrap();
        assert!(code.ptx().contains(&key[..12]) && code.fault().is_none());
        #[cfg(feature = "kernels-sm90")]
        assert_eq!(code.machine_code(), oplus_kernels_sm90::find(key));
        assert_eq!(Code::committed("ff".to_owned()), None);
    }

    #[cfg(feature = "kernels-sm90")]
    #[test]
    fn machine_code_of_committed_kernels_is_whole_and_every_part_of_one_is_not() {
        let some: Vec<&[u8]> = oplus_kernels_sm90::keys().step_by(50).filter_map(oplus_kernels_sm90::find).collect();
        assert!(some.len() > 10 && some.iter().all(|code| fault(code).is_none()));
        let shortest = some.iter().min_by_key(|code| code.len()).unwrap();
        for len in 0..shortest.len() {
            assert!(fault(&shortest[..len]).is_some(), "{len} of {} bytes", shortest.len());
        }
        let mut wild = shortest.to_vec();
        wild[SECTION_TABLE.offset..SECTION_TABLE.offset + 8].copy_from_slice(&[0xff; 8]);
        assert!(fault(&wild).is_some());
    }
}
