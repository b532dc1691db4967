//! Many small files sent and received, and an increment, on one device that each system has for itself.
//!
//! # What always holds
//! - What is copied is cold: its system was unmounted, and the kernel's caches were dropped.
//! - The time ends when the copy is on disk.

use crate::Failure;
use crate::mount::{LoopImage, Meter, Row, Site, System, is_there, run_command};
use crate::pools::noise;
use crate::report::{Goal, Line, Report};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Size of a file in bytes, number of files in a directory, and of those that change.
const FILE: usize = 4096;
const FOLDER: u64 = 1000;
const CHANGED: u64 = 1000;
/// Bytes of the device for each file: two copies, their metadata, and what a file system keeps free.
pub(super) const ROOM: u64 = 14 << 10;
/// The file system that is copied, and the copy.
const SOURCE: &str = "cenotebench/files";
const COPY: &str = "cenotebench/copy";
/// Time in which the increment is to be sent and received, in seconds.
const INCREMENT_GOAL: f64 = 1.0;

pub(super) fn run(image: &LoopImage, files: u64, report: &mut Report) -> Result<(), Failure> {
    let ours = of_ours(image, files, report)?;
    if is_there("mkfs.btrfs") && is_there("btrfs") {
        let theirs = of_btrfs(image, files)?;
        add(report, &ours, "btrfs send, recv", 2.0, &theirs);
    } else {
        println!("btrfs is not here (Debian: apt install btrfs-progs): no numbers of it beside ours");
    }
    Ok(())
}

/// Processor time of the machine in seconds.
fn machine(row: &Row) -> f64 {
    row.cpu.map_or(0.0, |cpu| cpu.machine.as_secs_f64())
}

fn add(report: &mut Report, ours: &Row, name: &str, least: f64, theirs: &Row) {
    report.add(Line {
        what: format!("{} files of 4 KiB, cold", ours.count),
        unit: "files/s",
        ours: ours.rate(),
        peer: Some((name.to_owned(), theirs.rate())),
        goal: Some(Goal::AtLeast(least)),
        note: format!("CPU of the machine {:.1} s, {:.1}", machine(ours), machine(theirs)),
    });
}

/// Makes a tree.
fn make(top: &Path, files: u64) -> Result<(), Failure> {
    // Each file has bytes of its own.
    let data = noise(FILE * 256, 3);
    for number in 0..files {
        let path = path_of(top, number);
        if number % FOLDER == 0 {
            std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
        }
        let at = (number as usize * 8) % (data.len() - FILE);
        let mut bytes = data[at..at + FILE].to_vec();
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        OpenOptions::new().write(true).create_new(true).open(path)?.write_all(&bytes)?;
    }
    Ok(())
}

fn path_of(top: &Path, number: u64) -> PathBuf {
    top.join(format!("d{:05}", number / FOLDER)).join(format!("file{number:08}"))
}

/// Rewrites files that are far from each other.
fn change(top: &Path, files: u64) -> Result<(), Failure> {
    let changed = CHANGED.min(files);
    for number in (0..changed).map(|i| i * (files / changed)) {
        let data = noise(FILE, number + 7);
        OpenOptions::new().write(true).open(path_of(top, number))?.write_all(&data)?;
    }
    Ok(())
}

/// The number of files below a directory.
fn count(top: &Path) -> Result<u64, Failure> {
    let mut sum = 0;
    for folder in std::fs::read_dir(top)? {
        sum += std::fs::read_dir(folder?.path())?.count() as u64;
    }
    Ok(sum)
}

fn check(top: &Path, files: u64) -> Result<(), Failure> {
    match count(top)? {
        found if found == files => Ok(()),
        found => Err(format!("{}: {found} files instead of {files}", top.display()).into()),
    }
}

/// One program that writes to the next.
fn piped(first: &mut Command, second: &mut Command) -> Result<(), Failure> {
    let mut writer = first.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let out = writer.stdout.take().ok_or("no pipe")?;
    let status = second.stdin(out).stdout(Stdio::null()).status()?;
    let written = writer.wait()?;
    if status.success() && written.success() {
        return Ok(());
    }
    let names = [&*first, &*second].map(|command| command.get_program().to_string_lossy().into_owned());
    Err(format!("{}: {written}, {}: {status}", names[0], names[1]).into())
}

/// Our file systems: the one that is copied, and the mount of the copy.
struct Ours<'i> {
    image: &'i LoopImage,
    site: Site<'i>,
    files: u64,
    source: PathBuf,
    copy: PathBuf,
}

