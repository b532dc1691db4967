//! The process that has a device open, named where a pool cannot be opened because of it.

use super::ChangeError;
use std::path::Path;

/// Names who has a device that cannot be opened alone.
pub(super) fn with_holder(error: ChangeError) -> ChangeError {
    let ChangeError::Busy { why } = &error else { return error };
    let holder = why.split_once(": ").and_then(|(path, _)| find_device_holder(Path::new(path)));
    match holder {
        Some((process, name)) => {
            ChangeError::Busy { why: format!("{why} ({name}, process {process}, has it)") }
        }
        None => error,
    }
}

/// Who has a device or file open: number and name of the process. `None`: that cannot be seen. Files of others are known
/// by their paths: asking for more than that could wait for whoever serves them.
fn find_device_holder(path: &Path) -> Option<(u32, String)> {
    let wanted = std::fs::canonicalize(path).ok()?;
    let is_it = |fd: std::fs::DirEntry| std::fs::read_link(fd.path()).is_ok_and(|open| open == wanted);
    let own = std::process::id();
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let number: u32 = process.file_name().to_str()?.parse().ok()?;
        if number == own || !std::fs::read_dir(process.path().join("fd")).ok()?.flatten().any(is_it) {
            return None;
        }
        let name = std::fs::read_to_string(process.path().join("comm")).ok()?;
        Some((number, name.trim().to_owned()))
    })
}
