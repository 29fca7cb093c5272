//! Plans as HTML that needs nothing else: no network, no script, light and dark.

use std::fmt::Write;

use super::cut::{Carry, Cut, SHOWN, Side};
use super::{Candidate, Explained, Explanation};
use crate::words::Bytes;

const STYLE: &str = include_str!("page.css");
/// A tile in the picture, and the room from one tile to the next.
const CELL: (usize, usize) = (112, 40);
const STEP: (usize, usize) = (140, 56);
/// The room for the names of rows and of columns.
const MARGIN: (usize, usize) = (150, 24);
/// The colours that tell blocks apart.
const COLOURS: u64 = 6;

/// A plan to show: what it is for, in words, and its launches.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The program's name and sizes.
    pub title: String,
    /// The program as equations.
    pub equations: String,
    /// The launches, in order.
    pub launches: Vec<Explained>,
    /// The text of each launch's kernel, as far as it is known.
    pub ptx: Vec<String>,
    /// The threads' shares of the work on a CPU, in words, if they are known.
    pub cpu: Option<String>,
}

impl Section {
    /// A plan under a title, with the texts of its kernels.
    pub fn new(title: String, explanation: Explanation, ptx: Vec<String>) -> Section {
        Section { title, equations: explanation.equations, launches: explanation.launches, ptx, cpu: None }
    }
}

/// A part of a page, for notebooks: plans with their pictures, and the style that they need.
pub fn fragment(sections: &[Section]) -> String {
    let body: String = sections.iter().map(section).collect();
    format!("<div class=\"oplus\">\n<style>\n{}</style>\n{body}</div>\n", style())
}

/// A page of plans.
pub fn page(heading: &str, sections: &[Section]) -> String {
    let body: String = sections.iter().map(section).collect();
    let heading = escaped(heading);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{heading}</title>\n\
         <style>\n{}</style>\n</head>\n<body class=\"oplus\">\n<h1>{heading}</h1>\n{body}</body>\n</html>\n",
        style()
    )
}

/// The style, in which the words about each tile of a picture take the caption's place while somebody points at the tile.
fn style() -> String {
    let pointed = |place: u64| {
        format!(
            ".oplus figure:has(.at{place}:hover) .of{place}, \
             .oplus figure:not(:has(.tile:hover)):has(.at{place}:focus) .of{place} {{ visibility: visible; }}\n"
        )
    };
    STYLE.to_owned() + &(0..SHOWN.0 * SHOWN.1).map(pointed).collect::<String>()
}

/// A text in which nothing is markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn section(section: &Section) -> String {
    let mut html = format!("<section>\n<h2>{}</h2>\n{}", escaped(&title(&section.title)), typeset(&section.equations));
    for (number, launch) in (1..).zip(&section.launches) {
        let ptx = section.ptx.get(number - 1).map_or("", String::as_str);
        html += &self::launch(number, launch, ptx);
    }
    if let Some(cpu) = &section.cpu {
        let _ =
            writeln!(html, "<details><summary>On the CPU</summary><pre>{}</pre></details>", escaped(cpu.trim_end()));
    }
    html + "</section>\n"
}

/// The heading of a section: the program of a gradient is called `name.bar`.
fn title(title: &str) -> String {
    match title.split_once(".bar") {
        Some((name, sizes)) => format!("Gradient of {name}{sizes}"),
        None => title.to_owned(),
    }
}

/// Equations, one on a line.
fn typeset(equations: &str) -> String {
    let lines = equations.lines().filter(|line| !line.trim().is_empty());
    let lines: String = lines.map(|line| format!("<div>{}</div>\n", equation(line))).collect();
    format!("<div class=\"equations\">\n{lines}</div>\n")
}

/// An equation and, behind three spaces, what holds at its borders.
fn equation(line: &str) -> String {
    match line.trim_end().split_once("    (") {
        Some((equation, remark)) => format!("{} <small>({}</small>", formula(equation), formula(remark)),
        None => formula(line.trim_end()),
    }
}

/// A formula: names in italics, what stands in brackets behind a name as its index.
fn formula(text: &str) -> String {
    let (mut html, mut word, mut open) = (String::new(), String::new(), vec![]);
    for letter in text.chars() {
        if letter.is_alphanumeric() || letter == '_' || ('\u{300}'..'\u{370}').contains(&letter) {
            word.push(letter);
            continue;
        }
        let is_index = letter == '[' && !word.is_empty();
        html += &name(&std::mem::take(&mut word), letter == '(');
        match letter {
            '[' => {
                open.push(is_index);
                html += if is_index { "<sub>" } else { "[" };
            }
            ']' => html += if open.pop() == Some(true) { "</sub>" } else { "]" },
            _ => html += &escaped(&letter.to_string()),
        }
    }
    html += &name(&word, false);
    while let Some(is_index) = open.pop() {
        html += if is_index { "</sub>" } else { "" };
    }
    html
}

