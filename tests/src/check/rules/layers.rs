//! Delta rules whose readouts go on through a gate or a norm in the same program: the text that tests of stages have, too.

use std::sync::LazyLock;

use oplus::Kernel;

/// The kernels of the text.
static LAYERS: LazyLock<Vec<Kernel>> = LazyLock::new(|| {
    let text = include_str!("../../../../codegen/tests/stages/layers.scan");
    let items = oplus_front::compile(text).unwrap_or_else(|error| panic!("{error}"));
    let programs = items.iter().filter_map(|item| item.kernel()).map(|kernel| kernel.program.clone());
    programs.map(|program| Kernel::from_program(program).unwrap_or_else(|error| panic!("{error}"))).collect()
});

fn layer(name: &str) -> &'static Kernel {
    LAYERS.iter().find(|kernel| kernel.name() == name).unwrap_or_else(|| panic!("the text has no `{name}`"))
}

/// The gated delta rule with a gate at its output.
pub fn gated_delta_layer() -> &'static Kernel {
    layer("gated_delta_layer")
}

/// The gated delta rule with a norm before the gate.
pub fn normed_delta_layer() -> &'static Kernel {
    layer("normed_delta_layer")
}

/// Kimi delta attention with a gate at its output.
pub fn gated_kda_layer() -> &'static Kernel {
    layer("gated_kda_layer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_every_layer_with_its_parameters() {
        let layers = [(gated_delta_layer(), 7), (normed_delta_layer(), 7), (gated_kda_layer(), 6)];
        for (layer, params) in layers {
            let program = layer.program().expect("a program");
            assert_eq!(program.params.len(), params, "{}", layer.name());
        }
    }
}
