//! Reading and changing the files of a pool, by path.
//!
//! [`FilesystemWriter`] is a file system open for writing, with the operations of `std::fs` and those of ZFS;
//! [`FileWriter`] is one of its files; [`VolumeFile`] is a volume. Each call is one or a few operations of
//! `zpl`, which servers that know files by number call directly ([`FilesystemWriter::fs`]).
//!
//! # What always holds
//! - A change is visible to all readers at once. It is durable after [`FilesystemWriter::sync`] or
//!   [`FileWriter::sync`], or when its transaction group is written, a few seconds later. With the property
//!   `sync=always` every call returns when its change is durable.
//! - A path starts at the root of the file system and never leaves it: absolute links and `..` are resolved
//!   as if the process were confined to that root.
//! - No permissions are checked, because a process that can open the devices can change everything. Modes and
//!   ACLs are stored, not enforced.

mod change;
mod file;
pub(crate) mod last;
mod path;
mod remove;
mod served;
mod volume;

pub use change::Changed;
pub use file::FileWriter;
pub use path::Found;
pub use remove::{Removed, TreeObserver};
pub use served::{BCLONE_ENABLED, BCLONE_WAIT_DIRTY};
pub use volume::VolumeFile;
pub use zpl::{
    AccessTimes, Allocate, BeginError, NewAttrs, RenameHow, SnapshotDir, XattrHow, without_set_ids,
};
pub use zpl::{
    Attrs, CaseSensitivity, FileKind, FileRange, Fs, FsStats, HeadFs, Hold, NewFile, WriteHow, ZplError,
};

use std::sync::Arc;

use dsl::DslError;
use format::acl::{POSIX_ACCESS, POSIX_DEFAULT, PosixEntry};
use format::objset::ObjsetType;
use format::{ObjectId, Txg};
use pool::LivePool;
use zpl::{AppliedLogs, CloneTable, Made, PoolClones, encode_posix, options_of};
use zpl::{Filesystem, Node};

use crate::{Error, PoolWriter};

/// Number of transactions that may be spent on freeing removed files when a file system is opened.
const DRAIN_STEPS: usize = 64;

impl PoolWriter {
    /// Opens a file system of the pool for writing. Drop it, its clones and its files before the pool is
    /// closed: they return errors afterwards.
    ///
    /// # Errors
    /// As [`FilesystemWriter::open`].
    pub fn filesystem(&self, name: &str) -> Result<FilesystemWriter, Error> {
        FilesystemWriter::open(self.live(), name)
    }

    /// Opens a volume of the pool for writing.
    ///
    /// # Errors
    /// As [`VolumeFile::open`].
    pub fn volume(&self, name: &str) -> Result<VolumeFile, Error> {
        VolumeFile::open(self.live(), name)
    }
}

/// Number of intent logs that are replayed together, in the same txgs.
const LOGS_AT_ONCE: usize = 256;

/// Replays the intent logs that an import has claimed. A log that cannot be replayed stays until its dataset
/// is opened for writing, and does not affect the others.
pub(crate) fn replay_logs(pool: &Arc<LivePool>) {
    for some in pool.take_unreplayed().chunks(LOGS_AT_ONCE) {
        let mut logs = AppliedLogs::default();
        for id in some {
            if let Err(error) = apply_log(pool, *id, &mut logs) {
                tracing::warn!(pool = pool.name(), dataset = id.0, %error, "an intent log is not replayed");
            }
        }
        if let Err(error) = logs.give_up() {
            tracing::warn!(pool = pool.name(), %error, "intent logs are not replayed to their ends");
        }
    }
}

fn apply_log(pool: &Arc<LivePool>, id: ObjectId, logs: &mut AppliedLogs) -> Result<(), Error> {
    let view = pool.view()?;
    let dataset = view.dsl().dataset_by_object(id)?;
    if dataset.is_encrypted()? {
        return Ok(());
    }
    let head = pool.heads().open(id)?;
    if head.log.awaits_replay() {
        pool.release()?;
        match head.set.kind() {
            ObjsetType::Zvol => logs.add_volume(&head)?,
            _ => logs.add_fs(&head, options_of(&dataset, pool.features())?, pool.env())?,
        }
    }
    Ok(())
}

