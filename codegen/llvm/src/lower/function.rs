//! The kernel's function: parameters, launch bounds, register slots, shared memory.

use super::index::Sums;
use super::{Asm, Lower, Register, Result};
use inkwell::attributes::AttributeLoc;
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::types::{BasicMetadataTypeEnum, BasicTypeEnum};
use inkwell::values::{FunctionValue, IntValue};
use inkwell::{AddressSpace, builder::Builder};
use oplus_codegen::target::Isa;
use oplus_codegen::tile::{Kernel, ParamKind, Reg, Stmt};
use oplus_dsl::Ty;
use std::cell::RefCell;
use std::collections::HashMap;

/// LLVM's `ptx_kernel`.
const PTX_KERNEL: u32 = 71;

/// The policy of loads that the L2 cache should evict last (`docs/decisions/0007`).
const KEEP: &str = "createpolicy.fractional.L2::evict_last.b64 $0, 1.0;";

impl<'c, 'k> Lower<'c, 'k> {
    /// An empty function of the kernel's signature, with a slot for every register that is assigned more than once.
    pub(super) fn new(context: &'c Context, kernel: &'k Kernel, isa: Isa) -> Result<Lower<'c, 'k>> {
        let module = context.create_module("kernel");
        // ptxas unrolls loops on its own; the schedule has already unrolled what it wants.
        module.set_inline_assembly(".pragma \"nounroll\";");
        let function = declare(context, &module, kernel);
        let (entry, body) =
            (context.append_basic_block(function, "entry"), context.append_basic_block(function, "body"));
        let builder = context.create_builder();
        builder.position_at_end(entry);
        let shared = match kernel.shared[..] {
            [] => context.i32_type().const_zero(),
            _ => shared_base(context, &module, &builder, alignment(&kernel.body))?,
        };
        let (offsets, _) = kernel.shared_layout();
        let mut lower = Lower {
            kernel,
            isa,
            context,
            module,
            builder,
            function,
            entry,
            body,
            registers: vec![],
            specials: HashMap::new(),
            shared,
            keep: None,
            offsets,
            sums: Sums::of(kernel),
            addresses: RefCell::default(),
            exits: vec![],
        };
        if kernel.keep_reads {
            let policy = Asm::pure(KEEP).output(context.i64_type()).one(&lower)?;
            lower.keep = Some(policy.into_int_value());
        }
        for (r, ty) in (0..).zip(&kernel.regs) {
            let once = lower.sums.is_assigned_once(Reg(r));
            let slot = if once { None } else { Some(lower.builder.build_alloca(lower.ty(*ty), "")?) };
            lower.registers.push(slot.map_or(Register::Unassigned, Register::Slot));
        }
        lower.builder.position_at_end(body);
        Ok(lower)
    }

    /// Closes the function and gives the module.
    pub(super) fn finish(self) -> Result<Module<'c>> {
        self.builder.build_return(None)?;
        self.builder.position_at_end(self.entry);
        self.builder.build_unconditional_branch(self.body)?;
        Ok(self.module)
    }
}

fn declare<'c>(context: &'c Context, module: &Module<'c>, kernel: &Kernel) -> FunctionValue<'c> {
    let params: Vec<BasicMetadataTypeEnum<'c>> =
        kernel.params.iter().map(|p| param_type(context, p.kind).into()).collect();
    let function = module.add_function(&kernel.name, context.void_type().fn_type(&params, false), None);
    function.set_call_conventions(PTX_KERNEL);
    let bounds = [("nvvm.maxntid", kernel.threads), ("nvvm.minctasm", kernel.blocks_per_sm)];
    for (name, value) in bounds {
        let attribute = context.create_string_attribute(name, &value.to_string());
        function.add_attribute(AttributeLoc::Function, attribute);
    }
    function
}

/// The alignment of shared memory, bytes.
fn alignment(block: &[Stmt]) -> u32 {
    let of = |stmt: &Stmt| match stmt {
        Stmt::WarpgroupMma { .. } => 1024,
        Stmt::If { then, otherwise, .. } => alignment(then).max(alignment(otherwise)),
        Stmt::For { body, .. } | Stmt::Loop(body) => alignment(body),
        _ => 128,
    };
    block.iter().map(of).max().unwrap_or(128)
}

fn param_type(context: &Context, kind: ParamKind) -> BasicTypeEnum<'_> {
    match kind {
        ParamKind::Scalar(Ty::F32) => context.f32_type().into(),
        ParamKind::Scalar(Ty::F64) => context.f64_type().into(),
        ParamKind::Scalar(Ty::I32 | Ty::U32) => context.i32_type().into(),
        ParamKind::Scalar(Ty::Bool) => context.i8_type().into(),
        _ => context.i64_type().into(),
    }
}

/// The address of the dynamic shared memory, as 32 bits.
fn shared_base<'c>(
    context: &'c Context,
    module: &Module<'c>,
    builder: &Builder<'c>,
    alignment: u32,
) -> Result<IntValue<'c>> {
    let array = module.add_global(context.i8_type().array_type(0), Some(AddressSpace::from(3)), "shared");
    // Arrays that warpgroups read lie at multiples of 1024 bytes; other arrays need no more than 128.
    array.set_alignment(alignment);
    Ok(builder.build_ptr_to_int(array.as_pointer_value(), context.i32_type(), "")?)
}
