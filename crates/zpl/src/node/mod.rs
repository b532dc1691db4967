//! One file of a file system, for reading.

pub(crate) mod hold;
pub(crate) mod inode;
pub(crate) mod kind;
pub(crate) mod table;

use crate::node::kind::FileKind;
use crate::{Attrs, Filesystem, ZplError, attrs};
use dmu::Object;
use format::{DecodeError, ObjectId};
use std::fmt;
use std::sync::Arc;

/// A file of any kind: regular file, directory, link, device… Cheap to clone.
#[derive(Clone)]
pub struct Node {
    pub(crate) fs: Arc<Filesystem>,
    pub(crate) object: Object,
    attrs: Attrs,
    kind: FileKind,
}

impl Node {
    pub(crate) fn new(fs: Arc<Filesystem>, object: Object) -> Result<Node, ZplError> {
        let attrs = attrs::read(fs.tables(), &object)?;
        let kind = FileKind::from_mode(attrs.mode).ok_or_else(|| ZplError::Corrupt {
            objset: object.objset().number(),
            object: object.id(),
            why: "its mode is that of no kind of file",
        })?;
        Ok(Node { fs, object, attrs, kind })
    }

    /// Object number, which is the inode number.
    pub fn id(&self) -> ObjectId {
        self.object.id()
    }

    /// Attributes of the file as of the look-up.
    pub fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    /// The object that holds the file.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The file system that contains the file.
    pub fn filesystem(&self) -> &Arc<Filesystem> {
        &self.fs
    }

    /// Kind of the file.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Whether the file is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Allocated space, its own dnode included, in units of 512 bytes: `st_blocks`. Space on RAID-Z is
    /// deflated and not a multiple of that unit: it is rounded to the nearest.
    pub fn blocks_512(&self) -> u64 {
        let dnode = self.object.dnode();
        (dnode.used_bytes().saturating_add(256) / 512).saturating_add(dnode.slots() as u64)
    }

    /// Block size in bytes: `st_blksize`.
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

impl Filesystem {
    /// Opens the file with this number.
    ///
    /// # Errors
    /// [`ZplError::NotAFile`] if the object is an internal one of the file system.
    pub fn node(self: &Arc<Self>, id: ObjectId) -> Result<Node, ZplError> {
        Node::new(Arc::clone(self), self.objset().object(id)?)
    }

    /// Opens the file in an object.
    ///
    /// # Errors
    /// [`ZplError::NotAFile`] if the object is an internal one of the file system; or its attributes cannot
    /// be read.
    pub fn node_of(self: &Arc<Self>, object: Object) -> Result<Node, ZplError> {
        Node::new(Arc::clone(self), object)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("id", &self.id()).field("attrs", &self.attrs).finish()
    }
}
