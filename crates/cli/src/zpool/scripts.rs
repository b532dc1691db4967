//! `-c`: scripts that are run for each leaf, whose output makes columns of `zpool status` and `zpool iostat`.
//!
//! # What always holds
//! - A script runs as the user who typed the command, with that user's environment, whichever process does the work.
//!   Where the daemon is another user's, it runs in the client, and the daemon is told what it said: once, also for
//!   tables that are repeated.
//! - Scripts are found by name in the folders of the search path only: a name with a slash is refused.
//! - Every cell has a text: `-` where a script said nothing.

use crate::console;
use crate::stop::Stop;
use admin::Vdev;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folders separated by colons, in place of the usual ones.
const PATH: &str = "ZPOOL_SCRIPTS_PATH";
/// 0: no user may run scripts.
const ENABLED: &str = "ZPOOL_SCRIPTS_ENABLED";
/// Root may run scripts only where this is 1.
const AS_ROOT: &str = "ZPOOL_SCRIPTS_AS_ROOT";
/// The folder of the system.
const SYSTEM: &str = "/etc/zfs/zpool.d";
/// Bytes read of what a script prints.
const OUTPUT_MAX: u64 = 64 << 10;

/// Tells the daemon of another user what scripts said: JSON, a list of guid, title and text.
pub(crate) const SAID: &str = "CENOTE_SCRIPT_COLUMNS";

/// The scripts of a command line.
#[derive(Debug, Clone, Default)]
pub(super) struct Scripts {
    found: Vec<PathBuf>,
    /// They were run elsewhere.
    said: Option<Columns>,
}

/// What scripts said of all leaves.
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    /// Titles, in the order in which they first came.
    pub(super) titles: Vec<String>,
    cells: BTreeMap<(u64, String), String>,
}

impl Columns {
    /// What stands in a column for a vdev, by its guid.
    pub(super) fn cell(&self, vdev: u64, title: &str) -> &str {
        self.cells.get(&(vdev, title.to_owned())).map_or("-", String::as_str)
    }

    /// Characters that a column needs.
    pub(super) fn width(&self, title: &str) -> usize {
        let own = self.cells.iter().filter(|((_, of), _)| of == title).map(|(_, text)| text.chars().count());
        // What a format can pad to: a longer cell stands as it is.
        own.fold(title.chars().count(), usize::max).min(usize::from(u16::MAX))
    }

    fn put(&mut self, vdev: u64, title: &str, text: &str) {
        if !self.titles.iter().any(|known| known == title) {
            self.titles.push(title.to_owned());
        }
        let text = if text.trim().is_empty() { "-" } else { text.trim() };
        self.cells.insert((vdev, title.to_owned()), crate::out::visible(text).into_owned());
    }

    /// As the client of a daemon tells them.
    fn to_json(&self) -> String {
        let of_title = |title: &String| {
            let cells = self.cells.iter().filter(|((_, of), _)| of == title).collect::<Vec<_>>();
            cells
                .into_iter()
                .map(|((vdev, title), text)| (*vdev, title.clone(), text.clone()))
                .collect::<Vec<_>>()
        };
        let cells: Vec<(u64, String, String)> = self.titles.iter().flat_map(of_title).collect();
        serde_json::json!(cells).to_string()
    }

    fn from_json(text: &str) -> Option<Columns> {
        let cells: Vec<(u64, String, String)> = serde_json::from_str(text).ok()?;
        let mut columns = Columns::default();
        cells.iter().for_each(|(vdev, title, text)| columns.put(*vdev, title, text));
        Some(columns)
    }
}

fn is_set(variable: &str, value: &str) -> bool {
    console::env(variable).is_some_and(|found| found == OsStr::new(value))
}

fn uid() -> u32 {
    let of_process = || rustix::process::geteuid().as_raw();
    console::current().map_or_else(of_process, |console| console.caller.uid)
}

/// Whether this process is the daemon of another user than the client's.
fn is_others() -> bool {
    console::current().is_some() && uid() != rustix::process::geteuid().as_raw()
}

