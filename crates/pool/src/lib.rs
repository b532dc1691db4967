//! The pool as a whole: finding the pools on some devices, opening one, and the parts that belong to no
//! dataset: features, properties, space, history, errors, scans, spares.
//!
//! Called by `cenote`. [`Pool`] shows one state and only reads; [`LivePool`] is a pool that is open for
//! writing.
//!
//! # What always holds
//! - Opening reads labels, the MOS and a few small objects of it. Space maps, dedup tables and datasets are
//!   read on demand.
//! - A [`Pool`] shows one state: that of the uberblock at which it was opened.
//!
//! Source: `docs/on-disk/10-overview.md`, `11-labels-config.md`, `15-space.md`, `16-features.md`.
//!
//! Tests: `tests/`.
#![forbid(unsafe_code)]

mod add;
pub mod allocated;
mod assemble;
mod attach;
mod aux;
mod background;
mod cachefile;
mod checkpoint;
mod claim;
mod clones;
mod config;
mod create;
pub mod dedup;
mod detach;
mod diagnosis;
pub(crate) mod directory;
mod dtl;
mod error;
mod error_log;
pub mod events;
mod expand;
mod export;
pub(crate) mod features;
mod held_writes;
mod history;
mod hot_spares;
pub mod import;
mod indirect;
mod jobs;
mod labels;
mod layout;
mod leaf_service;
mod leases;
mod live;
mod losses;
mod missing;
mod missing_vdev;
mod mmp;
mod mmp_writer;
mod open;
mod out_of_service;
mod outage;
mod outside;
pub mod props;
mod refusal;
mod reguid;
mod release_replaced;
mod removal;
mod reopen;
mod resume_unfinished;
mod runtime;
mod scan;
mod scrub;
pub mod space;
pub mod space_map;
mod space_maps;
mod status;
mod suspend;
mod sync;
#[cfg(test)]
mod tests;
mod threads;
mod tree_change;
mod txg_history;
mod upgrade;
mod vdev_name;
mod vdev_props;
mod vdev_shape;
mod vdev_zaps;
mod view;

pub use assemble::guids_with;
pub use attach::{NewSide, Purpose};
pub use aux::change::AuxKind;
pub use aux::{AuxState, AuxVdev};
pub use cachefile::{CacheFile, CacheFileError, CacheFileFailure};
pub use clones::CloneTable;
pub use config::Host;
pub use create::{CreateSpec, FillRoot, RootDataset, check_name};
pub use error::{CommitFailure, CommitStep, PoolError, chain, chain_with, errno_text};
pub use error_log::LoggedError;
pub use expand::Grow;
pub use export::Leave;
pub use features::{FeatureState, Features, UnknownFeature};
pub use history::record::{Command, Operation};
pub use import::writable::ImportOptions;
pub use layout::{FeatureSet, Layout, LeafSpec, MAX_AUTO_ASHIFT, MIN_AUTO_ASHIFT, TopSpec, best_ashift};
pub use live::LivePool;
pub use missing_vdev::{MissingDevice, MissingVdev, WhyMissing};
pub use mmp::{MULTIHOST_FAIL_INTERVALS, MULTIHOST_HISTORY, MULTIHOST_INTERVAL, MmpRecord, MmpTarget};
pub use open::{OpenOptions, Which};
pub use out_of_service::Offline;
pub use outside::{NotHandedOver, Outside};
pub use props::change::PoolProp;
pub use refusal::{DeviceRefusal, PropertyRefusal, ShapeRefusal, SpecRefusal, WriteRefusal};
pub use removal::{
    MAX_OBSOLETE as CONDENSE_MAX_OBSOLETE, MAX_SEGMENT as REMOVE_MAX_SEGMENT, MAX_SPAN as REMOVE_MAX_SPAN,
    MIN_MAPPING as CONDENSE_MIN_MAPPING, OBSOLETE_PCT as CONDENSE_OBSOLETE_PCT, RemoveRefusal,
    SUSPEND_PROGRESS as REMOVE_SUSPEND_PROGRESS,
};
pub use scan::recorded::Expansion;
pub use scrub::{RESILVER_DEFER_PERCENT, SCAN_SUSPEND_PROGRESS, ScanRefusal};
pub use status::{FailMode, ScanProgress};
pub use txg_history::{TXG_HISTORY, TxgRecord};
pub use vdev_props::VdevProp;
pub use view::Pool;
