//! The pages of the models: equations, shapes and a picture, made from the standard library.

use oplus_dsl::adjoint::{adjoint, equations};
use oplus_dsl::ir::{Axis, Program};
use std::fmt::Write;
use std::path::Path;

const TEXT: &str = concat!(
    include_str!("../../dsl/front/standard/models.rs"),
    include_str!("../../dsl/front/standard/linear.rs"),
    include_str!("../../dsl/front/standard/attention.rs"),
    include_str!("../../dsl/front/standard/options.rs"),
    include_str!("../../dsl/front/standard/packed.rs"),
    include_str!("../../dsl/front/standard/delta.rs"),
);

/// Other ways to compute a model: the beginning of its name, and the function that it replaces. The first entry that fits counts.
const PEERS: &[(&str, &str)] = &[
    ("ema_constant", "a loop over time, or `scipy.signal.lfilter` where all rows share one weight"),
    ("ssm_constant", "a loop over time, or `scipy.signal.lfilter` where all rows share their coefficients"),
    ("ema", "a loop over time, or `jax.lax.associative_scan`"),
    ("ssm_", "a loop over time, or `jax.lax.associative_scan`"),
    ("multi_state", "a loop over time, or `jax.lax.associative_scan`"),
    ("monoid_states", "a loop over time, or `jax.lax.associative_scan`"),
    ("affine_packed_states", "a loop over sequences and times"),
    ("selective_scan_packed", "`selective_scan_fn` of mamba-ssm, called for each sequence"),
    ("selective_scan", "`selective_scan_fn` of mamba-ssm"),
    ("mamba_packed", "`selective_scan_fn` of mamba-ssm, called for each sequence"),
    ("mamba2", "`mamba_chunk_scan_combined` of mamba-ssm"),
    ("mamba", "`selective_scan_fn` of mamba-ssm"),
    ("ssd_packed", "`mamba_chunk_scan_combined` of mamba-ssm with `seq_idx`"),
    ("ssd", "`mamba_chunk_scan_combined` of mamba-ssm"),
    ("s4d", "a convolution by FFT, as the reference implementation of S4D has it"),
    ("s5", "`jax.lax.associative_scan`, as reference implementations have it"),
    ("lru", "`jax.lax.associative_scan`, as reference implementations have it"),
    (
        "monoid_attention_packed_states",
        "`chunk_simple_gla` of flash-linear-attention (fla) with `cu_seqlens` and `scale=1`",
    ),
    ("monoid", "`chunk_simple_gla` of flash-linear-attention (fla) with `scale=1`"),
    (
        "retention",
        "`chunk_simple_gla` of flash-linear-attention (fla) with `g_gamma` and `scale=1`, or its `chunk_retention`, whose decays are fixed",
    ),
    ("linear_attention", "`chunk_linear_attn` of flash-linear-attention (fla) with `scale=1` and `normalize=False`"),
    ("gated_linear_attention_packed", "`chunk_gla` of flash-linear-attention (fla) with `cu_seqlens` and `scale=1`"),
    ("gated_linear", "`chunk_gla` of flash-linear-attention (fla) with `scale=1`"),
    (
        "attention_causal",
        "`flash_attn_func` of FlashAttention with `causal=True`, and where M = N `scaled_dot_product_attention` of PyTorch with `is_causal=True`",
    ),
    ("attention_window", "`flash_attn_func` of FlashAttention with `window_size`"),
    ("attention_bias", "`scaled_dot_product_attention` of PyTorch with `attn_mask`"),
    ("attention_softcap", "`flash_attn_func` of FlashAttention with `causal=True` and `softcap`"),
    ("attention_packed", "`flash_attn_varlen_func` of FlashAttention"),
    ("attention", "`scaled_dot_product_attention` of PyTorch, `flash_attn_func` of FlashAttention, and cuDNN"),
    ("delta_rule_packed", "`chunk_delta_rule` of flash-linear-attention (fla) with `cu_seqlens` and `scale=1`"),
    ("delta_rule", "`chunk_delta_rule` of flash-linear-attention (fla) with `scale=1`"),
    ("gated_delta_rule", "`chunk_gated_delta_rule` of flash-linear-attention (fla) with `scale=1`"),
    ("kda", "`chunk_kda` of flash-linear-attention (fla) with `scale=1`"),
    ("rwkv7", "`chunk_rwkv7` of flash-linear-attention (fla) with `scale=1`"),
    ("merge_parts", "a few lines of elementwise PyTorch, or `merge_states` of FlashInfer"),
    ("merge", "a few lines of elementwise PyTorch, or `merge_state` of FlashInfer"),
];

/// The documentation of a model, with links between pages.
fn documentation(name: &str) -> String {
    let at = TEXT.find(&format!("\npub fn {name}(")).unwrap_or_else(|| panic!("no text of {name}"));
    let mut lines: Vec<&str> = TEXT[..at].lines().rev().take_while(|line| line.starts_with("///")).collect();
    lines.reverse();
    let text: Vec<&str> = lines.iter().map(|line| line.trim_start_matches("///").trim_start_matches(' ')).collect();
    text.join("\n").replace("](fn@", "](").replace("\n# ", "\n## ").split("](").enumerate().fold(String::new(), linked)
}

