//! The pool checkpoint: an old uberblock that is kept together with all blocks that it references
//! (docs/on-disk/15-space.md, section 5).
//!
//! While there is a checkpoint, a block that was born in its txg or before is not freed: it stays allocated in the space
//! maps, and is listed in the checkpoint map of its vdev. An import can go back to the checkpoint. To discard it frees the
//! lists, in slices, and ends with the last one.
//!
//! # What always holds
//! - A block that the checkpoint references is not overwritten while the checkpoint can be gone back to.
//! - A list has what was freed in the txgs that are on disk, and nothing of later ones.
//! - From the txg that begins to discard, nobody can go back, and blocks are freed as usual.
//! - Vdevs are not attached, detached, replaced or removed meanwhile, and the pool keeps its guid: the configuration of
//!   the checkpoint must fit the devices.
//!
//! # Order
//! To begin: all frees are held from now on -> the txg that is open ends, which may have frees from before -> a task of a
//! later txg writes the uberblock that is on disk into the directory -> the frees of that txg are divided.
//!
//! Tests: `tests/it/live/checkpoint.rs`.

use crate::directory::{self, Directory};
use crate::error::PoolError;
use crate::jobs::{Budget, Job, JobProgress, Slice};
use crate::labels::{self, Commit};
use crate::live::{LivePool, PoolTask, State};
use crate::space_map::SpaceMap;
use crate::space_maps::object::MapWriter;
use crate::view::Pool;
use dmu::zap::ZapValue;
use dsl::{MosTx, TaskCtx};
use format::config::VdevNode;
use format::names;
use format::space_map::{MapBounds, MapType};
use format::uberblock::{UBERBLOCK_WORDS, Uberblock};
use format::{AllocOffset, Asize, Dva, Endian, ObjectId, Txg, VdevId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vdev::sync::lock;
use vdev::tree::RangeSet;

/// Short name of the feature: active while there is a checkpoint, and until all that it held is freed.
const FEATURE: &str = "zpool_checkpoint";
/// Block size of a checkpoint map in bytes.
const BLOCK: u64 = 128 << 10;

/// The uberblock of the checkpoint, if there is one.
pub(crate) fn uberblock(directory: &Directory) -> Result<Option<Uberblock>, PoolError> {
    let words = directory.words(names::directory::ZPOOL_CHECKPOINT)?;
    if words.is_empty() {
        return Ok(None);
    }
    let malformed = || PoolError::Directory { entry: names::directory::ZPOOL_CHECKPOINT.to_owned() };
    let words: &[u64; UBERBLOCK_WORDS] = words[..].try_into().map_err(|_| malformed())?;
    Uberblock::from_words(words, Endian::Little).map(Some).map_err(|_| malformed())
}

/// The checkpoint of an open pool.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    /// Txg of the checkpoint; 0: there is none to go back to.
    kept: AtomicU64,
    /// What a checkpoint held is being freed.
    is_discarding: AtomicBool,
    /// Bytes that are still to be freed, and that there were when the pool began with it.
    left: AtomicU64,
    total: AtomicU64,
}

impl Checkpoint {
    fn kept(&self) -> Txg {
        Txg(self.kept.load(Ordering::Acquire))
    }

    fn is_discarding(&self) -> bool {
        self.is_discarding.load(Ordering::Acquire)
    }

    /// Fails if there is a checkpoint, or what it held is not all freed.
    fn check_none(&self, pool: &str) -> Result<(), PoolError> {
        let name = || pool.to_owned();
        match (self.kept(), self.is_discarding()) {
            (_, true) => Err(PoolError::DiscardingCheckpoint { name: name() }),
            (Txg(0), false) => Ok(()),
            _ => Err(PoolError::CheckpointExists { name: name() }),
        }
    }

    fn begin_discard(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Release);
        self.total.store(bytes, Ordering::Release);
        self.is_discarding.store(true, Ordering::Release);
    }
}

impl LivePool {
    /// Keeps the state that is on disk when the call has begun, or a later one, until it is discarded.
    ///
    /// # Errors
    /// [`PoolError::FeatureDisabled`], [`PoolError::CheckpointExists`], [`PoolError::DiscardingCheckpoint`],
    /// [`PoolError::VdevsChanging`]; or a txg could not be written. There is no checkpoint then.
    pub fn make_checkpoint(&self) -> Result<(), PoolError> {
        let _driver = self.jobs.hold();
        // What a removal frees has several places at a time, so nothing of it must be held.
        self.check_steady(&self.config().vdev_tree)?;
        self.zio.hold_frees(Txg(u64::MAX));
        let made = self.sync().and_then(|_| self.run_on_pool(|ctx, task| task.make_checkpoint(ctx)));
        made.inspect_err(|_| self.zio.hold_frees(self.checkpoint.kept()))
    }

