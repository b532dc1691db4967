//! File content: bytes, holes, the target of a symbolic link.

pub(crate) mod clone_range;
pub(crate) mod data;
pub(crate) mod range_lock;

use crate::attrs::{Spill, Stored, with_stored};
use crate::{FileKind, Node, ZplError};
use format::sa::Attr;

/// Bytes of the longest target of a symbolic link.
pub(crate) const TARGET_MAX: usize = 4095;

impl Node {
    /// Reads from `offset` into `buf`, at most up to the end of the file. Returns the number of bytes read.
    /// Holes read as zeros.
    ///
    /// # Errors
    /// [`ZplError::WrongKind`] if it is no regular file; or a block cannot be read.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, ZplError> {
        self.expect(FileKind::Regular, "regular file")?;
        let left = self.attrs().size.saturating_sub(offset);
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let Some(part) = buf.get_mut(..len) else { return Ok(0) };
        self.object.read_at(offset, part)?;
        Ok(len)
    }

    /// The first offset at or after `offset` that is not in a hole; `None` if only a hole follows.
    ///
    /// # Errors
    /// [`ZplError::WrongKind`] if it is no regular file; or an indirect block cannot be read.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, ZplError> {
        self.expect(FileKind::Regular, "regular file")?;
        let size = self.attrs().size;
        if offset >= size {
            return Ok(None);
        }
        if self.is_one_odd_block() {
            return Ok(Some(offset));
        }
        Ok(self.object.next_data(offset)?.filter(|data| *data < size))
    }

    /// The first offset at or after `offset` that is in a hole; the end of the file counts as one; `None`
    /// beyond the end.
    ///
    /// # Errors
    /// [`ZplError::WrongKind`] if it is no regular file; or an indirect block cannot be read.
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>, ZplError> {
        self.expect(FileKind::Regular, "regular file")?;
        let size = self.attrs().size;
        if offset >= size {
            return Ok(None);
        }
        if self.is_one_odd_block() {
            return Ok(Some(size));
        }
        Ok(Some(self.object.next_hole(offset)?.min(size)))
    }

    /// Whether the file has one block exactly as long as its content. OpenZFS reports such a block as data
    /// even if it is a hole, and so does Cenote: tools compare the answers.
    fn is_one_odd_block(&self) -> bool {
        !self.block_size().is_power_of_two() && self.attrs().size <= self.block_size()
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`ZplError::WrongKind`] if it is no symbolic link; [`ZplError::TooLarge`] and [`ZplError::Corrupt`]
    /// for a target that no link can have.
    pub fn readlink(&self) -> Result<Vec<u8>, ZplError> {
        self.expect(FileKind::Symlink, "symbolic link")?;
        let size = self.attrs().size;
        if size > TARGET_MAX as u64 {
            return Err(ZplError::TooLarge { object: self.id(), what: "a link's target", size });
        }
        let inline = with_stored(self.fs.tables(), &self.object, Spill::Needed, |stored| match stored {
            Stored::Sa(sa) => Ok(sa.find(Attr::Symlink)?.map(|(_, target)| target.to_vec())),
            Stored::Legacy(znode) => {
                Ok(znode.inline_target(self.object.dnode().valid_bonus()).map(<[u8]>::to_vec))
            }
        })?;
        let target = match inline {
            Some(target) => target,
            // Before system attributes, a long target was stored in the file's block.
            None if self.object.block(format::BlockId(0))?.is_some() => {
                let mut target = vec![0; size as usize];
                self.object.read_at(0, &mut target)?;
                target
            }
            None => return Err(self.corrupt("a symbolic link without a target")),
        };
        if target.len() > TARGET_MAX || target.contains(&0) {
            return Err(self.corrupt("a symbolic link whose target is no path"));
        }
        Ok(target)
    }
}
