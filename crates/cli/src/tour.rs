//! `cenote tour`: what Cenote does, on examples in a temporary folder.
//!
//! First a pool that OpenZFS made (raidz1 of four disks), which is part of this program: the real commands
//! run on it, each shown before its output, and what they did is checked; then a disk is taken away and
//! everything is read again. Then a pool of our own: made, filled, changed, without a disk, verified.
//!
//! # What always holds
//! - Nothing is shown that was not run: every line after a `$` is a command that can be typed.
//! - A step that does not do what the text says ends the tour with exit code 1.
// The tour always runs in a process of its own.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use serde::Deserialize;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The images of the example, one after the other; see `fixtures/openzfs-2.3.2/README.md`.
const IMAGES: &[u8] = include_bytes!("../../../fixtures/openzfs-2.3.2/raidz1/images.zst");
const MANIFEST: &str = include_str!("../../../fixtures/openzfs-2.3.2/raidz1/manifest.json");
/// The images were packed with a window of 128 MiB.
const WINDOW_LOG: u32 = 27;
/// Unit in which holes of the images are found again.
const CHUNK: usize = 64 << 10;
/// The devices of the pool that is made, and their size.
const DISKS: [&str; 3] = ["one", "two", "three"];
const DISK_SIZE: u64 = 128 << 20;
/// Lines of a long listing that are shown.
const LISTING_LINES: usize = 12;
/// Characters of a line of it that are shown.
const LINE_WIDTH: usize = 100;

/// Reads a bundled pool of OpenZFS, whole and without a disk; then makes a pool, fills and changes it
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Keep the example's images, to go on trying things
    #[arg(long)]
    keep: bool,
}

#[derive(Deserialize)]
struct Manifest {
    pool: String,
    images: Vec<Image>,
}

