//! The dnodes in a block of the array of dnodes.

use format::dnode::{Dnode, SLOT_SIZE};

/// The dnodes of a block, each with the number of its first slot and the bytes from there on. Slots inside a
/// larger dnode are skipped.
pub(crate) struct DnodeSlots<'a> {
    bytes: &'a [u8],
    slot: usize,
}

impl<'a> DnodeSlots<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> DnodeSlots<'a> {
        DnodeSlots { bytes, slot: 0 }
    }
}

impl<'a> Iterator for DnodeSlots<'a> {
    type Item = (usize, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.slot * SLOT_SIZE..).filter(|rest| rest.len() >= SLOT_SIZE)?;
        let slot = self.slot;
        self.slot += Dnode::slots_at(rest);
        Some((slot, rest))
    }
}
