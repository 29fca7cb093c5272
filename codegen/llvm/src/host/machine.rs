//! LLVM's text to code in memory.

use inkwell::OptimizationLevel;
use inkwell::attributes::AttributeLoc;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{CodeModel, InitializationConfig, RelocMode, Target, TargetMachine};

use super::Number;
use crate::CompileError;

/// Equal operations are computed once, and squares of a single number are turned without a call.
const PASSES: &str = "always-inline,function(mem2reg,early-cse,simplifycfg)";

/// The processor of this machine.
pub(super) struct Machine {
    name: String,
    features: String,
}

impl Machine {
    /// # Errors
    /// [`CompileError::Lowering`] where there is no back end for it.
    pub(super) fn here() -> Result<Machine, CompileError> {
        if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            return Err(CompileError::Lowering(format!("no machine code for {}", std::env::consts::ARCH)));
        }
        let name = TargetMachine::get_host_cpu_name().to_string();
        let features = TargetMachine::get_host_cpu_features().to_string();
        Ok(Machine { name, features })
    }

    /// How many numbers its vectors hold.
    pub(super) fn lanes(&self, number: Number) -> usize {
        let has = |feature: &str| self.features.split(',').any(|other| other == feature);
        let bytes = if has("+avx512f") {
            64
        } else if has("+avx2") {
            32
        } else {
            16
        };
        match number {
            Number::F32 => bytes / 4,
            Number::F64 => bytes / 8,
        }
    }

    /// The address of the only public function of a module.
    ///
    /// # Errors
    /// [`CompileError::Llvm`].
    pub(super) fn load(&self, text: &str, name: &str) -> Result<usize, CompileError> {
        Target::initialize_native(&InitializationConfig::default()).map_err(CompileError::Llvm)?;
        // The code lives as long as the process, and with it what LLVM knows of it.
        let context: &'static Context = Box::leak(Box::new(Context::create()));
        let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), name);
        let module = context.create_module_from_ir(buffer)?;
        for function in module.get_functions().filter(|function| function.count_basic_blocks() > 0) {
            let attributes =
                [("target-cpu", &*self.name), ("target-features", &*self.features), ("prefer-vector-width", "512")];
            for (key, value) in attributes {
                function.add_attribute(AttributeLoc::Function, context.create_string_attribute(key, value));
            }
        }
        module.verify()?;
        let machine = self.target_machine()?;
        module.set_triple(&TargetMachine::get_default_triple());
        module.set_data_layout(&machine.get_target_data().get_data_layout());
        module.run_passes(PASSES, &machine, PassBuilderOptions::create())?;
        let engine = Box::leak(Box::new(module.create_jit_execution_engine(OptimizationLevel::Default)?));
        engine.get_function_address(name).map_err(|error| CompileError::Llvm(error.to_string()))
    }

    fn target_machine(&self) -> Result<TargetMachine, CompileError> {
        let triple = TargetMachine::get_default_triple();
        let target = Target::from_triple(&triple)?;
        let (level, reloc, model) = (OptimizationLevel::Default, RelocMode::Default, CodeModel::JITDefault);
        target
            .create_target_machine(&triple, &self.name, &self.features, level, reloc, model)
            .ok_or_else(|| CompileError::Llvm(format!("no target machine for {}", self.name)))
    }
}
