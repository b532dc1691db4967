//! Tests of reading ranges and reading ahead: the number of requests to the device, and the handling of
//! damage.

use crate::testing::NoLedger;
use crate::{KeyState, Limits, LiveSet, NewObject, ObjSet, Object, SetPolicy, Store, Txgs, Witness};
use format::objset::ObjsetType;
use format::{BlockId, DeviceOffset, Level, ObjType, ObjectId, Txg};
use std::io::IoSlice;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vdev_requests::{Counting, new_device};
use zio::Zio;
use zio::testing::pool_on;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 512;

/// A disk in memory that counts the requests of each call.
mod vdev_requests {
    use super::*;
    use zio::testing::{Device, DeviceError, MemoryDevice, ReadRequest, WriteRequest};

    #[derive(Debug)]
    pub(super) struct Counting {
        memory: MemoryDevice,
        /// Offsets and sizes of the reads of each call.
        calls: Mutex<Vec<Vec<(u64, u64)>>>,
        /// Duration of a call.
        delay: Duration,
    }

    pub(super) fn new_device(delay: Duration) -> Arc<Counting> {
        Arc::new(Counting { memory: MemoryDevice::new(1 << 28), calls: Mutex::default(), delay })
    }

    impl Counting {
        /// Takes the number of blocks of each call of block reads since the last time.
        pub(super) fn take(&self) -> Vec<usize> {
            let calls = std::mem::take(&mut *self.calls.lock().unwrap());
            calls.iter().map(Vec::len).collect()
        }

        /// Takes the offsets of all reads since the last time.
        pub(super) fn take_places(&self) -> Vec<u64> {
            let calls = std::mem::take(&mut *self.calls.lock().unwrap());
            calls.concat().into_iter().filter(|(len, _)| *len == BLOCK).map(|(_, at)| at).collect()
        }
    }

    impl Device for Counting {
        fn size(&self) -> u64 {
            self.memory.size()
        }

        fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
            self.calls.lock().unwrap().push(vec![(buf.len() as u64, at.0)]);
            std::thread::sleep(self.delay);
            self.memory.read_at(buf, at)
        }

        fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
            let call = requests.iter().map(|request| (request.buf.len() as u64, request.at.0)).collect();
            self.calls.lock().unwrap().push(call);
            std::thread::sleep(self.delay);
            self.memory.read_many(requests);
        }

        fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
            self.memory.write_at(buf, at)
        }

        fn write_parts(&self, parts: &[IoSlice<'_>], at: DeviceOffset) -> Result<(), DeviceError> {
            self.memory.write_parts(parts, at)
        }

        fn write_many(&self, requests: &mut [WriteRequest<'_>]) {
            self.memory.write_many(requests);
        }
    }
}

/// A set with one object on disk, with empty caches.
struct World {
    device: Arc<Counting>,
    zio: Arc<Zio>,
    root: format::BlockPtr,
    id: ObjectId,
}

/// The bytes of a block: no two are the same, and none can be compressed.
fn bytes(blkid: u64) -> Vec<u8> {
    let mut state = blkid + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..BLOCK).map(|_| next()).collect()
}

fn range(blocks: std::ops::Range<u64>) -> Vec<u8> {
    blocks.flat_map(bytes).collect()
}

impl World {
    fn new(delay: Duration) -> World {
        let device = new_device(delay);
        let zio = pool_on(device.clone()).0;
        let store = Store::new(Arc::clone(&zio), 16 << 20);
        let txgs = Txgs::new(Txg(3), Limits::default());
        let tx = txgs.begin().expect("open");
        let set = LiveSet::create(&store, txgs.meter(), 7, ObjsetType::Other, SetPolicy::dataset(), &tx);
        let object =
            set.allocate(&NewObject::of(ObjType::PLAIN_FILE).with_block_size(BLOCK), &tx).expect("made");
        for blkid in 0..BLOCKS {
            object.put_block(BlockId(blkid), bytes(blkid), &tx).expect("put");
        }
        drop(tx);
        let tx = txgs.quiesce();
        set.sync(&tx, &mut NoLedger).expect("synced");
        txgs.finish(tx);
        World { device, zio, root: set.root_bp(), id: object.id() }
    }

    fn store(&self) -> Arc<Store> {
        Store::new(Arc::clone(&self.zio), 64 << 20)
    }

    /// The object as a snapshot shows it.
    fn snapshot(&self, store: &Arc<Store>) -> Object {
        let set = ObjSet::open(store, &self.root, 7, KeyState::None).expect("readable");
        set.object(self.id).expect("there")
    }

    /// The object as a head shows it.
    fn head(&self, store: &Arc<Store>) -> (Arc<Txgs>, crate::LiveObject) {
        let txgs = Txgs::new(Txg(9), Limits::default());
        let (key, policy) = (KeyState::None, SetPolicy::dataset());
        let set = LiveSet::open(store, txgs.meter(), &self.root, 7, key, policy).expect("readable");
        (txgs, set.object(self.id).expect("there"))
    }