/// A file system of a pool, open for writing. Cloning is cheap.
///
/// New files belong to root, or to the ids of [`FilesystemWriter::as_owner`].
#[derive(Clone)]
pub struct FilesystemWriter {
    name: Arc<str>,
    pool: Arc<LivePool>,
    head: Arc<HeadFs>,
    uid: u32,
    gid: u32,
}

/// Refuses a dataset whose property `readonly` is on, or whose contents are only read.
pub(crate) fn check_writable(dataset: &dsl::Dataset, name: &str) -> Result<(), Error> {
    if let Some(why) = dataset.unwritten()? {
        return Err(DslError::Unwritten { name: name.to_owned(), why }.into());
    }
    if dsl::prop::stored_number(dataset, "readonly")? == 0 {
        return Ok(());
    }
    Err(DslError::WrongKind { name: name.to_owned(), why: "the dataset is read-only" }.into())
}

/// How a file system is opened.
#[derive(Clone, Copy)]
struct Opens {
    /// Refuse a read-only file system.
    writes: bool,
    /// Free files that were unlinked but not freed when the file system was last closed.
    drains: bool,
}

impl FilesystemWriter {
    /// Opens the file system with this full name. If the pool was not exported, the intent log is replayed
    /// first.
    ///
    /// # Errors
    /// [`Error::NotAFilesystem`]; [`Error::Dsl`] if it does not exist or cannot be changed: it is a snapshot,
    /// read-only, or encrypted.
    pub fn open(pool: &Arc<LivePool>, name: &str) -> Result<FilesystemWriter, Error> {
        let opens = Opens { writes: true, drains: true };
        FilesystemWriter::open_as(pool, &pool.view()?.dsl().dataset(name)?, opens)
    }

    /// Like [`FilesystemWriter::open`], and accepts a file system with `readonly=on`, which refuses changes as long
    /// as the property is on.
    ///
    /// # Errors
    /// As [`FilesystemWriter::open`].
    pub fn open_for_mount(pool: &Arc<LivePool>, name: &str) -> Result<FilesystemWriter, Error> {
        let opens = Opens { writes: false, drains: true };
        FilesystemWriter::open_as(pool, &pool.view()?.dsl().dataset(name)?, opens)
    }

    /// Like [`FilesystemWriter::open_for_mount`], by the object id of the dataset, which a rename does not
    /// change. Removed files are not freed yet (`Fs::drain`).
    ///
    /// # Errors
    /// As [`FilesystemWriter::open`].
    pub fn open_for_mount_by_id(pool: &Arc<LivePool>, id: ObjectId) -> Result<FilesystemWriter, Error> {
        let dataset = pool.view()?.dsl().dataset_by_object(id)?;
        FilesystemWriter::open_as(pool, &dataset, Opens { writes: false, drains: false })
    }

    fn open_as(
        pool: &Arc<LivePool>,
        dataset: &dsl::Dataset,
        Opens { writes, drains }: Opens,
    ) -> Result<FilesystemWriter, Error> {
        let name = dataset.name();
        if dataset.is_snapshot() {
            let why = "a snapshot cannot be changed";
            return Err(DslError::WrongKind { name: name.to_owned(), why }.into());
        }
        if dataset.is_volume()? {
            return Err(Error::NotAFilesystem { dataset: name.to_owned() });
        }
        if writes {
            check_writable(dataset, name)?;
        }
        let options = options_of(dataset, pool.features())?;
        let can_drain = drains && !options.read_only;
        pool.release()?;
        let head = pool.heads().open(dataset.id())?;
        let steps = if can_drain { DRAIN_STEPS } else { 0 };
        let head = HeadFs::open_drained(&head, options, pool.env(), steps)?;
        let pool = Arc::clone(pool);
        Ok(FilesystemWriter { name: dataset.name().into(), pool, head, uid: 0, gid: 0 })
    }