/// A name in a formula: functions, numbers and words are upright, what stands behind `_` is an index.
fn name(word: &str, is_function: bool) -> String {
    let is_upright =
        is_function || matches!(word, "if" | "else") || word.starts_with('Σ') || word.starts_with(char::is_numeric);
    let set = |base: &str| match base.chars().nth(1) {
        _ if base.is_empty() => String::new(),
        _ if is_upright => base.to_owned(),
        // A bar over the first letter is meant for the whole name.
        Some('\u{304}') if base.chars().count() > 2 => {
            format!("<i class=\"bar\">{}</i>", base.replace('\u{304}', ""))
        }
        _ => format!("<i>{base}</i>"),
    };
    match word.split_once('_') {
        Some((base, index)) if !base.is_empty() && !index.is_empty() => format!("{}<sub>{index}</sub>", set(base)),
        _ => set(word),
    }
}

fn launch(number: usize, launch: &Explained, ptx: &str) -> String {
    let Explained { name, task, reads, writes, division, grid, symbol, bytes, .. } = launch;
    let mut html = format!("<article>\n<h3>{number}. {}: {}</h3>\n<dl>\n", escaped(name), escaped(task));
    let (reads, writes, traffic) = (reads.join(", "), writes.join(", "), Bytes(*bytes).to_string());
    let facts = launch.facts.iter().map(|(name, fact)| (name.as_str(), fact));
    let rows = [("reads", &reads), ("writes", &writes), ("work", division), ("launch", grid), ("traffic", &traffic)];
    // Of several kernels of one stage, one is told with the traffic of all.
    let is_told = |(term, _): &(&str, &String)| *term != "traffic" || *bytes > 0;
    for (term, words) in rows.into_iter().filter(is_told).chain([("kernel", symbol)]).chain(facts) {
        let _ = writeln!(html, "<dt>{}</dt><dd>{}</dd>", escaped(term), escaped(words));
    }
    html += "</dl>\n";
    html += &figure(&launch.cut);
    html += &candidates(launch);
    if !ptx.is_empty() {
        let _ = writeln!(html, "<details><summary>PTX</summary><pre>{}</pre></details>", escaped(ptx));
    }
    html + "</article>\n"
}

/// The schedules that fit, with their estimates, and, folded, those that do not, with the reasons.
fn candidates(launch: &Explained) -> String {
    let mut html = String::new();
    if !launch.candidates.is_empty() {
        html += "<div class=\"scroll\"><table>\n<tr><th></th><th>estimate</th><th>schedule</th><th>reason</th></tr>\n";
        for (place, Candidate { schedule, micros, why }) in launch.candidates.iter().enumerate() {
            let (class, mark) = if place == 0 { ("taken", "✓ taken") } else { ("fits", "fits") };
            let (schedule, why) = (escaped(schedule), escaped(why));
            let cells = format!("<td>{mark}</td><td>{micros:.1} µs</td><td><code>{schedule}</code></td><td>{why}</td>");
            let _ = writeln!(html, "<tr class=\"{class}\">{cells}</tr>");
        }
        html += "</table></div>\n";
    }
    html + &refused(launch)
}

fn refused(launch: &Explained) -> String {
    let rows = launch.refused.iter().map(|(schedule, why)| {
        let (schedule, why) = (escaped(schedule), escaped(why));
        format!(
            "<tr class=\"refused\"><td>✗ refused</td><td></td><td><code>{schedule}</code></td><td>{why}</td></tr>\n"
        )
    });
    let rows: String = rows.collect();
    match launch.refused.len() {
        0 => String::new(),
        1 => folded("1 schedule does not fit", &rows),
        n => folded(&format!("{n} schedules do not fit"), &rows),
    }
}

fn folded(summary: &str, rows: &str) -> String {
    format!(
        "<details><summary>{summary}</summary><div class=\"scroll\"><table>\n\
         <tr><th></th><th></th><th>schedule</th><th>reason</th></tr>\n{rows}</table></div></details>\n"
    )
}

