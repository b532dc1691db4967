//! Streams that continue an interrupted receive, and streams of what such a receive has left
//! (docs/on-disk/30-send-streams.md, sections 4, 7 and 8).

use super::from::{self, Start};
use super::plan::{self, Plan, Planned};
use super::{Refusal, Request, refusal};
use crate::verbs::{Code, Reason};
use crate::{OpenPool, Session};
use cenote::Pool;
use cenote::stream::send::Options;
use dsl::bookmark::RedactionList;
use dsl::{Dataset, DslError, resume};
use format::{NvList, ObjectId, names};

/// The stream that continues the receive with this token.
pub(super) fn of_token(
    request: &Request,
    token: &str,
    session: &mut Session<'_>,
    dry: bool,
) -> Result<(Vec<OpenPool>, Plan), Refusal> {
    let list = resume::decode(token).map_err(|error| bad(error.to_string()))?;
    let state = State::of(&list).ok_or_else(|| bad("resume token is corrupt"))?;
    let pools = plan::open(session, &state.name)?;
    let pool = pools.first().ok_or_else(|| gone(&state.name))?;
    let part = match list.has("savedok") {
        true => saved_part(pool.pool(), &state, dataset_of(&state.name))?,
        false => part(pool.pool(), &state)?,
    };
    let redact = match list.u64s("redact_snaps") {
        Some(snaps) => redaction(&part.to, snaps)?,
        None => None,
    };
    if !list.has("savedok") {
        plan::check_still(pool, &part.to)?;
    }
    if !dry {
        permit(session, pool.pool(), &part)?;
    }
    let options = Options {
        resume: Some(state.at),
        large_blocks: part.options.large_blocks || request.large_blocks,
        embedded: part.options.embedded || request.embedded,
        compressed: part.options.compressed || request.compressed,
        redact,
        ..part.options
    };
    Ok((pools, Plan::one(Planned { options, ..part })))
}

/// The stream of what a file system or volume has received of an interrupted stream.
pub(super) fn saved(
    request: &Request,
    session: &Session<'_>,
    pool: &OpenPool,
    dry: bool,
) -> Result<Plan, Refusal> {
    let name = request.dataset.as_str();
    if !dry {
        plan::ask(session, pool.pool(), name, request.raw)?;
    }
    let (_, list) = partial(pool.pool(), name)?.ok_or_else(|| not_partial(name))?;
    let state = State::of(&list).ok_or_else(|| not_partial(name))?;
    let part = saved_part(pool.pool(), &state, name)?;
    if !dry {
        permit(session, pool.pool(), &part)?;
    }
    Ok(Plan::one(part))
}

/// Asks for the caller's permission to send a part, and for its key.
fn permit(session: &Session<'_>, pool: &Pool, part: &Planned) -> Result<(), Refusal> {
    let head = dataset_of(part.to.name());
    // A hidden dataset has the permissions of the one that it is received into.
    let head = head.strip_suffix(names::hidden::RECEIVE).map_or(head, |above| above.trim_end_matches('/'));
    plan::ask(session, pool, head, part.options.raw)?;
    plan::check_key(&part.to, part.options.raw)
}

fn bad(problem: impl Into<String>) -> Refusal {
    Refusal::Token { problem: problem.into() }
}

fn gone(name: &str) -> Refusal {
    bad(format!("'{name}' used in the initial send no longer exists"))
}

fn not_partial(name: &str) -> Refusal {
    let why = "dataset does not contain partially-received state";
    refusal::not_sent(name, Reason::new(Code::Refused, why))
}

fn dataset_of(name: &str) -> &str {
    name.split('@').next().unwrap_or_default()
}

/// Where an interrupted receive stands.
struct State {
    /// Full name of the snapshot on the sender.
    name: String,
    to_guid: u64,
    from_guid: Option<u64>,
    /// The object and its byte at which it goes on.
    at: (ObjectId, u64),
    options: Options,
}

impl State {
    /// The state in a list; `None`: something is missing.
    fn of(list: &NvList) -> Option<State> {
        let name = list.str("toname")?.to_owned();
        let raw = list.has("rawok");
        let options = Options {
            large_blocks: list.has("largeblockok") || raw,
            embedded: list.has("embedok") || raw,
            compressed: list.has("compressok") || raw,
            raw,
            to_name: name.clone(),
            ..Options::default()
        };
        let at = (ObjectId(list.u64("object")?), list.u64("offset")?);
        let from_guid = list.u64("fromguid").filter(|guid| *guid != 0);
        Some(State { name, to_guid: list.u64("toguid")?, from_guid, at, options })
    }
}

/// The part of a snapshot that a token names.
fn part(pool: &Pool, state: &State) -> Result<Planned, Refusal> {
    let failed = |error| refusal::unreadable(&state.name, error);
    let to = snapshot_of(pool, state).map_err(failed)?.ok_or_else(|| gone(&state.name))?;
    let start = match state.from_guid {
        None => None,
        Some(guid) => {
            let found = start_of(&to, guid).map_err(failed)?;
            Some(found.ok_or_else(|| bad(format!("incremental source {guid:#x} no longer exists")))?)
        }
    };
    let options = Options { to_name: plan::sent_name(&to), ..state.options.clone() };
    Ok(Planned { to, start, options, pool: pool.clone() })
}

