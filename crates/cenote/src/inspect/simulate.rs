//! Simulates deduplication: builds the dedup table in memory that the pool would have if all data were
//! deduplicated.
//!
//! # What always holds
//! - Only blocks that could be in a dedup table are counted: data blocks of level 0 that are stored on disk.
//!   Metadata, indirect blocks, embedded blocks and holes are not counted.
//! - Blocks without a checksum are left out, because their contents cannot be compared.
//! - A block whose references have different numbers of copies counts with the mean allocated size.
//! - Two blocks are equal if checksum, sizes, compression and encryption are equal, in any dataset. Blocks that a
//!   snapshot shares with its predecessor are counted once.
//!
//! Memory: some hundred bytes per distinct block.

use super::{Problem, Subject};
use crate::block_walk::{self, BlockChecker, Walk};
use crate::error::Cause;
use crate::verify::plan::Plan;
use crate::{Error, Pool};
use dmu::DmuError;
use dmu::traverse::Bookmark;
use format::ddt::{DdtHistogram, DdtKey, DdtStat};
use format::dnode::Dnode;
use format::names;
use format::{BlockPtr, ChecksumId, Level};
use std::collections::HashMap;
use std::sync::Arc;

/// Histogram of the dedup table that deduplication of the whole pool would make, and the errors of object
/// sets that could not be read.
///
/// # Errors
/// If the directory of the meta object set cannot be read.
pub fn simulated_dedup(pool: &Pool) -> Result<(DdtHistogram, Vec<Problem>), Error> {
    let plan = Plan::new(pool.spa(), &[]);
    let (walks, mut problems) = super::blocks::walks_of(&plan);
    let is_deflated =
        pool.spa().directory().words(names::directory::DEFLATE)?.first().is_some_and(|word| *word != 0);
    // Each thread has its own table, so a single thread is needed to count a block in one table.
    let tables = block_walk::run(&Simulation { pool, is_deflated }, &walks, 1);
    let mut histogram = DdtHistogram::default();
    for Table { entries, unreadable } in tables {
        problems.extend(unreadable);
        for (key, (refcount, taken)) in entries {
            if let Some(bucket) = histogram.buckets.get_mut(u64::ilog2(refcount) as usize) {
                *bucket = bucket.plus(&stat(&key, refcount, taken));
            }
        }
    }
    Ok((histogram, problems))
}

fn stat(key: &DdtKey, refcount: u64, taken: u64) -> DdtStat {
    let (lsize, psize) = (key.lsize().0, key.psize().0);
    DdtStat {
        blocks: 1,
        lsize,
        psize,
        dsize: taken / refcount,
        ref_blocks: refcount,
        ref_lsize: lsize.saturating_mul(refcount),
        ref_psize: psize.saturating_mul(refcount),
        ref_dsize: taken,
    }
}

/// Number of references and allocated bytes of each block, and errors.
#[derive(Default)]
struct Table {
    entries: HashMap<DdtKey, (u64, u64)>,
    unreadable: Vec<Problem>,
}

struct Simulation<'a> {
    pool: &'a Pool,
    /// Allocated sizes are deflated: counted without parity.
    is_deflated: bool,
}

impl BlockChecker for Simulation<'_> {
    type Job = ();
    type Found = Table;

    fn visit(
        &self,
        found: &mut Table,
        _: &Walk,
        _: &Bookmark,
        bp: &BlockPtr,
        _: Option<&Dnode>,
    ) -> Option<()> {
        let is_data = bp.level() == Level(0) && !bp.obj_type().is_metadata() && !bp.is_embedded();
        if is_data && bp.checksum_kind().is_ok_and(|kind| kind != ChecksumId::Off) {
            let (refcount, taken) = found.entries.entry(DdtKey::of(bp)).or_default();
            *refcount += 1;
            *taken = taken.saturating_add(match self.is_deflated {
                true => self.pool.store().zio().dsize(bp),
                false => bp.dvas().fold(0, |sum, dva| sum.saturating_add(dva.asize.0)),
            });
        }
        None
    }

    fn check(&self, _: &mut Table, (): ()) {}

    fn unreadable(&self, found: &mut Table, _: &Walk, at: &Bookmark, _: &BlockPtr, error: Arc<DmuError>) {
        found.unreadable.push(Problem { subject: Subject::Block(*at), cause: Cause::Object(error) });
    }
}
