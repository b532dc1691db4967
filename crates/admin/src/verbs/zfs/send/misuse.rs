//! Requests that no pool could fulfil: what excludes each other.

use super::{Refusal, Request, refusal};
use crate::edit::names::{self, Form};
use serde::{Deserialize, Serialize};

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Misuse {
    /// A token says itself what is sent, and how.
    #[error("invalid flags combined with -t")]
    WithToken,
    /// A partly received file system is sent as it was received.
    #[error("incompatible flags combined with saved send flag")]
    WithSaved,
    /// What was partly received belongs to a file system or volume, not to a snapshot.
    #[error("saved send must specify the dataset with partially-received state")]
    SavedSnapshot,
    /// Encrypted blocks cannot be left out one by one.
    #[error("Error: raw sends may not be redacted.")]
    RawRedacted,
    /// A redacted stream has one snapshot.
    #[error("Error: multiple snapshots cannot be sent redacted.")]
    ManyRedacted,
    /// The snapshots between a bookmark and another snapshot are not those of a package.
    #[error("Error: multiple snapshots cannot be sent from a bookmark.")]
    ManyFromBookmark,
    /// A package needs a snapshot.
    #[error("Error: Unsupported flag with filesystem or bookmark.")]
    PackageOfHead,
    /// All snapshots since nothing.
    #[error("an incremental source is needed to send all intermediary snapshots")]
    IntermediateOfNothing,
    /// Nothing is left out of one dataset.
    #[error("Cannot specify dataset exclusion (-X) on a non-recursive send.")]
    ExcludeOne,
    /// Nothing is skipped in one dataset.
    #[error("skip-missing flag can only be used in conjunction with replicate")]
    SkipOne,
    /// The start of several snapshots is in another file system, and not the origin.
    #[error("incremental source must be in same filesystem")]
    OtherSource,
}

impl From<Misuse> for Refusal {
    fn from(misuse: Misuse) -> Refusal {
        Refusal::Misuse(misuse)
    }
}

/// Checks what can be checked without a pool.
pub(super) fn check(request: &Request) -> Result<(), Refusal> {
    let is_more = request.is_package() || request.from.is_some() || request.redact.is_some();
    if request.resume.is_some() {
        return if is_more || request.saved { Err(Misuse::WithToken.into()) } else { Ok(()) };
    }
    if request.skip_missing && !request.replicate {
        return Err(Misuse::SkipOne.into());
    }
    if !request.exclude.is_empty() && !request.replicate {
        return Err(Misuse::ExcludeOne.into());
    }
    if let Some(name) = request.exclude.iter().find(|name| !is_below_a_pool(name)) {
        return Err(Refusal::Exclude { name: name.clone() });
    }
    if request.saved {
        return if is_more { Err(Misuse::WithSaved.into()) } else { check_saved(&request.dataset) };
    }
    if request.redact.is_some() && request.raw {
        return Err(Misuse::RawRedacted.into());
    }
    if request.redact.is_some() && request.is_several() {
        return Err(Misuse::ManyRedacted.into());
    }
    if request.intermediate && request.from.is_none() {
        return Err(Misuse::IntermediateOfNothing.into());
    }
    check_names(request)
}

fn is_below_a_pool(name: &str) -> bool {
    name.contains('/') && names::check(name, Form::Head).is_ok()
}

fn check_saved(name: &str) -> Result<(), Refusal> {
    if name.contains('@') {
        return Err(Misuse::SavedSnapshot.into());
    }
    names::check(name, Form::Head).map_err(|error| refusal::open(name, error))
}

