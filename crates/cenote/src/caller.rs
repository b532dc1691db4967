//! The user on whose behalf a pool is changed.

use dsl::delegation::User;

/// A user with groups, as in the credentials of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Caller {
    /// The effective user and the groups of this process.
    pub fn this_process() -> Caller {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.iter().map(|group| group.as_raw()).collect(),
        }
    }

    /// True for root and for the user of this process. Both can open the devices anyway, so every operation
    /// is allowed.
    pub fn is_admin(&self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }

    /// The user and groups that delegated permissions (`zfs allow`) are looked up for.
    pub fn delegate(&self) -> User {
        let groups = self.groups.iter().chain([&self.gid]).map(|gid| u64::from(*gid)).collect();
        User { uid: self.uid.into(), groups }
    }
}
