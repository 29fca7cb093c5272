//! The chapters of the book as documentation tests: `cargo test -p oplus-book` compiles and runs every block of Rust in them.
//!
//! The pages of the models are made from the text of the standard library; `OPLUS_BOOK_UPDATE=1 cargo test -p oplus-book --lib pages`
//! writes them and their pictures, and without the variable the test compares.

/// A module for every chapter, seen only by `rustdoc --test`.
macro_rules! chapters {
    ($($name:ident: $path:literal,)*) => {
        $(#[cfg(doctest)] #[doc = include_str!(concat!("src/", $path))] mod $name {})*
        #[cfg(test)] const CHAPTERS: &[&str] = &[$($path),*];
    };
}

chapters! {
    tour: "tour.md",
    operators: "operators.md",
    axes: "axes.md",
    functions: "functions.md",
    gradients: "gradients.md",
    state: "state.md",
    distributed: "distributed.md",
    kernels: "kernels.md",
    models: "models.md",
    schedules: "schedules.md",
    gallery: "gallery.md",
    benchmarks: "benchmarks.md",
    limits: "limits.md",
}

/// The README, whose block of code is a whole program.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

/// The pages of the models, one text for all of them.
#[cfg(doctest)]
#[doc = include_str!("src/models/examples.md")]
mod model_examples {}

#[cfg(test)]
mod pages;

#[cfg(test)]
mod tests {
    use super::CHAPTERS;
    use std::path::Path;

    const SRC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

    fn read(path: &str) -> String {
        std::fs::read_to_string(Path::new(SRC).join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// The targets of links and pictures in a Markdown text, outside of blocks of code.
    fn links(text: &str) -> Vec<String> {
        let outside = text.split("```").step_by(2).collect::<String>();
        let mut pieces = outside.split("](").skip(1);
        let target = |piece: &str| piece.split(')').next().unwrap_or_default().to_owned();
        pieces.by_ref().map(target).collect()
    }

    #[test]
    fn links_are_found_outside_of_code() {
        assert_eq!(links("a [b](c.md) ![d](e.svg)\n```text\n[f](g.md)\n```\n[h](i)"), ["c.md", "e.svg", "i"]);
    }

    #[test]
    fn the_summary_names_every_chapter_and_every_link_leads_somewhere() {
        let summary = read("SUMMARY.md");
        let listed = links(&summary);
        for chapter in CHAPTERS {
            assert!(listed.iter().any(|l| l == chapter), "SUMMARY.md lacks {chapter}");
        }
        for page in listed.iter().chain([&"SUMMARY.md".to_owned()]) {
            let folder = Path::new(SRC).join(page).parent().map(Path::to_owned).unwrap_or_default();
            for link in links(&read(page)).iter().filter(|l| !l.starts_with("http") && !l.starts_with('#')) {
                let file = link.split('#').next().unwrap_or_default();
                assert!(folder.join(file).exists(), "{page} links to {link}, which is not there");
            }
        }
    }

    #[test]
    fn every_schedule_has_a_picture() {
        let chapter = read("schedules.md");
        let pages = std::fs::read_dir(Path::new(SRC).join("../../schedules")).unwrap();
        let names = pages.map(|page| page.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned());
        let schedules: Vec<String> = names.filter(|name| name != "README").collect();
        assert!(schedules.len() >= 9, "{schedules:?}");
        for name in schedules {
            assert!(chapter.contains(&format!("](pictures/schedule-{name}.svg)")), "no picture of {name}");
        }
    }

    /// Chapters that the crates of the adapters test, so that this one does not depend on frameworks.
    const TESTED_BY_ADAPTERS: [&str; 2] = ["candle.md", "burn.md"];

    #[test]
    fn every_page_with_rust_is_tested() {
        for page in TESTED_BY_ADAPTERS {
            let adapter = format!("../../../adapters/{}/src/lib.rs", page.trim_end_matches(".md"));
            assert!(read(&adapter).contains(&format!("docs/book/src/{page}")), "{adapter} does not test {page}");
        }
        let elsewhere = |page: &str| page == "models/examples.md" || TESTED_BY_ADAPTERS.contains(&page);
        let tested = |page: &String| CHAPTERS.contains(&page.as_str()) || elsewhere(page);
        for page in links(&read("SUMMARY.md")).iter().filter(|page| !tested(page)) {
            assert!(!read(page).contains("```rust"), "{page} has Rust that no test runs");
        }
    }
}
