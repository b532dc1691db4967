//! The process that has a device open, named where a pool cannot be opened because of it.

use super::ChangeError;
use std::path::Path;

/// A process that has a device open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Process id.
    pub process: u32,
    /// Name of its program.
    pub name: String,
}

impl Holder {
    /// The end of a sentence about the device.
    pub(super) fn remark(&self) -> String {
        format!(" ({}, process {}, has it)", self.name, self.process)
    }
}

/// Adds the process that has the device to the error of a device that cannot be opened alone.
pub(super) fn with_holder(error: ChangeError) -> ChangeError {
    match error {
        ChangeError::Busy { path, why, .. } => {
            let holder = find_device_holder(Path::new(&path));
            ChangeError::Busy { path, why, holder }
        }
        error => error,
    }
}

/// The process that has a device or file open. `None`: it cannot be seen. Files of other processes are compared by
/// their paths, because other questions about them could wait for the server of their file system.
fn find_device_holder(path: &Path) -> Option<Holder> {
    let wanted = std::fs::canonicalize(path).ok()?;
    let is_it = |fd: std::fs::DirEntry| std::fs::read_link(fd.path()).is_ok_and(|open| open == wanted);
    let own = std::process::id();
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let number: u32 = process.file_name().to_str()?.parse().ok()?;
        if number == own || !std::fs::read_dir(process.path().join("fd")).ok()?.flatten().any(is_it) {
            return None;
        }
        let name = std::fs::read_to_string(process.path().join("comm")).ok()?;
        Some(Holder { process: number, name: name.trim().to_owned() })
    })
}
