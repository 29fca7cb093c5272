//! `oplus tile --simulate`: the same launch in several orders.

use super::Place;
use super::arguments::{Arguments, Given};
use oplus_codegen::simulate::{self, Buffer, Fault, Hazard, Launch, Options, Order, Party, SimError, Stats};
use oplus_dsl::Elem;
use oplus_dsl::ir::Literal;
use std::fmt::Write;

/// Warp statements after which a launch is given up.
const LIMIT: u64 = 1 << 30;

/// How a kernel is launched, and how much of its results is printed.
pub(super) struct How {
    pub(super) grid: [u32; 2],
    pub(super) orders: u64,
    pub(super) resident: usize,
    pub(super) show: usize,
}

/// Reads `4` or `4,2`.
pub(super) fn parse_grid(text: &str) -> Result<[u32; 2], String> {
    let wrong = || format!("`{text}` is not a number of blocks, such as 4 or 4,2");
    let sizes: Vec<u32> = text.split(',').map(|n| n.trim().parse()).collect::<Result<_, _>>().map_err(|_| wrong())?;
    match sizes[..] {
        [x] if x > 0 => Ok([x, 1]),
        [x, y] if x > 0 && y > 0 && x.checked_mul(y).is_some() => Ok([x, y]),
        _ => Err(wrong()),
    }
}

/// Runs the kernel and says what it wrote.
pub(super) fn run(place: &Place<'_>, given: &[(String, Given)], how: &How) -> Result<String, String> {
    let orders = [Order::Ascending, Order::Descending].into_iter().chain((0..how.orders).map(Order::Random));
    let mut first: Option<(Arguments, Stats)> = None;
    let mut count = 0;
    for order in orders {
        let found = launch(place, given, how, order).map_err(|error| format!("{}{}", said(order), error))?;
        match &first {
            None => first = Some(found),
            Some((expected, _)) => compare(expected, &found.0, order)?,
        }
        count += 1;
    }
    let Some((results, stats)) = first else { return Ok(String::new()) };
    Ok(report(&results, stats, count, how.show))
}

fn launch(place: &Place<'_>, given: &[(String, Given)], how: &How, order: Order) -> Result<(Arguments, Stats), String> {
    let kernel = &place.source.kernel;
    let mut arguments = Arguments::new(kernel, given)?;
    let launch = Launch { grid: how.grid, args: arguments.args.clone() };
    let options = Options { order, resident: how.resident.max(1), limit: LIMIT };
    let stats = simulate::simulate(kernel, &launch, &mut arguments.memory, &options);
    stats.map(|stats| (arguments, stats)).map_err(|error| worded(place, &error))
}

/// In which order something was found, unless that is the usual one.
fn said(order: Order) -> String {
    match order {
        Order::Ascending => String::new(),
        Order::Descending => "with the last blocks and warps first: ".to_owned(),
        Order::Random(seed) => format!("in random order {seed}: "),
    }
}

/// An error with lines in the place of paths.
fn worded(place: &Place<'_>, error: &SimError) -> String {
    match error {
        SimError::Fault(fault) => {
            let Fault { path, line, block: [x, y], warp, lane, hazard } = &**fault;
            let hazard = hazard_in(place, hazard);
            format!("{}: `{line}`: block ({x}, {y}), warp {warp}, lane {lane}: {hazard}", place.of(path))
        }
        SimError::Deadlock(waiting) => {
            let of = |w: &simulate::Waiting| {
                let [x, y] = w.block;
                format!("\n{}: `{}`: block ({x}, {y}), warp {}: {}", place.of(&w.path), w.line, w.warp, w.missing)
            };
            format!("no warp can go on:{}", waiting.iter().map(of).collect::<String>())
        }
        other => other.to_string(),
    }
}

/// A hazard, the other side of a race with its line.
fn hazard_in(place: &Place<'_>, hazard: &Hazard) -> String {
    let text = hazard.to_string();
    match hazard {
        Hazard::Race { with, .. } | Hazard::InFlight { with, .. } | Hazard::Unfenced { with, .. } => {
            let Party { path, line, .. } = &**with;
            text.replacen(&format!("{path} `{line}`"), &format!("line {} `{line}`", place.source.line(path)), 1)
        }
        _ => text,
    }
}

/// Every order must give the same bits.
fn compare(expected: &Arguments, found: &Arguments, order: Order) -> Result<(), String> {
    for ((name, a), (_, b)) in expected.written.iter().zip(&found.written) {
        let (a, b) = (expected.memory.buffer(*a), found.memory.buffer(*b));
        if let Some(i) = (0..a.len()).find(|i| a.value(*i) != b.value(*i)) {
            let [a, b] = [a, b].map(|buffer| value(buffer, i));
            return Err(format!(
                "{name}[{i}] is {a} with the first blocks first, but {b} {}",
                said(order).trim_end_matches(": ")
            ));
        }
    }
    Ok(())
}

fn report(results: &Arguments, stats: Stats, orders: usize, show: usize) -> String {
    let mut text = String::new();
    for (name, id) in &results.written {
        let buffer = results.memory.buffer(*id);
        let shown: Vec<String> = (0..buffer.len().min(show)).map(|i| value(buffer, i)).collect();
        let more = if buffer.len() > show { ", …" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}: {}[{}] = {}{more}", buffer.elem(), buffer.len(), shown.join(", "));
    }
    let Stats { blocks, statements } = stats;
    let _ = writeln!(
        text,
        "{blocks} blocks, {statements} statements of warps; no fault, and the same bits in {orders} orders"
    );
    text
}

fn value(buffer: &Buffer, index: usize) -> String {
    match buffer.value(index) {
        None => "unwritten".to_owned(),
        Some(Literal::Float(x)) if buffer.elem() == Elem::F64 => x.to_string(),
        Some(Literal::Float(x)) => (x as f32).to_string(),
        Some(Literal::Int(i)) => i.to_string(),
        Some(Literal::Bool(b)) => b.to_string(),
    }
}
