//! Built-in numbers. Each is read once, at the kernel's entry.

use super::{Lower, Result};
use inkwell::values::IntValue;
use oplus_codegen::tile::Special;

impl<'c> Lower<'c, '_> {
    /// A built-in number, `i32`.
    pub(super) fn special(&mut self, special: Special) -> Result<IntValue<'c>> {
        if let Some(known) = self.specials.get(&special) {
            return Ok(*known);
        }
        let here = self.builder.get_insert_block();
        self.builder.position_at_end(self.entry);
        let value = self.read_special(special);
        if let Some(block) = here {
            self.builder.position_at_end(block);
        }
        let value = value?;
        self.specials.insert(special, value);
        Ok(value)
    }

    fn read_special(&self, special: Special) -> Result<IntValue<'c>> {
        match special {
            Special::Thread => self.special_register("tid.x"),
            Special::Block => self.special_register("ctaid.x"),
            Special::BlockY => self.special_register("ctaid.y"),
            Special::Blocks => self.special_register("nctaid.x"),
            Special::Lane => {
                let thread = self.special_register("tid.x")?;
                Ok(self.builder.build_and(thread, self.i32(31), "")?)
            }
            Special::Warp => self.warp(),
        }
    }

    fn special_register(&self, name: &str) -> Result<IntValue<'c>> {
        let value = self.call(&format!("llvm.nvvm.read.ptx.sreg.{name}"), &[], &[])?;
        Ok(value.into_int_value())
    }

    /// The warp's index, broadcast from lane 0 so that ptxas knows it to be uniform.
    fn warp(&self) -> Result<IntValue<'c>> {
        let thread = self.special_register("tid.x")?;
        let own = self.builder.build_right_shift(thread, self.i32(5), false, "")?;
        let args = [self.i32(u32::MAX), own, self.i32(0), self.i32(31)].map(Into::into);
        Ok(self.call("llvm.nvvm.shfl.sync.idx.i32", &[], &args)?.into_int_value())
    }
}
