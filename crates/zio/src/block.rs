//! The contents of a block, shared by all its readers.

use format::Endian;
use std::fmt;
use std::sync::Arc;

/// The contents of a block: verified, decrypted, decompressed. Cloning shares the bytes.
#[derive(Clone)]
pub struct Block {
    bytes: Arc<Vec<u8>>,
    order: Endian,
}

impl Block {
    /// A block with these bytes, whose integers are in `order`.
    pub fn new(bytes: Vec<u8>, order: Endian) -> Block {
        Block { bytes: Arc::new(bytes), order }
    }

    /// A block whose bytes are shared with other holders.
    pub fn shared(bytes: Arc<Vec<u8>>, order: Endian) -> Block {
        Block { bytes, order }
    }

    /// The bytes, as another shared reference.
    pub fn share(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.bytes)
    }

    /// The bytes of the block, `lsize` of them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Byte order of the integers in the contents.
    pub fn order(&self) -> Endian {
        self.order
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes, {:?})", self.bytes.len(), self.order)
    }
}