impl Ours<'_> {
    /// Makes the tree, with a snapshot before and one after some files are changed.
    fn make(image: &LoopImage, files: u64) -> Result<Ours<'_>, Failure> {
        let site = image.open(System::Cenote)?;
        let (source, copy) = (site.dir(), image.mount_point().join("copy"));
        let ours = Ours { image, site, files, source, copy };
        make(&ours.source, files)?;
        run_command(&mut ours.zfs(&["snapshot", &format!("{SOURCE}@a")]))?;
        change(&ours.source, files)?;
        run_command(&mut ours.zfs(&["snapshot", &format!("{SOURCE}@b")]))?;
        ours.site.sync()?;
        Ok(ours)
    }

    fn zfs(&self, words: &[&str]) -> Command {
        let mut command = self.image.cenote();
        command.arg("zfs").args(words);
        command
    }

    /// Copies with an idle system that has nothing in its caches. Returns the cost.
    fn measured(
        &mut self,
        what: &str,
        count: u64,
        copy: impl FnOnce(&Self) -> Result<(), Failure>,
    ) -> Result<Row, Failure> {
        self.site.cool()?;
        let meter = Meter::start(&self.site);
        copy(self)?;
        self.site.sync()?;
        let row = meter.stop(&self.site, what, count);
        check(&self.copy, self.files)?;
        Ok(row)
    }

    fn full(&mut self) -> Result<Row, Failure> {
        self.measured("send and receive", self.files, |ours| {
            piped(&mut ours.zfs(&["send", &format!("{SOURCE}@a")]), &mut ours.zfs(&["receive", COPY]))
        })
    }

    fn increment(&mut self) -> Result<Row, Failure> {
        self.measured("increment", CHANGED.min(self.files), |ours| {
            let mut send = ours.zfs(&["send", "-i", "@a", &format!("{SOURCE}@b")]);
            piped(&mut send, &mut ours.zfs(&["receive", COPY]))
        })
    }

    /// Replaces the copy by an empty file system.
    fn clear(&self) -> Result<(), Failure> {
        run_command(&mut self.zfs(&["destroy", "-r", COPY]))?;
        run_command(self.image.cenote().args(["zpool", "wait", "-t", "free", "cenotebench"]))?;
        run_command(&mut self.zfs(&["create", COPY]))?;
        Ok(())
    }

    fn tar(&mut self) -> Result<Row, Failure> {
        self.clear()?;
        self.measured("tar | tar", self.files, |ours| {
            let mut reads = Command::new("tar");
            reads.arg("-C").arg(&ours.source).args(["-c", "."]);
            piped(&mut reads, Command::new("tar").arg("-C").arg(&ours.copy).arg("-x"))
        })
    }

    fn rsync(&mut self) -> Result<Row, Failure> {
        self.clear()?;
        self.measured("rsync", self.files, |ours| {
            run_command(Command::new("rsync").arg("-a").arg(ours.source.join("")).arg(&ours.copy))?;
            Ok(())
        })
    }
}

/// Copies in all ways that are here, and adds a line for each.
fn of_ours(image: &LoopImage, files: u64, report: &mut Report) -> Result<Row, Failure> {
    let mut ours = Ours::make(image, files)?;
    let full = ours.full()?;
    let increment = ours.increment()?;
    report.add(Line {
        what: format!("{} of {files} files, an increment", increment.count),
        unit: "s",
        ours: increment.wall.as_secs_f64(),
        peer: Some(("the goal".to_owned(), INCREMENT_GOAL)),
        goal: Some(Goal::AtMost(1.0)),
        note: format!("CPU of the machine {:.2} s", machine(&increment)),
    });
    if is_there("tar") {
        let theirs = ours.tar()?;
        add(report, &full, "tar c | tar x", 3.0, &theirs);
    }
    if is_there("rsync") {
        let theirs = ours.rsync()?;
        add(report, &full, "rsync -a", 3.0, &theirs);
    }
    Ok(full)
}

fn of_btrfs(image: &LoopImage, files: u64) -> Result<Row, Failure> {
    let mut site = image.open(System::Btrfs)?;
    let top = site.dir();
    let (source, snapshot, copies) = (top.join("files"), top.join("s"), top.join("copies"));
    let btrfs = |words: &[&str]| {
        let mut command = Command::new("btrfs");
        command.args(["--quiet"]).args(words);
        command
    };
    run_command(btrfs(&["subvolume", "create"]).arg(&source))?;
    std::fs::create_dir(&copies)?;
    make(&source, files)?;
    run_command(btrfs(&["subvolume", "snapshot", "-r"]).arg(&source).arg(&snapshot))?;
    site.sync()?;
    site.cool()?;
    let meter = Meter::start(&site);
    piped(btrfs(&["send"]).arg(&snapshot), btrfs(&["receive"]).arg(&copies))?;
    site.sync()?;
    let row = meter.stop(&site, "send and receive", files);
    check(&copies.join("s"), files)?;
    Ok(row)
}
