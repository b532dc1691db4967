//! Writing records into new blocks of the chain (docs/on-disk/24-zil.md, section 5).

use super::chain::Written;
use super::intent_log::{IntentLog, Writer};
use super::pending::{Itx, Pending};
use crate::Tx;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use codec::checksum::write_zil;
use format::zil::{Body, CHAIN_SIZE, Chain, Record, WRITE_UNIT};
use format::{BlockPtr, Checksum, Endian, Txg};
use std::collections::VecDeque;
use zio::alloc::AllocClass;
use zio::{AllocError, AllocTx, Unflushed, ZioError};

/// Largest block of a log.
const BLOCK_MAX: usize = 128 << 10;
/// Bytes of a write record before its data.
const WRITE_HEADER: usize = 192;
/// Most bytes of data in one write record.
const DATA_MAX: usize = BLOCK_MAX - CHAIN_SIZE - WRITE_HEADER - 8;

/// Why the log could not be written. The caller waits for the txg then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    #[error(transparent)]
    Zio(#[from] ZioError),
    #[error(transparent)]
    Tx(#[from] crate::TxError),
    #[error("a record of {0} bytes")]
    TooLarge(usize),
    #[error("no room for {0} bytes beside what the txgs need")]
    NoRoom(u64),
}

/// An encoded record and its txg.
struct Encoded {
    txg: Txg,
    bytes: Vec<u8>,
}

impl IntentLog {
    /// Writes records and makes them durable.
    pub(super) fn write(&self, writer: &mut Writer, mut batch: Vec<Itx>) -> Result<(), LogError> {
        // Held until the blocks are written: the txg that permanently allocates the successor of the last
        // block must not be on disk before a block references it.
        let tx = self.begin_writing(&mut batch).inspect_err(|_| self.give_up())?;
        if batch.is_empty() {
            return Ok(());
        }
        if lock(&self.chain).current.is_none() {
            return self.start(writer, tx);
        }
        let mut records: VecDeque<Encoded> = VecDeque::with_capacity(batch.len());
        let mut batch = batch.into_iter().peekable();
        while let Some(itx) = batch.next() {
            let (txg, time) = (itx.txg, itx.body.time_of_write(batch.peek().map(|next| &next.body)));
            self.encode(writer, itx, &mut records)?;
            if let Some(time) = time {
                self.encode(writer, Itx { txg, body: Pending::Body(time) }, &mut records)?;
            }
        }
        let total: usize = records.iter().map(|record| record.bytes.len()).sum();
        writer.recent[writer.at % writer.recent.len()] = total;
        writer.at += 1;
        let zio = self.set.store().zio();
        let written = self.write_blocks(writer, &mut records, &tx);
        drop(tx);
        let outcome = written.and_then(|written| Ok(zio.flush_log_blocks(&written)?));
        if outcome.is_err() {
            // Blocks after lost ones cannot be found: the chain is abandoned once the txgs have caught up.
            self.give_up();
        }
        outcome
    }

    /// The transaction in which blocks with these records may be written. A clone is logged only while its
    /// txg is open: the head of the chain is then past its record as soon as that txg is on disk. A later
    /// record would be claimed again by other implementations, with references to blocks that may be free. So
    /// for a closed txg this waits, and drops its records.
    fn begin_writing(&self, batch: &mut Vec<Itx>) -> Result<Tx, LogError> {
        loop {
            let tx = self.txgs.begin_now()?;
            let closed = batch.iter().filter(|itx| itx.txg < tx.txg() && itx.body.is_clone());
            let Some(closed) = closed.map(|itx| itx.txg).max() else { return Ok(tx) };
            drop(tx);
            self.txgs.wait_synced(closed)?;
            batch.retain(|itx| itx.txg > closed);
        }
    }

    /// Writes records into as many blocks as needed, all at once: their order matters only when the chain is
    /// read, and the commit is acknowledged after all are written.
    fn write_blocks(
        &self,
        writer: &Writer,
        records: &mut VecDeque<Encoded>,
        tx: &Tx,
    ) -> Result<Unflushed, LogError> {
        let zio = self.set.store().zio();
        let mut built: Vec<Built> = Vec::new();
        let mut end = lock(&self.chain).current;
        while let Some((bp, allocated)) = end.filter(|_| !records.is_empty()) {
            match self.build(writer, bp, allocated, records, tx) {
                Ok((block, next)) => {
                    built.push(block);
                    end = Some((next, tx.txg()));
                }
                Err(error) => {
                    // Space without a reference so far.
                    for block in &built {
                        zio.free(&block.next, tx)?;
                    }
                    return Err(error);
                }
            }
        }
        let blocks: Vec<(BlockPtr, &[u8])> = built.iter().map(|b| (b.written.bp, &b.bytes[..])).collect();
        let written = match zio.write_log_blocks(&blocks) {
            Ok(written) => written,
            Err(error) => {
                for block in &built {
                    zio.free(&block.next, tx)?;
                }
                return Err(error.into());
            }
        };
        let mut chain = lock(&self.chain);
        chain.written.extend(built.into_iter().map(|block| block.written));
        chain.current = end;
        drop(chain);
        self.set.mark_root(tx.txg());
        Ok(written)
    }

    /// Allocation class of the next block.
    fn class(&self) -> AllocClass {
        if self.avoids_log_devices.load(Ordering::Relaxed) { AllocClass::Normal } else { AllocClass::Log }
    }

    /// Starts a chain. On return its head is on disk, with every change so far; if this fails, no block may
    /// be written to the chain before that.
    fn start(&self, writer: &mut Writer, tx: Tx) -> Result<(), LogError> {
        let env = self.set.store().env();
        let identity = [env.random(), env.random(), self.set.number(), 1];
        let bp = self.allocate(WRITE_UNIT as u64, identity, &tx)?;
        {
            let mut chain = lock(&self.chain);
            chain.current = Some((bp, tx.txg()));
            chain.is_started = true;
        }
        self.set.mark_root(tx.txg());
        let txg = tx.txg();
        drop(tx);
        writer.owed = writer.owed.max(txg);
        self.txgs.wait_synced(txg)?;
        Ok(())
    }

    /// Allocates a block, if that leaves enough space to the txgs.
    fn allocate(&self, size: u64, identity: [u64; 4], tx: &Tx) -> Result<BlockPtr, LogError> {
        let (zio, class, meter) = (self.set.store().zio(), self.class(), &self.set.meter);
        let tree = zio.tree();
        let has_own = class == AllocClass::Log && tree.tops().any(|(_, top)| top.is_log);
        if !has_own && !meter.may_log(size) {
            return Err(LogError::NoRoom(size));
        }
        let bp = zio.allocate_log_block(size, identity, class, tx)?;
        let is_own = |vdev| tree.top(vdev).is_some_and(|top| top.is_log);
        if !bp.dvas().any(|dva| is_own(dva.vdev)) {
            meter.add_logged(tx.txg(), size);
        }
        Ok(bp)
    }

    /// Abandons the chain after its end was lost: a new one begins when its blocks are no longer needed.
    pub(super) fn give_up(&self) {
        let mut chain = lock(&self.chain);
        if let Some((bp, allocated)) = chain.current.take() {
            // Unwritten, but freed like the others, when its txg is on disk.
            chain.written.push_back(Written { bp, allocated, newest: allocated });
        }
    }

    fn encode(&self, writer: &mut Writer, itx: Itx, out: &mut VecDeque<Encoded>) -> Result<(), LogError> {
        let txg = itx.txg;
        let mut add = |body: Body| {
            writer.seq += 1;
            let record = Record { case_insensitive: false, txg, seq: writer.seq, body };
            let bytes = record.encode(Endian::Little);
            if bytes.len() > BLOCK_MAX - CHAIN_SIZE {
                return Err(LogError::TooLarge(bytes.len()));
            }
            out.push_back(Encoded { txg, bytes });
            Ok(())
        };
        let (object, offset, data) = match itx.body {
            Pending::Body(body) => return add(body),
            Pending::Txg { .. } => return Ok(()),
            Pending::Write { object, offset, data, .. } => (object, offset, data),
        };
        let (mut done, length) = (0, data.len());
        while done < length || (length == 0 && done == 0) {
            let len = (length - done).min(DATA_MAX as u64);
            add(Body::Write {
                object,
                offset: offset + done,
                length: len,
                bp: BlockPtr::HOLE,
                data: Some(data.slice(done..done + len)),
            })?;
            done += len.max(1);
        }
        Ok(())
    }

    /// Fills a block with as many records as fit, and allocates the next.
    fn build(
        &self,
        writer: &Writer,
        bp: BlockPtr,
        allocated: Txg,
        records: &mut VecDeque<Encoded>,
        tx: &Tx,
    ) -> Result<(Built, BlockPtr), LogError> {
        let room = bp.lsize().0 as usize;
        let mut bytes = Vec::with_capacity(room);
        bytes.resize(CHAIN_SIZE, 0);
        let mut newest = Txg(0);
        while let Some(record) = records.pop_front_if(|record| bytes.len() + record.bytes.len() <= room) {
            bytes.extend_from_slice(&record.bytes);
            newest = newest.max(record.txg);
        }
        let nused = bytes.len();
        bytes.resize(nused.next_multiple_of(WRITE_UNIT), 0);
        let [guid0, guid1, objset, seq] = bp.checksum().0;
        let mut size = next_size(writer, records);
        let least = records.front().map_or(WRITE_UNIT, |record| block_for(record.bytes.len()));
        let next = loop {
            match self.allocate(size as u64, [guid0, guid1, objset, seq + 1], tx) {
                // Free space is fragmented: use more and smaller blocks, each with at least one record.
                Err(LogError::Zio(ZioError::Allocate { source: AllocError::NoSpace { .. }, .. }))
                    if size > least =>
                {
                    size = (size / 2).next_multiple_of(WRITE_UNIT).max(least);
                }
                outcome => break outcome?,
            }
        };
        let chain = Chain { next, nused: nused as u64, checksum: Checksum([0; 4]), order: Endian::Little };
        bytes[..CHAIN_SIZE].copy_from_slice(&chain.encode());
        assert!(write_zil(&bp, &mut bytes, None), "a log block that its pointer does not describe");
        Ok((Built { written: Written { bp, allocated, newest }, bytes, next }, next))
    }
}

/// A block that is ready to be written.
struct Built {
    written: Written,
    bytes: Vec<u8>,
    /// The block that it references.
    next: BlockPtr,
}

/// Size of the next block: for the remaining records, otherwise for the size of recent commits.
fn next_size(writer: &Writer, records: &VecDeque<Encoded>) -> usize {
    let mut left = 0;
    for record in records {
        left += record.bytes.len();
        if left >= BLOCK_MAX {
            break;
        }
    }
    let expected = if left > 0 { left } else { writer.recent.iter().copied().max().unwrap_or(0) };
    block_for(expected)
}

/// The smallest block size with room for so many bytes of records, at most the largest size.
fn block_for(records: usize) -> usize {
    (records + CHAIN_SIZE).next_multiple_of(WRITE_UNIT).clamp(WRITE_UNIT, BLOCK_MAX)
}
