//! One file of a file system.

pub(crate) mod hold;
pub(crate) mod inode;
pub(crate) mod table;

use crate::{Attrs, Filesystem, ZplError, attrs};
use dmu::Object;
use format::{DecodeError, ObjectId};
use std::fmt;
use std::sync::Arc;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
}

impl FileKind {
    /// From `(mode & S_IFMT) >> 12`; `None` if that is no kind.
    pub fn from_type(bits: u8) -> Option<FileKind> {
        Some(match bits {
            1 => FileKind::Fifo,
            2 => FileKind::CharDevice,
            4 => FileKind::Directory,
            6 => FileKind::BlockDevice,
            8 => FileKind::Regular,
            10 => FileKind::Symlink,
            12 => FileKind::Socket,
            _ => return None,
        })
    }

    /// The kind in `st_mode`.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        FileKind::from_type((mode >> 12 & 0xF) as u8)
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::Fifo => "named pipe",
            FileKind::CharDevice => "character device",
            FileKind::Directory => "directory",
            FileKind::BlockDevice => "block device",
            FileKind::Regular => "regular file",
            FileKind::Symlink => "symbolic link",
            FileKind::Socket => "socket",
        })
    }
}

/// A file, directory, link or anything else with a name. Cloning is cheap.
#[derive(Clone)]
pub struct Node {
    pub(crate) fs: Arc<Filesystem>,
    pub(crate) object: Object,
    attrs: Attrs,
    kind: FileKind,
}

impl Node {
    pub(crate) fn new(fs: Arc<Filesystem>, object: Object) -> Result<Node, ZplError> {
        let attrs = attrs::read(&fs, &object)?;
        let kind = FileKind::from_mode(attrs.mode).ok_or_else(|| ZplError::Corrupt {
            objset: object.objset().number(),
            object: object.id(),
            why: "its mode is that of no kind of file",
        })?;
        Ok(Node { fs, object, attrs, kind })
    }

    /// Its number: the inode number.
    pub fn id(&self) -> ObjectId {
        self.object.id()
    }

    /// Its attributes.
    pub fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    /// The object that holds it.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The file system it is in.
    pub fn filesystem(&self) -> &Arc<Filesystem> {
        &self.fs
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Space taken, its own dnode included, in units of 512 bytes: `st_blocks`. Space on RAID-Z is
    /// deflated and no multiple of that unit: it is rounded to the nearest.
    pub fn blocks_512(&self) -> u64 {
        let dnode = self.object.dnode();
        (dnode.used_bytes().saturating_add(256) / 512).saturating_add(dnode.slots() as u64)
    }

    /// Bytes of a block: `st_blksize`.
    pub fn block_size(&self) -> u64 {
        self.object.block_size()
    }

    pub(crate) fn expect(&self, kind: FileKind, expected: &'static str) -> Result<(), ZplError> {
        if self.kind == kind {
            return Ok(());
        }
        Err(ZplError::WrongKind { object: self.id(), kind: self.kind, expected })
    }

    pub(crate) fn corrupt(&self, why: &'static str) -> ZplError {
        ZplError::Corrupt { objset: self.object.objset().number(), object: self.id(), why }
    }

    pub(crate) fn decode_error(&self, source: DecodeError) -> ZplError {
        ZplError::Decode { objset: self.object.objset().number(), object: self.id(), source }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("id", &self.id()).field("attrs", &self.attrs).finish()
    }
}

/// The device number as the file system stores it: in the form of Linux where it fits, else a half word
/// each.
pub(crate) fn encode_device(major: u32, minor: u32) -> u64 {
    if major < 1 << 12 && minor < 1 << 20 {
        u64::from(major) << 20 | u64::from(minor)
    } else {
        u64::from(major) << 32 | u64::from(minor)
    }
}