    /// Gives up the checkpoint. On return nobody can go back to it; the space that it held is freed by and by.
    ///
    /// # Errors
    /// [`PoolError::NoCheckpoint`]; or a txg could not be written.
    pub fn discard_checkpoint(&self) -> Result<(), PoolError> {
        let _driver = self.jobs.hold();
        self.run_on_pool(|ctx, task| task.discard_checkpoint(ctx))
    }

    /// Fails if there is a checkpoint, or one is being discarded. The devices of a pool stay what they are then.
    ///
    /// # Errors
    /// [`PoolError::CheckpointExists`], [`PoolError::DiscardingCheckpoint`].
    pub(crate) fn check_no_checkpoint(&self) -> Result<(), PoolError> {
        self.checkpoint.check_none(&self.name)
    }

    /// Adopts the checkpoint of a pool that is being opened.
    pub(crate) fn load_checkpoint(&self, pool: &Pool) -> Result<(), PoolError> {
        if let Some(uberblock) = pool.checkpoint()? {
            self.checkpoint.kept.store(uberblock.txg.0, Ordering::Release);
            self.zio.hold_frees(uberblock.txg);
        } else if self.features.is_active(FEATURE) {
            self.checkpoint.begin_discard(pool.space()?.checkpoint);
        }
        Ok(())
    }

    /// Makes the checkpoint at which the pool was opened its newest state, with the number `txg`: everything later is
    /// gone from then on. Nothing may have been allocated before.
    ///
    /// Leaves that lack data keep their labels until the first txg records what they lack: after a crash in between, their
    /// old uberblocks tell it again.
    pub(crate) fn go_back(&self, txg: Txg) -> Result<(), PoolError> {
        let mut state = lock(&self.state);
        let uberblock = Uberblock { txg, timestamp: self.env.clock().wall().as_secs(), ..state.uberblock };
        let dirty = labels::all_tops(&state.config.vdev_tree);
        Commit {
            zio: &self.zio,
            config: &state.config,
            uberblock: &uberblock,
            dirty: &dirty,
            skip: &self.lacking(),
            turn: self.env.random(),
            waits: &|_| false,
        }
        .run()?;
        state.uberblock = uberblock;
        self.publish(&state);
        Ok(())
    }

    /// Divides what a pass has freed: the checkpoint keeps what it may reference, the rest is free.
    pub(crate) fn keep_for_checkpoint(&self, m: MosTx<'_>, state: &State) -> Result<(), PoolError> {
        let mut kept: BTreeMap<VdevId, RangeSet> = BTreeMap::new();
        for held in self.zio.take_held(m.txg()) {
            let Dva { vdev, offset, asize, .. } = held.extent;
            if held.birth <= self.checkpoint.kept() {
                kept.entry(vdev).or_default().insert(offset.0..offset.0 + asize.0);
            } else {
                self.zio.free_held(&held.extent, m.tx)?;
            }
        }
        for (vdev, ranges) in kept {
            let node = state.config.vdev_tree.children.get(vdev.0 as usize);
            let node = node.ok_or(PoolError::Vdev(vdev::tree::VdevError::NoVdev { vdev }))?;
            let mut map = map_of(m, node)?;
            // An entry lies inside one metaslab, as an allocation does.
            let ranges = ranges.iter().flat_map(|range| self.allocator.by_metaslab(vdev, &range));
            map.append(m, MapType::Free, ranges.map(|range| (range, None)), 0, shift_of(node))?;
            map.store(m)?;
        }
        Ok(())
    }

    /// Frees the last block of each list. Returns whether all are empty.
    fn discard_slice(&self) -> Result<bool, PoolError> {
        self.run_on_pool(|ctx, task| task.discard_some(ctx))
    }
}

/// The checkpoint map of a top-level vdev, created if there is none.
fn map_of(m: MosTx<'_>, node: &VdevNode) -> Result<MapWriter, PoolError> {
    let zap = m.zap(node.zap_top)?;
    let name = names::top_vdev::CHECKPOINT_SM.as_bytes();
    if let Some(id) = zap.lookup(name)?.and_then(|entry| entry.u64()) {
        return MapWriter::open(m, ObjectId(id));
    }
    let map = MapWriter::create(m, BLOCK)?;
    zap.upsert(name, map.id().0)?;
    Ok(map)
}

fn shift_of(node: &VdevNode) -> u32 {
    node.ashift.map_or(9, |ashift| u32::from(ashift.0))
}

