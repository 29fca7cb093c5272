//! Boxes, arrows and words.

use plotters::coord::Shift;
use plotters::prelude::*;

pub(super) type Place = (i32, i32);
pub(super) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

const INK: RGBColor = RGBColor(40, 40, 40);
const PALE: RGBColor = RGBColor(140, 140, 140);
/// Blocks are told apart by their colours, in turn.
const BLOCKS: [RGBColor; 6] = [
    RGBColor(197, 222, 244),
    RGBColor(250, 219, 190),
    RGBColor(208, 236, 203),
    RGBColor(243, 205, 214),
    RGBColor(226, 214, 240),
    RGBColor(246, 238, 188),
];
/// Half the width of an arrow's head, and its length.
const HEAD: (i32, i32) = (3, 6);

/// An SVG that is being drawn.
pub(super) struct Canvas<'s>(DrawingArea<SVGBackend<'s>, Shift>);

impl<'s> Canvas<'s> {
    /// An empty canvas, whose text goes to `svg` when it is dropped.
    pub(super) fn new(
        svg: &'s mut String,
        (width, height): Place,
    ) -> Result<Canvas<'s>, DrawingAreaErrorKind<std::io::Error>> {
        let area = SVGBackend::with_string(svg, (width as u32, height as u32)).into_drawing_area();
        area.fill(&WHITE)?;
        Ok(Canvas(area))
    }

    pub(super) fn title(&self, at: Place, words: &str) -> Drawn {
        self.0.draw(&Text::new(words.to_owned(), at, ("sans-serif", 22)))
    }

    pub(super) fn words(&self, at: Place, words: &str) -> Drawn {
        self.0.draw(&Text::new(words.to_owned(), at, ("sans-serif", 16)))
    }

    /// Words that only name what is beside them.
    pub(super) fn label(&self, at: Place, words: &str) -> Drawn {
        self.0.draw(&Text::new(words.to_owned(), at, ("sans-serif", 14).into_font().color(&PALE)))
    }

    /// A box in the colour of a block.
    pub(super) fn cell(&self, (x, y): Place, (width, height): Place, block: u64) -> Drawn {
        let colour = BLOCKS[(block % BLOCKS.len() as u64) as usize];
        let corners = [(x, y), (x + width, y + height)];
        self.0.draw(&Rectangle::new(corners, colour.filled()))?;
        self.0.draw(&Rectangle::new(corners, PALE))
    }

    pub(super) fn line(&self, points: &[Place]) -> Drawn {
        self.0.draw(&PathElement::new(points.to_vec(), INK))
    }

    /// A line with a head at its end; its last piece is horizontal or vertical.
    pub(super) fn arrow(&self, points: &[Place]) -> Drawn {
        self.line(points)?;
        let [.., from, tip] = points else { return Ok(()) };
        let (dx, dy) = ((tip.0 - from.0).signum(), (tip.1 - from.1).signum());
        let back = (tip.0 - HEAD.1 * dx, tip.1 - HEAD.1 * dy);
        let side = (HEAD.0 * dy, HEAD.0 * dx);
        let corners = [*tip, (back.0 + side.0, back.1 + side.1), (back.0 - side.0, back.1 - side.1)];
        self.0.draw(&Polygon::new(corners.to_vec(), INK.filled()))
    }

    pub(super) fn finish(self) -> Drawn {
        self.0.present()
    }
}
