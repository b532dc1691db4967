//! `cenote tour`: a demonstration of Cenote, on file-backed disks in a temporary folder.
//!
//! The first part reads a pool that OpenZFS made (raidz1 of four disks), which is part of this program, in
//! this process: first whole, then without one of its disks ([`openzfs`]). The second part is a pool in use:
//! it is made, mounted, filled and extended, with snapshots, clones and statistics ([`howto`]). The third is
//! a pool that heals ([`healing`]). The last two parts have a daemon of their own, which the first command
//! starts and the end of the tour stops.
//!
//! # What always holds
//! - All that is shown was run: every line after a `$` is a command that can be typed.
//! - A step that does not do what the text says ends the tour with exit code 1.
//! - If file systems cannot be mounted, the tour says so and puts files in without a mount.
//! - However the tour ends (at its end, in a failed step, by a signal, without a reader), its daemon is
//!   ended, all its file systems are unmounted, and its folder is removed. A signal ends it after the present
//!   step.
// The tour always runs in a process of its own, not in the daemon.
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
    /// A step has failed; the message is for the reader.
    Step(String),
    /// Standard output is closed: its reader is gone.
    NoReader,
    /// A signal asks for the end.
    Asked,
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Wrong {
        Wrong::Step(error.to_string())
    }
}

/// Exit code, as shells report it, of a command that SIGINT has ended.
const INTERRUPTED: u8 = 130;
const BROKEN_PIPE: u8 = 141;

/// Runs the tour; returns its exit code.
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
        // The tour is over; files that cannot be removed are in the temporary folder.
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

/// Prints a message to standard error, which may be closed.
fn complain(why: &str) {
    let _ = writeln!(io::stderr(), "\ntour: {why}");
}

fn say_kept(folder: &Path) -> Result<(), Wrong> {
    say(&format!("The disks stay in {}.", folder.display()))
}

/// Whether something is mounted below a folder: removing the folder would remove the files of that mount.
fn is_below_a_mount(folder: &Path) -> bool {
    mounted_at(|place| place.starts_with(folder))
}

fn mounted_at(wanted: impl Fn(&Path) -> bool) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().filter_map(|line| line.split(' ').nth(1)).any(|place| wanted(Path::new(place)))
}

/// Where the commands of a part of the tour run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunsIn {
    /// In process, on the disks of the first part.
    Here,
    /// In the tour's daemon.
    Daemon,
}

struct Tour {
    program: PathBuf,
    folder: PathBuf,
    /// Set when a signal has asked for the end.
    is_asked: Arc<AtomicBool>,
}

/// Prints a paragraph of the story.
fn say(text: &str) -> Result<(), Wrong> {
    print(&format!("\n{text}\n"))
}

/// Writes to standard output without a buffer.
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

    /// The path of a file in the scratch folder, as a word of a command.
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

    /// Shows two commands, the output of the first being the input of the second, and runs them.
    fn piped(&self, from: &[&str], to: &[&str]) -> Result<(), Wrong> {
        let line = format!("{} | {}", from.join(" "), to.join(" "));
        say(&format!("$ {line}"))?;
        let (Some((first, words)), Some((second, others))) = (from.split_first(), to.split_first()) else {
            return Ok(());
        };
        let mut sends = self.command(RunsIn::Daemon, first, words).stdout(Stdio::piped()).spawn()?;
        let mut receives = self.command(RunsIn::Daemon, second, others);
        if let Some(output) = sends.stdout.take() {
            receives.stdin(output);
        }
        let received = receives.status()?;
        let sent = sends.wait()?;
        self.go_on()?;
        match [received, sent].into_iter().find(|status| !status.success()) {
            Some(status) => Err(Wrong::Step(format!("`{line}` failed: {status}"))),
            None => Ok(()),
        }
    }

    /// Shows a command that is refused, and its message.
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

    /// An error if a signal has asked for the end.
    fn go_on(&self) -> Result<(), Wrong> {
        if self.is_asked.load(Ordering::Relaxed) { Err(Wrong::Asked) } else { Ok(()) }
    }

    /// Ends the daemon, if one was started. Prints nothing: there may be none.
    fn stop_daemon(&self) {
        let mut command = self.command(RunsIn::Daemon, "cenote", &["daemon", "--stop"]);
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

// Files of the host, not of a pool, so `vdev` is not used for them.
#[allow(clippy::disallowed_types)]
fn create(path: &Path, size: u64) -> io::Result<std::fs::File> {
    let file = std::fs::File::create_new(path)?;
    file.set_len(size)?;
    Ok(file)
}
