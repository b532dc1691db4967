//! Operations by object id, for servers: the types of [`FilesystemWriter::fs`], and block cloning.

use super::FilesystemWriter;
use vdev::tunable::Tunable;
use zpl::FileRange;
use zpl::ZplError;

/// Parameter `zfs_bclone_enabled`: 1 if files may share blocks.
pub static BCLONE_ENABLED: Tunable = Tunable::new("zfs_bclone_enabled", 1, 0, 1);
/// Parameter `zfs_bclone_wait_dirty`: 1 if a clone of data that is not on disk yet waits until it is; with 0
/// the data is copied.
pub static BCLONE_WAIT_DIRTY: Tunable = Tunable::new("zfs_bclone_wait_dirty", 1, 0, 1);

impl FilesystemWriter {
    /// Shares blocks of a file of `source`, in the same pool, with a file of this file system: see
    /// [`zpl::Fs::clone_range`].
    ///
    /// # Errors
    /// Those of [`zpl::Fs::clone_range`].
    pub fn clone_range(
        &self,
        source: &FilesystemWriter,
        from: FileRange,
        to: FileRange,
        len: u64,
    ) -> Result<u64, ZplError> {
        if !BCLONE_ENABLED.is_on() {
            return Err(ZplError::CannotClone { why: "it is switched off (zfs_bclone_enabled)" });
        }
        self.fs().clone_range(source.fs(), from, to, len, &self.clone_table())
    }
}
