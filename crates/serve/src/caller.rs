//! In which groups somebody is who asks through the kernel: its requests name the first one only.
//!
//! # What always holds
//! - Whoever asks waits for the answer, so that its process is there to be looked at. Of one that this process cannot
//!   see, the first group is all that is known.

use crate::fuse::Caller;

/// The further groups of the thread that asks.
pub(crate) fn groups(caller: &Caller) -> Vec<u32> {
    if caller.pid == 0 {
        return Vec::new();
    }
    let text = std::fs::read_to_string(format!("/proc/{}/status", caller.pid)).unwrap_or_default();
    listed(&text)
}

/// Whether it is in a group.
pub(crate) fn is_in(caller: &Caller, group: u32) -> bool {
    caller.gid == group || groups(caller).contains(&group)
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
    fn ones_own_first_group_is_enough() {
        let caller = Caller { gid: 70_001, pid: 0, ..Caller::default() };
        assert!(is_in(&caller, 70_001) && !is_in(&caller, 70_002));
    }
}
