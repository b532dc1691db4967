//! Writing blocks: bytes in, pointers out, many at a time.
//!
//! Called by `dmu` for the blocks of one level of a tree at a time, and for data that are written directly. A
//! batch is cut into windows of some megabytes, and each step is done for a whole window before the next
//! begins: compression and checksums on all workers, then allocation, in the order of the batch so that its
//! blocks are contiguous, then all writes at once. While a window is being written the next is compressed; so
//! memory beyond the caller's is bounded by two windows.
//!
//! # What always holds
//! - A pointer is returned only after the vdevs took at least one of its copies. It is durable after
//!   [`Zio::flush_written`].
//! - A block that could not be written holds no space.
//! - Uncompressed data are not copied.
//!
//! # Order
//! compress -> checksum -> allocate -> issue; for blocks that failed on every copy the last two once more.
//!
//! Source: `docs/on-disk/12-block-pointers.md`, section 12; `13-checksums-compression.md`, section 2.

mod image;
mod job;

use crate::batch::{Batch, Failed};
use crate::gang_write;
use crate::layer::Zio;
use crate::policy::{NewBlock, RawForm, Seal, WritePolicy};
use crate::quantum::Quantum;
use crate::space::{self, Writer};
use crate::{AllocError, AllocTx, Request, ZioError, pointer};
use codec::checksum;
use codec::compress::is_zero;
use format::blkptr::EMBEDDED_MAX;
use format::units::MAX_BLOCK;
use format::{BlockPtr, BpKind, ChecksumId, CompressionId, Dva, Endian, Level, ObjType, Txg, VdevId};
use image::Image;
use job::{Held, Job};
use std::ops::Range;
use std::sync::Arc;
use vdev::VdevTree;
use vdev::env::Env;
use vdev::tree::VdevError;

/// Nanoseconds of work that justify another thread.
const CHUNK_NS: u64 = 300_000;

/// Bytes of blocks in a window.
const WINDOW: u64 = 16 << 20;

impl Zio {
    /// Writes blocks. Returns their pointers, or errors, in the order of `blocks`.
    ///
    /// A result equal to [`NewBlock::old`] means that no block was written. Holes and embedded data need no
    /// device. Some of the `blocks` may fail while others succeed.
    ///
    /// # Panics
    /// If a block has a size that no block can have, or a policy names no algorithm.
    pub fn write_many(
        &self,
        blocks: &[NewBlock],
        tx: &dyn AllocTx,
        env: &Env,
    ) -> Vec<Result<BlockPtr, ZioError>> {
        let Some(writer) = self.writer() else {
            return blocks.iter().map(|block| Err(ZioError::ReadOnly { bp: block.old })).collect();
        };
        let prepare = |window: &[NewBlock]| self.prepare_all(window, tx.txg(), env);
        let mut pointers = Vec::with_capacity(blocks.len());
        let mut windows = windows(blocks).into_iter().filter_map(|window| blocks.get(window));
        let mut ready = windows.next().map(|window| (window, prepare(window)));
        while let Some((window, mut jobs)) = ready.take() {
            self.place_all(writer, window, &mut jobs, tx);
            let issue = || self.issue(writer, window, &jobs, 0..window.len());
            let next = windows.next();
            let (failed, prepared) = match next {
                Some(next) => both(env, &issue, &|| prepare(next)),
                None => (issue(), Vec::new()),
            };
            self.try_elsewhere(writer, window, &mut jobs, failed, tx);
            self.keep(writer, window, &mut jobs);
            pointers.extend(jobs.into_iter().map(|job| job.map(|job| job.bp)));
            ready = next.map(|next| (next, prepared));
        }
        pointers
    }

    /// Writes one block; see [`Zio::write_many`].
    ///
    /// # Errors
    /// Those of [`Zio::write_many`] for the block.
    pub fn write(&self, block: &NewBlock, tx: &dyn AllocTx, env: &Env) -> Result<BlockPtr, ZioError> {
        let read_only = Err(ZioError::ReadOnly { bp: block.old });
        self.write_many(std::slice::from_ref(block), tx, env).pop().unwrap_or(read_only)
    }