/// The tiles. The caption says what a tile holds to whoever points at it.
fn figure(cut: &Cut) -> String {
    let (along, across) = (cut.along.shown(SHOWN.0), cut.across.shown(SHOWN.1));
    let (width, height) = (MARGIN.0 + (along.len() - 1) * STEP.0 + CELL.0 + 4, MARGIN.1 + across.len() * STEP.1);
    let mut svg = format!(
        "<figure><div class=\"scroll\"><svg viewBox=\"0 0 {width} {height}\" style=\"max-width:{width}px;min-width:{}px\">\n",
        width.min(576)
    );
    let mut words = vec![];
    for (place, tile) in along.iter().enumerate() {
        let start = tile.map_or("…".to_owned(), |tile| format!("{} {}", cut.along.name, tile * cut.along.tile));
        let _ = writeln!(svg, "<text x=\"{}\" y=\"16\">{}</text>", MARGIN.0 + place * STEP.0, escaped(&start));
    }
    for (line, row) in across.iter().enumerate() {
        let y = MARGIN.1 + line * STEP.1;
        let Some(row) = row else {
            let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">⋮</text>", MARGIN.0, y + 24);
            continue;
        };
        let start = format!("{} {}", cut.across.name, row * cut.across.tile);
        let _ = writeln!(svg, "<text x=\"4\" y=\"{}\">{}</text>", y + 24, escaped(&start));
        for (place, tile) in along.iter().enumerate() {
            svg += &cell(MARGIN.0 + place * STEP.0, y, cut, *row, *tile, &mut words);
            if place > 0 {
                svg += &hand_over(MARGIN.0 + place * STEP.0, y + CELL.1 / 2, cut);
            }
        }
    }
    let holds = |(place, words): (usize, &String)| format!("<span class=\"holds of{place}\">{words}</span>\n");
    let holds: String = words.iter().enumerate().map(holds).collect();
    let caption = caption(cut);
    format!("{svg}</svg></div>\n<figcaption><span>{caption}</span>\n{holds}</figcaption></figure>\n")
}

/// A tile; what it holds is added to the words.
fn cell(x: usize, y: usize, cut: &Cut, row: u64, tile: Option<u64>, words: &mut Vec<String>) -> String {
    let Some(tile) = tile else { return format!("<text x=\"{}\" y=\"{}\">…</text>\n", x + CELL.0 / 2, y + 24) };
    let (number, block) = cut.tile_and_block(row, tile);
    let what = format!("tile {number}: {}", escaped(&holds(cut, row, tile, block)));
    let block_words = block.map_or(String::new(), |block| format!("block {block}"));
    let html = format!(
        "<g class=\"tile b{} at{}\" tabindex=\"0\" role=\"img\" aria-label=\"{what}\">\
         <rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"4\"/><text x=\"{}\" y=\"{}\">tile {number}</text>\
         <text x=\"{}\" y=\"{}\">{block_words}</text></g>\n",
        block.unwrap_or(row) % COLOURS,
        words.len(),
        CELL.0,
        CELL.1,
        x + 8,
        y + 17,
        x + 8,
        y + 33,
    );
    words.push(what);
    html
}

/// The contents of a tile, and where its state comes from.
fn holds(cut: &Cut, row: u64, tile: u64, block: Option<u64>) -> String {
    let range = |side: &Side, part: u64| {
        let first = part * side.tile;
        let last = (first + side.tile).min(side.size).max(first + 1) - 1;
        let name = if side.name.is_empty() { "element" } else { &side.name };
        if first == last { format!("{name} {first}") } else { format!("{name} {first} to {last}") }
    };
    let first = if cut.reverse { cut.along.tiles() - 1 } else { 0 };
    let state = match cut.carry {
        Carry::Kept if tile == first => "the state of the row begins here",
        Carry::LookBack if tile == first => "the state of the row begins here, and it publishes what it combines to",
        Carry::None => "it needs nothing from other tiles",
        Carry::Kept => "its state comes from the tile before, in the registers or shared memory of the block",
        Carry::LookBack => "it publishes what it combines to, and folds what other blocks have published before it",
    };
    let block = match block {
        Some(block) => format!("block {block}"),
        None => format!("one of the blocks that share this row ({} blocks in all)", cut.blocks),
    };
    format!("{}; {}; computed by {block}; {state}", range(&cut.along, tile), range(&cut.across, row))
}

/// An arrow to the next tile, where a block keeps its state.
fn hand_over(x: usize, y: usize, cut: &Cut) -> String {
    let (left, right) = (x + CELL.0 - STEP.0 + 3, x - 3);
    let (from, to) = if cut.reverse { (right, left) } else { (left, right) };
    let back = if cut.reverse { to + 6 } else { to - 6 };
    match cut.carry {
        Carry::None => String::new(),
        Carry::Kept => {
            format!("<path class=\"arrow\" d=\"M{from} {y} H{to} M{back} {} L{to} {y} L{back} {}\"/>\n", y - 4, y + 4)
        }
        Carry::LookBack => format!("<path class=\"arrow dashed\" d=\"M{from} {y} H{to}\"/>\n"),
    }
}

