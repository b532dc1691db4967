//! A side that is a folder of streams, with an index of what is in it. `zfs receive` and `cenote stream` take its files
//! as they are, each chain from its full stream on.
//!
//! The datasets of the folder are `streams` and those below it. The file of a stream is in a folder named like its
//! dataset, with `%` for `/`.
//!
//! # What always holds
//! - Streams are received only into a folder that no other user may change. No symbolic link in it is followed, and what is
//!   no regular file is not opened: the medium may come from anywhere.
//! - Names of files have an `@`, which no name of a dataset has: the folders of datasets below may be in the same folder.
//! - A file that the index lists and that is there is a whole stream: it is written as `….partial`, read to its end
//!   with its checksums meanwhile, flushed, listed, and then renamed.
//! - A snapshot that is destroyed is no longer listed; its stream stays as long as a later one that is listed needs it.
//! - Processes that change the index exclude each other.
//!
//! # Order
//! Receiving: partial file -> index -> rename. Removing: files -> index. An entry without a file counts as none.

// Streams are files of the user's, not devices.
#![allow(clippy::disallowed_types)]

use super::policy::SOURCE;
use super::side::{Checksum, Dataset, Done, Point, Side, SideError, Stream, Style, Target};
use format::stream::Record;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, PipeReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use stream::Reader;

/// Name of the first dataset of a folder.
pub const ROOT: &str = "streams";
const INDEX: &str = "@index.json";
const LOCK: &str = "@lock";
const PARTIAL: &str = "@stream.partial";
/// Most bytes of an index.
const INDEX_MAX: u64 = 256 << 20;
/// Buffer in bytes.
const BUFFER: usize = 128 << 10;

/// See the module.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    /// Streams are sent from here: those of the newest chain are listed, dropped ones as well.
    is_source: bool,
}

/// The index.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    version: u32,
    /// In the order in which they came.
    streams: Vec<Entry>,
}

/// A stream of the index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Full name in this folder.
    dataset: String,
    /// Guid of the dataset that it came from.
    source: Option<u64>,
    /// The part after `@`.
    snapshot: String,
    /// Guid of the snapshot.
    guid: u64,
    /// Guid of the start; 0: a full stream.
    from: u64,
    /// Time at which the snapshot was taken, in seconds since 1970.
    creation: u64,
    /// Length of the file.
    bytes: u64,
    /// Path in the folder.
    file: PathBuf,
    /// The snapshot is destroyed; the stream is kept for later ones.
    dropped: bool,
}

impl Files {
    /// The side of a folder that streams are received into; it is made with the first one.
    pub fn target(folder: impl Into<PathBuf>) -> Files {
        Files { folder: folder.into(), is_source: false }
    }

    /// The side of a folder that streams are sent from: of each dataset those of the newest chain.
    pub fn source(folder: impl Into<PathBuf>) -> Files {
        Files { folder: folder.into(), is_source: true }
    }

    fn error(path: &Path) -> impl Fn(io::Error) -> SideError {
        let what = path.display().to_string();
        move |source| SideError::Io { what: what.clone(), source }
    }