    /// Compresses and checksums all blocks, on several threads if there is enough work.
    fn prepare_all(&self, blocks: &[NewBlock], txg: Txg, env: &Env) -> Vec<Result<Job, ZioError>> {
        let quantum = self.quantum();
        let prepare = |block: &NewBlock| self.prepare(block, txg, quantum);
        let chunks = if env.workers() > 1 { chunks(blocks) } else { Vec::new() };
        if chunks.len() <= 1 {
            return blocks.iter().map(prepare).collect();
        }
        let work = |chunk: &Range<usize>| -> Vec<_> {
            blocks.get(chunk.clone()).unwrap_or(&[]).iter().map(prepare).collect()
        };
        let mut jobs = Vec::with_capacity(blocks.len());
        for part in env.map(&chunks, work) {
            jobs.extend(part);
        }
        jobs
    }

    /// Prepares one block up to its allocation.
    fn prepare(&self, block: &NewBlock, txg: Txg, quantum: Quantum) -> Result<Job, ZioError> {
        let policy = &block.policy;
        let lsize = block.lsize();
        assert!(
            lsize.is_multiple_of(512) && (512..=MAX_BLOCK).contains(&lsize),
            "a block of {lsize} bytes cannot be written"
        );
        assert!(
            policy.checksum.is_for_tree() && (1..=3).contains(&policy.copies),
            "a policy must name a checksum and one to three copies: {policy:?}"
        );
        let (compression, image) = match (&block.stored, &block.seal) {
            (_, Some(Seal::Raw(form))) => {
                if policy.obj_type == ObjType::DNODE && is_zero(&block.data) {
                    return Ok(Job::done(hole(block, txg)));
                }
                assert_raw(form, &block.data);
                (form.compression, None)
            }
            (Some(stored), _) if stored.is_embedded => {
                let bp = pointer::embedded(policy, stored.compression, lsize, &stored.bytes, txg);
                return Ok(Job::done(bp));
            }
            (Some(stored), _) => (stored.compression, None),
            (None, _) => {
                let embed_max = if may_embed(policy) { EMBEDDED_MAX } else { 0 };
                match image::make(&block.data, policy, quantum, embed_max) {
                    Image::Zero => return Ok(Job::done(hole(block, txg))),
                    Image::Embedded(payload) => {
                        let bp = pointer::embedded(policy, policy.compression, lsize, &payload, txg);
                        return Ok(Job::done(bp));
                    }
                    Image::Compressed(bytes) => (policy.compression, Some(bytes)),
                    Image::Raw => (CompressionId::Off, None),
                }
            }
        };
        let bytes = image.as_deref().unwrap_or_else(|| block.stored_bytes());
        let sum = checksum::compute(policy.checksum, bytes, Endian::Little, self.salt())
            .map_err(|source| ZioError::Checksum { bp: block.old, source })?;
        let bp = pointer::normal(policy, lsize, bytes.len() as u64, compression, sum, block.fill, txg);
        let bp = match &block.seal {
            Some(seal) => pointer::sealed(&bp, seal, policy.checksum, &block.data),
            None => bp,
        };
        if policy.nopwrite && self.stands_already(block, &bp) {
            return Ok(Job::done(block.old));
        }
        Ok(Job { bp, image, held: Held::Wanted })
    }

    /// Whether the old pointer already has this content, according to a checksum that cannot be forged
    /// (docs/on-disk/12-block-pointers.md, section 12, step 4).
    fn stands_already(&self, block: &NewBlock, bp: &BlockPtr) -> bool {
        let (policy, old) = (&block.policy, &block.old);
        let strong = policy.checksum.is_dedup_strength() || policy.checksum == ChecksumId::Edonr;
        strong
            && policy.tree_level == Level(0)
            && policy.compression != CompressionId::Off
            && old.kind() == BpKind::Normal
            // Sizes, algorithms, type, level and byte order; no dedup, no encryption.
            && old.prop() == bp.prop()
            && old.checksum() == bp.checksum()
            && old.dvas().count() == usize::from(policy.copies)
            && {
                let tree = self.tree();
                old.dvas().all(|dva| !is_removed(&tree, &dva))
            }
    }

