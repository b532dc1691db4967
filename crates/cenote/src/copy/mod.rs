//! Getting files out of a pool: to a folder of the host, or as a tar archive.
//!
//! [`walk`] goes through a tree of a file system safely; [`host`] and [`tar`] write. Nothing here
//! prints: who calls hears of each file, each problem and each attribute that could not be kept
//! through an [`Observer`].
//!
//! # What always holds
//! - A file that cannot be read whole is never passed off as whole: it is left out, or (when
//!   asked for) filled with zeros, and told either way with the ranges that are lost.
//! - Every name and every number from the pool is taken for hostile: names that are no names are
//!   told as damage, loops of directories end.

pub mod host;
pub mod meta;
pub mod tar;
