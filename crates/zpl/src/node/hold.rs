//! Holds: handles that keep a file after its last name is removed.

use crate::fs::writable::Fs;
use crate::node::inode::Inode;
use crate::{Attrs, Node, ZplError};
use format::ObjectId;
use std::sync::Arc;

/// Keeps a file: while a hold exists, the object number is not reused, and the file can be read and written,
/// with or without a name. Dropping the last hold of a file without a name frees the file, so no hold may be
/// dropped while a transaction is held.
pub struct Hold {
    fs: Arc<Fs>,
    inode: Arc<Inode>,
    frees: bool,
}

impl Hold {
    /// Takes over a hold that was counted in `inode`.
    pub(crate) fn new(fs: Arc<Fs>, inode: Arc<Inode>) -> Hold {
        Hold { fs, inode, frees: true }
    }

    /// Releases the file without freeing it: a file without a name is then freed by [`Fs::drain`] when the
    /// file system is opened again, unless it is held then.
    pub fn leave(mut self) {
        self.frees = false;
    }

    /// Object number of the file.
    pub fn id(&self) -> ObjectId {
        self.inode.id
    }

    /// Attributes of the file at this moment.
    pub fn attrs(&self) -> Attrs {
        self.inode.attrs()
    }

    /// The file for reading, in its present state.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn node(&self) -> Result<Node, ZplError> {
        self.fs.reader().node_of(self.inode.object.read())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.inode.let_go() && self.frees && self.inode.state().is_orphan {
            self.fs.free_later(self.inode.id);
        }
    }
}

/// Keeps the object of a file from being freed during one operation. Created before the transaction, and so
/// dropped after it.
pub(crate) struct Busy<'f> {
    fs: &'f Fs,
    inode: Arc<Inode>,
}

impl std::ops::Deref for Busy<'_> {
    type Target = Arc<Inode>;

    fn deref(&self) -> &Arc<Inode> {
        &self.inode
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if self.inode.let_go() && self.inode.state().is_orphan {
            self.fs.free_later(self.inode.id);
        }
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hold({})", self.inode.id)
    }
}

impl Fs {
    /// Holds a file.
    ///
    /// # Errors
    /// [`ZplError::Stale`] if it no longer exists.
    pub fn hold(self: &Arc<Self>, id: ObjectId) -> Result<Hold, ZplError> {
        self.keep(&self.inode(id)?)
    }

    /// Holds the file of an inode.
    pub(crate) fn keep(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<Hold, ZplError> {
        self.note_hold(inode)?;
        Ok(Hold::new(Arc::clone(self), Arc::clone(inode)))
    }

    /// Keeps a file during one operation.
    pub(crate) fn busy(&self, id: ObjectId) -> Result<Busy<'_>, ZplError> {
        let inode = self.inode(id)?;
        self.note_hold(&inode)?;
        Ok(Busy { fs: self, inode })
    }

    fn note_hold(&self, inode: &Inode) -> Result<(), ZplError> {
        let state = inode.state();
        if state.is_gone {
            return Err(ZplError::Stale { object: inode.id });
        }
        // Under the state lock, which is also held when the holds are checked before an object is freed.
        inode.hold();
        drop(state);
        Ok(())
    }
}
