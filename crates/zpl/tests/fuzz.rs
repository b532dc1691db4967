//! Fuzz target of system attributes: a real pool is open, and the bonus area and the spill block of one of
//! its files are replaced by arbitrary bytes when they are read.

use cenote_zpl::Filesystem;
use format::blkptr::BLKPTR_SIZE;
use format::dnode::{CORE_SIZE, SLOT_SIZE};
use format::{BlockId, BlockPtr, Level, ObjectId};
use pool::{OpenOptions, Pool, Which};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use testkit::Fixture;
use testkit::alloc::Counting;
use testkit::fuzz::Target;
use vdev::scan::Search;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A file with a spill block, and the location of its bytes.
struct Victim {
    fs: Arc<Filesystem>,
    id: ObjectId,
    /// The block of dnodes.
    block: BlockPtr,
    /// Offset of the bonus area in that block, and its length in bytes.
    bonus_at: usize,
    room: usize,
    spill: BlockPtr,
}

fn victim() -> Victim {
    let fixture = Fixture::open("dnodes");
    let found = Search::in_paths([fixture.dir()]).run();
    // Without a cache every block is read, and replaced, each time.
    let options = OpenOptions { cache_bytes: 0, ..OpenOptions::default() };
    let pool =
        Pool::open(found, &Which::Name(fixture.manifest().pool.clone()), &options).expect("the pool opens");
    for dataset in &fixture.manifest().datasets {
        let Ok(dataset) = pool.dsl().dataset(&dataset.name) else { continue };
        let objset = dataset.open_objset().expect("it opens");
        let mut from = ObjectId(1);
        while let Some(object) = objset.next_object(from).expect("it is readable") {
            from = ObjectId(object.id().0 + 1);
            let Some(spill) = object.dnode().spill else { continue };
            let slots_per_block = objset.meta_object().block_size() / SLOT_SIZE as u64;
            let block = BlockId(object.id().0 / slots_per_block);
            let dnode = object.dnode();
            let pointers = CORE_SIZE + BLKPTR_SIZE * dnode.blkptrs.len();
            let start = (object.id().0 % slots_per_block) as usize * SLOT_SIZE;
            return Victim {
                id: object.id(),
                block: objset.meta_object().block_ptr(Level(0), block).expect("it is there"),
                bonus_at: start + pointers,
                room: dnode.slots() * SLOT_SIZE - pointers - BLKPTR_SIZE,
                spill,
                fs: Filesystem::open(objset).expect("it is a file system"),
            };
        }
    }
    panic!("no file with a spill block in {}", fixture.name());
}

/// Input: two bytes for the length of the bonus, the bonus, the spill block.
#[test]
fn files() {
    let victim = victim();
    let input: Arc<Mutex<Vec<u8>>> = Arc::default();
    let (block, spill) = (victim.block, victim.spill);
    let (bonus_at, room, shared) = (victim.bonus_at, victim.room, Arc::clone(&input));
    zio::testing::set_mutator(Some(Box::new(move |bp, bytes| {
        let input = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(([low, high], rest)) = input.split_first_chunk() else { return };
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (bonus, spilled) = rest.split_at(len);
        if *bp == block {
            put(bytes, bonus_at, &bonus[..bonus.len().min(room)]);
        } else if *bp == spill {
            put(bytes, 0, spilled);
        }
    })));
    // Dnode blocks and the spill block have 16 KiB and more, each held packed and unpacked.
    let target = Target::new(env!("CARGO_MANIFEST_DIR"), "files").bound(1 << 20, 64);
    let victim = AssertUnwindSafe(victim);
    // Slower than other targets: every input goes through the block layer.
    let seconds = Duration::from_secs(3);
    bolero::check!().with_test_time(seconds).for_each(target.checked(move |bytes| {
        *input.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec();
        let Victim { fs, id, .. } = &*victim;
        let Ok(node) = fs.node(*id) else { return false };
        let attrs = node.attrs();
        let _ = (attrs.posix_uid(), attrs.posix_gid(), attrs.linux_flags(), fs.domain(attrs.uid));
        let names = node.xattrs();
        if let (Ok(names), Ok(values)) = (&names, node.xattr_values()) {
            assert_eq!(names.len(), values.len());
            for name in names.iter().take(1) {
                let _ = node.xattr(name);
            }
        }
        let _ = (node.acl(), node.readlink(), node.read_at(0, &mut [0; 512]));
        true
    }));
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in block.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}
