//! Memory that is refused while a call runs on the CPU, at every request: an error, never the end of the process.
//!
//! The allocator of this program refuses one request above a size, the n-th from a given moment on; the test tries every n
//! until a call needs no more.

#![allow(unsafe_code, reason = "an allocator is unsafe by its interface")]

mod allocator;

use oplus::{Device, Elem, Error, Tensor, scan};

use allocator::refusing;

scan! {
    op Decay(a, b) {
        identity (1, 0);
        combine(l, r) (l.a * r.a, r.a * l.b + r.b);
    }
    op Pairs(n, v, p) {
        identity (0, 0, 0);
        combine(l, r) (l.n + r.n, l.v + r.v, l.p + r.p + l.v * r.n);
    }
    fn decayed(a: f32[B, T], x: f32[B, T]) -> (h: f32[B, T], end: f32[B]) {
        h = scan(T, Decay(a, x)).b;
        end = last(T, h);
    }
    fn backwards(a: f64[B, T], x: bf16[B, T]) -> (h: f64[B, T]) {
        h = scan(T, Decay(a, x), reverse).b;
    }
    fn coupled(n: f64[B, T, D], v: f64[B, T, D]) -> (p: f64[B, T, D]) {
        p = scan(T, Pairs(n, v, 0.0)).p;
    }
    fn weighed(x: f32[B, T], w: f32[T, D]) -> (y: f32[B, D]) {
        y = sum(T, exp(x) * tanh(w));
    }
    fn moved(x: f32[B, T]) -> (y: f32[B, T]) {
        y = if shift(T, x, 3) > 0 { x } else { shift(T, x, 1) };
    }
}

/// A call, after which nothing is held.
type Call = fn() -> Result<(), Error>;

/// Numbers in (-1, 1), always the same.
fn numbers(shape: &[usize]) -> Result<Tensor, Error> {
    let n = shape.iter().product::<usize>();
    let mut all = vec![];
    let refused = |_| Error::OutOfMemory { bytes: 4 * n, device: "cpu".into() };
    all.try_reserve_exact(n).map_err(refused)?;
    all.extend((0..n).map(|k| ((k * 37 % 101) as f32 - 50.0) / 51.0));
    Tensor::from_vec(all, shape)
}

/// Tries the call with every request refused in turn: each gives an error of memory or, where nobody needed that memory, a
/// result. Returns how many were refused.
fn refused(name: &str, call: Call) -> usize {
    call().unwrap_or_else(|error| panic!("{name}: {error}"));
    for n in 0.. {
        let (found, is_refused) = refusing(n, call);
        match found {
            Err(Error::OutOfMemory { device, .. }) if is_refused => assert_eq!(device, "cpu"),
            Ok(()) if is_refused => {}
            Ok(()) => return n,
            Err(error) => panic!("{name}, request {n}: {error}"),
        }
    }
    unreachable!("a call has a last request")
}

fn calls() -> Vec<(&'static str, Call)> {
    vec![
        ("rows", || {
            let (a, x) = (numbers(&[3, 5000])?, numbers(&[3, 5000])?);
            decayed(Decayed { a, x }).map(|_| ())
        }),
        ("a long row by several threads", || {
            let (a, x) = (numbers(&[1, 100_000])?, numbers(&[1, 100_000])?);
            decayed(Decayed { a, x }).map(|_| ())
        }),
        ("lost states", || {
            let (a, x) =
                (Tensor::full(1.5_f32, &[2, 40_000], &Device::Cpu)?, Tensor::full(0_f32, &[2, 40_000], &Device::Cpu)?);
            decayed(Decayed { a, x }).map(|_| ())
        }),
        ("a gradient", || {
            let (a, x) = (numbers(&[2, 20_000])?, numbers(&[2, 20_000])?);
            let out = decayed(Decayed { a, x })?;
            out.backward(DecayedCotangents { h: Some(numbers(&[2, 20_000])?), end: None }).map(|_| ())
        }),
        ("from the end, turned", || {
            let (a, x) = (
                Tensor::full(0.5, &[9, 20_000], &Device::Cpu)?,
                Tensor::zeros(Elem::Bf16, &[9, 20_000], &Device::Cpu)?,
            );
            backwards(Backwards { a, x }).map(|_| ())
        }),
        ("step by step over lanes", || {
            let (n, v) =
                (Tensor::full(0.5, &[2, 300, 70], &Device::Cpu)?, Tensor::full(0.25, &[2, 300, 70], &Device::Cpu)?);
            let out = coupled(Coupled { n, v })?;
            out.backward(CoupledCotangents { p: Some(Tensor::full(1.0, &[2, 300, 70], &Device::Cpu)?) }).map(|_| ())
        }),
        ("step by step, turned", || {
            let (n, v) =
                (Tensor::full(0.5, &[2, 9000, 1], &Device::Cpu)?, Tensor::full(0.25, &[2, 9000, 1], &Device::Cpu)?);
            coupled(Coupled { n, v }).map(|_| ())
        }),
        ("a product of matrices", || weighed(Weighed { x: numbers(&[70, 300])?, w: numbers(&[300, 90])? }).map(|_| ())),
        ("shifts", || moved(Moved { x: numbers(&[20, 6000])? }).map(|_| ())),
        ("copies", || {
            let x = numbers(&[100, 60])?;
            x.to_vec::<f32>()?;
            let turned = x.permute(&[1, 0])?;
            turned.to_vec::<f32>()?;
            turned.contiguous()?;
            let flags = Tensor::zeros(Elem::Bool, &[9000], &Device::Cpu)?;
            flags.to_vec::<bool>()?;
            Tensor::from_slice(&[0_i64; 3000], &[3000]).map(|_| ())
        }),
    ]
}

#[test]
fn every_refused_request_is_an_error_or_not_needed() {
    for (name, call) in calls() {
        let n = refused(name, call);
        assert!(n > 2, "{name} asks for little memory: {n} requests");
        println!("{name}: {n} requests");
    }
}
