//! The caller of an operation: user, groups and capabilities.
//!
//! A request carries a user and one group. Supplementary groups and capabilities are read from `/proc` when
//! they are needed, for the thread that waits for the answer.
//!
//! # What always holds
//! - The calling thread waits for the answer, so its files in `/proc` exist. If this process cannot see the
//!   thread, only the ids in the request are known.
//! - A capability counts in the user namespace of this process only.

/// The caller of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller {
    /// User id, as in the request.
    pub uid: u32,
    /// Id of the primary group.
    pub gid: u32,
    /// Id of the thread on this machine that waits for the answer; 0 if there is none, or if no program made
    /// the call.
    pub pid: u32,
    /// Permission bits that new files of the caller do not get.
    pub umask: u32,
}

/// A capability; its value is the number in `linux/capability.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    /// `CAP_FOWNER`: acts as the owner of every file.
    Fowner = 3,
    /// `CAP_LINUX_IMMUTABLE`: changes the flags that bind root as well.
    LinuxImmutable = 9,
}

impl Caller {
    /// Ids of the supplementary groups of the calling thread.
    pub(crate) fn groups(&self) -> Vec<u32> {
        if self.pid == 0 { Vec::new() } else { groups_in(&self.status()) }
    }

    /// Whether the caller is a member of a group.
    pub(crate) fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups().contains(&group)
    }

    /// Whether the calling thread has a capability.
    pub(crate) fn has(&self, capability: Capability) -> bool {
        if self.pid == 0 {
            return self.uid == 0;
        }
        let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
        let is_here = space("self").is_some_and(|ours| space(&self.pid.to_string()) == Some(ours));
        is_here && effective(&self.status()) >> capability as u32 & 1 != 0
    }

    /// Whether the caller is a thread of this process: the server calls itself to mount a file system.
    pub(crate) fn is_this_process(&self) -> bool {
        std::path::Path::new(&format!("/proc/self/task/{}", self.pid)).exists()
    }

    fn status(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default()
    }
}

/// The effective capabilities in the text of a `status` file.
fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()).unwrap_or(0)
}

/// The supplementary groups in the text of a `status` file.
fn groups_in(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.into_iter().flat_map(str::split_ascii_whitespace).filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stand_in_a_line_of_their_own() {
        let text = "Name:\tGroups: 7\nGid:\t1\t1\t1\t1\nGroups:\t4 24 65510 \nNStgid:\t9\n";
        assert_eq!(groups_in(text), [4, 24, 65510]);
        assert_eq!(effective("CapInh:\t1\nCapEff:\t0000000000000208\n"), 0x208);
        assert!(groups_in("Name:\tx\n").is_empty() && groups_in("Groups:\t\n").is_empty());
    }

    #[test]
    fn ones_own_first_group_is_enough() {
        let caller = Caller { gid: 70_001, pid: 0, ..Caller::default() };
        assert!(caller.is_in(70_001) && !caller.is_in(70_002));
    }
}
