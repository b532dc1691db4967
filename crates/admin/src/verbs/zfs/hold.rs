//! `zfs hold`: holds snapshots, so that they cannot be destroyed.
//!
//! # Order
//! The snapshots are looked up -> the caller's permission at each -> the holds are made in one transaction group, all
//! or none.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7), 22-mos-dsl.md (section 5).

use super::holds::{self, Blame, Target, WhyNot};
use crate::Session;
use crate::edit::operation::{self, Operation};
use crate::verbs::{Denied, Reason, Refused, Right, Verb};
use cenote::PoolWriter;
use format::nvlist::NvList;
use serde::{Deserialize, Serialize};

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

/// The snapshots are held.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Full names.
    pub snapshots: Vec<String>,
}

/// Why no snapshot is held by this request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{}", why.text("hold", "cannot hold snapshot"))]
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
    const NAME: &'static str = "zfs hold";
    const RIGHT: Right = Right::Delegated(&["hold"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let target = Target { snapshots: &self.snapshots, recursive: self.recursive };
        let snapshots = target
            .change(session, |pool, names| hold(pool, names, &self.tag))
            .map_err(|why| Refusal { why })?;
        Ok(Answer { snapshots })
    }
}

/// Holds snapshots of one pool, all or none.
fn hold(pool: &PoolWriter, names: &[String], tag: &str) -> Result<(), Blame> {
    holds::ask(pool, names, "hold")?;
    let operation = Operation::begin("hold");
    holds::each(pool, names, tag, false, |ctx, name, tag, is_check| {
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
    holds::record(pool, operation, names, operation::pair("holds", list))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    #[test]
    fn refusals_are_in_the_words_of_openzfs() {
        let reason = Reason::new(crate::verbs::Code::Refused, "tag already exists on this dataset");
        let why = WhyNot::Blame { snapshot: "tank@a".into(), reason };
        assert_eq!(
            carried(&Refusal { why }).to_string(),
            "cannot hold snapshot 'tank@a': tag already exists on this dataset"
        );
        let why = WhyNot::Blame { snapshot: "tank@a".into(), reason: Denied.into() };
        assert_eq!(carried(&Refusal { why }).to_string(), "cannot hold: permission denied");
    }
}