fn caption(cut: &Cut) -> &'static str {
    match cut.carry {
        Carry::None => "Tiles have nothing to do with each other. Point at a tile to see what it holds.",
        Carry::Kept if cut.along.tiles() == 1 => "A tile holds a whole row. Point at a tile to see what it holds.",
        Carry::Kept if cut.shares_rows() => {
            "Arrows: the state goes from tile to tile. Several blocks share a row. Point at a tile to see what it holds."
        }
        Carry::Kept => "Arrows: a block keeps its state from tile to tile. Point at a tile to see what it holds.",
        Carry::LookBack => {
            "Dashed: tiles publish what they combine to, and later blocks fold it in a fixed order. Point at a tile to see \
             what it holds."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Explained {
        Explained { refused: vec![("look-back".into(), "too <short>".into())], ..crate::explain::testing::launch() }
    }

    fn empty(title: &str) -> Section {
        Section { title: title.into(), equations: String::new(), launches: vec![], ptx: vec![], cpu: None }
    }

    #[test]
    fn a_fragment_has_its_style_and_is_no_page() {
        let launches = vec![launch()];
        let html = fragment(&[Section { launches, ..empty("cumsum") }]);
        assert!(html.starts_with("<div class=\"oplus\">\n<style>") && html.contains("<svg viewBox"), "{html}");
        assert!(!html.contains("<html") && !html.contains("<body"), "{html}");
    }

    #[test]
    fn formulas_have_names_and_indices() {
        assert_eq!(formula("h[t−1] + exp(b)"), "<i>h</i><sub><i>t</i>−1</sub> + exp(<i>b</i>)");
        assert_eq!(formula("h_last < x"), "<i>h</i><sub>last</sub> &lt; <i>x</i>");
        assert_eq!(
            equation("a[t]    (a[n] = 1)"),
            "<i>a</i><sub><i>t</i></sub> <small>(<i>a</i><sub><i>n</i></sub> = 1)</small>"
        );
    }

    #[test]
    fn markup_in_words_is_shown_as_it_is() {
        let html = page("x & y", &[empty("a<b>")]);
        assert!(html.contains("<h2>a&lt;b&gt;</h2>") && html.contains("<h1>x &amp; y</h1>"), "{html}");
    }

    #[test]
    fn the_gradient_says_whose_it_is() {
        assert_eq!(title("cumsum.bar, B=1"), "Gradient of cumsum, B=1");
        assert_eq!(title("cumsum, B=1"), "cumsum, B=1");
    }

    #[test]
    fn a_page_has_tiles_reasons_and_ptx_and_needs_nothing_else() {
        let launch = launch();
        let ptx = vec![".visible .entry k()".to_owned()];
        let equations = "y[t] = y[t−1] + x[t]".to_owned();
        let cpu = Some("walk 1: x → y\n".to_owned());
        let html = page("cumsum", &[Section { equations, launches: vec![launch], ptx, cpu, ..empty("forward") }]);
        for part in [
            "✓ taken",
            "<details><summary>1 schedule does not fit</summary>",
            "✗ refused",
            "too &lt;short&gt;",
            "<pre>.visible .entry k()</pre>",
            "<summary>On the CPU</summary><pre>walk 1: x → y</pre>",
            "prefers-color-scheme: dark",
        ] {
            assert!(html.contains(part), "lacks {part}: {html}");
        }
        assert!(html.contains("<span class=\"holds of3\">tile 3: L 4096 to 8191; B 1; computed by block 1"), "{html}");
        // Only tiles before which there is one have a state from it.
        assert_eq!(
            html.matches("\">tile 2: L 0 to 4095; B 1; computed by block 1; the state of the row begins here<").count(),
            1
        );
        assert_eq!(html.matches("its state comes from the tile before").count(), 2 * 2);
        assert_eq!(html.matches("class=\"tile ").count(), 4);
        for place in 0..4 {
            let (tile, words, rule) =
                (format!(" at{place}\""), format!(" of{place}\""), format!(":has(.at{place}:hover)"));
            assert!([tile, words, rule].iter().all(|part| html.matches(part.as_str()).count() == 1), "{place}: {html}");
        }
        assert!(!html.contains("<script") && !html.contains("http") && !html.contains("url("), "{html}");
        let tags =
            |name: &str| (html.matches(&format!("<{name}")).count(), html.matches(&format!("</{name}>")).count());
        for name in ["section", "article", "figure", "svg", "table", "details", "dl"] {
            assert!(tags(name).0 == tags(name).1 && tags(name).0 > 0, "{name}: {:?}", tags(name));
        }
    }
}
