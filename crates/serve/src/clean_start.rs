//! Cleans the process environment for a daemon that a command starts: the daemon gets what a service manager
//! would give it.
//!
//! # What always holds
//! - The daemon inherits nothing from the command except the standard streams, which the daemon replaces
//!   itself, and environment variables that name places.
//! - The daemon is not started under a limit that would end it or cut off its files and that cannot be
//!   raised.

use nix::libc;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsString;
use std::path::Path;

/// Variables for settings and places that a daemon reads, besides those that begin with `CENOTE_`. Variables
/// by which a service manager talks to a service are not passed on: they are meant for the command's service.
const VARIABLES: [&str; 7] = ["HOME", "USER", "LOGNAME", "LANG", "TZ", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"];
/// `CENOTE_` variables that only commands read; a daemon does not get them.
const COMMANDS: [&str; 5] =
    ["CENOTE_KEYS", "CENOTE_DIRECT", "CENOTE_DEVICES", "CENOTE_NO_START", "CENOTE_SCRIPT_COLUMNS"];
/// `PATH` of the daemon.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Limit of open files for root's daemon.
const FILES: u64 = 1 << 20;
/// Mount points of version 2 control groups: alone, or beside version 1.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Name of the control group of root's daemon.
const GROUP: &str = "cenoted";

/// The environment variables that the daemon gets, out of all variables of the command.
pub fn environment(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let is_kept =
        |name: &str| VARIABLES.contains(&name) || (name.starts_with("CENOTE_") && !COMMANDS.contains(&name));
    let kept = all.filter(|(name, _)| name.to_str().is_some_and(is_kept));
    kept.chain([("PATH".into(), PATH.into())]).collect()
}

/// Cleans this process, which is about to start the daemon and has no other threads.
///
/// # Errors
/// A sentence that names a limit which cannot be raised.
pub fn clean() -> Result<(), String> {
    close_others_on_exec();
    heed_signals();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    be_ordinary();
    leave_group();
    lift_limits()
}

/// Marks all descriptors except the standard streams as close-on-exec.
#[allow(unsafe_code)]
fn close_others_on_exec() {
    // SAFETY: the call takes numbers; descriptors stay open in this process, so no owner of one loses it.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

/// Restores the default action of the signals that the command ignored.
#[allow(unsafe_code)]
fn heed_signals() {
    for signal in 1..32 {
        if matches!(signal, libc::SIGKILL | libc::SIGSTOP | libc::SIGPIPE) {
            continue;
        }
        // SAFETY: the call installs no handler, and removes none that this process depends on.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Resets the priority, the processor affinity and the OOM score. What the system refuses stays as it is.
#[allow(unsafe_code)]
fn be_ordinary() {
    const WHO_PROCESS: libc::c_int = 1;
    let _ = rustix::process::setpriority_process(None, 0);
    // SAFETY: the calls read what they are given, which lives until they return.
    unsafe {
        let mut policy: libc::sched_param = std::mem::zeroed();
        policy.sched_priority = 0;
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const policy);
        libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, 0);
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        (0..usize::try_from(libc::CPU_SETSIZE).unwrap_or(0)).for_each(|cpu| libc::CPU_SET(cpu, &mut all));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const all);
    }
    let score = Path::new("/proc/self/oom_score_adj");
    if std::fs::read_to_string(score).is_ok_and(|text| text.trim().parse().is_ok_and(|score: i32| score > 0))
    {
        let _ = std::fs::write(score, "0");
    }
}

/// Moves root's daemon into a control group of its own, so that ending the command's group does not end the
/// daemon. Other users may not leave their group.
fn leave_group() {
    let is_inside = std::fs::read_to_string("/proc/self/cgroup")
        .is_ok_and(|text| text.lines().any(|line| line.starts_with("0::/") && line.len() > "0::/".len()));
    let mut places = GROUPS.iter().map(Path::new);
    let Some(all) = places.find(|all| all.join("cgroup.procs").exists()) else { return };
    if !rustix::process::geteuid().is_root() || !is_inside {
        return;
    }
    let own = all.join(GROUP);
    let _ = std::fs::create_dir(&own);
    if let Err(error) = std::fs::write(own.join("cgroup.procs"), std::process::id().to_string()) {
        tracing::debug!(%error, "the control group stays that of the command");
    }
}

fn lift_limits() -> Result<(), String> {
    let all = [
        (Resource::Fsize, "-f", "the size of files"),
        (Resource::Cpu, "-t", "processor time"),
        (Resource::As, "-v", ""),
        (Resource::Data, "-d", ""),
        (Resource::Rss, "-m", ""),
        (Resource::Locks, "-x", ""),
        (Resource::Memlock, "-l", ""),
        (Resource::Nproc, "-u", ""),
    ];
    let free = Rlimit { current: None, maximum: None };
    for (resource, option, what) in all {
        if setrlimit(resource, free).is_ok() {
            continue;
        }
        let Rlimit { maximum, .. } = getrlimit(resource);
        let _ = setrlimit(resource, Rlimit { current: maximum, maximum });
        if !what.is_empty() && maximum.is_some() {
            return Err(format!(
                "{what} is limited here (ulimit {option}), and its daemon would be: start 'cenoted' elsewhere first"
            ));
        }
    }
    let mut files = getrlimit(Resource::Nofile);
    files.maximum = files.maximum.map(|most| most.max(FILES));
    let _ = setrlimit(Resource::Nofile, files);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_that_name_places_go_along() {
        let names =
            ["CENOTE_STATE", "CENOTE_KEYS", "HOME", "LD_PRELOAD", "NOTIFY_SOCKET", "WATCHDOG_USEC", "PATH"];
        let all = names.map(|name| (OsString::from(name), OsString::from("x")));
        let kept = environment(all.into_iter());
        let kept: Vec<_> = kept.iter().map(|(name, value)| (name.to_str(), value.to_str())).collect();
        assert_eq!(
            kept,
            [(Some("CENOTE_STATE"), Some("x")), (Some("HOME"), Some("x")), (Some("PATH"), Some(PATH)),]
        );
    }
}
