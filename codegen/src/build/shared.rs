//! Shared arrays, and those that lie in the memory of others.

use super::Builder;
use crate::tile::{Shared, SharedId, SharedKind};
use oplus_dsl::{Elem, Ty};

impl Builder {
    /// Declares a shared array.
    pub fn shared(&mut self, name: impl Into<String>, kind: SharedKind, len: u32) -> SharedId {
        let name = name.into();
        // Empty arrays neither take the memory of others nor give theirs.
        let fits = |place: &usize| {
            let own = &self.kernel.shared[*place];
            own.kind == kind && (own.len > 0) == (len > 0)
        };
        let namesake = |place: &usize| fits(place) && self.kernel.shared[*place].name == name;
        let found = self.reusable.iter().position(namesake).or_else(|| self.reusable.iter().position(fits));
        if let Some(place) = found.map(|found| self.reusable.remove(found)) {
            let array = &mut self.kernel.shared[place];
            array.len = array.len.max(len);
            if array.name != name {
                array.name = format!("{}_or_{name}", array.name);
            }
            return SharedId(place as u32);
        }
        self.kernel.shared.push(Shared { name, kind, len });
        SharedId(self.kernel.shared.len() as u32 - 1)
    }

    /// Makes an array at least so long, for what lies in its memory when its own elements are not needed any more.
    pub fn lengthen(&mut self, array: SharedId, len: u32) {
        let own = &mut self.kernel.shared[array.0 as usize].len;
        *own = (*own).max(len);
    }

    /// Declares shared arrays for other blocks than those that have the arrays so far: they take the memory of arrays of the same kind,
    /// which then have the longer length.
    pub fn in_same_memory<T>(&mut self, declare: impl FnOnce(&mut Builder) -> T) -> T {
        self.reusable = (0..self.kernel.shared.len()).collect();
        let declared = declare(self);
        self.reusable.clear();
        declared
    }

    /// Declares a shared array of elements of a value type.
    pub fn shared_values(&mut self, name: impl Into<String>, ty: Ty, len: u32) -> SharedId {
        self.shared(name, SharedKind::Elem(ty.elem().unwrap_or(Elem::U32)), len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::WARP;

    #[test]
    fn arrays_of_other_blocks_take_the_memory_of_arrays_of_their_kind() {
        let mut b = Builder::new("kernel", WARP);
        let numbers = |b: &mut Builder, name: &str, len| b.shared(name, SharedKind::Elem(Elem::F32), len);
        let (keys, sums) = (numbers(&mut b, "keys", 64), numbers(&mut b, "sums", 32));
        let (again, rows, more, full) = b.in_same_memory(|b| {
            let (again, rows) = (numbers(b, "sums", 96), numbers(b, "rows", 16));
            (again, rows, numbers(b, "more", 8), b.shared("full", SharedKind::Mbarrier, 1))
        });
        assert_eq!((again, rows), (sums, keys));
        let after = numbers(&mut b, "after", 4);
        assert_eq!([more, full, after], [2, 3, 4].map(SharedId));
        let shared: Vec<(String, u32)> = b.finish().shared.into_iter().map(|own| (own.name, own.len)).collect();
        let wanted = [("keys_or_rows", 64), ("sums", 96), ("more", 8), ("full", 1), ("after", 4)];
        assert_eq!(shared, wanted.map(|(name, len)| (name.to_owned(), len)));
    }

    #[test]
    fn arrays_get_longer_but_never_shorter() {
        let mut b = Builder::new("kernel", WARP);
        let array = b.shared("keys", SharedKind::Elem(Elem::F32), 64);
        b.lengthen(array, 96);
        b.lengthen(array, 32);
        assert_eq!(b.finish().shared[0].len, 96);
    }
}