    /// A handle whose new files belong to this user and group.
    #[must_use]
    pub fn as_owner(mut self, uid: u32, gid: u32) -> FilesystemWriter {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    /// Full name of the dataset at the time of opening.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pool of the file system.
    pub fn pool(&self) -> &Arc<LivePool> {
        &self.pool
    }

    /// Operations by the object ids of files.
    pub fn fs(&self) -> &Arc<Fs> {
        &self.head.fs
    }

    /// The dataset of the file system, open for writing.
    pub fn head(&self) -> &HeadFs {
        &self.head
    }

    /// The file system for reading, in its newest state.
    pub fn reader(&self) -> &Arc<Filesystem> {
        self.fs().reader()
    }

    /// Owner and group of new files.
    pub(crate) fn owner(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// Writes all changes made so far to disk. Returns the transaction group that contains them.
    ///
    /// # Errors
    /// [`Error::Pool`] if the pool cannot be written any more.
    pub fn sync(&self) -> Result<Txg, Error> {
        Ok(self.pool.sync()?)
    }

    /// Adds the dataset and the path to an error.
    fn at(&self, path: &[u8]) -> impl Fn(ZplError) -> Error {
        let (dataset, path) = (Arc::clone(&self.name), path.to_vec());
        move |source| Error::Path { dataset: dataset.to_string(), path: path.clone(), source }
    }

    /// Ends a change: with `sync=always` it is durable when this returns.
    fn changed(&self, id: ObjectId) -> Result<(), Error> {
        Ok(self.head.changed(id).map_err(pool::PoolError::from)?)
    }

    // ---- files -------------------------------------------------------------------------------

    /// Opens an existing regular file.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Path`] if it is not a regular file or cannot be opened.
    pub fn open_file(&self, path: &[u8]) -> Result<FileWriter, Error> {
        let id = self.resolve(path)?;
        self.file_writer(path, id)
    }

    /// Creates an empty file, or truncates the existing one.
    ///
    /// # Errors
    /// [`Error::Path`] if the file cannot be created, or the path is not a regular file.
    pub fn create(&self, path: &[u8]) -> Result<FileWriter, Error> {
        match self.find(path, true)? {
            Found { id: Some(id), .. } => {
                let file = self.file_writer(path, id)?;
                file.set_len(0)?;
                Ok(file)
            }
            missing => {
                let made = self.make(path, &missing, &NewFile::of(FileKind::Regular, 0o644))?;
                self.file_writer(path, made.id)
            }
        }
    }

    /// Creates an empty regular file.
    ///
    /// # Errors
    /// [`Error::Path`] if the name exists or the file cannot be created.
    pub fn create_new(&self, path: &[u8]) -> Result<FileWriter, Error> {
        let made = self.make_new(path, &NewFile::of(FileKind::Regular, 0o644))?;
        self.file_writer(path, made.id)
    }

    /// Creates a file with this content, or replaces the content of the existing one.
    ///
    /// # Errors
    /// As [`FilesystemWriter::create`] and [`FileWriter::write_at`].
    pub fn write(&self, path: &[u8], content: &[u8]) -> Result<(), Error> {
        self.create(path)?.write_at(0, content)
    }

    /// The content of a file, which has to fit into memory.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Path`] if it cannot be read.
    pub fn read(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        let file = self.open_file(path)?;
        let mut content = vec![0; usize::try_from(file.len()).unwrap_or(usize::MAX)];
        let n = file.read_at(0, &mut content)?;
        content.truncate(n);
        Ok(content)
    }

    fn file_writer(&self, path: &[u8], id: ObjectId) -> Result<FileWriter, Error> {
        let attrs = self.fs().attrs(id).map_err(self.at(path))?;
        let kind = FileKind::from_mode(attrs.mode).unwrap_or(FileKind::Regular);
        if kind != FileKind::Regular {
            return Err(self.at(path)(ZplError::WrongKind { object: id, kind, expected: "regular file" }));
        }
        FileWriter::new(self, path, id)
    }

    /// Creates a file of any kind, which belongs to the owner of this writer.
    pub(crate) fn make(&self, path: &[u8], at: &Found, new: &NewFile<'_>) -> Result<Made, Error> {
        let new = NewFile { uid: self.uid, gid: self.gid, ..*new };
        let made = self.fs().create(at.dir, &at.name, &new).map_err(self.at(path))?;
        self.changed(made.id)?;
        Ok(made)
    }

    /// Like [`FilesystemWriter::make`]; the name must not exist.
    fn make_new(&self, path: &[u8], new: &NewFile<'_>) -> Result<Made, Error> {
        let at = self.find(path, false)?;
        if at.id.is_some() {
            return Err(self.at(path)(ZplError::Exists { dir: at.dir }));
        }
        self.make(path, &at, new)
    }

    // ---- names -------------------------------------------------------------------------------

    /// Creates a directory with the permission bits of `mode`.
    ///
    /// # Errors
    /// [`Error::Path`] if the name exists or the directory cannot be created.
    pub fn create_dir(&self, path: &[u8], mode: u32) -> Result<ObjectId, Error> {
        Ok(self.make_new(path, &NewFile::of(FileKind::Directory, mode))?.id)
    }

    /// Creates a directory and its missing parents. An existing directory is left unchanged.
    ///
    /// # Errors
    /// [`Error::Path`] if a component exists and is not a directory, or a directory cannot be created.
    pub fn create_dir_all(&self, path: &[u8], mode: u32) -> Result<ObjectId, Error> {
        let (mut so_far, mut above) = (Vec::new(), Vec::new());
        let mut id = self.fs().root();
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            so_far.push(b'/');
            so_far.extend_from_slice(part);
            let at = self.find_from(&mut above, part, &so_far, true)?;
            id = match at.id {
                Some(id) => id,
                None => {
                    let made = self.make(&so_far, &at, &NewFile::of(FileKind::Directory, mode))?.id;
                    above.push((at.name, made));
                    made
                }
            };
        }
        if self.node(id)?.is_dir() {
            return Ok(id);
        }
        Err(self.at(path)(ZplError::Exists { dir: id }))
    }

    /// Creates a symbolic link to `target`, which need not exist.
    ///
    /// # Errors
    /// [`Error::Path`] if the name exists or the file cannot be created.
    pub fn symlink(&self, target: &[u8], path: &[u8]) -> Result<ObjectId, Error> {
        let new = NewFile { target, ..NewFile::of(FileKind::Symlink, 0o777) };
        Ok(self.make_new(path, &new)?.id)
    }

    /// Creates a device file, a pipe or a socket.
    ///
    /// # Errors
    /// [`Error::Path`] if the name exists or the file cannot be created.
    pub fn make_node(
        &self,
        path: &[u8],
        kind: FileKind,
        mode: u32,
        rdev: (u32, u32),
    ) -> Result<ObjectId, Error> {
        Ok(self.make_new(path, &NewFile { rdev, ..NewFile::of(kind, mode) })?.id)
    }

    /// Creates a hard link to a file. If `existing` is a symbolic link, the new name is a link to the symbolic link
    /// itself.
    ///
    /// # Errors
    /// [`Error::Path`] if the name exists or the file is a directory.
    pub fn hard_link(&self, existing: &[u8], path: &[u8]) -> Result<(), Error> {
        let id = self.resolve_link(existing)?;
        let at = self.find(path, false)?;
        self.fs().link(id, at.dir, &at.name).map_err(self.at(path))?;
        self.changed(id)
    }

    /// Renames a file or directory. The file or directory that has the new name is replaced.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Path`] if a directory would replace a file, a file a directory, or either a
    /// directory that is not empty.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        self.rename_with(from, to, RenameHow::Replace)
    }