/// Whether this user may run scripts at all. In another user's daemon no user may, whatever the request says of scripts
/// that ran in the client.
pub(super) fn check_allowed() -> Result<(), Stop> {
    if is_others() {
        return Err(Stop::failed("permission denied: -c runs programs"));
    }
    if is_set(ENABLED, "0") {
        return Err(Stop::failed(format!("Can't run -c, disabled by {ENABLED}.")));
    }
    if uid() == 0 && !is_set(AS_ROOT, "1") {
        return Err(Stop::failed(format!("Can't run -c with root privileges unless {AS_ROOT} is set.")));
    }
    Ok(())
}

/// Folders in which scripts are looked for.
fn folders() -> Vec<PathBuf> {
    if let Some(path) = console::env(PATH) {
        return std::env::split_paths(&path).collect();
    }
    let home = console::env("HOME").map(|home| Path::new(&home).join(".zpool.d"));
    home.into_iter().chain([PathBuf::from(SYSTEM)]).collect()
}

impl Scripts {
    /// The scripts of a list.
    ///
    /// # Errors
    /// If scripts may not be run, or one is not there.
    pub(super) fn parse(list: &str) -> Result<Scripts, Stop> {
        if is_others()
            && let Some(said) = console::env(SAID)
        {
            let said = Columns::from_json(&said.to_string_lossy());
            let why = "what scripts said cannot be read";
            return Ok(Scripts { found: Vec::new(), said: Some(said.ok_or_else(|| Stop::failed(why))?) });
        }
        check_allowed()?;
        let folders = folders();
        let mut found = Vec::new();
        for name in list.split(',').filter(|name| !name.is_empty()) {
            if name.contains('/') || name.starts_with('.') {
                return Err(Stop::failed(format!("'{name}' cannot be the name of a script")));
            }
            let path = folders.iter().map(|folder| folder.join(name)).find(|path| is_program(path));
            found.push(
                path.ok_or_else(|| Stop::failed(format!("'{name}' is not in the search path of scripts")))?,
            );
        }
        Ok(Scripts { found, said: None })
    }

    /// The list of all scripts, with what each says of itself.
    pub(super) fn available(verb: &str) -> Result<String, Stop> {
        check_allowed()?;
        let mut all = BTreeMap::new();
        for folder in folders() {
            let entries = std::fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
            for entry in entries.filter(|entry| is_program(&entry.path())) {
                let name = entry.file_name().to_string_lossy().into_owned();
                all.entry(name).or_insert_with(|| run(&entry.path(), Some("-h"), &[]));
            }
        }
        let mut text = format!("Available 'zpool {verb} -c' commands:\n");
        for (name, help) in all {
            let help = help.lines().next().unwrap_or_default();
            let _ = writeln!(text, "  {name:<14}  {}", crate::out::visible(help));
        }
        Ok(text)
    }

    /// Runs all scripts for these leaves, each leaf on a thread of its own.
    pub(super) fn columns<'v>(&self, leaves: impl Iterator<Item = &'v Vdev>) -> Columns {
        match &self.said {
            Some(said) => said.clone(),
            None => self.run_for(leaves.map(|leaf| (leaf.guid, leaf.path.clone().unwrap_or_default()))),
        }
    }

    /// Runs them here, for the pools of another user's daemon. What they said, as [`SAID`]; nothing if there
    /// are none.
    pub(super) fn said(&self) -> Result<Option<String>, Stop> {
        if self.found.is_empty() {
            return Ok(None);
        }
        let failed = |error: std::io::Error| Stop::failed(format!("cannot look for devices: {error}"));
        let mut ask = crate::this_program().map_err(failed)?;
        ask.args(["zpool", "status", "-j", "-P"]).stdin(Stdio::null()).stderr(Stdio::null());
        let answer = ask.output().map_err(failed)?;
        let answer = serde_json::from_slice(&answer.stdout).unwrap_or_default();
        let mut leaves = Vec::new();
        find_leaves(&answer, &mut leaves);
        Ok(Some(self.run_for(leaves.into_iter()).to_json()))
    }

    fn run_for(&self, leaves: impl Iterator<Item = (u64, String)>) -> Columns {
        let console = console::current();
        let of_leaf = |path: &str| {
            let variables = variables(path);
            let said = || self.found.iter().map(|script| run(script, None, &variables)).collect::<Vec<_>>();
            console.as_ref().map_or_else(said, |console| console.enter(said))
        };
        let leaves: Vec<(u64, String)> = leaves.collect();
        let said: Vec<Vec<String>> = std::thread::scope(|scope| {
            let threads: Vec<_> = leaves.iter().map(|(_, path)| scope.spawn(|| of_leaf(path))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
        });
        let mut columns = Columns::default();
        // By scripts first, so that the columns of one stand beside each other.
        for script in 0..self.found.len() {
            for ((leaf, _), said) in leaves.iter().zip(&said) {
                take(*leaf, said.get(script).map_or("", String::as_str), &mut columns);
            }
        }
        columns
    }
}

