//! What a pool is made of, down to the bytes: the data behind `zdb`.
//!
//! Most of it is the lower layers themselves, made visible here for tools that look inside a pool
//! rather than use it.

mod blocks;
mod census;
mod dtl;
mod labels;
mod leaks;
mod metaslabs;
mod objects;
mod paths;
mod raw;
mod simulate;

pub use blocks::{
    BlockCounts, BlockReport, BlockUse, Check, CountedBy, Damaged, Miscount, SIZE_ROWS, SizeRows, Space,
    Tally, blocks,
};
pub use census::{FeatureCount, census, removal_census};
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
pub use leaks::{LeakedObject, leaked_objects, space_map_counts};
pub use metaslabs::{
    LogMap, RemovedVdev, StoredMetaslab, VdevMetaslabs, checkpoint_maps, free_space, log_maps, metaslabs,
};
pub use objects::{Segment, each_block, segments};
pub use paths::Paths;
pub use pool::CloneTable;
pub use pool::dedup::DedupTable;
pub use pool::space::{Class, VdevSpace};
pub use pool::space_map::SpaceMap;
pub use raw::{checksums, decompress_any, embedded_block, raw_bytes, raw_vdev, zstd_header};
pub use simulate::simulated_dedup;
pub use vdev::label::Probe;
pub use vdev::tree::{RangeSet, VdevStatus};
pub use zpl::FileKind;
pub use zpl::Filesystem;
