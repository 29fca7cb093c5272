//! Storages of candle, locked for reading while a call uses them.

use std::collections::HashMap;

use candle_core::{Result, Storage, StorageRef, Tensor, TensorId};
use oplus::Elem;

use super::{Seen, read};
use crate::elements::elem;

/// The storages of some tensors. Each is locked once, and all in the order of their addresses, so that calls and those who write
/// cannot wait for each other in a circle.
pub(super) struct Locks<'t> {
    guards: Vec<StorageRef<'t>>,
    /// Where the storage of a tensor stands among them.
    places: HashMap<TensorId, usize>,
}

impl<'t> Locks<'t> {
    pub(super) fn of(tensors: &[Option<&'t Tensor>]) -> Locks<'t> {
        let address = |tensor: &Tensor| std::ptr::from_ref::<Storage>(&tensor.storage_and_layout().0).addr();
        let mut sorted: Vec<(usize, &Tensor)> = tensors.iter().flatten().map(|t| (address(t), *t)).collect();
        sorted.sort_by_key(|(address, _)| *address);
        let (mut locks, mut last) = (Locks { guards: vec![], places: HashMap::new() }, None);
        for (address, tensor) in sorted {
            if last != Some(address) {
                locks.guards.push(tensor.storage_and_layout().0);
                last = Some(address);
            }
            locks.places.insert(tensor.id(), locks.guards.len() - 1);
        }
        locks
    }

    /// Tensors among those that are locked, as a kernel reads them that declares these types and names.
    pub(super) fn seen<'p>(
        &self,
        declared: impl Iterator<Item = (Elem, &'p str)>,
        tensors: &[Option<&Tensor>],
    ) -> Result<Vec<Option<Seen<'_>>>> {
        let see = |((declared, name), tensor): ((Elem, &str), &Option<&Tensor>)| {
            let Some(tensor) = tensor else { return Ok(None) };
            let elem = elem(tensor.dtype(), declared, name)?;
            read(&self.guards[self.places[&tensor.id()]], tensor.layout(), elem, name).map(Some)
        };
        declared.zip(tensors).map(see).collect()
    }
}
