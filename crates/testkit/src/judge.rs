//! The tools of the other implementation, and how a test reports that one is missing.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders of system tools that may be missing from `PATH`.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Path of a tool, searched in `PATH` and in the folders of system tools.
#[must_use]
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
}

/// [`tool`], with a report by [`skip`] that the test is left out if the tool is missing.
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

/// A command of a tool for which time passes twenty times as fast, if `faketime` is installed.
///
/// `zdb` ends only when its prefetched blocks are old enough to be dropped, and waits idly for up to six
/// seconds: that would be half the time of the tests.
pub fn hurried(tool: impl AsRef<Path>) -> Command {
    let Some(faketime) = self::tool("faketime") else { return Command::new(tool.as_ref()) };
    forget_ended_hurries(Path::new("/dev/shm"));
    let mut command = Command::new(faketime);
    command.args(["-m", "-f", "+0 x20"]).arg(tool.as_ref());
    command
}

/// Removes files that a killed `faketime` left behind.
///
/// `faketime` keeps shared memory under its own process id, and does not start if such a file exists already.
/// A later process with the same id would fail, which happens by chance after some ten thousand processes.
fn forget_ended_hurries(shared_memory: &Path) {
    let Ok(entries) = std::fs::read_dir(shared_memory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let process =
            ["faketime_shm_", "sem.faketime_sem_"].iter().find_map(|start| name.strip_prefix(start));
        let Some(process) = process.filter(|number| number.parse::<u32>().is_ok()) else { continue };
        if !Path::new("/proc").join(process).exists() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Checks that `zdb -bcc` reads every block of an exported pool with devices in `dir` and finds no error;
/// skips without `zdb`.
///
/// # Panics
/// If it finds an error; the message has its output.
#[track_caller]
pub fn assert_zdb_clean(dir: &Path, pool: &str) {
    const COMPLAINTS: [&str; 6] = ["leak", "mismatch", "error", "corrupt", "can't", "ERROR"];
    let Some(zdb) = need_tool("zdb") else { return };
    let output = hurried(zdb).args(["-e", "-p"]).arg(dir).args(["-bcc", pool]).output().expect("zdb starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let no_leaks = "No leaks (block sum matches space maps exactly)";
    let complaints: Vec<&str> = text
        .lines()
        .chain(errors.lines())
        .filter(|line| !line.contains("No leaks") && !line.contains("verify nothing leaked"))
        .filter(|line| COMPLAINTS.iter().any(|word| line.contains(word)))
        .collect();
    assert!(
        output.status.success() && complaints.is_empty() && text.contains(no_leaks),
        "zdb -bcc {pool}: {}: {complaints:?}\n{text}\n{errors}",
        output.status
    );
}

/// Whether a file (such as `/dev/fuse`) exists; reports with [`skip`] if it does not.
#[must_use]
pub fn need_file(path: &str) -> bool {
    let there = Path::new(path).exists();
    if !there {
        skip(&format!("no {path} on this machine"));
    }
    there
}

/// Whether the user is root; reports with [`skip`] if not.
#[must_use]
pub fn need_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    // The owner of the process's entry in /proc is its user; a system call for that would need `unsafe`.
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        skip("needs root");
    }
    root
}

/// Reports that the running test cannot do its job, and why. The test must then return.
///
/// The line goes to standard error and, if `CENOTE_SKIP_LOG` names a file, is appended to that file, from
/// which `cargo xtask test` counts: cargo hides the output of a test that passes.
pub fn skip(reason: &str) {
    let line = format!("SKIPPED: {}: {reason}\n", running_test());
    eprint!("{line}");
    if let Some(log) = std::env::var_os("CENOTE_SKIP_LOG") {
        let opened = OpenOptions::new().create(true).append(true).open(&log);
        // A single write of a short line: lines of concurrent tests do not mix.
        let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{} cannot be written", Path::new(&log).display());
    }
}

/// `package/program/test`: cargo runs a test in a thread with its name, in a program whose file is named
/// after the program and a hash, and names the package in the environment.
fn running_test() -> String {
    let thread = std::thread::current();
    let program = std::env::current_exe().ok();
    let stem = program.as_deref().and_then(Path::file_stem).map(|stem| stem.to_string_lossy());
    let stem = stem.unwrap_or_default();
    let file = stem.rsplit_once('-').map_or(stem.as_ref(), |(file, _)| file);
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    format!("{package}/{file}/{}", thread.name().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_found_and_nonsense_is_not() {
        assert!(tool("sh").is_some());
        assert!(tool("no-such-tool-anywhere").is_none());
    }

    #[test]
    fn what_a_killed_faketime_left_goes_and_what_is_in_use_stays() {
        let folder = tempfile::tempdir().unwrap();
        // No process id is above PID_MAX_LIMIT.
        let [ended, running] = [u32::MAX, std::process::id()];
        let names = |process: u32| [format!("faketime_shm_{process}"), format!("sem.faketime_sem_{process}")];
        let other = ["faketime_shm_", "sem.other", "faketime_shm_.._x"].map(str::to_owned);
        for name in names(ended).iter().chain(&names(running)).chain(&other) {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        forget_ended_hurries(folder.path());
        for name in names(ended) {
            assert!(!folder.path().join(&name).exists(), "{name}");
        }
        for name in names(running).iter().chain(&other) {
            assert!(folder.path().join(name).exists(), "{name}");
        }
    }
}
