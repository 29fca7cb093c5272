//! Plans as pictures: the tiles of every launch, which block has them, and what goes from tile to tile.

mod canvas;

use canvas::{Canvas, Drawn, Place};
use oplus_codegen::explain::{Carry, Cut, Explained, SHOWN, Section, Tile};
use oplus_codegen::words::{Bytes, counted, width};
use std::error::Error;

const WIDTH: i32 = 960;
const LEFT: i32 = 110;
/// A tile in the picture, and the room between tiles.
const CELL: Place = (112, 34);
const GAP: Place = (24, 14);
/// A line of the words above the tiles of a launch, and how many letters it takes.
const LINE: i32 = 19;
const LETTERS: usize = 104;
/// The beginning of lines that go on: spaces that SVG keeps.
const INDENT: &str = "\u{a0}\u{a0}\u{a0}\u{a0}";
/// The room of the aggregates below the tiles, and of a tile's parts.
const AGGREGATES: i32 = 44;
const PARTS: i32 = 110;

/// The picture, as SVG.
pub(crate) fn draw(sections: &[Section]) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    let total = sections.iter().map(height_of_section).sum::<i32>() + LINE;
    let canvas = Canvas::new(&mut svg, (WIDTH, total))?;
    let mut top = LINE / 2;
    for section in sections {
        canvas.title((12, top), &section.title)?;
        let mut launch_top = top + 2 * LINE;
        for (number, launch) in section.launches.iter().enumerate() {
            draw_launch(&canvas, launch_top, number + 1, launch)?;
            launch_top += height(launch);
        }
        top += height_of_section(section);
    }
    canvas.finish()?;
    Ok(svg)
}

fn height_of_section(section: &Section) -> i32 {
    2 * LINE + section.launches.iter().map(height).sum::<i32>()
}

fn height(launch: &Explained) -> i32 {
    let cut = &launch.cut;
    let rows = cut.across.shown(SHOWN.1).len() as i32;
    let below = if cut.carry == Carry::LookBack { AGGREGATES } else { 0 };
    height_of_words(launch) + LINE + rows * (CELL.1 + GAP.1 + below) + if cut.tile.is_some() { PARTS } else { LINE }
}

fn height_of_words(launch: &Explained) -> i32 {
    LINE * (1 + words(launch, 1).len() as i32)
}

/// The words about a launch, in lines that the picture has room for.
fn words(launch: &Explained, number: usize) -> Vec<String> {
    let (schedule, micros) =
        launch.candidates.first().map_or(("", 0.0), |taken| (taken.schedule.as_str(), taken.micros));
    let all = [
        format!("{number}  {}: {}", launch.name, launch.task),
        format!("→ {}", launch.reads.join(", ")),
        format!("← {}", launch.writes.join(", ")),
        launch.division.clone(),
        format!("{}; {}, about {micros:.1} µs", launch.grid, Bytes(launch.bytes)),
        schedule.to_owned(),
    ];
    all.iter().flat_map(|text| lines(text)).collect()
}

/// A text in lines, broken between words.
fn lines(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().filter(|line| line.is_empty() || width(line) + 1 + width(word) <= LETTERS);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => line.extend([" ", word]),
            None => lines.push(format!("{INDENT}{word}")),
        }
    }
    lines
}

fn draw_launch(canvas: &Canvas<'_>, top: i32, number: usize, launch: &Explained) -> Drawn {
    let cut = &launch.cut;
    for (line, words) in (0..).zip(words(launch, number)) {
        canvas.words((24, top + LINE * line), &words)?;
    }
    draw_tiles(canvas, top + height_of_words(launch), cut)?;
    let parts = top + height(launch) - PARTS;
    cut.tile.map_or(Ok(()), |tile| draw_parts(canvas, parts, tile))
}

/// Rows of tiles, with what is handed from one to the next.
fn draw_tiles(canvas: &Canvas<'_>, top: i32, cut: &Cut) -> Drawn {
    let along = cut.along.shown(SHOWN.0);
    for (place, tile) in (0..).zip(&along) {
        let start = tile.map_or("…".to_owned(), |tile| format!("{} {}", cut.along.name, tile * cut.along.tile));
        canvas.label((x_of(place), top), &start)?;
    }
    let below = if cut.carry == Carry::LookBack { AGGREGATES } else { 0 };
    for (line, row) in (0..).zip(cut.across.shown(SHOWN.1)) {
        let y = top + LINE + line * (CELL.1 + GAP.1 + below);
        let Some(row) = row else {
            canvas.words((LEFT, y + 8), "⋮")?;
            continue;
        };
        canvas.label((12, y + 10), &format!("{} {}", cut.across.name, row * cut.across.tile))?;
        draw_row(canvas, y, cut, row, &along)?;
    }
    Ok(())
}

fn x_of(place: i32) -> i32 {
    LEFT + place * (CELL.0 + GAP.0)
}

