//! Errors of opening and changing pools.

use crate::missing_vdev::MissingVdev;
use crate::refusal::{DeviceRefusal, PropertyRefusal, ShapeRefusal, SpecRefusal, WriteRefusal};
use dmu::DmuError;
use dsl::DslError;
use format::{DecodeError, ObjectId, PoolGuid, Txg, VdevId};
use vdev::tree::VdevError;

/// An error of the pool layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The configuration has no such top-level vdev.
    #[error("no vdev {vdev}")]
    NoVdev {
        /// Number of the top-level vdev.
        vdev: VdevId,
    },
    /// There is no space for the contents of a vdev that is being removed, or its space maps cannot be read.
    #[error("vdev {vdev} is not removed: {cause}")]
    Evacuate {
        /// Number of the top-level vdev.
        vdev: VdevId,
        /// The error of the allocator.
        cause: Box<zio::AllocError>,
    },
    /// No device belongs to such a pool.
    #[error("no such pool available: {wanted}{}", others(found))]
    NoSuchPool {
        /// Requested name or guid.
        wanted: String,
        /// Names of the pools on the devices.
        found: Vec<String>,
    },
    /// Several pools have the name.
    #[error("more than one pool is named '{name}': {}; open it by guid", list(guids))]
    Ambiguous {
        /// The requested name.
        name: String,
        /// Guids of the pools that have this name.
        guids: Vec<PoolGuid>,
    },
    /// The pool was destroyed.
    #[error("pool '{name}' ({guid}) was destroyed; it can be opened with -D")]
    Destroyed {
        /// Name of the pool.
        name: String,
        /// Guid of the pool.
        guid: PoolGuid,
    },
    /// No device of the pool has a usable uberblock.
    #[error("pool '{name}' has no valid uberblock{}", limit.map(|t| format!(" up to txg {t}")).unwrap_or_default())]
    NoUberblock {
        /// Name of the pool.
        name: String,
        /// Newest txg that was allowed, if limited.
        limit: Option<Txg>,
    },
    /// The labels tell of a later state than any uberblock does.
    #[error(
        "pool '{name}' was written up to txg {labels}, but the newest uberblock left is that of txg {newest}; {}",
        fallback(absent, "OpenOptions::recover (import -F) falls back to it, losing what is later")
    )]
    LostUberblocks {
        /// Name of the pool.
        name: String,
        /// The newest txg in the labels.
        labels: Txg,
        /// Txg of the newest uberblock.
        newest: Txg,
        /// Devices of the pool that were not found.
        absent: Vec<String>,
    },
    /// The newest state of the pool cannot be read.
    #[error("pool '{name}' cannot be read as of txg {txg}{}", recovery_hint(older, absent))]
    Unreadable {
        /// Name of the pool.
        name: String,
        /// The newest txg of the pool.
        txg: Txg,
        /// Older txgs whose uberblocks are valid, newest first.
        older: Vec<Txg>,
        /// Devices that were not found, and that may have the unreadable data.
        absent: Vec<String>,
        /// The error that led to this.
        #[source]
        cause: Box<PoolError>,
    },
    /// A later uberblock has moved data that an earlier one still looks for in the old place.
    #[error("txg {chosen} cannot be opened: the raidz expansion has moved data up to txg {newest}")]
    Reflowed {
        /// The requested txg.
        chosen: Txg,
        /// The newest txg of the pool.
        newest: Txg,
    },
    /// A format version that Cenote does not know.
    #[error(
        "the pool is formatted using an unsupported ZFS version ({version}); 1 to 28 and 5000 are supported"
    )]
    Version {
        /// Version of the pool's format.
        version: u64,
    },
    /// Features are in use that Cenote cannot read.
    #[error("the pool uses features that are not supported: {}", features.join(", "))]
    UnsupportedFeatures {
        /// Guids of the unsupported features.
        features: Vec<String>,
    },
    /// The configuration names other devices than the uberblock counted.
    #[error(
        "the guids of the pool's devices add up to {found:#x}, the uberblock says {expected:#x}: a device is missing"
    )]
    GuidSum {
        /// Sum of the guids in the vdev tree, modulo 2^64.
        found: u64,
        /// Sum of guids that the uberblock holds.
        expected: u64,
    },
    /// The configuration in the pool is that of another pool.
    #[error("the configuration belongs to pool {found}, the labels to pool {expected}")]
    OtherPool {
        /// Guid in the MOS configuration.
        found: PoolGuid,
        /// Guid in the labels.
        expected: PoolGuid,
    },
    /// Top-level vdevs that hold data cannot be opened.
    #[error(
        "pool '{name}': one or more devices is currently unavailable: {}; OpenOptions::allow_missing_devices reads what is left",
        list(vdevs)
    )]
    MissingTops {
        /// Name of the pool.
        name: String,
        /// The top-level vdevs.
        vdevs: Vec<MissingVdev>,
    },
    /// Log devices cannot be opened, so the last synchronous writes may be lost.
    #[error(
        "pool '{name}': the log device is unavailable: {}; OpenOptions::allow_missing_logs (import -m) ignores it",
        list(vdevs)
    )]
    MissingLogs {
        /// Name of the pool.
        name: String,
        /// The top-level vdevs.
        vdevs: Vec<MissingVdev>,
    },
    /// A device is not attached, replaced or detached.
    #[error("{why}")]
    Shape {
        /// The reason.
        why: ShapeRefusal,
    },
    /// The pool has no checkpoint.
    #[error("checkpoint does not exist")]
    NoCheckpoint {
        /// Name of the pool.
        name: String,
    },
    /// The pool has a checkpoint, which allows no such change.
    #[error("checkpoint exists")]
    CheckpointExists {
        /// Name of the pool.
        name: String,
    },
    /// What a checkpoint held is being freed.
    #[error("currently discarding checkpoint")]
    DiscardingCheckpoint {
        /// Name of the pool.
        name: String,
    },
    /// A feature is not enabled.
    #[error("feature '{feature}' is not enabled: pool must be upgraded")]
    FeatureDisabled {
        /// Short name of the feature.
        feature: &'static str,
    },
    /// A vdev is being removed or expanded.
    #[error("device removal in progress")]
    VdevsChanging {
        /// Name of the pool.
        name: String,
    },
    /// An entry of the object directory is missing or malformed.
    #[error("entry '{entry}' of the object directory is missing or malformed")]
    Directory {
        /// Name of the entry, as in `format::names::directory`.
        entry: String,
    },
    /// A structure in the MOS is malformed.
    #[error("object {object} of the MOS")]
    Decode {
        /// Number of the object in the MOS.
        object: ObjectId,
        /// How the bytes are malformed.
        #[source]
        cause: DecodeError,
    },
    /// A structure in the MOS contradicts itself or another.
    #[error("object {object} of the MOS: {why}")]
    Corrupt {
        /// Number of the object in the MOS.
        object: ObjectId,
        /// The contradiction, in words.
        why: &'static str,
    },
    /// The configuration in the labels is not usable.
    #[error("the labels' configuration is not usable")]
    Labels(#[source] DecodeError),
    /// The tree of vdevs cannot be opened.
    #[error(transparent)]
    Vdev(#[from] VdevError),
    /// An object of the MOS cannot be read.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// A txg was written, but could not be committed.
    #[error("txg {txg}: {step} failed: {why}")]
    Commit {
        /// The txg that was written.
        txg: Txg,
        /// The step that failed.
        step: CommitStep,
        /// Why it failed.
        why: CommitFailure,
    },
    /// A sync task failed after it had changed something. Its txg is not written.
    #[error("a change of the pool failed halfway: {why}")]
    HalfDone {
        /// The error and its causes, in words.
        why: String,
    },
    /// Cenote cannot write the pool, or cannot make the requested change; the pool may be opened for reading.
    #[error("pool '{name}' cannot be opened for writing: {why}")]
    NotWritable {
        /// Name of the pool.
        name: String,
        /// Why it cannot be written.
        why: WriteRefusal,
    },
    /// The pool may be in use by another machine.
    #[error(
        "pool '{name}' was last used by {host} (hostid {hostid:x}){}; importing with force takes it over",
        if *is_active { ", which has not let go of it" } else { "" }
    )]
    OtherHost {
        /// Name of the pool.
        name: String,
        /// Name of the other machine.
        host: String,
        /// Host id of that machine.
        hostid: u64,
        /// The machine did not export the pool.
        is_active: bool,
    },
    /// Another machine is writing to the pool right now.
    #[error("pool '{name}' is in use by another machine: its uberblock changes")]
    ActiveElsewhere {
        /// Name of the pool.
        name: String,
    },
    /// The specification makes no pool or no vdev.
    #[error("{why}")]
    BadSpec {
        /// Why it is refused.
        why: SpecRefusal,
    },
    /// A device cannot be used.
    #[error("{path}: {why}")]
    BadDevice {
        /// Path of the device.
        path: String,
        /// Why it is refused.
        why: DeviceRefusal,
    },
    /// The operation needs all devices online and healthy.
    #[error("one or more devices are not online and healthy")]
    NotHealthy,
    /// A property cannot be set to this value.
    #[error("cannot set property '{name}': {why}")]
    Property {
        /// Name of the property.
        name: String,
        /// Why it is refused.
        why: PropertyRefusal,
    },
    /// No transaction can begin any more.
    #[error(transparent)]
    Tx(#[from] dmu::TxError),
    /// A block could not be written, freed or claimed.
    #[error(transparent)]
    Zio(#[from] zio::ZioError),
    /// An error of the space allocator.
    #[error(transparent)]
    Alloc(#[from] zio::alloc::AllocError),
    /// A label could not be written.
    #[error("{path}: {cause}")]
    Label {
        /// Path of the device.
        path: String,
        /// The error that led to this.
        #[source]
        cause: vdev::label_write::LabelWriteError,
    },
    /// An error of the dataset layer.
    #[error(transparent)]
    Dsl(#[from] DslError),
}

/// The steps of a commit, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitStep {
    /// Flush of the data, so that all blocks that the uberblock references are durable.
    Flush,
    /// Labels 0 and 2 are written.
    EvenLabels,
    /// The uberblock is written.
    Uberblock,
    /// Labels 1 and 3 are written.
    OddLabels,
}

impl std::fmt::Display for CommitStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CommitStep::Flush => "flushing data",
            CommitStep::EvenLabels => "even labels",
            CommitStep::Uberblock => "uberblock",
            CommitStep::OddLabels => "odd labels",
        })
    }
}

