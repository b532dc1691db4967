//! Identity of the machine, as pools record it.

use pool::Host;

/// Host id of this machine, 0 if it has none (docs/on-disk/11-labels-config.md, section 7).
pub(crate) fn host_id() -> u64 {
    let bytes = std::fs::read("/etc/hostid").unwrap_or_default();
    bytes.first_chunk().map_or(0, |id| u64::from(u32::from_ne_bytes(*id)))
}

/// Node name of this machine.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Id, name and version of this machine, for the labels and the history of a pool that is opened for writing.
pub fn this_host() -> Host {
    let system = rustix::system::uname();
    let parts = [system.nodename(), system.release(), system.version(), system.machine()];
    let uts = parts.map(|part| part.to_string_lossy().into_owned()).join(" ");
    Host { id: host_id(), name: host_name(), uts }
}