    /// Allocates space for all blocks, in their order.
    fn place_all(
        &self,
        writer: &Writer,
        blocks: &[NewBlock],
        jobs: &mut [Result<Job, ZioError>],
        tx: &dyn AllocTx,
    ) {
        let quantum = self.quantum();
        for (slot, block) in jobs.iter_mut().zip(blocks) {
            let Ok(job) = slot else { continue };
            if matches!(job.held, Held::Wanted) && overwrites(block, &job.bp, tx.txg()) {
                self.overwrite(writer, block, job, tx);
            }
            if matches!(job.held, Held::Wanted)
                && let Some(whole) = gang_write::forced(&request(job, block), quantum, &writer.gang_draws)
                && let Err(error) = self.settle(writer, block, job, Err(whole), &[], tx)
            {
                *slot = Err(error);
            }
        }
        let wanted = |(job, block): (&Result<Job, ZioError>, &NewBlock)| match job {
            Ok(job) if matches!(job.held, Held::Wanted) => Some(request(job, block)),
            _ => None,
        };
        let wants: Vec<Request> = jobs.iter().zip(blocks).filter_map(wanted).collect();
        let mut places = writer.space.allocate_batch(&wants, tx).into_iter();
        for (slot, block) in jobs.iter_mut().zip(blocks) {
            let Ok(job) = slot else { continue };
            if matches!(job.held, Held::Wanted)
                && let Some(place) = places.next()
                && let Err(error) = self.settle(writer, block, job, place, &[], tx)
            {
                *slot = Err(error);
            }
        }
    }

    /// Gives a block the space of the one that it replaces. A gang with an unreadable header is left alone.
    fn overwrite(&self, writer: &Writer, block: &NewBlock, job: &mut Job, tx: &dyn AllocTx) {
        if block.old.kind() == BpKind::Gang {
            let gang = gang_write::Builder::new(self, writer, &block.policy, &[], tx);
            let Ok((bp, units)) = gang.rebuild(&job.bp, &block.old, job.bytes(block)) else { return };
            job.bp = bp;
            job.held = Held::OldGang(units);
        } else {
            job.bp = pointer::with_places_of(&job.bp, &block.old);
            job.held = Held::Old;
        }
        for dva in job.places() {
            writer.freed.note(dva.vdev, dva.offset, tx.txg(), tx.txg());
        }
    }

    /// Gives a block its allocated space, or makes it a gang if there was none.
    fn settle(
        &self,
        writer: &Writer,
        block: &NewBlock,
        job: &mut Job,
        place: Result<Vec<Dva>, AllocError>,
        avoid: &[VdevId],
        tx: &dyn AllocTx,
    ) -> Result<(), ZioError> {
        match place {
            Ok(dvas) => {
                job.bp = pointer::with_dvas(&job.bp, &dvas, false);
                job.held = Held::Own;
                Ok(())
            }
            Err(whole) if gang_write::may_fit_in_pieces(&whole) => {
                let gang = gang_write::Builder::new(self, writer, &block.policy, avoid, tx);
                let (bp, units) = gang.build(&job.bp, job.bytes(block), whole)?;
                job.bp = bp;
                job.held = Held::Gang(units);
                Ok(())
            }
            Err(source) => Err(ZioError::Allocate { bp: job.bp, source }),
        }
    }

    /// Writes the blocks `which`, in ascending order, that have space. Returns those with a part that no
    /// device took.
    fn issue(
        &self,
        writer: &Writer,
        blocks: &[NewBlock],
        jobs: &[Result<Job, ZioError>],
        which: impl Iterator<Item = usize>,
    ) -> Vec<Failed> {
        let mut batch = Batch::default();
        for index in which {
            let (Some(Ok(job)), Some(block)) = (jobs.get(index), blocks.get(index)) else { continue };
            let (bytes, birth) = (job.bytes(block), job.bp.logical_birth());
            match &job.held {
                Held::None | Held::Wanted => {}
                Held::Old | Held::Own => batch.add(index, job.bp.dvas(), bytes, birth),
                Held::Gang(units) | Held::OldGang(units) => {
                    for unit in units {
                        batch.add(index, unit.extents.iter().copied(), unit.bytes(bytes), birth);
                    }
                }
            }
        }
        self.issue_batch(writer, &batch)
    }

