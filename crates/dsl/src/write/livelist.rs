//! Livelists: what a clone has written and let go, so that destroying it need not walk its trees
//! (docs/on-disk/22-mos-dsl.md, section 7; docs/on-disk/15-space.md, section 6.3).
//!
//! # What always holds
//! - A livelist has an entry for every block that was born in its clone after the origin, and one more,
//!   marked as freed, for each of them that went; both under the same key, the freed one behind.
//! - Its totals are those of the blocks that are left.
//! - The feature `livelist` counts livelists, those of destroyed clones included until they are drained.

use super::deadlist::{self, DeadlistWriter};
use super::free_lists::{Budget, Round};
use super::mos_tx::MosTx;
use super::{bpobj, zapify};
use crate::DslError;
use crate::bpobj::{Bpobj, Space};
use crate::deadlist::Deadlist;
use format::{BlockPtr, ObjectId, Txg};
use std::collections::HashMap;
use std::sync::Arc;
use zio::Zio;

/// Feature, and counter of livelists.
const FEATURE: &str = "livelist";
/// Key in a directory's ZAP.
const KEY: &str = "com.delphix:livelist";
/// Entries of a list upon which the next one is begun.
const ENTRIES_MAX: u64 = 500_000;
/// A clone that shares this share of its blocks with its origin, or less, in percent, needs no livelist:
/// walking its trees costs no more.
const SHARED_MIN: u64 = 75;

/// Gives a clone's directory a livelist, if the pool may have such.
pub fn create(m: MosTx<'_>, dir: ObjectId) -> Result<(), DslError> {
    if !m.features.is_enabled(FEATURE) {
        return Ok(());
    }
    m.features.incr(m, FEATURE)?;
    let id = deadlist::create(m)?;
    zapify::set(m, dir, KEY, id.0)
}

/// The livelist of a directory.
pub fn of(m: MosTx<'_>, dir: ObjectId) -> Result<Option<ObjectId>, DslError> {
    Ok(zapify::get(m, dir, KEY)?.filter(|id| *id != 0).map(ObjectId))
}

/// What the blocks of a livelist are charged.
pub fn space(m: MosTx<'_>, livelist: ObjectId) -> Result<Space, DslError> {
    deadlist::space(m, livelist)
}

/// Takes the livelist away from a directory; the blocks in it stay as they are.
pub fn remove(m: MosTx<'_>, dir: ObjectId) -> Result<(), DslError> {
    let Some(id) = of(m, dir)? else { return Ok(()) };
    zapify::remove(m, dir, KEY)?;
    deadlist::free(m, id)?;
    m.features.decr(m, FEATURE)
}

/// Takes the livelist away from the directory of a clone that is being destroyed, for
/// [`super::free_lists::add_deleted_clone`]. It is counted until it has been drained.
pub fn take_for_destroy(m: MosTx<'_>, dir: ObjectId) -> Result<Option<ObjectId>, DslError> {
    let id = of(m, dir)?;
    if id.is_some() {
        zapify::remove(m, dir, KEY)?;
    }
    Ok(id)
}

/// Takes the livelist away from a clone that shares too little with its origin. To be called when the clone
/// was written.
pub fn check_share(m: MosTx<'_>, head: ObjectId) -> Result<(), DslError> {
    let phys = m.dataset(head)?;
    let Some(id) = of(m, phys.dir)? else { return Ok(()) };
    let own = u128::from(space(m, id)?.used);
    let all = u128::from(phys.referenced);
    // An empty clone shares everything.
    if all > 0 && all.saturating_sub(own) * 100 <= all * u128::from(SHARED_MIN) {
        remove(m, phys.dir)?;
    }
    Ok(())
}

/// Collects in memory what a sync of a clone makes and unmakes.
pub struct LivelistWriter {
    id: ObjectId,
    origin: Txg,
    entries: Vec<(BlockPtr, bool, Space)>,
    zio: Arc<Zio>,
}