fn draw_row(canvas: &Canvas<'_>, y: i32, cut: &Cut, row: u64, along: &[Option<u64>]) -> Drawn {
    for (place, tile) in (0..).zip(along) {
        let x = x_of(place);
        let Some(tile) = tile else {
            canvas.words((x + CELL.0 / 2, y + 8), "…")?;
            continue;
        };
        let (number, block) = cut.tile_and_block(row, *tile);
        canvas.cell((x, y), CELL, block.unwrap_or(row))?;
        canvas.words((x + 8, y + 2), &format!("tile {number}"))?;
        if let Some(block) = block {
            canvas.label((x + 8, y + 19), &format!("block {block}"))?;
        }
    }
    match cut.carry {
        Carry::None => Ok(()),
        Carry::Kept => draw_carries(canvas, y + CELL.1 / 2, cut, along.len() as i32),
        Carry::LookBack => draw_look_back(canvas, y + CELL.1, cut, along),
    }
}

/// An arrow from every tile to the next one.
fn draw_carries(canvas: &Canvas<'_>, y: i32, cut: &Cut, places: i32) -> Drawn {
    for place in 1..places {
        let (left, right) = ((x_of(place) - GAP.0 + 2, y), (x_of(place) - 2, y));
        canvas.arrow(&if cut.reverse { [right, left] } else { [left, right] })?;
    }
    Ok(())
}

/// The aggregates that tiles publish, folded by the last of them.
fn draw_look_back(canvas: &Canvas<'_>, y: i32, cut: &Cut, along: &[Option<u64>]) -> Drawn {
    let places = along.len() as i32;
    let last = if cut.reverse { 0 } else { places - 1 };
    let (published, bus) = (y + 22, y + 34);
    for (place, tile) in (0..places).zip(along).filter(|(place, _)| *place != last) {
        let x = x_of(place) + CELL.0 / 2;
        if tile.is_some() {
            canvas.arrow(&[(x, y), (x, published - 6)])?;
            canvas.cell((x - 6, published - 6), (12, 8), 0)?;
            canvas.line(&[(x, published + 2), (x, bus)])?;
        }
    }
    let (first, end) = if cut.reverse { (places - 1, 0) } else { (0, places - 1) };
    let middle = |place| x_of(place) + CELL.0 / 2;
    canvas.label((LEFT, bus + 5), "aggregates, folded in their order onto what the block has kept")?;
    if places < 2 {
        return Ok(());
    }
    canvas.arrow(&[(middle(first), bus), (middle(end), bus), (middle(end), y)])
}

/// A tile's warps, the stretches of the first warp, and the lanes of its first stretch.
fn draw_parts(canvas: &Canvas<'_>, top: i32, tile: Tile) -> Drawn {
    let Tile { warps, stretches, lanes, elements } = tile;
    let levels = [
        (warps, format!("{} of a tile", counted(warps, "warp"))),
        (stretches, format!("{} of a warp, one access each", counted(stretches, "stretch"))),
        (lanes, format!("{} of a stretch, {} each", counted(lanes, "lane"), counted(elements, "neighbour"))),
    ];
    for (level, (parts, words)) in (0..).zip(levels) {
        let (y, width) = (top + 28 * level, 576 / parts.max(1) as i32);
        for part in 0..parts as i32 {
            canvas.cell((LEFT + part * width, y), (width, 16), if part == 0 { 1 } else { 0 })?;
        }
        if level < 2 {
            canvas.line(&[(LEFT, y + 16), (LEFT, y + 28)])?;
            canvas.line(&[(LEFT + width, y + 16), (LEFT + 576, y + 28)])?;
        }
        canvas.label((LEFT + 590, y + 2), &words)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use oplus_codegen::explain::testing;

    /// Two rows of two tiles.
    fn launch(carry: Carry, reverse: bool) -> Explained {
        let launch = testing::launch();
        Explained { cut: Cut { carry, reverse, ..launch.cut.clone() }, ..launch }
    }

    fn svg(carry: Carry, reverse: bool) -> String {
        let launches = vec![launch(carry, reverse)];
        draw(&[Section { title: "forward".into(), equations: String::new(), launches, ptx: vec![], cpu: None }])
            .unwrap()
    }

    #[test]
    fn two_rows_of_two_tiles() {
        insta::assert_snapshot!(svg(Carry::Kept, false));
    }

    #[test]
    fn arrows_follow_the_scan() {
        let [kept, back] = [Carry::Kept, Carry::LookBack].map(|carry| [false, true].map(|reverse| svg(carry, reverse)));
        assert!(kept[0] != kept[1] && back[0] != back[1] && kept[0] != back[0]);
        assert!(back.iter().all(|svg| svg.contains("aggregates") && svg.contains("tile 3")));
    }

    #[test]
    fn long_lines_are_broken_and_nothing_is_cut() {
        let mut long = launch(Carry::Kept, false);
        long.reads = (0..40).map(|k| format!("tensor{k}: f32[B, L]")).collect();
        let lines = words(&long, 1);
        assert!(lines.len() > 10 && lines.iter().all(|line| width(line) <= LETTERS + 4), "{lines:?}");
        assert!((0..40).all(|k| lines.iter().any(|line| line.contains(&format!("tensor{k}:")))));
        assert_eq!(height_of_words(&long), LINE * (lines.len() as i32 + 1));
    }
}