    /// Moves blocks that no device took to another place, once, on another vdev if possible; frees their
    /// first space.
    fn try_elsewhere(
        &self,
        writer: &Writer,
        blocks: &[NewBlock],
        jobs: &mut [Result<Job, ZioError>],
        failed: Vec<Failed>,
        tx: &dyn AllocTx,
    ) {
        for (index, _) in &failed {
            let (Some(slot), Some(block)) = (jobs.get_mut(*index), blocks.get(*index)) else { continue };
            let Ok(job) = slot else { continue };
            let had = job.extents();
            // Allocate first: space that is freed before might be allocated again.
            let bad: Vec<VdevId> = job.places().map(|dva| dva.vdev).collect();
            let place = writer.space.allocate_elsewhere(&request(job, block), &bad, tx);
            let placed = self.settle(writer, block, job, place, &bad, tx);
            match placed {
                Ok(()) => space::give_back(&*writer.space, had, tx),
                // There may be no other space: keep it where it is.
                Err(_) if self.is_attended() => {}
                Err(error) => {
                    space::give_back(&*writer.space, had, tx);
                    *slot = Err(error);
                }
            }
        }
        let mut failed = self.issue(writer, blocks, jobs, failed.into_iter().map(|(index, _)| index));
        while let Some(error) = failed.first().and_then(|(index, source)| unwritable(jobs, *index, source)) {
            if !self.waits_out(&error) {
                break;
            }
            failed = self.issue(writer, blocks, jobs, failed.into_iter().map(|(index, _)| index));
        }
        for (index, source) in failed {
            let Some(slot) = jobs.get_mut(index) else { continue };
            if let Ok(job) = slot {
                space::give_back(&*writer.space, job.extents(), tx);
                *slot = Err(ZioError::Unwritable { bp: job.bp, source });
            }
        }
    }

    /// Keeps written blocks until they are durable. If they are too many, flushes now.
    fn keep(&self, writer: &Writer, blocks: &[NewBlock], jobs: &mut [Result<Job, ZioError>]) {
        if !writer.kept().is_complete() {
            return;
        }
        for (job, block) in jobs.iter_mut().zip(blocks) {
            let Ok(Job { bp, image, held }) = job else { continue };
            let bytes = match (image.take(), &block.stored) {
                (Some(image), _) => Arc::new(image),
                (None, Some(stored)) => Arc::new(stored.bytes.clone()),
                (None, None) => Arc::clone(&block.data),
            };
            let mut kept = writer.kept();
            match held {
                Held::None | Held::Wanted => {}
                Held::Old | Held::Own => kept.add(bp.dvas().collect(), bp.logical_birth(), bytes),
                Held::Gang(units) | Held::OldGang(units) => {
                    for unit in units {
                        let part = Arc::new(unit.bytes(&bytes).to_vec());
                        kept.add(unit.extents.clone(), bp.logical_birth(), part);
                    }
                }
            }
        }
        if writer.kept().is_full() {
            // The final flush reports this error again.
            let _ = self.flush_patiently(writer);
        }
    }

    /// Makes every block of the tree durable that was written before this call, except those of the intent
    /// log: flushes the volatile caches of all top-level vdevs written since their last flush. For one caller
    /// at a time: a second call does not wait for the first.
    ///
    /// # Errors
    /// [`ZioError::Flush`] if blocks were lost. As it is not known which, every later call fails too.
    pub fn flush_written(&self) -> Result<(), ZioError> {
        match self.writer() {
            Some(writer) => self.flush_patiently(writer),
            None => Ok(()),
        }
    }
}

