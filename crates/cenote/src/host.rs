//! The machine that this process runs on, as pools remember it.

use pool::Host;

/// The id of this host, 0 if it has none (docs/on-disk/11-labels-config.md, section 7).
pub fn host_id() -> u64 {
    let bytes = std::fs::read("/etc/hostid").unwrap_or_default();
    bytes.first_chunk().map_or(0, |id| u64::from(u32::from_ne_bytes(*id)))
}

/// The name of this host.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What an opened pool writes into its labels and history about this machine.
pub fn this_host() -> Host {
    let system = rustix::system::uname();
    let parts = [system.nodename(), system.release(), system.version(), system.machine()];
    let uts = parts.map(|part| part.to_string_lossy().into_owned()).join(" ");
    Host { id: host_id(), name: host_name(), uts }
}