/// Takes what a script said apart: lines `name=value`, up to the first that is none.
fn take(vdev: u64, said: &str, columns: &mut Columns) {
    for line in said.lines() {
        match line.split_once('=') {
            Some((title, value)) if !title.is_empty() => columns.put(vdev, title, value),
            _ => return columns.put(vdev, "-", line),
        }
    }
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The devices in an answer of `zpool status -j -P`.
fn find_leaves(value: &Value, leaves: &mut Vec<(u64, String)>) {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    if let (Some(guid), Some(path)) = (text("guid").and_then(|guid| guid.parse().ok()), text("path")) {
        leaves.push((guid, path.to_owned()));
    }
    for below in value.as_object().into_iter().flat_map(|object| object.values()) {
        find_leaves(below, leaves);
    }
}

fn variables(path: &str) -> Vec<(&'static str, OsString)> {
    let below = std::fs::canonicalize(path).map_or_else(|_| OsString::from(path), PathBuf::into_os_string);
    vec![("VDEV_PATH", path.into()), ("VDEV_UPATH", below)]
}

/// What a script prints; nothing if it cannot be run.
fn run(script: &Path, argument: Option<&str>, variables: &[(&'static str, OsString)]) -> String {
    let start = |mut command: Command| {
        command.args(argument).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(console) = console::current() {
            command.env_clear().envs(console::all_env()).current_dir("/");
            if rustix::process::geteuid().is_root() && console.caller.uid != 0 {
                command.gid(console.caller.gid).uid(console.caller.uid);
            }
        }
        command.envs(variables.iter().map(|(name, value)| (*name, value))).spawn()
    };
    // A script may lack the line that names its shell.
    let child = start(Command::new(script)).or_else(|_| {
        let mut shell = Command::new("/bin/sh");
        shell.arg(script);
        start(shell)
    });
    let Ok(mut child) = child else { return String::new() };
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // Cut off in the middle is as good as not read.
        let _ = stdout.take(OUTPUT_MAX).read_to_end(&mut output);
    }
    let _ = child.wait();
    String::from_utf8_lossy(&output).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_said_is_the_same_for_the_daemon() {
        let mut columns = Columns::default();
        take(7, "z=1\na=2", &mut columns);
        take(u64::MAX, "a=3", &mut columns);
        let told = Columns::from_json(&columns.to_json()).expect("columns");
        assert_eq!((told.titles, told.cells), (columns.titles, columns.cells));
        assert!(Columns::from_json("{}").is_none());
    }

    #[test]
    fn leaves_are_found_by_their_paths() {
        let answer = serde_json::json!({"pools": {"t": {"vdevs": {"t": {"guid": "1", "vdevs": {
            "mirror-0": {"guid": "2", "vdevs": {"/a": {"guid": "3", "path": "/a"}}}}}}}}});
        let mut leaves = Vec::new();
        find_leaves(&answer, &mut leaves);
        assert_eq!(leaves, [(3, "/a".to_owned())]);
    }

    #[test]
    fn output_is_columns_up_to_the_first_line_that_is_none() {
        let mut columns = Columns::default();
        take(1, "temp=36\nserial=\nno more\nx=1\n", &mut columns);
        take(2, "temp=40", &mut columns);
        assert_eq!(columns.titles, ["temp", "serial", "-"]);
        assert_eq!((columns.cell(1, "temp"), columns.cell(2, "temp")), ("36", "40"));
        assert_eq!((columns.cell(1, "serial"), columns.cell(2, "serial")), ("-", "-"));
        assert_eq!((columns.cell(1, "-"), columns.cell(1, "x")), ("no more", "-"));
        assert_eq!(columns.width("serial"), 6);
    }
}
