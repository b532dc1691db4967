//! Parameters of the engine that can be changed while it runs. They have the names of the OpenZFS module
//! parameters. Only parameters that have an effect are listed.

use super::verbs::zfs::send::SEND_CORRUPT_DATA;
use super::{ADMIN_SNAPSHOT, DIO_ENABLED};
use ::pool::events::{CHECKSUM_EVENTS_PER_SECOND, ZEVENT_LEN_MAX};
use ::pool::{
    CONDENSE_MAX_OBSOLETE, CONDENSE_MIN_MAPPING, CONDENSE_OBSOLETE_PCT, MAX_AUTO_ASHIFT, MIN_AUTO_ASHIFT,
    MULTIHOST_FAIL_INTERVALS, MULTIHOST_HISTORY, MULTIHOST_INTERVAL, REMOVE_MAX_SEGMENT, REMOVE_MAX_SPAN,
    REMOVE_SUSPEND_PROGRESS, RESILVER_DEFER_PERCENT, SCAN_SUSPEND_PROGRESS, TXG_HISTORY,
};
use cenote::files::{BCLONE_ENABLED, BCLONE_WAIT_DIRTY};
use dmu::PREFETCH_DISABLE;
use dmu::TXG_TIMEOUT;
use vdev::device::file::{FILE_LOGICAL_ASHIFT, FILE_PHYSICAL_ASHIFT};
use vdev::tree::SLOW_IO_MS;
pub use vdev::tunable::Tunable;
use zio::{FORCE_GANGING, FORCE_GANGING_PCT};

/// All parameters, sorted by name.
pub fn tunables() -> [&'static Tunable; 28] {
    [
        &FORCE_GANGING,
        &FORCE_GANGING_PCT,
        &ADMIN_SNAPSHOT,
        &BCLONE_ENABLED,
        &BCLONE_WAIT_DIRTY,
        &FILE_LOGICAL_ASHIFT,
        &FILE_PHYSICAL_ASHIFT,
        &SLOW_IO_MS,
        &CHECKSUM_EVENTS_PER_SECOND,
        &DIO_ENABLED,
        &MAX_AUTO_ASHIFT,
        &MIN_AUTO_ASHIFT,
        &MULTIHOST_FAIL_INTERVALS,
        &MULTIHOST_HISTORY,
        &MULTIHOST_INTERVAL,
        &PREFETCH_DISABLE,
        &RESILVER_DEFER_PERCENT,
        &CONDENSE_MAX_OBSOLETE,
        &CONDENSE_MIN_MAPPING,
        &CONDENSE_OBSOLETE_PCT,
        &REMOVE_MAX_SEGMENT,
        &REMOVE_MAX_SPAN,
        &REMOVE_SUSPEND_PROGRESS,
        &SCAN_SUSPEND_PROGRESS,
        &SEND_CORRUPT_DATA,
        &TXG_HISTORY,
        &TXG_TIMEOUT,
        &ZEVENT_LEN_MAX,
    ]
}

/// Why a parameter is not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// An entry of the list has no `=`.
    #[error("'{entry}' is not NAME=VALUE")]
    NotAPair {
        /// The entry.
        entry: String,
    },
    /// No parameter has this name.
    #[error("there is no parameter '{name}'")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The value is no number, or out of range.
    #[error("'{value}': {name} is a number from {min} to {max}")]
    Value {
        /// Name of the parameter.
        name: &'static str,
        /// The value.
        value: String,
        /// The least value.
        min: u64,
        /// The greatest value.
        max: u64,
    },
}

/// Sets parameters from a list: `NAME=VALUE,…`.
///
/// # Errors
/// [`ParameterError`] of the first entry that is refused. The entries before it are set.
pub fn set_tunables(list: &str) -> Result<(), ParameterError> {
    for entry in list.split(',').filter(|entry| !entry.is_empty()) {
        let (name, value) =
            entry.split_once('=').ok_or_else(|| ParameterError::NotAPair { entry: entry.to_owned() })?;
        let known = tunable(name).ok_or_else(|| ParameterError::Unknown { name: name.to_owned() })?;
        if !value.parse().is_ok_and(|value| known.set(value)) {
            let Tunable { name, min, max, .. } = known;
            return Err(ParameterError::Value { name, value: value.to_owned(), min: *min, max: *max });
        }
    }
    Ok(())
}

/// The parameter of this name.
pub fn tunable(name: &str) -> Option<&'static Tunable> {
    tunables().into_iter().find(|tunable| tunable.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_sorted_but_for_the_prefix_and_found_by_name() {
        let names = tunables().map(|tunable| tunable.name.to_owned());
        for name in &names {
            assert_eq!(tunable(name).map(|found| found.name), Some(name.as_str()));
        }
        assert!(tunable("zfs_none").is_none());
        for bad in [
            "zfs_none=1",
            "metaslab_force_ganging_pct",
            "metaslab_force_ganging_pct=101",
            "zfs_txg_history=x",
        ] {
            assert!(set_tunables(bad).is_err(), "{bad}");
        }
        assert_eq!(set_tunables(""), Ok(()));
        assert_eq!(set_tunables("metaslab_force_ganging_pct=4,"), Ok(()));
        assert_eq!(FORCE_GANGING_PCT.get(), 4);
        assert_eq!(set_tunables("metaslab_force_ganging_pct=3"), Ok(()));
        let mut distinct = names.to_vec();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len());
    }
}
