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
// The tour always runs in a process of its own.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod healing;
mod howto;
mod openzfs;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs the story of a pool in use on disks in a scratch folder: made, mounted, filled, extended, healed
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Keep the scratch folder, to go on trying things
    #[arg(long)]
    keep: bool,
}

/// A step that went wrong, told to the reader.
struct Wrong(String);

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Wrong {
        Wrong(error.to_string())
    }
}

/// Runs the tour; its exit code.
pub(crate) fn run(args: &Args) -> u8 {
    let folder = std::env::temp_dir().join(format!("cenote-tour-{}", std::process::id()));
    let result = Tour::begin(&folder).and_then(|tour| {
        let result = tour.walk();
        tour.stop_daemon();
        result
    });
    if is_below_a_mount(&folder) {
        eprintln!("\ntour: something is still mounted below {}, which stays", folder.display());
    } else if args.keep {
        println!("\nThe disks stay in {}.", folder.display());
    } else {
        // Nothing depends on it any more; what cannot be removed is in the temporary folder.
        let _ = std::fs::remove_dir_all(&folder);
    }
    match result {
        Ok(()) => 0,
        Err(Wrong(why)) => {
            eprintln!("\ntour: {why}");
            1
        }
    }
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
enum Place {
    /// In process, on the disks of the first part.
    Here,
    /// In the daemon.
    Daemon,
}

struct Tour {
    program: PathBuf,
    folder: PathBuf,
}

fn say(text: &str) {
    println!("\n{text}");
}

impl Tour {
    fn begin(folder: &Path) -> Result<Tour, Wrong> {
        std::fs::create_dir(folder)?;
        Ok(Tour { program: std::env::current_exe()?, folder: folder.to_owned() })
    }

    fn walk(&self) -> Result<(), Wrong> {
        self.read_a_pool()?;
        self.use_a_pool()?;
        self.heal_a_pool()?;
        say("That was Cenote. `cenote --help` lists the commands, docs/man has a page for each tool.");
        Ok(())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The same, as a word of a command.
    fn word(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    fn command(&self, place: Place, program: &str, words: &[&str]) -> Command {
        let is_ours = matches!(program, "cenote" | "zpool" | "zfs" | "fsstat");
        let mut command =
            Command::new(if is_ours { self.program.as_os_str().to_owned() } else { OsString::from(program) });
        if is_ours && program != "cenote" {
            command.arg(program);
        }
        command.args(words).env_remove("ZPOOL_IMPORT_PATH").env("CENOTE_STATE", self.at("state"));
        command.env("CENOTE_SOCKET", self.at("socket"));
        match place {
            Place::Here => command.env("CENOTE_DIRECT", "1").env("CENOTE_DEVICES", self.at("openzfs")),
            Place::Daemon => command.env_remove("CENOTE_DIRECT").env_remove("CENOTE_DEVICES"),
        };
        command.stdin(Stdio::null());
        command
    }

    /// Shows a command and what it prints.
    fn show(&self, place: Place, line: &[&str]) -> Result<(), Wrong> {
        let output = self.run(place, line)?;
        print!("{output}");
        io::stdout().flush()?;
        Ok(())
    }

    /// Shows a command, runs it, and returns what it prints.
    fn run(&self, place: Place, line: &[&str]) -> Result<String, Wrong> {
        println!("\n$ {}", line.join(" "));
        io::stdout().flush()?;
        let Some((program, words)) = line.split_first() else { return Ok(String::new()) };
        let mut child = self.command(place, program, words).stdout(Stdio::piped()).spawn()?;
        let mut output = Vec::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_end(&mut output)?;
        }
        let status = child.wait()?;
        if !status.success() {
            return Err(Wrong(format!("`{}` failed: {status}", line.join(" "))));
        }
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// Shows a command that is refused, and what it says.
    fn refused(&self, line: &[&str]) -> Result<(), Wrong> {
        println!("\n$ {}", line.join(" "));
        let Some((program, words)) = line.split_first() else { return Ok(()) };
        let output = self.command(Place::Daemon, program, words).output()?;
        print!("{}", String::from_utf8_lossy(&output.stderr));
        if output.status.success() {
            return Err(Wrong(format!("`{}` was not refused", line.join(" "))));
        }
        Ok(())
    }

    /// Ends the daemon, if one was started. It is silent: there may be none.
    fn stop_daemon(&self) {
        let mut command = self.command(Place::Daemon, "cenote", &["daemon", "--stop"]);
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
