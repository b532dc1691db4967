//! What a pool is made of, down to the bytes: the data behind `zdb`.
//!
//! Most of it is the lower layers themselves, made visible here for tools that look inside a pool
//! rather than use it.

mod objects;

pub use dmu::traverse::Bookmark;
pub use dmu::zap::{Zap, ZapEntry, ZapKey, ZapStats};
pub use dmu::{DmuError, KeyState, ObjSet, Object, zil};
pub use objects::{Segment, each_block, segments};
pub use zpl::Filesystem;