impl PoolTask<'_> {
    fn make_checkpoint(&mut self, ctx: &mut TaskCtx<'_>) -> Result<(), PoolError> {
        let (m, pool) = (ctx.m(), self.pool);
        pool.check_no_checkpoint()?;
        if !m.features.is_enabled(FEATURE) {
            return Err(PoolError::FeatureDisabled { feature: FEATURE });
        }
        let root = &self.state.config.vdev_tree;
        if root.walk().any(|node| node.removing || node.raidz_expanding) {
            return Err(PoolError::VdevsChanging { name: pool.name.clone() });
        }
        let on_disk = self.state.uberblock;
        let words = Uberblock { checkpoint_txg: on_disk.txg, ..on_disk }.to_words();
        m.zap(directory::OBJECT)?
            .upsert(names::directory::ZPOOL_CHECKPOINT.as_bytes(), ZapValue::U64s(&words))?;
        m.features.incr(m, FEATURE)?;
        pool.checkpoint.kept.store(on_disk.txg.0, Ordering::Release);
        pool.zio.hold_frees(on_disk.txg);
        ctx.note("spa checkpoint", None, format!("checkpointed uberblock txg={}", on_disk.txg));
        Ok(())
    }

    fn discard_checkpoint(&mut self, ctx: &mut TaskCtx<'_>) -> Result<(), PoolError> {
        let (m, pool) = (ctx.m(), self.pool);
        if pool.checkpoint.kept() == Txg(0) {
            return Err(PoolError::NoCheckpoint { name: pool.name.clone() });
        }
        let mut held = 0_u64;
        for node in &self.state.config.vdev_tree.children {
            held = held.saturating_add(list_of(m, node)?.map_or(0, |(_, map)| map.held()));
        }
        m.remove_entry(names::directory::ZPOOL_CHECKPOINT)?;
        pool.checkpoint.kept.store(0, Ordering::Release);
        pool.zio.hold_frees(Txg(0));
        pool.checkpoint.begin_discard(held);
        ctx.note("spa discard checkpoint", None, "started discarding checkpointed state from the pool");
        Ok(())
    }

    /// Frees the last block of each list, and each list that is empty. Returns whether none is left.
    fn discard_some(&mut self, ctx: &mut TaskCtx<'_>) -> Result<bool, PoolError> {
        let (m, pool) = (ctx.m(), self.pool);
        let mut left = 0_u64;
        let mut is_last = true;
        for node in &self.state.config.vdev_tree.children {
            let Some((id, _)) = list_of(m, node)? else { continue };
            let map = SpaceMap::open(&m.view(), id)?;
            let bounds = MapBounds { start: 0, size: u64::MAX, shift: shift_of(node) };
            let (length, segments) = map.last_block(bounds)?;
            let mut freed = 0_u64;
            for segment in segments {
                if segment.kind != MapType::Free {
                    let why = "an allocation among what the checkpoint keeps";
                    return Err(PoolError::Corrupt { object: id, why });
                }
                let extent = Dva {
                    vdev: VdevId(node.id),
                    offset: AllocOffset(segment.start),
                    asize: Asize(segment.len),
                    gang: false,
                };
                pool.zio.free_held(&extent, m.tx)?;
                freed = freed.saturating_add(segment.len);
            }
            if length == 0 {
                m.zap(node.zap_top)?.remove_if_present(names::top_vdev::CHECKPOINT_SM.as_bytes())?;
                MapWriter::free(m, id)?;
                continue;
            }
            is_last = false;
            let mut map = MapWriter::open(m, id)?;
            map.cut(m, length, freed)?;
            map.store(m)?;
            left = left.saturating_add(map.held());
        }
        pool.checkpoint.left.store(left, Ordering::Release);
        if is_last {
            m.features.decr(m, FEATURE)?;
            pool.checkpoint.is_discarding.store(false, Ordering::Release);
            ctx.note("spa discard checkpoint", None, "finished discarding checkpointed state from the pool");
        }
        Ok(is_last)
    }
}

/// The checkpoint map of a top-level vdev, if there is one.
fn list_of(m: MosTx<'_>, node: &VdevNode) -> Result<Option<(ObjectId, MapWriter)>, PoolError> {
    if node.zap_top == ObjectId(0) {
        return Ok(None);
    }
    let entry = m.zap(node.zap_top)?.lookup(names::top_vdev::CHECKPOINT_SM.as_bytes())?;
    let Some(id) = entry.and_then(|entry| entry.u64()).map(ObjectId) else { return Ok(None) };
    Ok(Some((id, MapWriter::open(m, id)?)))
}

impl Job<LivePool> for Checkpoint {
    fn name(&self) -> &'static str {
        "discard of the checkpoint"
    }

    fn progress(&self) -> Option<JobProgress> {
        let (left, total) = (self.left.load(Ordering::Acquire), self.total.load(Ordering::Acquire));
        let progress = JobProgress { is_paused: false, done: total.saturating_sub(left), total };
        self.is_discarding().then_some(progress)
    }

    fn slice(&self, pool: &LivePool, _: Budget) -> Result<Slice, PoolError> {
        // The lists are the position: each slice is durable when it ends.
        let saved_at = pool.env.clock().monotonic();
        Ok(if pool.discard_slice()? { Slice::Last } else { Slice::Partial { saved_at, must_save: false } })
    }
}