    /// The streams that are there.
    fn index(&self) -> Done<Index> {
        let path = self.folder.join(INDEX);
        let failed = Self::error(&path);
        let file = match open(&path, File::options().read(true)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Index { version: 1, ..Index::default() });
            }
            Err(error) => return Err(failed(error)),
        };
        let mut text = String::new();
        file.take(INDEX_MAX).read_to_string(&mut text).map_err(&failed)?;
        let mut index: Index = serde_json::from_str(&text).map_err(|error| failed(error.into()))?;
        if index.version != 1 {
            return Err(failed(io::Error::other(format!(
                "version {} of the index is not known",
                index.version
            ))));
        }
        let is_inside =
            |entry: &Entry| entry.file.components().all(|c| matches!(c, std::path::Component::Normal(_)));
        let is_there = |entry: &Entry| is_plain(&self.folder, &entry.file);
        index.streams.retain(|entry| is_inside(entry) && is_there(entry));
        Ok(index)
    }

    fn write_index(&self, index: &Index) -> Done {
        let text = serde_json::to_vec_pretty(index).unwrap_or_default();
        replace(&self.folder.join(INDEX), &text)
    }

    /// Changes the index while no other process does.
    fn change<T>(&self, change: impl FnOnce(&mut Index) -> Done<T>) -> Done<T> {
        let path = self.folder.join(LOCK);
        let failed = Self::error(&path);
        make_folder(&self.folder)?;
        let lock = open(&path, File::options().write(true).create(true).truncate(false)).map_err(&failed)?;
        lock.lock().map_err(&failed)?;
        let mut index = self.index()?;
        change(&mut index)
    }

    fn entry(&self, dataset: &str, name: &str, from: u64) -> Done<Entry> {
        let index = self.index()?;
        let mut found = index.streams.iter().rev();
        let is_it = |entry: &&Entry| entry.dataset == dataset && entry.snapshot == name && entry.from == from;
        found.find(is_it).cloned().ok_or_else(|| SideError::Unable {
            at: self.describe(),
            what: "has no stream from there to there",
        })
    }

    /// Reads a stream to its end and writes it to `file`.
    fn store(input: PipeReader, file: &File) -> Done<Stored> {
        let broken = |problem: String| SideError::Stream { problem };
        let tee = Tee { input, file };
        let mut reader = Reader::new(BufReader::with_capacity(BUFFER, tee));
        let mut stored: Option<Stored> = None;
        let mut has_ended = false;
        while let Some(frame) = reader.next_frame().map_err(|error| broken(cenote::error::chain(&error)))? {
            match &frame.header.record {
                Record::Begin(begin) if !begin.is_package() => {
                    if stored.is_some() {
                        return Err(broken("it has several snapshots".to_owned()));
                    }
                    stored = Some(Stored {
                        guid: begin.to_guid,
                        from: begin.from_guid,
                        creation: begin.creation_time,
                        bytes: 0,
                        name: String::from_utf8_lossy(begin.name()).into_owned(),
                    });
                    has_ended = false;
                }
                Record::End(_) => has_ended = true,
                _ => has_ended = false,
            }
        }
        match stored.filter(|_| has_ended) {
            Some(stored) => Ok(Stored { bytes: reader.position(), ..stored }),
            None => Err(broken("it ends too early".to_owned())),
        }
    }
}

/// What a stream says of itself.
struct Stored {
    guid: u64,
    from: u64,
    creation: u64,
    bytes: u64,
    name: String,
}

/// Writes to a file what is read.
struct Tee<'f> {
    input: PipeReader,
    file: &'f File,
}

impl Read for Tee<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.file.write_all(buffer.get(..count).unwrap_or_default())?;
        Ok(count)
    }
}

/// Opens a regular file; nothing else, and no symbolic link.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Without waiting for the other end of a pipe.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = options.custom_flags(flags.cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("this is no regular file")),
    }
}

/// Whether a path below a folder leads to a regular file, without a symbolic link.
fn is_plain(folder: &Path, below: &Path) -> bool {
    let mut path = folder.to_owned();
    let names: Vec<_> = below.components().collect();
    let Some((file, folders)) = names.split_last() else { return false };
    let are_folders = folders.iter().all(|name| {
        path.push(name);
        path.symlink_metadata().is_ok_and(|folder| folder.is_dir())
    });
    are_folders && path.join(file).symlink_metadata().is_ok_and(|file| file.is_file())
}

