//! Lapsed views, and blocks without checksums: a read through them returns the right block, or an error.

use cenote_pool::LivePool;
use cenote_pool::space::Class;
use cenote_pool::{CreateSpec, Layout, LeafSpec, TopSpec};
use dmu::{DmuError, Object, arc};
use dmu::{NewObject, SetPolicy};
use dsl::create;
use dsl::create::NewHead;
use dsl::snapshot::snapshot;
use dsl::{Cost, Head};
use format::objset::ObjsetType;
use format::{BlockId, BlockPtr, ChecksumId, CompressionId, DeviceOffset, ObjType, ObjectId};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use vdev::device::memory::MemoryDevice;
use vdev::env::Env;
use vdev::{Device, DeviceError};
use zio::alloc::AllocClass;

const BLOCK: usize = 128 << 10;
const MINE: u8 = 0x11;
const OTHERS: u8 = 0xEE;

/// Callback before a read: runs once, and can look at the device.
type Before = Box<dyn FnOnce(&dyn Fn() -> u8) + Send>;

/// A device that lets other threads work between the look-up of a block and its read.
struct Slow {
    base: MemoryDevice,
    before: Mutex<Option<Before>>,
}

impl std::fmt::Debug for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slow")
    }
}

impl Device for Slow {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        let before = if buf.len() == BLOCK { self.before.lock().unwrap().take() } else { None };
        if let Some(before) = before {
            before(&|| {
                let mut byte = [0; 512];
                self.base.read_at(&mut byte, at).unwrap();
                byte[0]
            });
        }
        self.base.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.base.write_at(buf, at)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.base.flush()
    }
}

struct World {
    device: Arc<Slow>,
    pool: Arc<LivePool>,
    head: Arc<Head>,
}

impl World {
    /// A pool with a dataset whose data have no checksums.
    fn new() -> Arc<World> {
        let device = Arc::new(Slow { base: MemoryDevice::new(128 << 20), before: Mutex::default() });
        let leaves = vec![LeafSpec::file("/d0", Arc::clone(&device) as Arc<dyn Device>)];
        let top = TopSpec { layout: Layout::Single, class: Class::Normal, ashift: None, leaves };
        let pool = LivePool::create(CreateSpec::new("tank", vec![top]), Env::system()).unwrap();
        pool.run(|ctx| {
            let mut fill = |set: &Arc<dmu::LiveSet>, tx: &dmu::SyncTx| {
                let object = set.allocate(&NewObject::of(ObjType::MASTER_NODE), tx)?;
                Ok(object.create_zap(tx, 1, 0)?)
            };
            create::create(ctx, NewHead::named("tank/a"), ObjsetType::Other, &mut fill).map(|_| ())
        })
        .unwrap();
        let head = pool.heads().open_by_name("tank/a").unwrap();
        let policy = SetPolicy::clone(&head.set.policy());
        head.set.set_policy(SetPolicy {
            checksum: ChecksumId::Off,
            compression: CompressionId::Off,
            ..policy
        });
        Arc::new(World { device, pool, head })
    }

    /// Creates an object of `blocks` blocks filled with `byte`, on disk.
    fn make(&self, blocks: u64, byte: u8) -> ObjectId {
        let size = blocks * BLOCK as u64;
        let tx = self.head.begin(Cost::write(size, BLOCK as u64)).unwrap();
        let new = NewObject::of(ObjType::PLAIN_FILE).with_block_size(BLOCK as u64);
        let object = self.head.set.allocate(&new, &tx).unwrap();
        object.write_at(0, &vec![byte; size as usize], &tx).unwrap();
        drop(tx);
        self.pool.sync().unwrap();
        object.id()
    }

    fn free(&self, id: ObjectId) {
        let tx = self.head.begin(Cost::freeing()).unwrap();
        self.head.set.free(id, &tx).unwrap();
        drop(tx);
        self.pool.sync().unwrap();
    }

    /// The object as a newly opened view shows it, with an empty cache.
    fn seen(&self, dataset: &str, id: ObjectId) -> (Object, BlockPtr) {
        let set = self.pool.view().unwrap().dsl().dataset(dataset).unwrap().open_objset().unwrap();
        let object = set.object(id).unwrap();
        let bp = object.block_ptr(format::Level(0), BlockId(0)).unwrap();
        assert!(bp.checksum_kind().unwrap().is_none() && bp.psize().0 == BLOCK as u64, "{bp}");
        self.pool.store().cache().forget(&arc::Key::of(&bp, false).unwrap());
        (object, bp)
    }

