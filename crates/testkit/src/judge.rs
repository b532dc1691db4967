//! The tools of the other implementation, and how a test reports that one is missing.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::fixture::unpacked_root;

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

/// A command of `zdb` that ends when its output is complete, where a C compiler is found.
///
/// `zdb` by itself waits actively at its end until its read-ahead is old enough to be dropped from its cache: for up to
/// six seconds, when everything is checked and printed. Here the function that empties the cache does nothing.
pub fn hurried(zdb: impl AsRef<Path>) -> Command {
    static LIBRARY: LazyLock<Option<PathBuf>> = LazyLock::new(|| without_waiting(&unpacked_root()).ok());
    let mut command = Command::new(zdb.as_ref());
    if let Some(library) = LIBRARY.as_deref() {
        command.env("LD_PRELOAD", library);
    }
    command
}

/// Makes the library for [`hurried`] in a folder that all tests share, and returns its path.
fn without_waiting(folder: &Path) -> std::io::Result<PathBuf> {
    let library = std::path::absolute(folder)?.join("zdb-ends.so");
    if library.exists() {
        return Ok(library);
    }
    std::fs::create_dir_all(folder)?;
    let fresh = tempfile::Builder::new().prefix("zdb-ends").tempdir_in(folder)?;
    let [source, compiled] = ["zdb-ends.c", "zdb-ends.so"].map(|name| fresh.path().join(name));
    std::fs::write(&source, "void kernel_fini(void) {}\n")?;
    let status = Command::new("cc").arg("-shared").arg("-o").arg(&compiled).arg(&source).status()?;
    if !status.success() {
        return Err(std::io::Error::other("cc fails"));
    }
    // In one rename, for the programs that do the same at this moment.
    std::fs::rename(compiled, &library)?;
    Ok(library)
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

/// The program `cenote` of the same build, for tests outside its package: it lies in the folder above that of the running
/// test. `cargo xtask test` builds it for the crates whose tests run it.
///
/// # Panics
/// If it is not there.
pub fn cenote() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let found =
        test.ancestors().skip(1).take(2).map(|folder| folder.join("cenote")).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("no program cenote beside {}: run `cargo xtask test`", test.display()))
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
    fn the_library_for_zdb_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let made = without_waiting(&folder.path().join("new")).unwrap();
        let written = || std::fs::metadata(&made).unwrap().modified().unwrap();
        let first = written();
        assert_eq!(without_waiting(&folder.path().join("new")).unwrap(), made);
        assert_eq!(written(), first);
        assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 1);
    }
}
