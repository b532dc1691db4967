//! `zfs inherit`: lets a dataset inherit a property again.
//!
//! # Order
//! The property and the name are checked -> what moves is unmounted -> the caller's permission -> the values are
//! removed in one transaction group -> what was unmounted is mounted where it belongs now.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7), 22-mos-dsl.md (section 7).

use super::operand::{self, NotOpened};
use super::{lines, mounts};
use crate::Session;
use crate::edit::names::Form;
use crate::edit::values::{self, InheritError};
use crate::edit::{self, EditError, permit};
use crate::mounting::MountRefusal;
use crate::verbs::{Code, Reason, Refused, Right, Verb};
use cenote::{Dataset, DatasetKind, Pool, PoolWriter};
use dsl::prop::change;
use dsl::{DslError, TaskCtx};
use format::prop as table;
use serde::{Deserialize, Serialize};

/// A property that is to be inherited.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of the dataset.
    pub dataset: String,
    /// Name of the property, as users type it.
    pub property: String,
    /// A value that was received in a stream holds then, if there is one (`-S`).
    pub received: bool,
    /// Also at everything below, as far as the property applies there (`-r`).
    pub recursive: bool,
}

/// The dataset inherits the property.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {}

/// Why the dataset does not inherit the property, or not all that was mounted is mounted again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The property cannot be inherited by any dataset.
    #[error("{reason}")]
    Property {
        /// There is no such property.
        is_unknown: bool,
        /// Why.
        reason: Reason,
    },
    /// The dataset cannot be opened.
    #[error("{0}")]
    Open(NotOpened),
    /// A file system cannot be unmounted; nothing has changed.
    #[error("{0}")]
    Mount(MountRefusal),
    /// These datasets do not inherit it. A limit that cannot go back to what was received ends the verb; what was done
    /// before stays.
    #[error("{}", datasets.iter().map(|name| format!("cannot inherit {property} for '{name}': {reason}"))
        .collect::<Vec<_>>().join("\n"))]
    NotInherited {
        /// Name of the property.
        property: String,
        /// Full names.
        datasets: Vec<String>,
        /// Why.
        reason: Reason,
    },
    /// The property is inherited, and these are not mounted.
    #[error("{}", lines(refusals).trim_end())]
    NotMounted {
        /// What is not mounted, and why.
        refusals: Vec<MountRefusal>,
    },
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason)
            | Refusal::Property { reason, .. }
            | Refusal::Open(NotOpened { reason, .. })
            | Refusal::NotInherited { reason, .. } => reason.clone(),
            Refusal::Mount(refusal) => refusal.into(),
            Refusal::NotMounted { refusals } => {
                refusals.first().map_or_else(|| Reason::new(Code::Mount, ""), Reason::from)
            }
        }
    }
}

impl Request {
    /// One property of one dataset.
    pub fn of(dataset: impl Into<String>, property: impl Into<String>) -> Request {
        Request { dataset: dataset.into(), property: property.into(), ..Request::default() }
    }

