//! The first part of the tour: a pool that OpenZFS made, read in this process, first whole and then without a
//! disk.

use super::{RunsIn, Tour, Wrong, create, print, say};
use serde::Deserialize;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

/// The images of the example, one after the other, packed; see `fixtures/openzfs-2.3.2/README.md`.
const IMAGES: &[u8] = include_bytes!("../../../../fixtures/openzfs-2.3.2/raidz1/images.zst");
const MANIFEST: &str = include_str!("../../../../fixtures/openzfs-2.3.2/raidz1/manifest.json");
/// Binary logarithm of the window with which the images were packed: 128 MiB.
const WINDOW_LOG: u32 = 27;
/// Bytes of the blocks of zeros that are restored as holes.
const CHUNK: usize = 64 << 10;
static ZEROS: [u8; CHUNK] = [0; CHUNK];
/// Most lines of a long listing that are shown.
const LISTING_LINES: usize = 12;
/// Most characters of a line of a listing that are shown.
const LINE_WIDTH: usize = 100;

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

impl Tour {
    /// Runs the first part.
    pub(super) fn read_a_pool(&self) -> Result<(), Wrong> {
        let manifest: Manifest =
            serde_json::from_str(MANIFEST).map_err(|error| Wrong::Step(error.to_string()))?;
        let devices = self.at("openzfs");
        std::fs::create_dir(&devices)?;
        say(&format!(
            "Cenote reads and writes ZFS pools without a kernel module. Here is one: raidz1 of {} disks, made by\n\
             OpenZFS. It is read in process, no daemon and no mount are needed:\n\n    \
             export CENOTE_DIRECT=1 CENOTE_DEVICES={}",
            manifest.images.len(),
            devices.display()
        ))?;
        unpack(&manifest.images, &devices)?;
        let pool = &manifest.pool;
        self.show(RunsIn::Here, &["zpool", "import"])?;
        self.show(RunsIn::Here, &["zfs", "list", "-t", "all"])?;
        self.walk_tree(pool)?;
        say("Every block of every dataset and snapshot, all copies and parity, against its checksum:")?;
        self.show(RunsIn::Here, &["cenote", "verify", pool])?;
        say("What changed between two snapshots:")?;
        let changes =
            self.run(RunsIn::Here, &["zfs", "diff", &format!("{pool}/fs@s1"), &format!("{pool}/fs")])?;
        print_some(&changes)?;
        say("Files, back out:")?;
        let copy = self.word("hard0");
        self.show(RunsIn::Here, &["cenote", "cp", &format!("{pool}/fs@s1:/a/hard0"), &copy])?;
        let before = self.archive(pool, "whole.tar")?;
        let disk = manifest.images.get(1).map(|image| image.name.clone()).unwrap_or_default();
        self.without_a_disk(pool, &disk, &before)
    }

    fn walk_tree(&self, pool: &str) -> Result<(), Wrong> {
        say("The files of a snapshot, without mounting it:")?;
        print_some(&self.run(RunsIn::Here, &["cenote", "ls", "-lR", &format!("{pool}/fs@s1:/")])?)
    }

    /// Archives the file system and returns the archive.
    fn archive(&self, pool: &str, name: &str) -> Result<Vec<u8>, Wrong> {
        let target = self.word(name);
        self.show(RunsIn::Here, &["cenote", "tar", "-f", &target, &format!("{pool}/fs:/")])?;
        let bytes = std::fs::read(self.at(name))?;
        print(&format!("{} bytes, with extended attributes, ACLs, holes and hard links\n", bytes.len()))?;
        Ok(bytes)
    }

    fn without_a_disk(&self, pool: &str, disk: &str, before: &[u8]) -> Result<(), Wrong> {
        say("Now a disk is gone. raidz1 can spare one:")?;
        let disk = self.at("openzfs").join(disk).display().to_string();
        self.show(RunsIn::Here, &["rm", &disk])?;
        self.show(RunsIn::Here, &["zpool", "status", pool])?;
        let after = self.archive(pool, "degraded.tar")?;
        if after != before {
            return Err(Wrong::Step("the archive is not what it was".to_owned()));
        }
        print("Every byte is the same as before: what the missing disk held was computed from parity.\n")
    }
}

/// Prints the beginning of a long listing.
fn print_some(listing: &str) -> Result<(), Wrong> {
    let mut lines = listing.lines();
    let shown: String = lines.by_ref().take(LISTING_LINES).map(cut).collect();
    let more = lines.count();
    let rest = if more > 0 { format!("... and {more} lines more\n") } else { String::new() };
    print(&format!("{shown}{rest}"))
}

fn cut(line: &str) -> String {
    line.chars().take(LINE_WIDTH).chain(['\n']).collect()
}

/// Writes the images to files, with holes for blocks of zeros.
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
            if *part == ZEROS[..want] {
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