impl LivelistWriter {
    /// For the clone of this directory; `None`: it has no livelist.
    pub fn open(m: MosTx<'_>, dir: ObjectId) -> Result<Option<LivelistWriter>, DslError> {
        let Some(id) = of(m, dir)? else { return Ok(None) };
        let origin = match m.dir(dir)?.origin {
            Some(origin) => m.dataset(origin)?.creation_txg,
            None => Txg(0),
        };
        Ok(Some(LivelistWriter { id, origin, entries: Vec::new(), zio: Arc::clone(m.zio()) }))
    }

    /// A block was written.
    pub fn born(&mut self, bp: &BlockPtr) {
        self.push(bp, false);
    }

    /// A block is not needed any more, by this clone.
    pub fn killed(&mut self, bp: &BlockPtr) {
        self.push(bp, true);
    }

    fn push(&mut self, bp: &BlockPtr, freed: bool) {
        if bp.is_hole() || bp.is_embedded() || bp.accounting_birth() <= self.origin {
            return;
        }
        // Pools with livelists are new enough to deflate.
        self.entries.push((*bp, freed, crate::space::of_pointer(&self.zio, true, bp)));
    }

    /// Writes what was collected.
    pub fn flush(&mut self, m: MosTx<'_>) -> Result<(), DslError> {
        let entries = std::mem::take(&mut self.entries);
        if entries.is_empty() {
            return Ok(());
        }
        begin_list(m, self.id)?;
        let mut writer = DeadlistWriter::open(m, self.id)?;
        for (bp, freed, space) in entries {
            writer.push(&bp, freed, space);
        }
        writer.flush(m)
    }
}

/// Begins a list for the blocks of this txg, if there is none or the newest is full.
fn begin_list(m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
    let key = Txg(m.txg().0 - 1);
    let is_full = match Deadlist::open(&m.view(), id)?.buckets().last() {
        None => true,
        Some((newest, _)) if *newest >= key => false,
        Some((_, list)) => Bpobj::open(&m.view(), *list)?.phys().num_blkptrs > ENTRIES_MAX,
    };
    if is_full {
        let list = bpobj::create_for_livelist(m)?;
        m.zap(id)?.insert_int_key(key.0, list.0)?;
    }
    Ok(())
}

/// The same block: address and birth.
fn identity(bp: &BlockPtr) -> [u64; 3] {
    let words = bp.words();
    [words[0], words[1], bp.logical_birth().0]
}

/// Frees what is left in the lists of a destroyed clone, one whole list after the other, as far as the
/// budget goes. True: it is drained, and gone.
pub(crate) fn drain(
    m: MosTx<'_>,
    id: ObjectId,
    budget: &mut Budget,
    round: &mut Round<'_>,
) -> Result<bool, DslError> {
    for key in deadlist::keys(m, id)? {
        if budget.is_spent() {
            return Ok(false);
        }
        if let Some(list) = deadlist::detach(m, id, key)? {
            drain_list(m, list, budget, round)?;
        }
    }
    deadlist::free(m, id)?;
    m.features.decr(m, FEATURE)?;
    Ok(true)
}

/// Frees the blocks of a list that were not freed: from the end, where the mark of a block that went comes
/// before the block.
fn drain_list(
    m: MosTx<'_>,
    list: ObjectId,
    budget: &mut Budget,
    round: &mut Round<'_>,
) -> Result<(), DslError> {
    let mut gone: HashMap<[u64; 3], u64> = HashMap::new();
    if !bpobj::is_shared(m, list)? {
        bpobj::consume(m, list, &mut Budget::unlimited(), &mut |entry, space| {
            budget.take(1);
            let block = identity(&entry.bp);
            if entry.freed {
                *gone.entry(block).or_default() += 1;
                return Ok(());
            }
            match gone.get_mut(&block) {
                Some(times) if *times > 1 => *times -= 1,
                Some(_) => drop(gone.remove(&block)),
                None => round.free(&entry.bp, space)?,
            }
            Ok(())
        })?;
    }
    bpobj::release(m, list)
}
