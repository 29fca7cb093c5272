//! Memory that cannot be had while a call runs on the CPU is an error, never the end of the process.

use std::process::Command;

use oplus::{Error, Kernel, Tensor};

/// The sum of a running sum from the end over a running sum: between its two stages it keeps T numbers.
static TWO_STAGES: Kernel = Kernel::new(
    "two_stages",
    "program two_stages {
        axes B, T;
        param x: f32[B, T];
        operator Sum(s: f32) {
            identity (0.0);
            %0: f32 = input l.s;
            %1: f32 = input r.s;
            %2: f32 = %0 + %1;
            combine (%2);
        }
        %0: f32[B, T] = param x;
        %1: tuple[B, T] = scan(T, Sum, (%0));
        %2: f32[B, T] = %1.s;
        %3: tuple[B, T] = scan(T, Sum, (%2), reverse);
        %4: f32[B, T] = %3.s;
        %5: tuple[B] = reduce(T, Sum, (%4));
        %6: f32[B] = %5.s;
        output y: f32[B] = %6;
    }",
);

/// The result of the call for so many times, all of which are one number in memory.
fn call(times: usize) -> Result<f32, Error> {
    let one = Tensor::from_slice(&[1.0_f32], &[1])?.as_strided(&[1, times], &[0, 0], 0)?;
    Ok(TWO_STAGES.call(&[Some(&one)])?.0[0].to_vec::<f32>()?[0])
}

fn assert_out_of_memory(found: Result<f32, Error>, times: usize) {
    let bytes = 4 * times;
    assert_eq!(found, Err(Error::OutOfMemory { bytes, device: "cpu".into() }));
}

#[test]
fn more_than_any_memory_between_stages_is_an_error() {
    assert_eq!(call(3), Ok(14.0));
    for times in [1 << 46, 1 << 47] {
        assert_out_of_memory(call(times), times);
    }
}

/// The variable by which the test below knows that it is the process with little memory.
const LIMITED: &str = "OPLUS_TEST_OF_LITTLE_MEMORY";
/// 4 GB between stages; the process may have 3 GB of addresses.
const TIMES: usize = 1 << 30;

#[test]
#[cfg(target_os = "linux")]
fn memory_that_a_limit_refuses_between_stages_is_an_error() {
    if std::env::var_os(LIMITED).is_some() {
        assert_eq!(call(3), Ok(14.0));
        assert_out_of_memory(call(TIMES), TIMES);
        assert_eq!(call(3), Ok(14.0));
        return;
    }
    let name = "memory::memory_that_a_limit_refuses_between_stages_is_an_error";
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -v 3145728 && exec \"$0\" --exact \"$1\""]);
    let output = limited.arg(std::env::current_exe().unwrap()).arg(name).env(LIMITED, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
