//! The other implementation's tools, and how a test says that it must do without one.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that hold system tools and are not in everyone's `PATH`.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Where a tool is, searched in `PATH` and in the folders of system tools.
#[must_use]
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
}

/// As [`tool`], and says with [`skip`] that the test is left out when there is none.
///
/// ```no_run
/// let Some(zdb) = testkit::need_tool("zdb") else { return };
/// ```
#[must_use]
pub fn need_tool(name: &str) -> Option<PathBuf> {
    let found = tool(name);
    if found.is_none() {
        skip(&format!("no {name} on this machine"));
    }
    found
}

/// A command of a tool for which time passes twenty times as fast, where `faketime` is there.
///
/// `zdb` ends only when what it has read ahead is old enough to be dropped, and does nothing else for up to six seconds:
/// half the time of our tests would go there.
pub fn hurried(tool: impl AsRef<Path>) -> Command {
    let Some(faketime) = self::tool("faketime") else { return Command::new(tool.as_ref()) };
    let mut command = Command::new(faketime);
    command.args(["-m", "-f", "+0 x20"]).arg(tool.as_ref());
    command
}

/// True when the file (`/dev/fuse`, say) is there; says with [`skip`] that it is not.
#[must_use]
pub fn need_file(path: &str) -> bool {
    let there = Path::new(path).exists();
    if !there {
        skip(&format!("no {path} on this machine"));
    }
    there
}

/// True for root; says with [`skip`] that the test needs it otherwise.
#[must_use]
pub fn need_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    // The owner of our own entry in /proc is who we are, without a call that needs `unsafe`.
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        skip("needs root");
    }
    root
}

/// Says that the running test does not do its job, and why. The test then returns.
///
/// The line goes to standard error and, when `CENOTE_SKIP_LOG` names a file, behind that file's
/// end, which is how `cargo xtask test` counts: cargo swallows what a passing test prints.
pub fn skip(reason: &str) {
    let line = format!("SKIPPED: {}: {reason}\n", running_test());
    eprint!("{line}");
    if let Some(log) = std::env::var_os("CENOTE_SKIP_LOG") {
        let opened = OpenOptions::new().create(true).append(true).open(&log);
        // One write of a short line: lines of parallel tests do not mix.
        let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{} cannot be written", Path::new(&log).display());
    }
}

/// `program/test`: cargo runs a test in a thread of its name, in a program of its file's name
/// and a hash.
fn running_test() -> String {
    let thread = std::thread::current();
    let program = std::env::current_exe().ok();
    let stem = program.as_deref().and_then(Path::file_stem).map(|stem| stem.to_string_lossy());
    let stem = stem.unwrap_or_default();
    let file = stem.rsplit_once('-').map_or(stem.as_ref(), |(file, _)| file);
    format!("{file}/{}", thread.name().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_shell_is_found_and_nonsense_is_not() {
        assert!(super::tool("sh").is_some());
        assert!(super::tool("no-such-tool-anywhere").is_none());
    }
}