/// The error of a block that no address took.
fn unwritable(jobs: &[Result<Job, ZioError>], index: usize, source: &VdevError) -> Option<ZioError> {
    let job = jobs.get(index)?.as_ref().ok()?;
    Some(ZioError::Unwritable { bp: job.bp, source: source.clone() })
}

/// The space that a block needs.
fn request(job: &Job, block: &NewBlock) -> Request {
    let psize = job.bp.psize().0;
    space::request(block.policy.class_of(psize), psize, block.policy.copies)
}

/// Whether a result may be embedded in the pointer, if it is small enough.
fn may_embed(policy: &WritePolicy) -> bool {
    policy.embed
        && policy.tree_level == Level(0)
        && policy.obj_type != ObjType::DNODE
        && policy.obj_type != ObjType::OBJSET
}

/// The hole for a block of zeros. It has a birth if it replaces data, which an incremental stream has to
/// remove.
fn hole(block: &NewBlock, txg: Txg) -> BlockPtr {
    let (policy, old) = (&block.policy, &block.old);
    if !policy.hole_birth || old.logical_birth() == Txg(0) {
        return BlockPtr::HOLE;
    }
    let new = pointer::hole(policy, block.lsize(), txg);
    // Zeros over a hole: a younger birth would only make streams longer.
    if old.is_hole() && old.prop() == new.prop() { *old } else { new }
}

/// Checks that a block that is stored as it is given can be one.
fn assert_raw(form: &RawForm, stored: &[u8]) {
    let psize = stored.len() as u64;
    let is_right = match form.compression {
        CompressionId::Off => psize == form.lsize,
        _ => psize.is_multiple_of(512) && (512..=form.lsize).contains(&psize),
    };
    assert!(is_right, "{psize} bytes are no stored form of a block: {form:?}");
}

/// Whether a block may be written over the one that it replaces.
fn overwrites(block: &NewBlock, bp: &BlockPtr, txg: Txg) -> bool {
    let (old, copies) = (&block.old, block.policy.copies);
    let is_alike = match old.kind() {
        BpKind::Normal => old.dvas().count() == usize::from(copies),
        BpKind::Gang => old.dvas().count() == usize::from(block.policy.gang_header_copies()),
        _ => false,
    };
    block.in_place
        && is_alike
        && old.psize() == bp.psize()
        && old.logical_birth() == txg
        && old.physical_birth() == txg
        && !old.uses_crypt()
        && !old.is_dedup()
}

fn is_removed(tree: &VdevTree, dva: &Dva) -> bool {
    tree.top(dva.vdev).is_none_or(|node| node.kind == format::config::VdevKind::Indirect)
}

/// Runs two closures, concurrently if there are workers.
fn both<A: Send, B: Send>(env: &Env, one: &(dyn Fn() -> A + Sync), other: &(dyn Fn() -> B + Sync)) -> (A, B) {
    let mut outcomes = env.map(&[true, false], |first| match first {
        true => (Some(one()), None),
        false => (None, Some(other())),
    });
    match (outcomes.pop(), outcomes.pop()) {
        (Some((_, Some(b))), Some((Some(a), _))) => (a, b),
        _ => unreachable!("one outcome for each thing that was to be done"),
    }
}

/// Cuts a batch into windows.
fn windows(blocks: &[NewBlock]) -> Vec<Range<usize>> {
    cut(blocks, WINDOW, |block| block.data.len() as u64)
}

/// Cuts a batch into parts of about equal work. A single part: another thread is not worth it.
fn chunks(blocks: &[NewBlock]) -> Vec<Range<usize>> {
    cut(blocks, CHUNK_NS, |block| image::work_ns(&block.policy, block.data.len()))
}

/// Cuts a batch into parts with a weight of at least `least`, except for the last.
fn cut(blocks: &[NewBlock], least: u64, weight: impl Fn(&NewBlock) -> u64) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut start, mut sum) = (0, 0);
    for (i, block) in blocks.iter().enumerate() {
        sum += weight(block);
        if sum >= least {
            parts.push(start..i + 1);
            (start, sum) = (i + 1, 0);
        }
    }
    if start < blocks.len() {
        parts.push(start..blocks.len());
    }
    parts
}