    /// Like [`FilesystemWriter::rename`], with conditions on the names.
    ///
    /// # Errors
    /// As [`FilesystemWriter::rename`]; [`Error::Path`] if a condition of `how` is not met.
    pub fn rename_with(&self, from: &[u8], to: &[u8], how: RenameHow) -> Result<(), Error> {
        let (source, target) = (self.find(from, false)?, self.find(to, false)?);
        let id = source.id.ok_or_else(|| self.at(from)(ZplError::NotFound { dir: source.dir }))?;
        let done = self.fs().rename(source.dir, &source.name, target.dir, &target.name, how);
        done.map_err(self.at(to))?;
        self.changed(id)
    }

    /// Removes a name of a file that is not a directory.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Path`] if it is a directory.
    pub fn remove(&self, path: &[u8]) -> Result<(), Error> {
        let at = self.find(path, false)?;
        self.fs().unlink(at.dir, &at.name).map_err(self.at(path))?;
        self.changed(at.dir)
    }

    /// Removes an empty directory; symbolic links are not followed.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Path`] if it is not an empty directory.
    pub fn remove_dir(&self, path: &[u8]) -> Result<(), Error> {
        let at = self.find(path, false)?;
        self.fs().rmdir(at.dir, &at.name).map_err(self.at(path))?;
        self.changed(at.dir)
    }

