//! Requests that no pool could fulfil: what excludes each other.

use super::{Refusal, Request};
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
    #[error("invalid flags combined with --saved")]
    WithSaved,
    /// What was partly received belongs to a file system or volume, not to a snapshot.
    #[error("--saved needs a filesystem or volume, not a snapshot")]
    SavedSnapshot,
    /// Encrypted blocks cannot be left out one by one.
    #[error("Error: raw sends may not be redacted.")]
    RawRedacted,
    /// A redacted stream has one snapshot.
    #[error("invalid flags combined with --redact")]
    WithRedact,
    /// The snapshots between a bookmark and another snapshot are not those of a package.
    #[error("Error: multiple snapshots cannot be sent from a bookmark.")]
    ManyFromBookmark,
    /// A package needs snapshots at both ends.
    #[error("Error: Unsupported flag with filesystem or bookmark.")]
    PackageOfHead,
    /// All snapshots since nothing.
    #[error("an incremental source is needed to send all intermediary snapshots")]
    IntermediateOfNothing,
    /// Nothing is left out of one dataset.
    #[error("datasets can only be excluded from a replication stream (-R)")]
    ExcludeOne,
    /// Nothing is skipped in one dataset.
    #[error("skip-missing flag can only be used in conjunction with replicate")]
    SkipOne,
    /// The dataset itself is to be left out.
    #[error("the dataset that is sent cannot be excluded from the stream")]
    ExcludeRoot,
    /// The start of the increment is no name.
    #[error("invalid incremental source")]
    BadSource,
    /// The start of a package is in another file system, which is not the origin.
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
    let is_more = request.is_package() || request.from.is_some() || request.saved || request.redact.is_some();
    if request.resume.is_some() {
        return if is_more { Err(Misuse::WithToken.into()) } else { Ok(()) };
    }
    if request.skip_missing && !request.replicate {
        return Err(Misuse::SkipOne.into());
    }
    if !request.exclude.is_empty() && !request.replicate {
        return Err(Misuse::ExcludeOne.into());
    }
    if request.redact.is_some() && request.raw {
        return Err(Misuse::RawRedacted.into());
    }
    if request.redact.is_some() && request.is_package() {
        return Err(Misuse::WithRedact.into());
    }
    if request.intermediate && request.from.is_none() {
        return Err(Misuse::IntermediateOfNothing.into());
    }
    if request.saved {
        return check_saved(request);
    }
    check_names(request)
}

fn check_saved(request: &Request) -> Result<(), Refusal> {
    if request.is_package() || request.from.is_some() || request.redact.is_some() {
        return Err(Misuse::WithSaved.into());
    }
    if request.dataset.contains('@') {
        return Err(Misuse::SavedSnapshot.into());
    }
    names::check(&request.dataset, Form::Head).map_err(|error| super::refusal::open(&request.dataset, error))
}

fn check_names(request: &Request) -> Result<(), Refusal> {
    let name = request.dataset.as_str();
    let form = if name.contains('@') { Form::Snapshot } else { Form::Head };
    names::check(name, form).map_err(|error| super::refusal::open(name, error))?;
    let dataset = name.split('@').next().unwrap_or_default();
    if request.exclude.iter().any(|excluded| excluded == dataset) {
        return Err(Misuse::ExcludeRoot.into());
    }
    if request.is_package() && !name.contains('@') {
        return Err(Misuse::PackageOfHead.into());
    }
    let Some(from) = &request.from else { return Ok(()) };
    let from = super::from::full_name(dataset, from);
    names::check(&from, Form::Any).map_err(|_| Misuse::BadSource)?;
    match from.split_once('@') {
        None if !from.contains('#') => Err(Misuse::BadSource.into()),
        None if request.intermediate || request.replicate => Err(Misuse::ManyFromBookmark.into()),
        None if request.is_package() => Err(Misuse::PackageOfHead.into()),
        Some((other, _)) if request.replicate && other != dataset => Err(Misuse::OtherSource.into()),
        _ => Ok(()),
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
        assert_eq!(of(|r| r.skip_missing = true), Some(Misuse::SkipOne));
        assert_eq!(of(|r| r.exclude.push("t/a/b".into())), Some(Misuse::ExcludeOne));
        assert_eq!(
            of(|r| (r.replicate, r.exclude) = (true, vec!["t/a".into()])),
            Some(Misuse::ExcludeRoot)
        );
        assert_eq!(of(|r| r.intermediate = true), Some(Misuse::IntermediateOfNothing));
        assert_eq!(of(|r| (r.redact, r.raw) = (Some("#b".into()), true)), Some(Misuse::RawRedacted));
        assert_eq!(of(|r| (r.redact, r.props) = (Some("#b".into()), true)), Some(Misuse::WithRedact));
        assert_eq!(of(|r| (r.saved, r.props) = (true, true)), Some(Misuse::WithSaved));
        assert_eq!(of(|r| r.saved = true), Some(Misuse::SavedSnapshot));
        assert_eq!(of(|r| (r.resume, r.holds) = (Some("1-2".into()), true)), Some(Misuse::WithToken));
        assert_eq!(of(|r| (r.resume, r.raw) = (Some("1-2".into()), true)), None);
    }

    #[test]
    fn sources_must_be_names_of_snapshots_or_bookmarks() {
        let from = |text: &str, change: fn(&mut Request)| {
            let mut request = Request { from: Some(text.into()), ..Request::of("t/a@2") };
            change(&mut request);
            refused(&request)
        };
        for good in ["1", "@1", "#1", "t/a@1", "t/b@1", "t/a#1"] {
            assert_eq!(from(good, |_| {}), None, "{good}");
        }
        for bad in ["", "@", "@@1", "t/a@1/b", "x/y", "@1@2", "t/a#"] {
            assert_eq!(from(bad, |_| {}), Some(Misuse::BadSource), "{bad}");
        }
        assert_eq!(from("#1", |r| r.intermediate = true), Some(Misuse::ManyFromBookmark));
        assert_eq!(from("#1", |r| r.replicate = true), Some(Misuse::ManyFromBookmark));
        assert_eq!(from("#1", |r| r.props = true), Some(Misuse::PackageOfHead));
        assert_eq!(from("t/b@1", |r| r.replicate = true), Some(Misuse::OtherSource));
        let head = Request { props: true, ..Request::of("t/a") };
        assert_eq!(refused(&head), Some(Misuse::PackageOfHead));
        assert_eq!(refused(&Request { from: Some("1".into()), ..Request::of("t/a") }), None);
    }
}