    /// Frees so much that no earlier view is kept.
    fn lapse(&self) {
        let ballast = self.make(64, OTHERS);
        self.free(ballast);
        for _ in 0..6 {
            self.pool.sync().unwrap();
        }
    }

    /// Writes, and frees the written blocks, until the byte that `look` reads has been overwritten, or the
    /// pool is full.
    fn overwrite(&self, look: &dyn Fn() -> u8) {
        let mut written = VecDeque::new();
        for _ in 0..192 {
            if look() != MINE {
                return;
            }
            written.push_back(self.make(8, OTHERS));
            if written.len() > 16
                && let Some(oldest) = written.pop_front()
            {
                self.free(oldest);
            }
        }
    }
}

#[test]
fn a_lapsed_view_gives_no_data_of_others() {
    let world = World::new();
    let id = world.make(1, MINE);
    let (object, bp) = world.seen("tank/a", id);
    let (others, changed) = (Arc::clone(&world), Arc::new(Mutex::new(0)));
    let seen = Arc::clone(&changed);
    *world.device.before.lock().unwrap() = Some(Box::new(move |look| {
        others.free(id);
        others.lapse();
        others.overwrite(look);
        *seen.lock().unwrap() = look();
    }));
    let read = object.block(BlockId(0));
    assert_eq!(*changed.lock().unwrap(), OTHERS, "the block was overwritten while it was being read");
    assert!(matches!(read, Err(DmuError::TooOld { object, .. }) if object == id), "{read:?}");
    let key = arc::Key::of(&bp, false).unwrap();
    assert!(!world.pool.store().cache().has(&key), "nobody keeps what was read");
    // It is neither read ahead nor returned later.
    assert!(matches!(object.block(BlockId(0)), Err(DmuError::TooOld { .. })));
}

#[test]
fn what_was_not_freed_is_read_through_lapsed_views() {
    let world = World::new();
    let (kept, snapped) = (world.make(1, MINE), world.make(1, MINE));
    let names = ["tank/a@s".to_owned()];
    world.pool.run(move |ctx| snapshot(ctx, &names, &[]).map(|_| ())).unwrap();
    let seen = [world.seen("tank/a", kept).0, world.seen("tank/a@s", snapped).0];
    world.free(snapped);
    world.lapse();
    for object in seen {
        let block = object.block(BlockId(0)).unwrap().unwrap();
        assert!(block.bytes().iter().all(|byte| *byte == MINE));
    }
}

#[test]
fn a_view_is_held_as_long_as_what_was_opened_through_it() {
    let world = World::new();
    let id = world.make(1, MINE);
    let held_back = || world.pool.allocator().totals(AllocClass::Normal).deferred;
    let (object, _) = world.seen("tank/a", id);
    world.free(id);
    let settle = || (0..6).for_each(|n| _ = world.make(1, n));
    settle();
    // The view itself was dropped, but not the object opened through it.
    assert!(held_back() >= BLOCK as u64, "{} bytes", held_back());
    let block = object.block(BlockId(0)).unwrap().unwrap();
    assert!(block.bytes().iter().all(|byte| *byte == MINE));
    drop((block, object));
    let before = held_back();
    settle();
    assert!(held_back() + BLOCK as u64 <= before, "{} of {before} bytes", held_back());
}

#[test]
fn what_a_lapsed_view_reads_of_others_is_no_fault_of_a_device() {
    let world = World::new();
    let policy = SetPolicy::clone(&world.head.set.policy());
    world.head.set.set_policy(SetPolicy { checksum: ChecksumId::Fletcher4, ..policy });
    let id = world.make(1, MINE);
    let set = world.pool.view().unwrap().dsl().dataset("tank/a").unwrap().open_objset().unwrap();
    let object = set.object(id).unwrap();
    let bp = object.block_ptr(format::Level(0), BlockId(0)).unwrap();
    world.pool.store().cache().forget(&arc::Key::of(&bp, false).unwrap());
    let at = DeviceOffset(bp.dvas().next().unwrap().offset.on_device().0);
    world.free(id);
    world.lapse();
    world.overwrite(&|| {
        let mut byte = [0; 512];
        world.device.base.read_at(&mut byte, at).unwrap();
        byte[0]
    });
    assert!(object.block(BlockId(0)).is_err(), "the block is somebody else's");
    let status = world.pool.tree().status();
    let errors: Vec<u64> = status.walk().iter().map(|vdev| vdev.checksum_errors).collect();
    assert!(!errors.is_empty() && errors.iter().all(|count| *count == 0), "{errors:?}");
}