    // ---- attributes --------------------------------------------------------------------------

    /// The attributes of a file; a symbolic link is not followed.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Path`] if the attributes cannot be read.
    pub fn attrs(&self, path: &[u8]) -> Result<Attrs, Error> {
        self.fs().attrs(self.resolve_link(path)?).map_err(self.at(path))
    }

    /// A file, opened for reading: entries, target, extended attributes, ACL.
    ///
    /// # Errors
    /// [`Error::Zpl`] if no file has this object id.
    pub fn node(&self, id: ObjectId) -> Result<Node, Error> {
        Ok(self.fs().node(id)?)
    }

    /// Changes several attributes in one transaction; a symbolic link is not followed.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Path`] if flags of the file or a quota forbid the change.
    pub fn set_attrs(&self, path: &[u8], new: &NewAttrs) -> Result<Attrs, Error> {
        let id = self.resolve_link(path)?;
        let attrs = self.fs().set_attrs(id, new).map_err(self.at(path))?;
        self.changed(id)?;
        Ok(attrs)
    }

    /// The value of an extended attribute; names include the namespace, as in Linux (`user.colour`). `None`: the
    /// file does not have it.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Path`] if it cannot be read.
    pub fn xattr(&self, path: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let node = self.node(self.resolve_link(path)?)?;
        node.xattr(name).map_err(self.at(path))
    }

    /// Sets an extended attribute; `name` includes its namespace (`user.`).
    ///
    /// # Errors
    /// [`Error::Path`] if the dataset has no extended attributes, the value is too large, or the condition of
    /// `how` is not met.
    pub fn set_xattr(&self, path: &[u8], name: &[u8], value: &[u8], how: XattrHow) -> Result<(), Error> {
        let id = self.resolve_link(path)?;
        self.fs().set_xattr(id, name, value, how).map_err(self.at(path))?;
        self.changed(id)
    }

    /// Removes an extended attribute; `name` includes its namespace (`user.`).
    ///
    /// # Errors
    /// [`Error::Path`] if the file does not have it.
    pub fn remove_xattr(&self, path: &[u8], name: &[u8]) -> Result<(), Error> {
        let id = self.resolve_link(path)?;
        self.fs().remove_xattr(id, name).map_err(self.at(path))?;
        self.changed(id)
    }

    /// Sets the POSIX ACL of a file or, with `default`, the ACL that new files in a directory inherit. The entries
    /// are in the order of Linux: owner, users, group, groups, mask, others.
    ///
    /// # Errors
    /// [`Error::Path`] if the dataset has no POSIX ACLs (`acltype=posix`), or the entries do not form an ACL.
    pub fn set_acl(&self, path: &[u8], acl: &[PosixEntry], default: bool) -> Result<(), Error> {
        let name = if default { POSIX_DEFAULT } else { POSIX_ACCESS };
        self.set_xattr(path, name.as_ref(), &encode_posix(acl), XattrHow::Either)
    }

    /// Creates `to` as a copy of the file `from` that shares its blocks. Both file systems are in this pool.
    ///
    /// # Errors
    /// [`ZplError::CannotClone`], inside [`Error::Path`], if the blocks cannot be shared and have to be copied.
    pub fn clone_file(&self, source: &FilesystemWriter, from: &[u8], to: &[u8]) -> Result<(), Error> {
        let original = source.open_file(from)?;
        // Blocks that are not on disk yet cannot be shared.
        self.sync()?;
        let copy = self.create(to)?;
        copy.clone_range(&original, 0, 0, original.len())
    }

    /// The counts of shared blocks.
    pub(crate) fn clone_table(&self) -> impl CloneTable + use<> {
        PoolClones::new(self.pool.brt())
    }
}

impl std::fmt::Debug for FilesystemWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FilesystemWriter({})", self.name)
    }
}