#[derive(Deserialize)]
struct Image {
    name: String,
    size: u64,
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
    let result = Tour::begin(&folder).and_then(Tour::walk);
    if args.keep {
        println!("\nThe example stays in {}.", folder.display());
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

struct Tour {
    program: PathBuf,
    folder: PathBuf,
    /// Where the commands look for devices.
    devices: PathBuf,
    pool: String,
    disk: String,
}

fn say(text: &str) {
    println!("\n{text}");
}

impl Tour {
    fn begin(folder: &Path) -> Result<Tour, Wrong> {
        let manifest: Manifest = serde_json::from_str(MANIFEST).map_err(|error| Wrong(error.to_string()))?;
        let devices = folder.join("openzfs");
        std::fs::create_dir(folder)?;
        std::fs::create_dir(&devices)?;
        let (disks, place) = (manifest.images.len(), devices.display());
        say(&format!(
            "Cenote reads and writes ZFS pools without a kernel module. Here is one: raidz1 of {disks} disks, made by\n\
             OpenZFS, unpacked into {place}. The commands below find it through one variable:\n\n    \
             export CENOTE_DEVICES={place}"
        ));
        unpack(&manifest.images, &devices)?;
        let disk = manifest.images.get(1).map(|image| image.name.clone()).unwrap_or_default();
        let program = std::env::current_exe()?;
        Ok(Tour { program, folder: folder.to_owned(), devices, pool: manifest.pool, disk })
    }

    fn walk(mut self) -> Result<(), Wrong> {
        self.read_a_pool()?;
        self.devices = self.folder.join("ours");
        self.write_a_pool()?;
        say("That was Cenote. `cenote --help` lists the commands, docs/man has a page for each tool.");
        Ok(())
    }

    fn read_a_pool(&self) -> Result<(), Wrong> {
        let pool = &self.pool;
        say("What is on these disks?");
        self.show(&["zpool", "import"])?;
        self.show(&["zpool", "list", "-v"])?;
        self.show(&["zfs", "list", "-t", "all"])?;
        self.walk_tree()?;
        say("Every block of every dataset and snapshot, all copies and parity, against its checksum:");
        self.show(&["verify", pool])?;
        say("Files, back out:");
        self.show(&["cat", &format!("{pool}/fs:/text-100")])?;
        println!();
        let copy = self.folder.join("hard0");
        self.show(&["cp", &format!("{pool}/fs@s1:/a/hard0"), &copy.display().to_string()])?;
        let before = self.archive("whole.tar")?;
        self.pull_a_disk(&before)
    }

    fn write_a_pool(&self) -> Result<(), Wrong> {
        let (disks, place) = (&self.devices, self.devices.display());
        say(&format!(
            "And the other way round: a pool of our own, raidz1 of three files. What is imported is remembered\n\
             beside them, not in /etc:\n\n    \
             export CENOTE_DEVICES={place} CENOTE_STATE={}",
            self.state().display()
        ));
        std::fs::create_dir(disks)?;
        for name in DISKS {
            create(&disks.join(name), DISK_SIZE)?;
        }
        let paths: Vec<String> = DISKS.iter().map(|name| disks.join(name).display().to_string()).collect();
        let mut create = vec!["zpool", "create", "-m", "none", "mine", "raidz1"];
        create.extend(paths.iter().map(String::as_str));
        self.show(&create)?;
        self.show(&["zfs", "create", "-o", "compression=zstd", "mine/home"])?;
        self.show(&["zfs", "create", "-V", "16M", "mine/disk"])?;
        say("Files go in without a mount. These are the ones that came out above:");
        let from = self.folder.join("files");
        std::fs::create_dir(&from)?;
        std::fs::copy(self.folder.join("whole.tar"), from.join("whole.tar"))?;
        std::fs::copy(self.folder.join("hard0"), from.join("hard0"))?;
        self.show(&["cp", "-r", &from.display().to_string(), "mine/home:/"])?;
        let archive = self.folder.join("whole.tar").display().to_string();
        self.show(&["mkdir", "mine/home:/unpacked"])?;
        self.show(&["tar", "-x", "-f", &archive, "mine/home:/unpacked"])?;
        self.show(&["ls", "-l", "mine/home:/"])?;
        say("A snapshot keeps what is then thrown away, and a clone goes on from there:");
        self.show(&["zfs", "snapshot", "-r", "mine@monday"])?;
        self.show(&["rm", "-r", "mine/home:/unpacked"])?;
        self.show(&["zfs", "clone", "mine/home@monday", "mine/again"])?;
        self.show(&["mv", "mine/again:/unpacked", "mine/again:/still-here"])?;
        self.show(&["zfs", "list", "-t", "all", "-o", "name,used,refer,origin"])?;
        self.write_without_a_disk()
    }

    fn write_without_a_disk(&self) -> Result<(), Wrong> {
        say("Here, too, a disk goes; reading and writing go on:");
        let disk = self.devices.join(DISKS[1]);
        println!("\n$ rm {}", disk.display());
        std::fs::remove_file(&disk)?;
        let copy = self.folder.join("back.tar");
        self.show(&["cp", "mine/home@monday:/files/whole.tar", &copy.display().to_string()])?;
        if std::fs::read(&copy)? != std::fs::read(self.folder.join("whole.tar"))? {
            return Err(Wrong("the file is not what it was".to_owned()));
        }
        self.show(&["cp", &copy.display().to_string(), "mine/again:/"])?;
        self.show(&["verify", "mine"])?;
        self.show(&["zpool", "status", "mine"])?;
        self.show(&["zpool", "history", "mine"])?;
        self.show(&["zpool", "export", "mine"])?;
        say("What is in these files now is a pool like any other: OpenZFS imports it.");
        Ok(())
    }

    /// Where the commands remember what is imported.
    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    fn walk_tree(&self) -> Result<(), Wrong> {
        say("The files of a snapshot, without mounting it:");
        let listing = self.run(&["ls", "-lR", &format!("{}/fs@s1:/", self.pool)])?;
        let lines: Vec<&str> = listing.lines().collect();
        for line in lines.iter().take(LISTING_LINES) {
            println!("{}", line.chars().take(LINE_WIDTH).collect::<String>());
        }
        println!("... and {} lines more", lines.len().saturating_sub(LISTING_LINES));
        Ok(())
    }

    /// Archives the file system and returns the archive.
    fn archive(&self, name: &str) -> Result<Vec<u8>, Wrong> {
        let target = self.folder.join(name);
        let to = target.display().to_string();
        self.show(&["tar", "-f", &to, &format!("{}/fs:/", self.pool)])?;
        let bytes = std::fs::read(&target)?;
        println!("{} bytes, with extended attributes, ACLs, holes and hard links", bytes.len());
        Ok(bytes)
    }

    fn pull_a_disk(&self, before: &[u8]) -> Result<(), Wrong> {
        say("Now a disk is gone. raidz1 can spare one:");
        let disk = self.devices.join(&self.disk);
        println!("\n$ rm {}", disk.display());
        std::fs::remove_file(&disk)?;
        self.show(&["zpool", "status", &self.pool])?;
        let after = self.archive("degraded.tar")?;
        if after != before {
            return Err(Wrong("the archive is not what it was".to_owned()));
        }
        println!("Every byte is the same as before: what the missing disk held was computed from parity.");
        Ok(())
    }

    /// Shows a command and what it prints.
    fn show(&self, args: &[&str]) -> Result<(), Wrong> {
        let output = self.run(args)?;
        print!("{output}");
        io::stdout().flush()?;
        Ok(())
    }

    /// Shows a command, runs it, and returns what it prints.
    fn run(&self, args: &[&str]) -> Result<String, Wrong> {
        let is_tool = args.first().is_some_and(|first| matches!(*first, "zpool" | "zfs" | "zdb"));
        println!("\n$ {}{}", if is_tool { "" } else { "cenote " }, args.join(" "));
        io::stdout().flush()?;
        let mut child = Command::new(&self.program)
            .args(args)
            .env("CENOTE_DEVICES", &self.devices)
            .env("CENOTE_STATE", self.state())
            .env_remove("ZPOOL_IMPORT_PATH")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = Vec::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_end(&mut output)?;
        }
        let status = child.wait()?;
        if !status.success() {
            return Err(Wrong(format!("`{}` failed: {status}", args.join(" "))));
        }
        Ok(String::from_utf8_lossy(&output).into_owned())
    }
}

/// Writes the images, with holes where they are zeros.
fn unpack(images: &[Image], folder: &Path) -> Result<(), Wrong> {
    let mut packed = zstd::Decoder::new(IMAGES)?;
    packed.window_log_max(WINDOW_LOG)?;
    let mut chunk = vec![0; CHUNK];
    for image in images {
        let mut file = io::BufWriter::new(create(&folder.join(&image.name), image.size)?);
        let mut left = image.size;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let part = &mut chunk[..want];
            packed.read_exact(part)?;
            if part.iter().all(|byte| *byte == 0) {
                file.seek_relative(want as i64)?;
            } else {
                file.write_all(part)?;
            }
            left -= want as u64;
        }
        file.flush()?;
    }
    Ok(())
}

// The host's files, not a pool's: `vdev` has nothing to do with them.
#[allow(clippy::disallowed_types)]
fn create(path: &Path, size: u64) -> io::Result<std::fs::File> {
    let file = std::fs::File::create_new(path)?;
    file.set_len(size)?;
    Ok(file)
}
