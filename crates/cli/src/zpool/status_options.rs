//! What `zpool status` shows.

use super::JsonOptions;
use super::scripts::Scripts;
use crate::vdevs::Names;

/// What a status shows.
#[derive(Default)]
pub(super) struct Options {
    /// How vdevs are named.
    pub(super) names: Names,
    /// JSON and its variants.
    pub(super) json: JsonOptions,
    /// `-p`.
    pub(super) exact: bool,
    /// `-v`: the files with errors.
    pub(super) verbose: bool,
    /// `-s`: slow I/Os.
    pub(super) slow: bool,
    pub(super) direct: bool,
    pub(super) dedup: u32,
    pub(super) unhealthy_only: bool,
    pub(super) initialize: bool,
    pub(super) trim: bool,
    pub(super) sick_only: bool,
    pub(super) power: bool,
    pub(super) scripts: Scripts,
}
