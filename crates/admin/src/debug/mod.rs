//! The structures of a pool as they are stored: the data behind `zdb`.
//!
//! They are labels, space maps, mappings of removed vdevs, dirty time logs, block trees of objects, and raw bytes.
//! Types of the engine that a debugger needs are re-exported. None of this is part of the stable interface of the
//! library `cenote`; its stable interface of this kind is [`cenote::inspect`].
//!
//! All functions only read. Layouts: docs/on-disk. Tests: `crates/cli/tests`, against the output of `zdb`.

mod dtl;
mod labels;
mod metaslabs;
mod objects;
mod paths;
mod raw;

pub use ::pool::CloneTable;
pub use ::pool::dedup::DedupTable;
pub use ::pool::space::{Class, VdevSpace};
pub use ::pool::space_map::SpaceMap;
pub use codec::compress::ZstdHeader;
pub use dmu::log::walk as zil;
pub use dmu::traverse::Bookmark;
pub use dmu::zap::{Zap, ZapEntry, ZapKey, ZapStats};
pub use dmu::{DmuError, KeyState, ObjSet, Object};
pub use dsl::bpobj::Bpobj;
pub use dsl::deadlist::Deadlist;
pub use dsl::{Dataset as DslDataset, Dir, DslError, prop};
pub use dtl::{DirtyTimes, dirty_times};
pub use format::brt::extra_references;
pub use format::ddt::{
    DdtClass, DdtHistogram, DdtKey, DdtPhys, DdtStat, DdtValue, FLAG_FLAT, FLAG_LOG, LogHeader,
};
pub use labels::{Labels, RingSlot, labels};
pub use metaslabs::{
    LogMap, RemovedVdev, StoredMetaslab, VdevMetaslabs, checkpoint_maps, free_space, log_maps, metaslabs,
};
pub use objects::{Segment, each_block, segments};
pub use paths::Paths;
pub use raw::{checksums, decompress_any, embedded_block, raw_bytes, raw_vdev, zstd_header};
pub use vdev::label::Probe;
pub use vdev::tree::{RangeSet, VdevStatus};
pub use zpl::FileKind;
pub use zpl::Filesystem;