    fn damage(&self, object: &Object, blkid: u64) {
        let bp = object.block_ptr(Level(0), BlockId(blkid)).expect("readable");
        let at = bp.dvas().next().expect("a place").offset.on_device();
        zio::testing::Device::write_at(&*self.device, &[9; 512], at).expect("written");
    }
}

/// A witness that records its calls.
#[derive(Default)]
struct Told(Mutex<Vec<u64>>);

impl Witness for Told {
    fn unreadable(&self, _: u64, _: ObjectId, blkid: BlockId) {
        self.0.lock().unwrap().push(blkid.0);
    }
}

#[test]
fn a_range_is_read_in_one_batch() {
    let world = World::new(Duration::ZERO);
    let mut buf = vec![0; 32 * BLOCK as usize];
    let object = world.snapshot(&world.store());
    world.device.take();
    object.read_at(3 * BLOCK, &mut buf).expect("readable");
    assert!(buf == range(3..35));
    assert!(world.device.take().contains(&32), "of a snapshot");
    object.read_at(3 * BLOCK, &mut buf).expect("readable");
    assert_eq!(world.device.take(), [0; 0], "all of it is cached");

    let (txgs, object) = world.head(&world.store());
    // Two blocks are newer than on disk: one has contents, one is a hole.
    let tx = txgs.begin().expect("open");
    object.put_block(BlockId(5), vec![1; BLOCK as usize], &tx).expect("put");
    object.free_range(7 * BLOCK, BLOCK, &tx).expect("freed");
    drop(tx);
    world.device.take();
    object.read_at(3 * BLOCK + 100, &mut buf[..31 * BLOCK as usize]).expect("readable");
    assert!(world.device.take().contains(&30), "of a head");
    let mut expected = [range(3..5), vec![1; BLOCK as usize], bytes(6), vec![0; BLOCK as usize]].concat();
    expected.extend(range(8..35));
    assert!(buf[..31 * BLOCK as usize] == expected[100..100 + 31 * BLOCK as usize]);
}

#[test]
fn what_comes_before_a_damaged_block_is_readable_and_one_error_is_reported() {
    let world = World::new(Duration::ZERO);
    let store = world.store();
    let told = Arc::new(Told::default());
    store.set_witness(told.clone());
    let object = world.snapshot(&store);
    world.damage(&object, 9);
    world.damage(&object, 12);
    let (_txgs, head) = world.head(&store);
    let mut buf = vec![0; 16 * BLOCK as usize];
    assert!(object.read_at(0, &mut buf).is_err());
    assert_eq!(std::mem::take(&mut *told.0.lock().unwrap()), [9]);
    assert!(head.read_at(0, &mut buf).is_err());
    assert_eq!(std::mem::take(&mut *told.0.lock().unwrap()), [9]);
    let whole = &mut buf[..9 * BLOCK as usize];
    object.read_at(0, whole).expect("readable");
    assert!(*whole == range(0..9));
    head.read_at(13 * BLOCK, whole).expect("readable");
    assert!(*whole == range(13..22));
}

#[test]
fn a_snapshot_is_read_ahead_in_batches() {
    for is_head in [false, true] {
        let world = World::new(Duration::from_micros(200));
        let store = world.store();
        store.start_prefetch();
        let (_txgs, head) = world.head(&store);
        let object = if is_head { head.read() } else { world.snapshot(&store) };
        // From here on all blocks above the data are cached.
        object.block_ptr(Level(0), BlockId(0)).expect("readable");
        world.device.take();
        let mut buf = vec![0; BLOCK as usize];
        for blkid in 0..BLOCKS {
            object.read_at(blkid * BLOCK, &mut buf).expect("readable");
            assert!(buf == bytes(blkid), "block {blkid}");
            if blkid == 0 {
                // The threads start now.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        store.stop_prefetch();
        let calls = world.device.take();
        assert_eq!(calls.iter().sum::<usize>() as u64, BLOCKS, "each block once: {calls:?}");
        assert!(calls.len() as u64 <= BLOCKS / 8, "head: {is_head}, {calls:?}");
        assert!(calls.iter().any(|blocks| *blocks >= 16), "head: {is_head}, {calls:?}");
    }
}

#[test]
fn readers_of_ranges_that_overlap_read_each_block_once() {
    let world = World::new(Duration::from_millis(1));
    let object = world.snapshot(&world.store());
    object.block_ptr(Level(0), BlockId(0)).expect("readable");
    world.device.take();
    std::thread::scope(|scope| {
        for reader in 0..6 {
            let object = &object;
            scope.spawn(move || {
                let first = reader * 8 % 24;
                let mut buf = vec![0; 64 * BLOCK as usize];
                object.read_at(first * BLOCK, &mut buf).expect("readable");
                assert!(buf == range(first..first + 64));
            });
        }
    });
    let mut places = world.device.take_places();
    let count = places.len();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), count, "a block was read twice");
    assert_eq!(count, 80);
}
