//! Handles that keep a file although its last name is removed.

use crate::fs::writable::Fs;
use crate::node::inode::Inode;
use crate::{Attrs, Node, ZplError};
use format::ObjectId;
use std::sync::Arc;

/// Keeps a file: as long as one exists its number stays its own, and it can be read and written, with a name
/// or without. Dropping the last handle of a file without a name frees it; so none is dropped while a
/// transaction is held.
pub struct Hold {
    fs: Arc<Fs>,
    inode: Arc<Inode>,
    frees: bool,
}

impl Hold {
    /// `inode` was held for it.
    pub(crate) fn new(fs: Arc<Fs>, inode: Arc<Inode>) -> Hold {
        Hold { fs, inode, frees: true }
    }

    /// Lets go of the file without freeing it: without a name it is freed by [`Fs::drain`] when the file
    /// system is opened again, unless it is held then.
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

    /// It for reading, as it is now.
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

/// Keeps a file for the length of one operation: its object is not freed meanwhile. Made before the
/// transaction, and so dropped after it.
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
    /// Keeps a file.
    ///
    /// # Errors
    /// [`ZplError::Stale`] if it does not exist any more.
    pub fn hold(self: &Arc<Self>, id: ObjectId) -> Result<Hold, ZplError> {
        self.keep(&self.inode(id)?)
    }

    /// The same of a file that is at hand.
    pub(crate) fn keep(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<Hold, ZplError> {
        self.note_hold(inode)?;
        Ok(Hold::new(Arc::clone(self), Arc::clone(inode)))
    }

    /// Keeps a file for the length of an operation.
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
        // Under the state lock, because the holds are looked at under the same lock before an object is
        // freed.
        inode.hold();
        drop(state);
        Ok(())
    }
}