/// What was sent: a snapshot by its name, or by its guid if it was renamed since; or a file system or volume itself.
fn snapshot_of(pool: &Pool, state: &State) -> Result<Option<Dataset>, DslError> {
    if let Some(name) = state.name.strip_suffix(plan::HEAD) {
        return match pool.dsl().dataset(name) {
            Ok(found) => Ok(Some(found).filter(|found| found.phys().guid == state.to_guid)),
            Err(DslError::NotFound { .. } | DslError::BadName { .. }) => Ok(None),
            Err(error) => Err(error),
        };
    }
    match pool.dsl().dataset(&state.name) {
        Ok(found) if found.is_snapshot() && found.phys().guid == state.to_guid => return Ok(Some(found)),
        Ok(_) | Err(DslError::NotFound { .. } | DslError::BadName { .. }) => {}
        Err(error) => return Err(error),
    }
    for dir in pool.dsl().dirs()? {
        let Some(head) = dir.head()? else { continue };
        if let Some(found) = head.snapshots()?.into_iter().find(|one| one.phys().guid == state.to_guid) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The list that the interrupted stream was redacted by: that of a bookmark of the snapshot, for the same redaction
/// snapshots. `None`: the snapshot itself is redacted.
fn redaction(to: &Dataset, snaps: &[u64]) -> Result<Option<RedactionList>, Refusal> {
    let failed = |error| refusal::unreadable(to.name(), error);
    if to.redact_snaps().map_err(failed)?.is_some_and(|own| own == snaps) {
        return Ok(None);
    }
    let none = || bad("no appropriate redaction bookmark exists");
    let head = to.dir().head().map_err(failed)?.ok_or_else(none)?;
    let marks = head.bookmarks().map_err(failed)?;
    for mark in marks.iter().filter(|mark| mark.phys().guid == to.phys().guid) {
        if let Some(list) = mark.redaction().map_err(failed)?.filter(|list| list.snapshots == snaps) {
            return Ok(Some(list));
        }
    }
    Err(none())
}

/// The start of an increment with this guid: a snapshot from which `to` has come, or a bookmark of one.
fn start_of(to: &Dataset, guid: u64) -> Result<Option<Start>, DslError> {
    let mut dirs = vec![to.dir().clone()];
    for step in to.chain() {
        let (id, phys) = step?;
        if phys.guid == guid {
            return Start::of(to.dsl().dataset_by_object(id)?, to).map(Some);
        }
        if dirs.iter().all(|dir| dir.id() != phys.dir) {
            dirs.push(to.dsl().dir_by_object(phys.dir)?);
        }
    }
    for dir in dirs {
        let Some(head) = dir.head()? else { continue };
        for mark in head.bookmarks()?.iter().filter(|mark| mark.phys().guid == guid) {
            if let Some(start) = from::of_bookmark(to, mark)? {
                return Ok(Some(start));
            }
        }
    }
    Ok(None)
}

/// The dataset that holds what an interrupted receive into `name` has left, and its state; `None`: there is none.
fn partial(pool: &Pool, name: &str) -> Result<Option<(Dataset, NvList)>, Refusal> {
    let failed = |error| plan::not_opened(name, error);
    let head = pool.dsl().dataset(name).map_err(failed)?;
    let hidden = head.dir().child(names::hidden::RECEIVE).map_err(failed)?;
    let hidden = hidden.map(|dir| dir.head()).transpose().map_err(failed)?.flatten();
    for holder in [Some(head), hidden].into_iter().flatten().filter(Dataset::is_inconsistent) {
        if let Some(token) = resume::token_of(&holder).map_err(failed)? {
            let list = resume::decode(&token).map_err(|error| bad(error.to_string()))?;
            return Ok(Some((holder, list)));
        }
    }
    Ok(None)
}

/// The part of what `name` has received of the stream with this state.
fn saved_part(pool: &Pool, state: &State, name: &str) -> Result<Planned, Refusal> {
    let (to, own) = partial(pool, name)?.ok_or_else(|| not_partial(name))?;
    if own.u64("toguid") != Some(state.to_guid) {
        return Err(not_partial(name));
    }
    let start = match state.from_guid {
        None => None,
        Some(guid) => {
            let start = start_of(&to, guid).map_err(|error| refusal::unreadable(name, error))?;
            let mut start = start.ok_or_else(|| refusal::not_earlier(name))?;
            // It continues the file system, whatever hidden dataset holds it.
            start.from.is_origin &= start.snapshot.as_ref().is_none_or(|one| one.dir().name() != name);
            Some(start)
        }
    };
    let options = Options { saved: true, to_guid: Some(state.to_guid), ..state.options.clone() };
    Ok(Planned { to, start, options, pool: pool.clone() })
}
