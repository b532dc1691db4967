//! `cenote tour`: what Cenote does, on file-backed disks in a temporary folder.
//!
//! First a pool that OpenZFS made (raidz1 of four disks), which is part of this program: it is read in process, then
//! without one of its disks ([`openzfs`]). Then the story of a pool in use: made, mounted, filled, extended, snapshots
//! and clones, what it does ([`howto`]); and one that heals ([`healing`]). These two have a daemon of their own, which
//! the first command starts and the end of the tour stops.
//!
//! # What always holds
//! - Nothing is shown that was not run: every line after a `$` is a command that can be typed.
//! - A step that does not do what the text says ends the tour with exit code 1.
//! - Where file systems cannot be mounted, the tour says so and puts files in without a mount.
//! - However the tour ends (at its end, in a step that went wrong, asked by a signal, without a reader), its daemon is
//!   ended, nothing of it stays mounted, and its folder is removed. A signal ends it when the step under way is done.
// The tour always runs in a process of its own.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod healing;
mod howto;
mod openzfs;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs the story of a pool in use on disks in a scratch folder: made, mounted, filled, extended, healed
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Keep the scratch folder, to go on trying things
    #[arg(long)]
    keep: bool,
}

/// Why the tour ends early.
enum Wrong {
    /// A step that went wrong, told to the reader.
    Step(String),
    /// Standard output is closed: there is no reader any more.
    NoReader,
    /// A signal asks for the end.
    Asked,
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Wrong {
        Wrong::Step(error.to_string())
    }
}

/// The exit code of a command that a signal (SIGINT, SIGPIPE) has ended, as shells say it.
const INTERRUPTED: u8 = 130;
const BROKEN_PIPE: u8 = 141;

/// Runs the tour; its exit code.
pub(crate) fn run(args: &Args) -> u8 {
    let folder = std::env::temp_dir().join(format!("cenote-tour-{}", std::process::id()));
    let result = Tour::begin(&folder).and_then(|tour| {
        let result = tour.walk();
        tour.stop_daemon();
        result
    });
    let result = result.and_then(|()| if args.keep { say_kept(&folder) } else { Ok(()) });
    if is_below_a_mount(&folder) {
        complain(&format!("something is still mounted below {}, which stays", folder.display()));
    } else if !args.keep {
        // Nothing depends on it any more; what cannot be removed is in the temporary folder.
        let _ = std::fs::remove_dir_all(&folder);
    }
    match result {
        Ok(()) => 0,
        Err(Wrong::Step(why)) => {
            complain(&why);
            1
        }
        Err(Wrong::NoReader) => BROKEN_PIPE,
        Err(Wrong::Asked) => INTERRUPTED,
    }
}

/// To standard error, which may be closed.
fn complain(why: &str) {
    let _ = writeln!(io::stderr(), "\ntour: {why}");
}

fn say_kept(folder: &Path) -> Result<(), Wrong> {
    say(&format!("The disks stay in {}.", folder.display()))
}

/// Removing a folder would remove the files of what is mounted in it.
fn is_below_a_mount(folder: &Path) -> bool {
    mounted_at(|place| place.starts_with(folder))
}

fn mounted_at(wanted: impl Fn(&Path) -> bool) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().filter_map(|line| line.split(' ').nth(1)).any(|place| wanted(Path::new(place)))
}

/// Where the commands of a part of the tour do their work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunsIn {
    /// In process, on the disks of the first part.
    Here,
    /// In the daemon.
    Daemon,
}

struct Tour {
    program: PathBuf,
    folder: PathBuf,
    /// A signal has asked for the end.
    is_asked: Arc<AtomicBool>,
}

/// A paragraph of the story.
fn say(text: &str) -> Result<(), Wrong> {
    print(&format!("\n{text}\n"))
}

/// Writes to standard output at once.
fn print(text: &str) -> Result<(), Wrong> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Wrong::NoReader,
        _ => error.into(),
    })
}

impl Tour {
    fn begin(folder: &Path) -> Result<Tour, Wrong> {
        let is_asked = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&is_asked);
        serve::Terminator::new()?.watch(move |_| tell.store(true, Ordering::Relaxed))?;
        std::fs::create_dir(folder)?;
        Ok(Tour { program: std::env::current_exe()?, folder: folder.to_owned(), is_asked })
    }

    fn walk(&self) -> Result<(), Wrong> {
        self.read_a_pool()?;
        self.use_a_pool()?;
        self.heal_a_pool()?;
        say("That was Cenote. `cenote --help` lists the commands, docs/man has a page for each tool.")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The same, as a word of a command.
    fn word(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    fn command(&self, place: RunsIn, program: &str, words: &[&str]) -> Command {
        let is_ours = matches!(program, "cenote" | "zpool" | "zfs" | "fsstat");
        let mut command =
            Command::new(if is_ours { self.program.as_os_str().to_owned() } else { OsString::from(program) });
        if is_ours && program != "cenote" {
            command.arg(program);
        }
        command.args(words).env_remove("ZPOOL_IMPORT_PATH").env("CENOTE_STATE", self.at("state"));
        command.env("CENOTE_SOCKET", self.at("socket"));
        match place {
            RunsIn::Here => command.env("CENOTE_DIRECT", "1").env("CENOTE_DEVICES", self.at("openzfs")),
            RunsIn::Daemon => command.env_remove("CENOTE_DIRECT").env_remove("CENOTE_DEVICES"),
        };
        command.stdin(Stdio::null());
        command
    }

    /// Shows a command and what it prints.
    fn show(&self, place: RunsIn, line: &[&str]) -> Result<(), Wrong> {
        print(&self.run(place, line)?)
    }

    /// Shows a command, runs it, and returns what it prints.
    fn run(&self, place: RunsIn, line: &[&str]) -> Result<String, Wrong> {
        say(&format!("$ {}", line.join(" ")))?;
        let Some((program, words)) = line.split_first() else { return Ok(String::new()) };
        let mut child = self.command(place, program, words).stdout(Stdio::piped()).spawn()?;
        let mut output = Vec::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_end(&mut output)?;
        }
        let status = child.wait()?;
        self.go_on()?;
        if !status.success() {
            return Err(Wrong::Step(format!("`{}` failed: {status}", line.join(" "))));
        }
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// Shows a command that is refused, and what it says.
    fn refused(&self, line: &[&str]) -> Result<(), Wrong> {
        say(&format!("$ {}", line.join(" ")))?;
        let Some((program, words)) = line.split_first() else { return Ok(()) };
        let output = self.command(RunsIn::Daemon, program, words).output()?;
        self.go_on()?;
        print(&String::from_utf8_lossy(&output.stderr))?;
        if output.status.success() {
            return Err(Wrong::Step(format!("`{}` was not refused", line.join(" "))));
        }
        Ok(())
    }

    /// Unless a signal has asked for the end.
    fn go_on(&self) -> Result<(), Wrong> {
        if self.is_asked.load(Ordering::Relaxed) { Err(Wrong::Asked) } else { Ok(()) }
    }

    /// Ends the daemon, if one was started. It is silent: there may be none.
    fn stop_daemon(&self) {
        let mut command = self.command(RunsIn::Daemon, "cenote", &["daemon", "--stop"]);
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

// The host's files, not a pool's: `vdev` has nothing to do with them.
#[allow(clippy::disallowed_types)]
fn create(path: &Path, size: u64) -> io::Result<std::fs::File> {
    let file = std::fs::File::create_new(path)?;
    file.set_len(size)?;
    Ok(file)
}
