//! Parameters of the engine that can be changed while it runs. They have the names of the OpenZFS module
//! parameters. Only parameters that have an effect are listed.

use super::{ADMIN_SNAPSHOT, DIO_ENABLED};
use ::pool::events::{CHECKSUM_EVENTS_PER_SECOND, ZEVENT_LEN_MAX};
use ::pool::{
    MAX_AUTO_ASHIFT, MIN_AUTO_ASHIFT, MULTIHOST_FAIL_INTERVALS, MULTIHOST_HISTORY, MULTIHOST_INTERVAL,
    SCAN_SUSPEND_PROGRESS, TXG_HISTORY,
};
use cenote::files::{BCLONE_ENABLED, BCLONE_WAIT_DIRTY};
use dmu::PREFETCH_DISABLE;
use dmu::TXG_TIMEOUT;
use vdev::device::file::{FILE_LOGICAL_ASHIFT, FILE_PHYSICAL_ASHIFT};
use vdev::tree::SLOW_IO_MS;
pub use vdev::tunable::Tunable;
use zio::{FORCE_GANGING, FORCE_GANGING_PCT};

/// All parameters, sorted by name.
pub fn tunables() -> [&'static Tunable; 20] {
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
        &SCAN_SUSPEND_PROGRESS,
        &TXG_HISTORY,
        &TXG_TIMEOUT,
        &ZEVENT_LEN_MAX,
    ]
}

/// Sets parameters from a list: `NAME=VALUE,…`.
///
/// # Errors
/// A message about the first entry that is not a parameter or has an invalid value. The entries before it are set.
pub fn set_tunables(list: &str) -> Result<(), String> {
    for pair in list.split(',').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("'{pair}' is not NAME=VALUE"))?;
        let known = tunable(name).ok_or_else(|| format!("there is no parameter '{name}'"))?;
        if !value.parse().is_ok_and(|value| known.set(value)) {
            return Err(format!("'{value}': {name} is a number from {} to {}", known.min, known.max));
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
