//! `zfs release`: releases holds on snapshots. A snapshot that was to be destroyed with its last hold is destroyed.
//!
//! # Order
//! The snapshots are looked up -> the caller's permission at each -> the holds are released in one transaction group,
//! all or none; snapshots that are not held by the tag are passed over, unless none is.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7), 22-mos-dsl.md (section 5).

use super::holds::{self, Blame, Target, WhyNot};
use crate::Session;
use crate::edit::operation::{self, Operation};
use crate::verbs::{Denied, Reason, Refused, Right, Verb};
use cenote::PoolWriter;
use dsl::destroy;
use format::nvlist::{NvList, NvValue};
use serde::{Deserialize, Serialize};

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

/// The holds are released.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Full names of the snapshots, with those that were passed over.
    pub snapshots: Vec<String>,
}

/// Why no hold is released.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{}", why.text("release", "cannot release hold from snapshot"))]
pub struct Refusal {
    /// Why.
    pub why: WhyNot,
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Refusal {
        Refusal { why: WhyNot::Denied(denied.into()) }
    }
}

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        self.why.reason()
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs release";
    const RIGHT: Right = Right::Delegated(&["release"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let target = Target { snapshots: &self.snapshots, recursive: self.recursive };
        let snapshots = target
            .change(session, |pool, names| release(pool, names, &self.tag))
            .map_err(|why| Refusal { why })?;
        Ok(Answer { snapshots })
    }
}

/// Releases holds on snapshots of one pool, all or none.
fn release(pool: &PoolWriter, names: &[String], tag: &str) -> Result<(), Blame> {
    holds::ask(pool, names, "release")?;
    let operation = Operation::begin("release");
    holds::each(pool, names, tag, true, |ctx, name, tag, is_check| {
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
    holds::record(pool, operation, names, list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    #[test]
    fn refusals_are_in_the_words_of_openzfs() {
        let why = WhyNot::NoSnapshot { snapshot: "tank@a".into() };
        assert_eq!(
            carried(&Refusal { why }).to_string(),
            "cannot release hold from snapshot 'tank@a': dataset does not exist"
        );
        let why = WhyNot::NotASnapshot { name: "tank".into() };
        assert_eq!(carried(&Refusal { why }).to_string(), "'tank' is not a snapshot");
    }
}
