//! Statistics of the last txgs: the data of the kstat file `txgs`.

use format::Txg;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;
use vdev::VdevTree;
use vdev::sync::lock;
use vdev::tunable::Tunable;

/// Number of txgs that are recorded.
pub static TXG_HISTORY: Tunable = Tunable::new("zfs_txg_history", 100, 0, 1 << 16);

/// A record of a txg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxgRecord {
    /// Number of the txg.
    pub txg: Txg,
    /// Time when it was opened, by the pool's clock.
    pub birth: Duration,
    /// `O`: open, `C`: on disk.
    pub state: char,
    /// Bytes of dirty memory when it was closed.
    pub dirty: u64,
    /// Bytes read during its sync.
    pub read_bytes: u64,
    /// Bytes written to devices during its sync.
    pub written_bytes: u64,
    /// Number of read operations.
    pub reads: u64,
    /// Number of write operations.
    pub writes: u64,
    /// Time for which it was open.
    pub open: Duration,
    /// Duration of its sync.
    pub sync: Duration,
}

/// The last txgs of a pool.
#[derive(Debug, Default)]
pub(crate) struct TxgHistory(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: VecDeque<TxgRecord>,
    /// Time when the open txg was opened.
    opened: Duration,
}

/// A txg that is being written.
pub(crate) struct Writing {
    record: TxgRecord,
    began: Duration,
    before: [u64; 4],
}

/// Reads, writes, and the bytes of each.
fn counts(tree: &VdevTree) -> [u64; 4] {
    let status = tree.status();
    let leaves = status.walk().into_iter().filter(|vdev| vdev.kind.is_leaf());
    leaves.fold([0; 4], |[r, w, rb, wb], leaf| {
        [r + leaf.reads, w + leaf.writes, rb + leaf.read_bytes, wb + leaf.write_bytes]
    })
}

impl TxgHistory {
    /// Notes that a txg was closed and the next one opened.
    pub(crate) fn begin(&self, txg: Txg, dirty: u64, now: Duration, tree: &VdevTree) -> Writing {
        let birth = std::mem::replace(&mut lock(&self.0).opened, now);
        let open = now.saturating_sub(birth);
        let (read_bytes, written_bytes, reads, writes) = (0, 0, 0, 0);
        let sync = Duration::ZERO;
        let record =
            TxgRecord { txg, birth, state: 'C', dirty, read_bytes, written_bytes, reads, writes, open, sync };
        Writing { record, began: now, before: counts(tree) }
    }

    /// Notes that the txg is on disk.
    pub(crate) fn end(&self, writing: &Writing, now: Duration, tree: &VdevTree) {
        let Writing { mut record, began, before } = *writing;
        record.sync = now.saturating_sub(began);
        let after = counts(tree);
        let [reads, writes, read, written] =
            std::array::from_fn(|i: usize| after[i].saturating_sub(before[i]));
        (record.reads, record.writes, record.read_bytes, record.written_bytes) =
            (reads, writes, read, written);
        let mut state = lock(&self.0);
        state.last.push_back(record);
        let over = state.last.len().saturating_sub(TXG_HISTORY.get() as usize);
        state.last.drain(..over);
    }

    /// The last txgs, oldest first, and the open one, which has `dirty` bytes.
    pub(crate) fn records(&self, now: Duration, open: Txg, dirty: u64) -> Vec<TxgRecord> {
        let state = lock(&self.0);
        let mut records: Vec<TxgRecord> = state.last.iter().copied().collect();
        let (birth, since) = (state.opened, now.saturating_sub(state.opened));
        drop(state);
        let (read_bytes, written_bytes, reads, writes) = (0, 0, 0, 0);
        records.push(TxgRecord {
            txg: open,
            birth,
            state: 'O',
            dirty,
            read_bytes,
            written_bytes,
            reads,
            writes,
            open: since,
            sync: Duration::ZERO,
        });
        records
    }
}