fn check_names(request: &Request) -> Result<(), Refusal> {
    let name = request.dataset.as_str();
    let form = if name.contains('@') { Form::Snapshot } else { Form::Head };
    names::check(name, form).map_err(|error| refusal::open(name, error))?;
    if request.is_package() && !name.contains('@') {
        return Err(Misuse::PackageOfHead.into());
    }
    let Some(from) = &request.from else { return Ok(()) };
    let from = super::from::full_name(name.split('@').next().unwrap_or_default(), from);
    names::check(&from, Form::Any).map_err(|error| refusal::open(&from, error))?;
    match request.is_several() && !from.contains('@') {
        true => Err(Misuse::ManyFromBookmark.into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(request: &Request) -> Option<Misuse> {
        match check(request) {
            Ok(()) => None,
            Err(Refusal::Misuse(misuse)) => Some(misuse),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_excludes_each_other_is_refused() {
        let of = |change: fn(&mut Request)| {
            let mut request = Request::of("t/a@2");
            change(&mut request);
            refused(&request)
        };
        assert_eq!(of(|_| {}), None);
        assert_eq!(of(|r| (r.replicate, r.skip_missing, r.holds) = (true, true, true)), None);
        assert_eq!(of(|r| (r.replicate, r.exclude) = (true, vec!["t/a".into()])), None);
        assert_eq!(of(|r| r.skip_missing = true), Some(Misuse::SkipOne));
        assert_eq!(of(|r| r.exclude.push("t/a/b".into())), Some(Misuse::ExcludeOne));
        assert_eq!(of(|r| r.intermediate = true), Some(Misuse::IntermediateOfNothing));
        assert_eq!(of(|r| (r.redact, r.raw) = (Some("#b".into()), true)), Some(Misuse::RawRedacted));
        assert_eq!(of(|r| (r.redact, r.replicate) = (Some("#b".into()), true)), Some(Misuse::ManyRedacted));
        assert_eq!(of(|r| (r.saved, r.props) = (true, true)), Some(Misuse::WithSaved));
        assert_eq!(of(|r| r.saved = true), Some(Misuse::SavedSnapshot));
        assert_eq!(of(|r| (r.resume, r.holds) = (Some("1-2".into()), true)), Some(Misuse::WithToken));
        assert_eq!(of(|r| (r.resume, r.saved) = (Some("1-2".into()), true)), Some(Misuse::WithToken));
        assert_eq!(of(|r| (r.resume, r.raw) = (Some("1-2".into()), true)), None);
    }

    #[test]
    fn names_are_checked_as_the_tools_do() {
        let text = |change: fn(&mut Request)| {
            let mut request = Request::of("t/a@2");
            change(&mut request);
            check(&request).map_or_else(|refusal| refusal.to_string(), |()| "good".to_owned())
        };
        for (change, said) in [
            ((|r| r.from = Some("1".into())) as fn(&mut Request), "good"),
            (|r| r.from = Some("#1".into()), "good"),
            (|r| r.from = Some("t/b@1".into()), "good"),
            (|r| (r.from, r.props) = (Some("#1".into()), true), "good"),
            (
                |r| r.from = Some(String::new()),
                "cannot open 't/a@': empty component or misplaced '@' or '#' delimiter in name",
            ),
            (
                |r| r.from = Some("@@1".into()),
                "cannot open 't/a@@1': multiple '@' and/or '#' delimiters in name",
            ),
            (|r| r.from = Some("t/b".into()), "cannot open 't/a@t/b': trailing slash in name"),
            (|r| r.dataset = "/t/xx".into(), "cannot open '/t/xx': leading slash in name"),
            (
                |r| r.dataset = "t/a#m".into(),
                "cannot open 't/a#m': bookmark delimiter '#' is not expected here",
            ),
            (
                |r| (r.replicate, r.exclude) = (true, vec!["t".into()]),
                "-X t: not a valid non-root dataset name.",
            ),
            (
                |r| (r.from, r.intermediate) = (Some("#1".into()), true),
                "Error: multiple snapshots cannot be sent from a bookmark.",
            ),
            (
                |r| (r.dataset, r.replicate) = ("t/a".into(), true),
                "Error: Unsupported flag with filesystem or bookmark.",
            ),
        ] {
            assert_eq!(text(change), said);
        }
    }
}
