//! Workloads on names and small files.

use super::meter::{Meter, Row};
use super::providers::Purpose;
use super::site::Site;
use super::tools::run;
use crate::Failure;
use crate::pools::noise;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of files in a leaf directory, of directories in a directory, and size of a file in bytes.
const LEAF: u64 = 30;
const FOLDERS: u64 = 10;
const FILE: usize = 512;
/// Number of files in a directory of the second workload.
const FOLDER: u64 = 100;
/// Number of names in a directory of the workload on names.
const NAMES: u64 = 1000;

/// Tree of small files: create, walk cold and warm, open and close, get attributes, rename, remove.
pub(super) fn tree(site: &mut Site<'_>, files: u64, rows: &mut Vec<Row>) -> Result<(), Failure> {
    site.prepare(Purpose::Files);
    let top = site.dir().join("tree");
    let leaves: Vec<PathBuf> = (0..files.div_ceil(LEAF)).map(|leaf| top.join(leaf_path(leaf))).collect();
    let path = |leaf: &Path, name: u64| leaf.join(format!("file{name:04}"));
    let count = leaves.len() as u64 * LEAF;
    let data = noise(FILE, 1);

    let meter = Meter::start(site);
    for leaf in &leaves {
        std::fs::create_dir_all(leaf)?;
        for name in 0..LEAF {
            OpenOptions::new().write(true).create_new(true).open(path(leaf, name))?.write_all(&data)?;
        }
    }
    site.sync()?;
    rows.push(meter.stop(site, "tree create", count));

    site.cool()?;
    let meter = Meter::start(site);
    let seen = walk(&top)?;
    rows.push(meter.stop(site, "tree cold walk, read", seen));
    if seen != count {
        return Err(format!("{}: {seen} files found of {count}", site.kind.name()).into());
    }
    let meter = Meter::start(site);
    let seen = walk(&top)?;
    rows.push(meter.stop(site, "tree warm walk, read", seen));

    let all: Vec<PathBuf> =
        leaves.iter().flat_map(|leaf| (0..LEAF).map(move |name| path(leaf, name))).collect();
    let meter = Meter::start(site);
    for path in &all {
        drop(File::open(path)?);
    }
    rows.push(meter.stop(site, "tree open+close", count));
    let meter = Meter::start(site);
    for path in &all {
        std::fs::metadata(path)?;
    }
    rows.push(meter.stop(site, "tree stat", count));
    let meter = Meter::start(site);
    for path in &all {
        std::fs::rename(path, path.with_extension("new"))?;
    }
    site.sync()?;
    rows.push(meter.stop(site, "tree rename", count));
    let meter = Meter::start(site);
    for path in &all {
        std::fs::remove_file(path.with_extension("new"))?;
    }
    site.sync()?;
    rows.push(meter.stop(site, "tree unlink", count));
    std::fs::remove_dir_all(&top)?;
    site.sync()?;
    rows.push(meter.stop(site, "tree remove", count));
    Ok(())
}

/// An operation on one name.
type Step<'a> = &'a dyn Fn(&Path) -> std::io::Result<()>;

/// Empty files in directories of a thousand: create, open and close, get attributes, rename, remove.
pub(super) fn names(site: &mut Site<'_>, files: u64, rows: &mut Vec<Row>) -> Result<(), Failure> {
    site.prepare(Purpose::Files);
    let top = site.dir().join("names");
    let path = |file: u64| top.join(format!("{}/name{file}", file / NAMES));
    for folder in 0..files.div_ceil(NAMES) {
        std::fs::create_dir_all(top.join(format!("{folder}")))?;
    }
    let create = |path: &Path| -> std::io::Result<()> {
        OpenOptions::new().write(true).create_new(true).open(path).map(drop)
    };
    let rename = |path: &Path| std::fs::rename(path, path.with_extension("new"));
    let remove = |path: &Path| std::fs::remove_file(path.with_extension("new"));
    let steps: [(&str, Step<'_>); 5] = [
        ("names create", &create),
        ("names open+close", &|path| File::open(path).map(drop)),
        ("names stat", &|path| std::fs::metadata(path).map(drop)),
        ("names rename", &rename),
        ("names unlink", &remove),
    ];
    for (what, step) in steps {
        let meter = Meter::start(site);
        for file in 0..files {
            step(&path(file))?;
        }
        site.sync()?;
        rows.push(meter.stop(site, what, files));
    }
    std::fs::remove_dir_all(&top)?;
    Ok(())
}

/// The directories that lead to a leaf: the digits of its number.
fn leaf_path(leaf: u64) -> PathBuf {
    (0..4).rev().map(|digit| format!("d{}", leaf / FOLDERS.pow(digit) % FOLDERS)).collect()
}

/// Reads every file below a directory. Returns their number.
fn walk(top: &Path) -> Result<u64, Failure> {
    let mut buffer = [0; 4096];
    let (mut count, mut folders) = (0, vec![top.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
                continue;
            }
            let mut file = File::open(entry.path())?;
            while file.read(&mut buffer)? > 0 {}
            count += 1;
        }
    }
    Ok(count)
}

/// Many files of 4 and 8 KB: create, copy, remove.
pub(super) fn small(site: &mut Site<'_>, files: u64, rows: &mut Vec<Row>) -> Result<(), Failure> {
    site.prepare(Purpose::Files);
    for size in [4, 8] {
        let (from, to) = (site.dir().join("from"), site.dir().join("to"));
        let data = noise(size << 10, 2);
        let meter = Meter::start(site);
        for file in 0..files {
            let folder = from.join(format!("{}", file / FOLDER));
            if file.is_multiple_of(FOLDER) {
                std::fs::create_dir_all(&folder)?;
            }
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(folder.join(format!("{file}")))?
                .write_all(&data)?;
        }
        site.sync()?;
        rows.push(meter.stop(site, &format!("{size} KB create"), files));
        let meter = Meter::start(site);
        run(Command::new("cp").arg("-r").args([&from, &to]))?;
        site.sync()?;
        rows.push(meter.stop(site, &format!("{size} KB cp -r"), files));
        let meter = Meter::start(site);
        run(Command::new("rm").arg("-r").args([&from, &to]))?;
        site.sync()?;
        rows.push(meter.stop(site, &format!("{size} KB rm -r"), files * 2));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_apart_and_no_folder_has_more_than_ten() {
        let paths: std::collections::BTreeSet<PathBuf> = (0..10_000).map(leaf_path).collect();
        assert_eq!(paths.len(), 10_000);
        assert_eq!(leaf_path(1234), PathBuf::from("d1/d2/d3/d4"));
    }
}
