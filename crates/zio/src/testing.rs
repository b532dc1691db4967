//! For tests of the layers above: pools in memory, and blocks that pass their checksums and are wrong all the same.

use crate::alloc::{AllocClass, Allocator, MetaslabHint, SpaceSource, TopSpace};
use crate::layer::Zio;
pub use crate::mutators::{Mutator, Stored, StoredMutator, set_mutator, set_stored_mutator};
use format::config::VdevNode;
use format::uberblock::ReflowInfo;
use format::{Ashift, NvList, NvValue, VdevGuid, VdevId};
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use vdev::VdevTree;
pub use vdev::device::memory::MemoryDevice;
pub use vdev::device::sim::{OpKind, SimDisk};
pub use vdev::device::{Device, DeviceError, ReadRequest, WriteRequest};
use vdev::tree::RangeSet;

/// A writable pool on one disk in memory, empty and without labels: for tests of the layers above.
pub fn memory_pool(bytes: u64) -> Arc<Zio> {
    memory_pool_and_allocator(bytes).0
}

/// Like [`memory_pool`], and also returns its allocator.
pub fn memory_pool_and_allocator(bytes: u64) -> (Arc<Zio>, Arc<Allocator>) {
    pool_on(Arc::new(MemoryDevice::new(bytes)))
}

/// Like [`memory_pool_and_allocator`], on a device that is completely free.
pub fn pool_on(device: Arc<dyn Device>) -> (Arc<Zio>, Arc<Allocator>) {
    let bytes = device.size();
    let node = |kind: &str, guid: u64| {
        let mut list = NvList::default();
        list.push("type", kind);
        list.push("id", 0_u64);
        list.push("guid", guid);
        list
    };
    let mut leaf = node("file", 1000);
    leaf.push("path", "/memory");
    leaf.push("ashift", 9_u64);
    leaf.push("asize", bytes - 0x48_0000);
    let mut root = node("root", 1);
    root.push("children", NvValue::ListArray(vec![leaf]));
    let root = VdevNode::from_nvlist(&root).expect("a tree of one leaf");
    let devices = HashMap::from([(VdevGuid(1000), device)]);
    let tree = VdevTree::open(&root, &devices, ReflowInfo::default()).expect("a tree of one leaf");
    let (shift, asize) = (24, bytes - 0x48_0000);
    let hint = MetaslabHint { never_used: true, ..MetaslabHint::default() };
    let top = TopSpace {
        vdev: VdevId(0),
        class: AllocClass::Normal,
        ashift: Ashift(9),
        metaslab_shift: shift,
        asize,
        allocating: true,
        metaslabs: vec![hint; (asize >> shift) as usize],
    };
    let zio = Zio::new(Arc::clone(&tree));
    let allocator = Arc::new(Allocator::new(tree, vec![top], Arc::new(AllFree(shift))));
    zio.set_allocator(Arc::clone(&allocator));
    (Arc::new(zio), allocator)
}

/// A source of metaslabs that are completely free.
struct AllFree(u32);

impl SpaceSource for AllFree {
    fn free_space(&self, _: VdevId, metaslab: u64) -> Result<RangeSet, Box<dyn Error + Send + Sync>> {
        let mut free = RangeSet::new();
        free.insert(metaslab << self.0..(metaslab + 1) << self.0);
        Ok(free)
    }
}
