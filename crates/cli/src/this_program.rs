//! This program, to be started again.

use std::os::unix::process::CommandExt;

/// This program again, as `cenote`, whatever name it was called by: each name may be a copy or a hard link.
///
/// # Errors
/// Its file is not known.
pub(crate) fn this_program() -> std::io::Result<std::process::Command> {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.arg0("cenote");
    Ok(command)
}
