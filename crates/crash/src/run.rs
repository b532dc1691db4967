//! A run of the workload of files: its pool, the operations of its disks, and what was promised when.

use crate::disks::{Disks, Layout};
use crate::model::Model;
use dsl::prop;
use dsl::prop::PropValue;
use pool::{Host, LivePool, PoolError};
use std::sync::Arc;
use vdev::device::sim::Op;
use vdev::env::Env;
use zpl::{FsOptions, HeadFs, NewFilesystem, make_filesystem};

/// Name of the pool.
pub const POOL: &str = "crash";
/// Record size in bytes.
pub(crate) const RECORD: u64 = 8192;
/// A promise: what is durable from which disk operation on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ack {
    /// Operations of the disks by then.
    pub operations: u64,
    /// The last step that had begun.
    pub step: u64,
    /// Everything up to this step is durable; if not, only what the step says of itself.
    pub is_durable: bool,
}

/// A run: what was done to the disks, and what was promised when.
pub(crate) struct Run {
    /// Layout of the pool.
    pub layout: Layout,
    /// Operations of the disks before the workload began: the pool is there.
    pub base: Vec<(usize, Op)>,
    /// Disk operations of the workload.
    pub ops: Vec<(usize, Op)>,
    /// Promises and beginnings of steps, in order.
    pub acks: Vec<Ack>,
    /// Model of the file system, with its history.
    pub model: Model,
}

impl Run {
    /// How many promises had been made.
    pub(crate) fn promises(&self, operation: u64) -> usize {
        let before = self.acks.iter().take_while(|ack| ack.operations <= operation);
        before.filter(|ack| ack.is_durable).count()
    }

    /// What is certain, and what may have happened, if the power goes off at this operation.
    pub(crate) fn at(&self, operation: u64) -> (u64, u64) {
        let before = self.acks.iter().take_while(|ack| ack.operations <= operation);
        let durable = before.clone().filter(|ack| ack.is_durable).map(|ack| ack.step).max().unwrap_or(0);
        // The step that was under way when the power went off was announced before its first operation.
        let begun = before.map(|ack| ack.step).max().unwrap_or(0);
        (durable, begun)
    }
}

/// The machine that the pool is on.
pub fn host() -> Host {
    Host::default()
}

/// The world of a run.
pub fn env(seed: u64) -> Env {
    Env::simulated(seed).0
}

/// Why a workload stopped: anything but what it expects is a bug.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Makes a pool of this layout, with a root file system and nothing in it.
///
/// # Errors
/// If the pool cannot be created.
pub fn create(disks: &Disks, layout: Layout, env: Env) -> Result<Arc<LivePool>, PoolError> {
    let mut spec = disks.spec(POOL, layout);
    let fill_env = env.clone();
    spec.root.fill = Box::new(move |set, tx| {
        make_filesystem(set, &NewFilesystem::default(), &fill_env, tx)
            .map(drop)
            .map_err(|error| dsl::DslError::Fill { source: Box::new(error) })
    });
    spec.host = host();
    // Small, so that what is read comes from the disks.
    spec.cache_bytes = 512 << 10;
    let pool = LivePool::create(spec, env)?;
    // What a file system is opened with holds until the first txg asks for its properties.
    pool.run(|ctx| prop::change::set(ctx, POOL, "recordsize", &PropValue::Number(RECORD)))?;
    Ok(pool)
}

/// Opens the root file system for writing.
///
/// # Errors
/// If it cannot be opened.
pub fn open_fs(pool: &Arc<LivePool>, seed: u64) -> Result<Arc<HeadFs>, Failure> {
    let head = pool.heads().open_by_name(POOL)?;
    let options = FsOptions { record_size: RECORD, ..FsOptions::default() };
    Ok(HeadFs::open(&head, options, &env(seed))?)
}