/// Why a step of a commit failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitFailure {
    /// Data could not be flushed.
    #[error("{0}")]
    Flush(zio::ZioError),
    /// No device of a vdev took its label.
    #[error("vdev {vdev}: {cause}")]
    Label {
        /// The top-level vdev.
        vdev: VdevId,
        /// The first error of its devices.
        cause: vdev::label_write::LabelWriteError,
    },
    /// No device of a vdev could be flushed after its label was written.
    #[error("vdev {vdev}: no label could be flushed")]
    LabelFlush {
        /// The top-level vdev.
        vdev: VdevId,
    },
    /// No device of an existing vdev took the uberblock.
    #[error("no device took the uberblock")]
    NoUberblock,
}

fn list(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn others(found: &[String]) -> String {
    if found.is_empty() { String::new() } else { format!("; pools found here: {}", found.join(", ")) }
}

/// Advice for a state that cannot be read: first about missing devices.
fn fallback(absent: &[String], otherwise: &str) -> String {
    if absent.is_empty() {
        return otherwise.to_owned();
    }
    format!("what is missing may be on a device that was not found: {}", absent.join(", "))
}

fn recovery_hint(older: &[Txg], absent: &[String]) -> String {
    match older {
        _ if !absent.is_empty() => format!("; {}", fallback(absent, "")),
        [] => ", and there is no older uberblock".to_owned(),
        [newest, ..] => format!(
            "; OpenOptions::recover (import -F) falls back to an older txg ({newest} is the newest), losing what is later"
        ),
    }
}

impl PoolError {
    pub(crate) fn decode(object: ObjectId) -> impl FnOnce(DecodeError) -> PoolError {
        move |cause| PoolError::Decode { object, cause }
    }
}

/// One line of text: the error, then each of its causes ([`std::error::Error::source`]), separated by `": "`.
///
/// A cause whose text already ends the line is left out, because transparent errors repeat the text of their
/// cause.
pub fn chain(error: &dyn std::error::Error) -> String {
    chain_with(error, |error| error.to_string())
}

/// [`chain`] with the text of each error made by `text_of`.
pub fn chain_with(
    error: &dyn std::error::Error,
    text_of: impl Fn(&dyn std::error::Error) -> String,
) -> String {
    let mut line = text_of(error);
    let mut next = error.source();
    while let Some(cause) = next {
        let text = text_of(cause);
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        next = cause.source();
    }
    line
}

/// The message of the C library for an error of the system, without the number that the standard library adds.
pub fn errno_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
