//! The options of a file system, from the properties of its dataset.

/// Place of new extended attributes (property `xattr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XattrStorage {
    /// Among the system attributes, as long as they fit.
    #[default]
    SystemAttributes,
    /// Each in a file of a hidden directory.
    Directory,
    /// Extended attributes are not supported.
    Off,
}

/// When a read updates the access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessTimes {
    /// Each read changes the time.
    Always,
    /// If the file changed since the last access, or once a day.
    #[default]
    Relative,
    /// No read changes the time.
    Never,
}

/// Whether the directory `.zfs` in the root shows snapshots (property `snapdir`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SnapshotDir {
    /// The directory is found by its name, but not listed.
    #[default]
    Hidden,
    /// The directory is listed.
    Visible,
    /// The directory does not exist.
    Disabled,
}

/// The options of a file system, from the properties and features of its dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsOptions {
    /// Property `recordsize`: a power of two, 512 to 16 MiB.
    pub record_size: u64,
    /// Property `xattr`.
    pub xattrs: XattrStorage,
    /// Property `acltype` is `posix`.
    pub posix_acls: bool,
    /// Properties `atime` and `relatime`.
    pub access_times: AccessTimes,
    /// Property `dnodesize`: slots of 512 bytes for a new file's dnode, 1 to 32.
    pub dnode_slots: u8,
    /// Property `longname` is on, and the feature enabled.
    pub long_names: bool,
    /// Feature `project_quota` is enabled: new files have a project.
    pub projects: bool,
    /// Feature `zilsaxattr` is enabled: the intent log has records of extended attributes.
    pub log_sa_xattrs: bool,
    /// Feature `block_cloning` is enabled: files can share blocks.
    pub clones: bool,
    /// Property `readonly`: no change is allowed.
    pub read_only: bool,
    /// Property `snapdir`.
    pub snapshot_dir: SnapshotDir,
    /// Feature `large_blocks` is enabled: without it blocks have at most 128 KiB.
    pub large_blocks: bool,
}

impl Default for FsOptions {
    fn default() -> FsOptions {
        FsOptions {
            record_size: 128 << 10,
            xattrs: XattrStorage::default(),
            posix_acls: false,
            access_times: AccessTimes::default(),
            dnode_slots: 1,
            long_names: false,
            projects: true,
            log_sa_xattrs: true,
            clones: true,
            read_only: false,
            snapshot_dir: SnapshotDir::default(),
            large_blocks: true,
        }
    }
}

impl FsOptions {
    /// Largest block of a new file, in bytes.
    pub(crate) fn block_max(&self) -> u64 {
        let limit = if self.large_blocks { format::units::MAX_BLOCK } else { 128 << 10 };
        // The property allows no other values; a block of another size could not be written.
        self.record_size.clamp(512, limit).next_power_of_two().min(limit)
    }
}