/// Makes a folder for streams, if it is not there. Nobody else may change it: whoever can puts links in the place of
/// files and folders while they are used.
fn make_folder(path: &Path) -> Done {
    let failed = Files::error(path);
    DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(&failed)?;
    let folder = path.symlink_metadata().map_err(&failed)?;
    if !folder.is_dir() {
        return Err(failed(io::Error::other("this is no folder")));
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let is_foreign = ![0, user].contains(&folder.uid());
    let is_open =
        folder.mode() & 0o002 != 0 || (folder.mode() & 0o020 != 0 && ![0, group].contains(&folder.gid()));
    match is_foreign || is_open {
        true => Err(failed(io::Error::other("other users may change this folder"))),
        false => Ok(()),
    }
}

/// Replaces a file in one step that survives a power cut.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Done {
    let failed = Files::error(path);
    let partial = path.with_extension("partial");
    let mut file =
        open(&partial, File::options().write(true).create(true).truncate(false)).map_err(&failed)?;
    file.set_len(0).map_err(&failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(&failed)?;
    std::fs::rename(&partial, path).map_err(&failed)?;
    sync_folder(path).map_err(&failed)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Removes the streams of destroyed snapshots that no other one needs; later ones first.
fn collect_garbage(folder: &Path, index: &mut Index) -> Done {
    loop {
        let needed: BTreeSet<(String, u64)> =
            index.streams.iter().map(|entry| (entry.dataset.clone(), entry.from)).collect();
        let is_garbage =
            |entry: &Entry| entry.dropped && !needed.contains(&(entry.dataset.clone(), entry.guid));
        let Some(at) = index.streams.iter().rposition(is_garbage) else { return Ok(()) };
        let entry = index.streams.remove(at);
        let path = folder.join(&entry.file);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Files::error(&path)(error)),
            _ => {}
        }
    }
}

impl Side for Files {
    fn describe(&self) -> String {
        self.folder.display().to_string()
    }

    fn list(&self, root: &str, recursive: bool) -> Done<Vec<Dataset>> {
        let index = self.index()?;
        let mut datasets: BTreeMap<String, Dataset> = BTreeMap::new();
        for (entry, order) in index.streams.iter().zip(1..) {
            let is_below =
                recursive && entry.dataset.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
            if entry.dataset != root && !is_below {
                continue;
            }
            let dataset = datasets.entry(entry.dataset.clone()).or_default();
            dataset.name.clone_from(&entry.dataset);
            dataset.source = entry.source;
            dataset.guid = entry.source.unwrap_or(0);
            if entry.from == 0 {
                dataset.full_at = Some(entry.creation);
                if self.is_source {
                    dataset.snapshots.clear();
                }
            }
            if !entry.dropped || self.is_source {
                dataset.snapshots.push(Point {
                    name: entry.snapshot.clone(),
                    guid: entry.guid,
                    createtxg: order,
                    creation: entry.creation,
                    holds: Vec::new(),
                });
            }
        }
        Ok(datasets.into_values().collect())
    }

    fn snapshot(&self, _: &[String]) -> Done {
        Err(SideError::Unable { at: self.describe(), what: "takes no snapshots" })
    }

    fn send(&self, stream: &Stream, _: Style, out: &mut dyn Write) -> Done {
        let Stream::Of { dataset, to: (name, _), from } = stream else {
            return Err(SideError::Unable { at: self.describe(), what: "cannot continue a stream" });
        };
        let entry = self.entry(dataset, name, from.as_ref().map_or(0, |(_, guid)| *guid))?;
        let path = self.folder.join(&entry.file);
        let mut file = open(&path, File::options().read(true)).map_err(Self::error(&path))?;
        io::copy(&mut file, out).map(drop).map_err(Self::error(&path))
    }

    fn receive(&self, target: &Target, input: PipeReader) -> Done {
        let folder = self.folder.join(target.dataset.replace('/', "%"));
        make_folder(&self.folder)?;
        make_folder(&folder)?;
        let partial = folder.join(PARTIAL);
        let failed = Self::error(&partial);
        // One that a crash has left is overwritten, one that another process writes is not.
        let file =
            open(&partial, File::options().write(true).create(true).truncate(false)).map_err(&failed)?;
        file.try_lock().map_err(|error| failed(error.into()))?;
        file.set_len(0).map_err(&failed)?;
        let stored = Self::store(input, &file).and_then(|stored| {
            file.sync_all().map_err(&failed)?;
            self.adopt(target, &partial, &stored)
        });
        if stored.is_err() {
            // It has no use: the next attempt begins again.
            let _ = std::fs::remove_file(&partial);
        }
        stored
    }

    fn abort(&self, _: &str) -> Done {
        Ok(())
    }

