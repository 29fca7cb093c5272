//! Machines whose driver is missing, is no driver, or fails for a while.

use oplus::Device;

use crate::harness::{folder_of_driver, process, said};
use crate::scenario::Done;

pub(crate) fn of_a_driver() -> Done {
    assert_eq!(Device::cuda_count(), 0);
    assert_eq!(Device::default(), Device::Cpu);
    let error = Device::cuda(0).unwrap_err();
    assert!(matches!(&error, oplus::Error::NoCuda { .. }), "{error}");
    println!("{error}");
    Ok(())
}

/// The first call of the driver fails; the second attempt succeeds.
pub(crate) fn for_a_while() -> Done {
    let first = Device::cuda(0);
    assert!(matches!(&first, Err(oplus::Error::NoCuda { .. })), "{first:?}");
    assert_eq!(Device::cuda_count(), 1);
    Device::cuda(0)?;
    Ok(())
}

#[test]
fn a_machine_without_a_driver_has_no_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let output = process("absence::of_a_driver", folder.path(), &[]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_library_that_is_no_driver_is_no_gpu() {
    for contents in [&b""[..], b"no library"] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libcuda.so"), contents).unwrap();
        let output = process("absence::of_a_driver", folder.path(), &[]);
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn a_library_without_the_functions_of_a_driver_is_no_gpu() {
    // Any library will do that is on every machine.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.split_whitespace().find(|word| word.contains("/libc.so")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(library, folder.path().join("libcuda.so")).unwrap();
    let output = process("absence::of_a_driver", folder.path(), &[]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("cuInit"), "{}", said(&output));
}

#[test]
fn an_initialisation_that_has_failed_is_tried_again() {
    let output = process("absence::for_a_while", folder_of_driver(), &[("OPLUS_TEST_DRIVER_FAIL", "1".into())]);
    assert!(output.status.success(), "{}", said(&output));
}
