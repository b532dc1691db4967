//! `zfs hold`: holds snapshots, so that they cannot be destroyed.
//!
//! # Order
//! The snapshots are looked up -> the caller's permission at each -> the holds are made in one transaction group, all
//! or none.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7), 22-mos-dsl.md (section 5).

use super::hold_changes::{self, Blame, HoldChange, Target};
use crate::Session;
use crate::edit::operation::{self, Operation};
use crate::verbs::{Right, Verb};
use cenote::PoolWriter;
use format::nvlist::NvList;
use serde::{Deserialize, Serialize};

pub use super::hold_changes::{Answer, Refusal};

/// Snapshots to hold.
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
    const NAME: &'static str = "zfs hold";
    const RIGHT: Right = Right::Delegated(&["hold"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        Target { change: HoldChange::Hold, snapshots: &self.snapshots, recursive: self.recursive }
            .change(session, |pool, names| hold(pool, names, &self.tag))
    }
}

/// Holds snapshots of one pool, all or none.
fn hold(pool: &PoolWriter, names: &[String], tag: &str) -> Result<(), Blame> {
    let operation = Operation::begin("hold");
    hold_changes::each(pool, names, tag, false, |ctx, name, tag, is_check| {
        let id = ctx.dsl()?.dataset(name)?.id();
        if is_check {
            return dsl::holds::check_hold(ctx.m(), id, tag, false);
        }
        dsl::holds::hold(ctx.m(), id, tag, ctx.now(), false)?;
        let count = dsl::holds::count(ctx.m(), id)?;
        ctx.note("hold", Some((name, id)), format!("tag={tag} temp=0 refs={count}"));
        Ok(())
    })?;
    let mut list = NvList::new();
    names.iter().for_each(|name| list.push(name, tag));
    hold_changes::record(pool, operation, names, operation::pair("holds", list))
}
