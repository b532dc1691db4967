//! Why a pool cannot be opened, or something pool-wide cannot be read.

use dmu::DmuError;
use dsl::DslError;
use format::{DecodeError, ObjectId, PoolGuid, Txg, VdevId};
use vdev::tree::VdevError;

/// An error of the pool layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// None of the devices belongs to such a pool.
    #[error("no such pool available: {wanted}{}", others(found))]
    NoSuchPool {
        /// Name or guid that was asked for.
        wanted: String,
        /// Names of the pools that were found.
        found: Vec<String>,
    },
    /// Several pools have the name.
    #[error("more than one pool is named '{name}': {}; open it by guid", list(guids))]
    Ambiguous {
        /// The name.
        name: String,
        /// Their guids.
        guids: Vec<PoolGuid>,
    },
    /// The pool was destroyed.
    #[error("pool '{name}' ({guid}) was destroyed; OpenOptions::destroyed (import -D) opens it")]
    Destroyed {
        /// Its name.
        name: String,
        /// Its guid.
        guid: PoolGuid,
    },
    /// No device of the pool has a usable uberblock.
    #[error("pool '{name}' has no valid uberblock{}", limit.map(|t| format!(" up to txg {t}")).unwrap_or_default())]
    NoUberblock {
        /// The pool.
        name: String,
        /// The limit that was asked for.
        limit: Option<Txg>,
    },
    /// The labels tell of a later state than any uberblock does.
    #[error(
        "pool '{name}' was written up to txg {labels}, but the newest uberblock left is that of txg {newest}; {}",
        fallback(absent, "OpenOptions::recover (import -F) falls back to it, losing what is later")
    )]
    LostUberblocks {
        /// The pool.
        name: String,
        /// Txg of the labels.
        labels: Txg,
        /// Txg of the newest uberblock.
        newest: Txg,
        /// Devices of the pool that were not found.
        absent: Vec<String>,
    },
    /// The newest state of the pool cannot be read.
    #[error("pool '{name}' cannot be read as of txg {txg}{}", recovery_hint(older, absent))]
    Unreadable {
        /// The pool.
        name: String,
        /// Its newest txg.
        txg: Txg,
        /// Older txgs whose uberblocks are valid, newest first.
        older: Vec<Txg>,
        /// Devices that were not found and that may have what could not be read.
        absent: Vec<String>,
        /// Why.
        #[source]
        cause: Box<PoolError>,
    },
    /// A later uberblock has moved data that an earlier one still looks for in the old place.
    #[error("txg {chosen} cannot be opened: the raidz expansion has moved data up to txg {newest}")]
    Reflowed {
        /// The txg that was chosen.
        chosen: Txg,
        /// The newest txg.
        newest: Txg,
    },
    /// A format version that Cenote does not know.
    #[error(
        "the pool is formatted using an unsupported ZFS version ({version}); 1 to 28 and 5000 are supported"
    )]
    Version {
        /// The version.
        version: u64,
    },
    /// Features are in use that Cenote cannot read.
    #[error("the pool uses features that are not supported: {}", features.join(", "))]
    UnsupportedFeatures {
        /// Their guids.
        features: Vec<String>,
    },
    /// The configuration names other devices than the uberblock counted.
    #[error(
        "the guids of the pool's devices add up to {found:#x}, the uberblock says {expected:#x}: a device is missing"
    )]
    GuidSum {
        /// Sum over the tree.
        found: u64,
        /// Sum in the uberblock.
        expected: u64,
    },
    /// The configuration in the pool is that of another pool.
    #[error("the configuration belongs to pool {found}, the labels to pool {expected}")]
    OtherPool {
        /// Guid in the MOS.
        found: PoolGuid,
        /// Guid in the labels.
        expected: PoolGuid,
    },
    /// Top-level vdevs that hold data cannot be opened.
    #[error(
        "pool '{name}': one or more devices is currently unavailable: {}; OpenOptions::allow_missing_devices reads what is left",
        why.join(", ")
    )]
    MissingTops {
        /// The pool.
        name: String,
        /// Their indices.
        vdevs: Vec<VdevId>,
        /// Each with the devices that it lacks.
        why: Vec<String>,
    },
    /// Log devices cannot be opened, so the last synchronous writes may be lost.
    #[error(
        "pool '{name}': the log device is unavailable: {}; OpenOptions::allow_missing_logs (import -m) ignores it",
        why.join(", ")
    )]
    MissingLogs {
        /// The pool.
        name: String,
        /// Their indices.
        vdevs: Vec<VdevId>,
        /// Each with the devices that it lacks.
        why: Vec<String>,
    },
    /// The pool has no checkpoint.
    #[error("pool '{name}' has no checkpoint")]
    NoCheckpoint {
        /// The pool.
        name: String,
    },
    /// An entry of the object directory is missing or malformed.
    #[error("entry '{entry}' of the object directory is missing or malformed")]
    Directory {
        /// The entry.
        entry: String,
    },
    /// A structure in the MOS is not what it should be.
    #[error("object {object} of the MOS")]
    Decode {
        /// The object.
        object: ObjectId,
        /// What is wrong.
        #[source]
        cause: DecodeError,
    },
    /// A structure in the MOS contradicts itself or another.
    #[error("object {object} of the MOS: {why}")]
    Corrupt {
        /// The object.
        object: ObjectId,
        /// What is wrong.
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
    /// A txg was written, but could not be made the state of the pool.
    #[error("txg {txg}: {what} failed: {why}")]
    Commit {
        /// The txg.
        txg: Txg,
        /// Which step.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// A sync task failed after it had changed something. Its txg is not written.
    #[error("a change of the pool failed halfway: {why}")]
    HalfDone {
        /// Why it failed.
        why: String,
    },
    /// The pool, or what was wanted of it, cannot be written by Cenote; it may be opened for reading.
    #[error("pool '{name}' cannot be opened for writing: {why}")]
    NotWritable {
        /// The pool.
        name: String,
        /// What is in the way.
        why: String,
    },
    /// The pool may be in use by another machine.
    #[error(
        "pool '{name}' was last used by {host} (hostid {hostid:x}){}; importing with force takes it over",
        if *is_active { ", which has not let go of it" } else { "" }
    )]
    OtherHost {
        /// The pool.
        name: String,
        /// Name of that machine.
        host: String,
        /// Its number.
        hostid: u64,
        /// It did not export the pool.
        is_active: bool,
    },
    /// Another machine is writing to the pool right now.
    #[error("pool '{name}' is in use by another machine: its uberblock changes")]
    ActiveElsewhere {
        /// The pool.
        name: String,
    },
    /// What was asked for does not make a pool.
    #[error("{why}")]
    BadSpec {
        /// What is wrong.
        why: String,
    },
    /// A device cannot be used.
    #[error("{path}: {why}")]
    BadDevice {
        /// The device.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// Not all devices are online and healthy, as what was asked for needs.
    #[error("one or more devices are not online and healthy")]
    NotHealthy,
    /// A property cannot be set to this value.
    #[error("cannot set property '{name}': {why}")]
    Property {
        /// The property.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// No transaction is possible any more.
    #[error(transparent)]
    Tx(#[from] dmu::TxError),
    /// A block could not be written, freed or claimed.
    #[error(transparent)]
    Zio(#[from] zio::ZioError),
    /// Space could not be accounted for.
    #[error(transparent)]
    Alloc(#[from] zio::alloc::AllocError),
    /// A label could not be written.
    #[error("{path}: {cause}")]
    Label {
        /// The device.
        path: String,
        /// Why.
        #[source]
        cause: vdev::label_write::LabelWriteError,
    },
    /// Something of the dataset layer.
    #[error(transparent)]
    Dsl(#[from] DslError),
}

fn list(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn others(found: &[String]) -> String {
    if found.is_empty() { String::new() } else { format!("; pools found here: {}", found.join(", ")) }
}

/// What to do about a state that cannot be read: devices that are missing come first.
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
