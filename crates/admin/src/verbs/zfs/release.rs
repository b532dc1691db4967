//! `zfs release`: releases holds on snapshots. A snapshot that was to be destroyed with its last hold is destroyed.
//!
//! # Order
//! The snapshots are looked up -> the caller's permission at each -> the holds are released in one transaction group,
//! all or none; snapshots that are not held by the tag are passed over, unless none is.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7), 22-mos-dsl.md (section 5).

use super::hold_changes::{self, Blame, HoldChange, Target};
use crate::Session;
use crate::edit::operation::{self, Operation};
use crate::verbs::{Right, Verb};
use cenote::PoolWriter;
use dsl::destroy;
use format::nvlist::{NvList, NvValue};
use serde::{Deserialize, Serialize};

pub use super::hold_changes::{Answer, Refusal};

/// Snapshots whose holds are to be released.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full names of snapshots of one pool.
    pub snapshots: Vec<String>,
    /// The hold's tag.
    pub tag: String,
    /// Also the snapshots of these names of all datasets below (`-r`).
    pub recursive: bool,
}

impl Verb for Request {
    const NAME: &'static str = "zfs release";
    const RIGHT: Right = Right::Delegated(&["release"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        Target { change: HoldChange::Release, snapshots: &self.snapshots, recursive: self.recursive }
            .change(session, |pool, names| release(pool, names, &self.tag))
    }
}

/// Releases holds on snapshots of one pool, all or none.
fn release(pool: &PoolWriter, names: &[String], tag: &str) -> Result<(), Blame> {
    let operation = Operation::begin("release");
    hold_changes::each(pool, names, tag, true, |ctx, name, tag, is_check| {
        let id = ctx.dsl()?.dataset(name)?.id();
        if is_check {
            dsl::holds::check_release(ctx.m(), id, tag)?;
            return destroy::check_deferred(ctx, id, name);
        }
        let is_due = dsl::holds::release(ctx.m(), id, tag)?;
        let left = dsl::holds::count(ctx.m(), id)?;
        ctx.note("release", Some((name, id)), format!("tag={tag} refs={left}"));
        if is_due {
            destroy::destroy_if_deferred(ctx, id)?;
        }
        Ok(())
    })?;
    let mut list = NvList::new();
    names.iter().for_each(|name| list.push(name, operation::pair(tag, NvValue::Boolean)));
    hold_changes::record(pool, operation, names, list)
}
