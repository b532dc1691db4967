//! What is known of somebody who asks through the kernel besides what requests tell: further groups, capabilities, and
//! whether the mounts through which a file is open can be written to.
//!
//! # What always holds
//! - Whoever asks waits for the answer, so that its process is there to be looked at. Of one that this process cannot
//!   see, the numbers in the request are all that is known.
//! - A capability counts in the user namespace of this process only.

use crate::fuse::Caller;

/// The further groups of the thread that asks.
pub(crate) fn groups(caller: &Caller) -> Vec<u32> {
    if caller.pid == 0 {
        return Vec::new();
    }
    listed(&status(caller))
}

/// Whether it is in a group.
pub(crate) fn is_in(caller: &Caller, group: u32) -> bool {
    caller.gid == group || groups(caller).contains(&group)
}

/// Capabilities (`linux/capability.h`): the owner of everything; changing flags that bind even root.
pub(crate) const FOWNER: u32 = 3;
pub(crate) const LINUX_IMMUTABLE: u32 = 9;

/// Whether it has a capability.
pub(crate) fn has(caller: &Caller, capability: u32) -> bool {
    if caller.pid == 0 {
        return caller.uid == 0;
    }
    let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    let is_here = space("self").is_some_and(|ours| space(&caller.pid.to_string()) == Some(ours));
    is_here && effective(&status(caller)) >> capability & 1 != 0
}

/// A file as the kernel tells of it in `/proc`.
pub(crate) struct OpenFile {
    /// Major and minor number of the device that its mounts show; `None`: not known.
    pub(crate) device: Option<(u32, u32)>,
    /// Either is its own.
    pub(crate) numbers: [u64; 2],
}

/// Whether it has a file open through a mount that can be written to.
pub(crate) fn writes_to(caller: &Caller, file: &OpenFile) -> bool {
    if caller.pid == 0 {
        return true;
    }
    let of = |file: &str| format!("/proc/{}/{file}", caller.pid);
    let mounts = std::fs::read_to_string(of("mountinfo")).unwrap_or_default();
    let open = std::fs::read_dir(of("fdinfo")).into_iter().flatten().flatten();
    open.filter_map(|file| std::fs::read_to_string(file.path()).ok()).any(|info| {
        let says = |field: &str| numbered(&info, field);
        says("ino:").is_some_and(|ino| file.numbers.contains(&ino))
            && says("mnt_id:").is_some_and(|mount| is_writable(&mounts, mount, file.device))
    })
}

/// The number behind a word at the beginning of a line.
fn numbered(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
}

/// Whether one of these mounts is of this device, and can be written to as far as it itself says.
fn is_writable(mountinfo: &str, mount: u64, device: Option<(u32, u32)>) -> bool {
    let device = device.map(|(major, minor)| format!("{major}:{minor}"));
    mountinfo.lines().any(|line| {
        let mut words = line.split(' ');
        let is_it = words.next().and_then(|word| word.parse().ok()) == Some(mount);
        // Files of others have the same numbers.
        let number = words.nth(1);
        let is_here = device.as_deref().is_none_or(|device| number == Some(device));
        let options = words.nth(2);
        is_it && is_here && options.is_some_and(|options| options.split(',').all(|option| option != "ro"))
    })
}

fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()).unwrap_or(0)
}

fn status(caller: &Caller) -> String {
    std::fs::read_to_string(format!("/proc/{}/status", caller.pid)).unwrap_or_default()
}

fn listed(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.into_iter().flat_map(str::split_ascii_whitespace).filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stand_in_a_line_of_their_own() {
        let text = "Name:\tGroups: 7\nGid:\t1\t1\t1\t1\nGroups:\t4 24 65510 \nNStgid:\t9\n";
        assert_eq!(listed(text), [4, 24, 65510]);
        assert!(listed("Name:\tx\n").is_empty() && listed("Groups:\t\n").is_empty());
    }

    #[test]
    fn mounts_that_are_only_read_are_told_from_others() {
        let table = "31 1 0:27 / /a rw,nosuid - fuse p rw\n32 1 0:27 / /b ro,nosuid - fuse p rw\n";
        let writable = |mount, device| is_writable(table, mount, device);
        assert!(writable(31, None) && !writable(32, None) && !writable(3, None));
        assert!(writable(31, Some((0, 27))) && !writable(31, Some((0, 28))));
        let info = "pos:\t0\nflags:\t0100000\nmnt_id:\t32\nino:\t7\n";
        assert_eq!((numbered(info, "mnt_id:"), numbered(info, "ino:")), (Some(32), Some(7)));
        assert_eq!(effective("CapInh:\t1\nCapEff:\t0000000000000208\n"), 0x208);
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let file = rustix::fs::open("/proc/self/status", flags, rustix::fs::Mode::empty()).unwrap();
        let caller = Caller { pid: std::process::id(), ..Caller::default() };
        let ino = rustix::fs::fstat(&file).unwrap().st_ino;
        let writes = |device, ino| writes_to(&caller, &OpenFile { device, numbers: [ino, ino] });
        assert!(writes(None, ino) && !writes(None, u64::MAX) && !writes(Some((u32::MAX, 0)), ino));
    }

    #[test]
    fn ones_own_first_group_is_enough() {
        let caller = Caller { gid: 70_001, pid: 0, ..Caller::default() };
        assert!(is_in(&caller, 70_001) && !is_in(&caller, 70_002));
    }
}