    fn destroy_snapshots(&self, dataset: &str, names: &[String]) -> Done {
        self.change(|index| {
            let goes = |entry: &Entry| entry.dataset == dataset && names.contains(&entry.snapshot);
            index.streams.iter_mut().filter(|entry| goes(entry)).for_each(|entry| entry.dropped = true);
            // Destroyed before their streams go: a crash leaves streams too many.
            self.write_index(index)?;
            collect_garbage(&self.folder, index)?;
            self.write_index(index)
        })
    }

    fn destroy_bookmark(&self, _: &str) -> Done {
        Err(SideError::Unable { at: self.describe(), what: "has no bookmarks" })
    }

    fn destroy_dataset(&self, name: &str) -> Done {
        self.change(|index| {
            let is_below = |entry: &Entry| super::tree::target_of(&entry.dataset, name, name).is_some();
            index.streams.iter_mut().filter(|entry| is_below(entry)).for_each(|entry| entry.dropped = true);
            self.write_index(index)?;
            collect_garbage(&self.folder, index)?;
            self.write_index(index)
        })
    }

    fn hold(&self, _: &str, _: &str) -> Done {
        Err(SideError::Unable { at: self.describe(), what: "has no holds" })
    }

    fn release(&self, _: &str, _: &str) -> Done {
        Err(SideError::Unable { at: self.describe(), what: "has no holds" })
    }

    fn bookmark(&self, _: &str, _: &str) -> Done {
        Err(SideError::Unable { at: self.describe(), what: "has no bookmarks" })
    }

    fn rename(&self, from: &str, to: &str) -> Done {
        self.change(|index| {
            for entry in &mut index.streams {
                if let Some(new) = super::tree::target_of(&entry.dataset, from, to) {
                    entry.dataset = new;
                }
            }
            self.write_index(index)
        })
    }

    fn set(&self, dataset: &str, property: &str, value: &str) -> Done {
        if property != SOURCE {
            return Ok(());
        }
        self.change(|index| {
            let own = index.streams.iter_mut().filter(|entry| entry.dataset == dataset);
            own.for_each(|entry| entry.source = value.parse().ok());
            self.write_index(index)
        })
    }

    /// Reads the streams of the chain that ends with this snapshot.
    fn checksum(&self, snapshot: &str, _: bool) -> Done<Checksum> {
        let (dataset, name) = snapshot.split_once('@').unwrap_or((snapshot, ""));
        let index = self.index()?;
        let chain: Vec<&Entry> = index.streams.iter().filter(|entry| entry.dataset == dataset).collect();
        let mut next = chain.iter().rev().find(|entry| entry.snapshot == name).copied();
        let none = || SideError::Unable { at: self.describe(), what: "lacks a stream of the chain" };
        let mut left = chain.len();
        loop {
            let entry = next.filter(|_| left > 0).ok_or_else(none)?;
            left -= 1;
            self.read_whole(entry)?;
            if entry.from == 0 {
                return Ok(Checksum::Whole);
            }
            next = chain.iter().rev().find(|known| known.guid == entry.from).copied();
        }
    }

    fn is_files(&self) -> bool {
        true
    }
}

impl Files {
    /// Lists a whole stream, and gives its file the name that the index has.
    fn adopt(&self, target: &Target, partial: &Path, stored: &Stored) -> Done {
        let named = stored.name.split_once('@').map_or(stored.name.as_str(), |(_, name)| name);
        if named.is_empty() || named.contains(['/', '\0']) {
            return Err(SideError::Stream { problem: "it has no name".to_owned() });
        }
        let source = target.set.iter().find(|(name, _)| name == SOURCE);
        let source = source.and_then(|(_, value)| value.parse().ok());
        self.change(|index| {
            let kind = if stored.from == 0 { "full" } else { "incremental" };
            let folder = PathBuf::from(target.dataset.replace('/', "%"));
            // The guid keeps apart snapshots that had one name after the other.
            let file = folder.join(format!("{named}@{:016x}.{kind}.zfs", stored.guid));
            if let Some(known) = index.streams.iter_mut().find(|entry| entry.file == file) {
                known.dropped = false;
                self.write_index(index)?;
            } else {
                let (dataset, snapshot) = (target.dataset.clone(), named.to_owned());
                let Stored { guid, from, creation, bytes, .. } = *stored;
                let file = file.clone();
                let dropped = false;
                index.streams.push(Entry {
                    dataset,
                    source,
                    snapshot,
                    guid,
                    from,
                    creation,
                    bytes,
                    file,
                    dropped,
                });
                self.write_index(index)?;
            }
            let path = self.folder.join(&file);
            std::fs::rename(partial, &path).map_err(Self::error(&path))?;
            sync_folder(&path).map_err(Self::error(&path))
        })
    }