/// Adds a piece of text behind `](`, whose link is a model's name, as one to its page.
fn linked(text: String, (number, piece): (usize, &str)) -> String {
    match piece.split_once(')') {
        Some((name, rest)) if number > 0 => format!("{text}]({name}.md){rest}"),
        _ => text + piece,
    }
}

fn axes(program: &Program, axes: &[Axis]) -> String {
    let names: Vec<String> = axes.iter().map(|axis| program.axis_in_words(*axis)).collect();
    if names.is_empty() { "one number".into() } else { names.join(" × ") }
}

fn page(program: &Program) -> String {
    let name = &program.name;
    let (_, peer) = PEERS.iter().find(|(start, _)| name.starts_with(start)).unwrap_or_else(|| panic!("peer of {name}"));
    let mut text = format!("# {name}\n\n{}\n\nIt replaces {peer}.\n\n", documentation(name).trim_end());
    let _ = write!(
        text,
        "![tensors in and out](../pictures/model-{name}.svg)\n\n## Shapes\n\n| tensor | shape | |\n|---|---|---|\n"
    );
    for p in &program.params {
        let may = if p.default.is_some() { "may be left out" } else { "input" };
        let _ = writeln!(text, "| `{}` | {} | {may} |", p.name, axes(program, &p.axes));
    }
    for o in &program.outputs {
        let _ = writeln!(text, "| `{}` | {} | output |", o.name, axes(program, &o.axes));
    }
    let _ =
        write!(text, "\n## Equations, as the compiler reads them\n\n```text\n{}\n```\n", equations(program).trim_end());
    if let Ok(gradient) = adjoint(program) {
        let derived = equations(&gradient);
        let _ = write!(
            text,
            "\n## Its gradient, derived\n\nA bar marks a cotangent.\n\n```text\n{}\n```\n",
            derived.trim_end()
        );
    }
    text
}

/// Inputs on the left, outputs on the right, each with its axes.
fn picture(program: &Program) -> String {
    const ROW: usize = 30;
    let rows = program.params.len().max(program.outputs.len());
    let (height, middle) = (rows * ROW + 20, (rows * ROW + 20) / 2);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 {height}\" font-family=\"sans-serif\" font-size=\"14\">\n\
         <rect width=\"760\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <rect x=\"290\" y=\"{}\" width=\"190\" height=\"40\" rx=\"6\" fill=\"#fadbbe\" stroke=\"#8c8c8c\"/>\n\
         <text x=\"385\" y=\"{}\" text-anchor=\"middle\" font-size=\"{}\">{}</text>\n",
        middle - 20,
        middle + 5,
        (320 / program.name.len()).clamp(9, 14),
        program.name,
    );
    let mut tensor = |x: usize, row: usize, of: usize, words: String, colour: &str| {
        let y = middle + row * ROW - of * ROW / 2 + 2;
        let (from, to) = if x < 300 { ((250, y + 13), (290, middle)) } else { ((480, middle), (520, y + 13)) };
        let _ = write!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"230\" height=\"26\" rx=\"4\" fill=\"{colour}\" stroke=\"#8c8c8c\"/>\n\
             <text x=\"{}\" y=\"{}\">{words}</text>\n\
             <path d=\"M{} {} L{} {}\" stroke=\"#282828\"/>\n",
            x + 10,
            y + 18,
            from.0,
            from.1,
            to.0,
            to.1,
        );
    };
    for (row, p) in program.params.iter().enumerate() {
        let colour = if p.default.is_some() { "#eeeeee" } else { "#c5def4" };
        tensor(20, row, program.params.len(), format!("{}: {}", p.name, axes(program, &p.axes)), colour);
    }
    for (row, o) in program.outputs.iter().enumerate() {
        tensor(520, row, program.outputs.len(), format!("{}: {}", o.name, axes(program, &o.axes)), "#d0eccb");
    }
    svg + "</svg>\n"
}

/// The chapter's list of models in the summary.
fn entries(programs: &[Program]) -> String {
    programs.iter().map(|p| format!("    - [{0}](models/{0}.md)\n", p.name)).collect()
}

#[test]
fn pages_are_those_of_the_standard_library() {
    let src = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let programs = oplus_front::model_programs();
    assert!(programs.len() > 20);
    let mut files: Vec<(String, String)> = vec![];
    for program in &programs {
        files.push((format!("models/{}.md", program.name), page(program)));
        files.push((format!("pictures/model-{}.svg", program.name), picture(program)));
    }
    let summary = std::fs::read_to_string(src.join("SUMMARY.md")).unwrap();
    let (before, rest) = summary.split_once("(models.md)\n").unwrap();
    let after = rest.find("- [How").map_or("", |at| &rest[at..]);
    let head = "    - [Examples](models/examples.md)\n";
    files.push(("SUMMARY.md".into(), format!("{before}(models.md)\n{head}{}{after}", entries(&programs))));
    for (name, expected) in files {
        let path = src.join(&name);
        if std::env::var_os("OPLUS_BOOK_UPDATE").is_some() {
            std::fs::write(&path, expected).unwrap();
        } else {
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                found == expected,
                "{name} is old: OPLUS_BOOK_UPDATE=1 cargo test -p oplus-book --lib pages writes it"
            );
        }
    }
}