    fn closed(&self, error: EditError) -> Refusal {
        Refusal::Open(NotOpened::new(self.dataset.as_str(), error))
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs inherit";
    const RIGHT: Right = Right::Delegated(&["userprop"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let name = self.dataset.as_str();
        let property = values::inheritable(&self.property, self.received).map_err(|error| {
            let is_unknown = matches!(error, InheritError::Unknown { .. });
            Refusal::Property { is_unknown, reason: Reason::new(Code::Value, error) }
        })?;
        let view = operand::open(session, name, Form::Any).map_err(Refusal::Open)?;
        let refused = |datasets: Vec<String>, error: EditError| Refusal::NotInherited {
            property: property.clone(),
            datasets,
            reason: error.into(),
        };
        let pool = match session.writer(name) {
            Err(error) if error.is_read_only() && self.recursive => {
                let all = edit::with_descendants(&view, name).map_err(|error| self.closed(error))?;
                return Err(refused(all, error));
            }
            Err(error) if error.is_read_only() => return Err(refused(vec![name.to_owned()], error)),
            pool => pool.map_err(|error| self.closed(error))?,
        };
        let change =
            mounts::PropertyChange::begin(session, name, &[&property], false).map_err(Refusal::Mount)?;
        let done = inherit(&pool, name, &property, self.received, self.recursive);
        let refusals = change.finish(&done);
        done.map_err(|error| refused(vec![name.to_owned()], error))?;
        session.note_change(name);
        if refusals.is_empty() { Ok(Answer {}) } else { Err(Refusal::NotMounted { refusals }) }
    }
}

/// Lets datasets inherit a property again; with `received`, a value that came with a stream holds then, if there is
/// one. With `recursive` also everything below them, as far as the property applies there.
fn inherit(
    pool: &PoolWriter,
    name: &str,
    prop: &str,
    received: bool,
    recursive: bool,
) -> Result<(), EditError> {
    // Labels are unsupported, and where a key is cannot be taken from above.
    if prop == "mlslabel" || prop == "keylocation" {
        return Err(EditError::Denied);
    }
    let needed = permit::to_set(prop);
    let permit = permit::of(pool)?;
    // Before anything is looked up, and again at each dataset below: what is granted here need not be granted there.
    permit::ask(pool, name, &[&needed])?;
    let view = pool.view()?;
    let dataset = view.dataset(name)?;
    let targets = if recursive { tree(&view, &dataset)? } else { vec![dataset] };
    let native = table::dataset(prop);
    let mut names = Vec::new();
    for target in targets {
        let kind = edit::kind_of(&target)?;
        let applies = native.is_none_or(|p| p.applies_to(kind) && kind != table::SNAP);
        match (applies, recursive) {
            (true, _) => {
                permit.iter().try_for_each(|permit| permit.ask(target.name(), &[&needed]))?;
                names.push(target.name().to_owned());
            }
            (false, true) => {}
            (false, false) => return Err(EditError::NotApplicable),
        }
    }
    let prop = prop.to_owned();
    edit::run(pool, move |ctx| inherit_all(ctx, &names, &prop, received, recursive))?.map_or(Ok(()), Err)?;
    Ok(())
}

/// Returns why one of them was refused, if others have changed. What has gone from a tree since it was looked at is
/// passed over.
fn inherit_all(
    ctx: &mut TaskCtx<'_>,
    names: &[String],
    prop: &str,
    received: bool,
    recursive: bool,
) -> Result<Option<DslError>, DslError> {
    let mut is_changed = false;
    for name in names {
        match ctx.step(|ctx| change::inherit(ctx, name, prop, received))? {
            Ok(()) => is_changed = true,
            Err(DslError::NotFound { .. }) if recursive => {}
            Err(error) if is_changed => return Ok(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// A dataset and all below it, with their snapshots.
fn tree(pool: &Pool, top: &Dataset) -> Result<Vec<Dataset>, EditError> {
    let mut found = Vec::new();
    if top.kind()? == DatasetKind::Snapshot {
        return Ok(vec![top.clone()]);
    }
    let mut stack = vec![pool.dsl().dir(top.name())?];
    while let Some(dir) = stack.pop() {
        stack.extend(dir.children()?);
        let Some(head) = dir.head()? else { continue };
        for snapshot in head.snapshots()? {
            found.push(pool.dataset(snapshot.name())?);
        }
        found.push(pool.dataset(head.name())?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    #[test]
    fn each_dataset_has_a_line() {
        let refusal = Refusal::NotInherited {
            property: "quota".into(),
            datasets: vec!["tank".into(), "tank/a".into()],
            reason: crate::verbs::Denied.into(),
        };
        assert_eq!(
            carried(&refusal).to_string(),
            "cannot inherit quota for 'tank': permission denied\n\
             cannot inherit quota for 'tank/a': permission denied"
        );
    }
}