    fn read_whole(&self, entry: &Entry) -> Done {
        let path = self.folder.join(&entry.file);
        let file = open(&path, File::options().read(true)).map_err(Self::error(&path))?;
        let broken =
            |problem: String| SideError::Stream { problem: format!("{}: {problem}", path.display()) };
        let mut reader = Reader::new(BufReader::with_capacity(BUFFER, file));
        let mut has_ended = false;
        while let Some(frame) = reader.next_frame().map_err(|error| broken(cenote::error::chain(&error)))? {
            has_ended = matches!(frame.header.record, Record::End(_));
        }
        if has_ended { Ok(()) } else { Err(broken("it ends too early".to_owned())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// What a side does that takes a stream, up to the end of the stream.
    fn received(folder: &Path) -> Done {
        let (input, output) = std::io::pipe().expect("a pipe");
        drop(output);
        Files::target(folder).receive(&Target { dataset: ROOT.to_owned(), ..Target::default() }, input)
    }

    fn message(done: Done) -> String {
        cenote::error::chain(&done.expect_err("refused"))
    }

    #[test]
    fn links_and_pipes_in_a_folder_are_not_used() {
        let all = tempfile::tempdir().expect("a folder");
        let precious = all.path().join("precious");
        for (number, planted) in
            [LOCK, INDEX, "@index.partial", "streams/@stream.partial", "streams"].into_iter().enumerate()
        {
            std::fs::write(&precious, "precious").expect("written");
            let folder = all.path().join(number.to_string());
            let place = folder.join(planted);
            std::fs::create_dir_all(place.parent().expect("a folder")).expect("made");
            let is_folder = planted == "streams";
            symlink(if is_folder { all.path() } else { &precious }, &place).expect("made");
            message(received(&folder));
            let changed = Files::target(&folder).change(|index| Files::target(&folder).write_index(index));
            if [LOCK, INDEX, "@index.partial"].contains(&planted) {
                changed.expect_err("a link");
            }
            assert_eq!(std::fs::read(&precious).expect("there"), b"precious", "{planted}");
            assert!(!all.path().join(PARTIAL).exists(), "nothing is made behind a link");
        }
        let folder = all.path().join("pipe");
        std::fs::create_dir(&folder).expect("made");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.join(INDEX),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .expect("made");
        let found = Files::source(&folder).list(ROOT, true).expect_err("no file");
        assert!(cenote::error::chain(&found).contains("no regular file"), "{found}");
    }

    #[test]
    fn an_index_leads_to_no_file_behind_a_link() {
        let all = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(all.path().join("folder/real")).expect("made");
        std::fs::create_dir(all.path().join("other")).expect("made");
        for file in ["folder/real/x", "other/x"] {
            std::fs::write(all.path().join(file), "x").expect("written");
        }
        let folder = all.path().join("folder");
        symlink(all.path().join("other"), folder.join("link")).expect("made");
        assert!(is_plain(&folder, Path::new("real/x")));
        assert!(!is_plain(&folder, Path::new("link/x")) && !is_plain(&folder, Path::new("real")));
    }

    #[test]
    fn a_folder_that_others_may_change_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let mode = |mode| {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).expect("changed");
        };
        mode(0o1777);
        assert!(message(received(folder.path())).contains("other users may change this folder"));
        mode(0o755);
        assert!(message(received(folder.path())).contains("ends too early"));
    }
}
