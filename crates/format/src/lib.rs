//! Bytes to types and back: every on-disk structure of a ZFS pool as an ordinary Rust type.
//!
//! This crate does no I/O, and its heaviest algorithm is a bit field. A structure is decoded once, here, with the
//! byte order of its block; the layers above do not see raw bytes, shifts or byte order.
//!
//! # What always holds
//! - A decoder returns an error on bad input. It never panics, never loops without a bound and
//!   never allocates more than a small multiple of its input.
//! - `encode(decode(x)) == x` for every structure that Cenote writes, unknown bits included.
//!
//! Source of the layouts: `docs/on-disk`. Tests: unit tests beside the code, `tests/it/fuzz.rs`.
#![forbid(unsafe_code)]

pub mod acl;
pub mod blkptr;
pub mod boot_env;
pub mod bpobj;
pub mod brt;
pub mod config;
pub mod ddt;
pub mod dnode;
pub mod dsl;
pub(crate) mod dva;
pub mod endian;
pub mod errlog;
mod error;
pub mod feature;
pub mod fuid;
pub mod history;
pub mod ids;
pub mod indirect;
pub mod l2arc;
pub mod label;
pub mod names;
pub mod nicenum;
pub mod nvlist;
pub mod objset;
pub mod prop;
pub mod sa;
pub mod scan;
pub mod space_map;
pub mod stream;
pub mod swap;
pub mod uberblock;
pub mod units;
pub mod zap;
pub mod zil;
pub mod znode;

pub use blkptr::{BlockPtr, BpKind};
pub use dva::Dva;
pub use endian::Endian;
pub use error::DecodeError;
pub use ids::{ChecksumId, CompressionId, ObjType};
pub use nvlist::{NvList, NvValue};
pub use uberblock::Uberblock;
pub use units::{
    AllocOffset, Ashift, Asize, BlockId, Checksum, DeviceOffset, Level, Lsize, ObjectId, PoolGuid, Psize,
    Txg, VdevGuid, VdevId,
};
