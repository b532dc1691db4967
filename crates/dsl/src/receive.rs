//! Receiving a stream: its beginning, its end, and discarding it (docs/on-disk/30-send-streams.md, sections 8 and 9).
//!
//! A new dataset is received in place; an existing one keeps its contents until the end, because the stream is applied
//! to a hidden clone, `%recv`. The records are applied by the crate `stream` to the head that [`begin`] returns.
//!
//! # Order
//! [`begin`] -> [`Heads::open_partial`](crate::Heads::open_partial), transactions on that head, each with
//! [`Head::note_received`](crate::Head::note_received) -> [`finish`], or [`discard`].
//!
//! # What always holds
//! - A dataset that is not whole is marked inconsistent, and is not mounted.
//! - State to resume from is stored with the txg of the records that it counts.
//! - [`finish`] checks again all that may have changed since [`begin`].

mod raw;
mod resume_state;

pub use raw::RawStart;
pub(crate) use resume_state::store_point;

use crate::create::{check_new_dir, create_clone_head, create_dir, create_head, fill_head, find_snapshot};
use crate::dataset::{Dataset, ENCRYPTED};
use crate::delegation;
use crate::destroy::{self, destroy_head};
use crate::error::{DslError, ReceiveRefusal};
use crate::heads::head::ReceivePoint;
use crate::keys::change::key_object_of;
use crate::limits::{self, LeaveSlop};
use crate::rollback::{check_refquota, check_refreservation, clone_swap};
use crate::snapshot;
use crate::task::TaskCtx;
use crate::{Dir, Dsl, counts, zapify};
use dmu::{KeyState, LiveSet, ObjSet, SyncTx};
use format::dsl::{DS_FLAG_CASE_INSENSITIVE, DS_FLAG_INCONSISTENT};
use format::names::hidden;
use format::objset::ObjsetType;
use format::{ObjectId, Txg};
use std::sync::Arc;

/// What the start of a stream says, and how it is received.
#[derive(Debug, Clone, Default)]
pub struct Begin {
    /// Full name of the dataset.
    pub dataset: String,
    /// Name of the snapshot that is made: the part after `@`.
    pub snapshot: String,
    /// The contents are those of a volume, not of a file system.
    pub is_volume: bool,
    /// Guid of the snapshot that is sent.
    pub to_guid: u64,
    /// Guid of the snapshot from which the increment starts; 0: a full stream.
    pub from_guid: u64,
    /// Name of the snapshot at the sender.
    pub to_name: String,
    /// The stream starts from an origin: the dataset is new.
    pub is_clone: bool,
    /// A full stream has all records that free what a clone would have.
    pub has_free_records: bool,
    /// Names of the dataset are compared without case.
    pub is_case_insensitive: bool,
    /// What is newer than the start of the increment is lost; a full stream replaces what is there.
    pub force: bool,
    /// What has arrived stays when the receive is interrupted.
    pub is_resumable: bool,
    /// The stream resumes an interrupted receive from this object and byte.
    pub resumes: Option<(ObjectId, u64)>,
    /// Full name of the snapshot that the new dataset begins as a clone of.
    pub origin: Option<String>,
    /// User that gets the create-time permissions of the directories above.
    pub creator: Option<u32>,
    /// Per-dataset features that the contents need from the start.
    pub features: Vec<&'static str>,
    /// The stream has blocks of more than 128 KiB as they are,
    pub has_large_blocks: bool,
    /// embedded blocks,
    pub has_embedded: bool,
    /// and compressed blocks.
    pub is_compressed: bool,
    /// The stream is of an encrypted dataset, and its blocks stay encrypted.
    pub raw: Option<RawStart>,
    /// Guids of the snapshots by which the sender has redacted it.
    pub redact_snaps: Option<Vec<u64>>,
    /// Guids of the snapshots of the redaction bookmark from which it starts.
    pub redact_from_snaps: Option<Vec<u64>>,
}

/// A receive that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// The head to which the records are applied.
    pub head: ObjectId,
    /// It is a clone that replaces the contents of an existing dataset at the end.
    pub replaces: bool,
    /// Where it goes on, if it resumes.
    pub point: Option<ReceivePoint>,
}

fn refused<T>(why: ReceiveRefusal) -> Result<T, DslError> {
    Err(DslError::Receive(why))
}

/// Begins a receive, or resumes one.
///
/// # Errors
/// [`DslError::Receive`]; [`DslError::Encrypted`], errors of names, limits and space. Nothing has changed then.
pub fn begin(ctx: &mut TaskCtx<'_>, request: &Begin) -> Result<Begun, DslError> {
    let dsl = ctx.dsl()?;
    let begun = match dsl.dir(&request.dataset) {
        Ok(dir) => begin_existing(ctx, request, &dir)?,
        Err(DslError::NotFound { .. }) => begin_new(ctx, &dsl, request)?,
        Err(error) => return Err(error),
    };
    let note = if begun.point.is_some() { "resume receive" } else { "receive" };
    let name = written_name(&request.dataset, begun.replaces);
    ctx.note(note, Some((&name, begun.head)), " ");
    Ok(begun)
}

fn written_name(dataset: &str, replaces: bool) -> String {
    if replaces { format!("{dataset}/{}", hidden::RECEIVE) } else { dataset.to_owned() }
}

fn begin_new(ctx: &mut TaskCtx<'_>, dsl: &Dsl, request: &Begin) -> Result<Begun, DslError> {
    let name = || request.dataset.clone();
    if request.resumes.is_some() {
        return refused(ReceiveRefusal::NotResumable { name: name() });
    }
    if request.from_guid != 0 && request.origin.is_none() {
        return refused(ReceiveRefusal::Missing { name: name() });
    }
    if request.from_guid == 0 && request.origin.is_some() && !request.has_free_records {
        return refused(ReceiveRefusal::Invalid("a full stream without free records does not fit an origin"));
    }
    if request.from_guid == 0 && request.origin.is_some() && request.raw.is_some() {
        return refused(ReceiveRefusal::Invalid("a full raw stream does not fit an origin"));
    }
    let (parent, component) = check_new_dir(ctx, dsl, &request.dataset)?;
    if request.raw.is_none() && key_object_of(ctx.m(), parent.id())?.is_some() {
        let why = "an encrypted dataset cannot be made";
        return Err(DslError::Encrypted { name: name(), why });
    }
    let origin =
        request.origin.as_deref().map(|origin| find_origin(ctx, dsl, request, origin)).transpose()?;
    check_redaction(request, origin.as_ref())?;
    counts::check(ctx, parent.id(), 1, 1)?;
    limits::check_pool(ctx, LeaveSlop::All)?;
    let dir = create_dir(ctx.m(), Some(parent.id()), component)?;
    counts::adjust(ctx.m(), dir, 1, 0)?;
    let head = make_head(ctx, request, dir, origin.as_ref())?;
    delegation::change::inherit_create_time(ctx.m(), parent.id(), dir, request.creator)?;
    Ok(Begun { head, replaces: false, point: None })
}

fn find_origin(ctx: &TaskCtx<'_>, dsl: &Dsl, request: &Begin, name: &str) -> Result<Dataset, DslError> {
    let origin = find_snapshot(dsl, name)?;
    if request.from_guid != 0 && origin.phys().guid != request.from_guid {
        return refused(ReceiveRefusal::NoSource { name: name.to_owned(), guid: request.from_guid });
    }
    check_protection(ctx, request, &origin, &origin)?;
    if origin.phys().creation_txg >= ctx.txg() {
        return Err(DslError::Again { name: name.to_owned() });
    }
    Ok(origin)
}

/// Checks that an encrypted dataset gets a raw stream that fits its snapshot `from`, and no other one does.
fn check_protection(
    ctx: &TaskCtx<'_>,
    request: &Begin,
    dataset: &Dataset,
    from: &Dataset,
) -> Result<(), DslError> {
    match &request.raw {
        Some(raw) => raw::check_source(ctx, request, raw, from),
        None if dataset.is_encrypted()? => {
            Err(DslError::Encrypted { name: dataset.name().to_owned(), why: ENCRYPTED })
        }
        None => Ok(()),
    }
}

/// Makes the head that the records are applied to.
fn make_head(
    ctx: &TaskCtx<'_>,
    request: &Begin,
    dir: ObjectId,
    origin: Option<&Dataset>,
) -> Result<ObjectId, DslError> {
    let m = ctx.m();
    let case = if request.is_case_insensitive { DS_FLAG_CASE_INSENSITIVE } else { 0 };
    let head = match origin {
        Some(origin) => create_clone_head(ctx, dir, origin.id())?,
        None => create_head(m, dir, m.origin_snapshot()?, 0)?,
    };
    m.change_dataset(head, |phys| phys.flags |= DS_FLAG_INCONSISTENT | case)?;
    if let (None, Some(raw)) = (origin, &request.raw) {
        raw::create_key(m, dir, head, raw)?;
    }
    if origin.is_none() {
        let kind = if request.is_volume { ObjsetType::Zvol } else { ObjsetType::Zfs };
        let mut begin = |set: &Arc<LiveSet>, tx: &SyncTx| {
            if let Some(raw) = &request.raw {
                set.begin_raw(raw.set, tx);
            }
            Ok(())
        };
        fill_head(ctx, head, kind, &mut begin)?;
    }
    for feature in &request.features {
        zapify::activate_feature(m, head, feature)?;
    }
    zapify::deactivate_feature(m, head, "redacted_datasets")?;
    if let Some(snaps) = &request.redact_snaps {
        zapify::activate_array(m, head, "redacted_datasets", snaps)?;
    }
    if request.is_resumable {
        resume_state::store(m, head, request)?;
    }
    Ok(head)
}

fn begin_existing(ctx: &mut TaskCtx<'_>, request: &Begin, dir: &Dir) -> Result<Begun, DslError> {
    let name = || request.dataset.clone();
    let head = dir.head()?.ok_or_else(|| DslError::not_found(name()))?;
    let clone = hidden_clone(dir)?;
    let partial = clone.as_ref().unwrap_or(&head);
    if resume_state::is_resumable(ctx.m(), partial.id())? {
        if request.resumes.is_none() {
            return refused(ReceiveRefusal::PartialState { name: name() });
        }
        ctx.check_unused(partial.id(), partial.name())?;
        let point = resume_state::check(ctx.m(), partial.id(), request)?;
        raw::check_resumed(partial.dir(), request.raw.as_ref())?;
        return Ok(Begun { head: partial.id(), replaces: clone.is_some(), point: Some(point) });
    }
    if request.resumes.is_some() {
        return refused(ReceiveRefusal::NotResumable { name: name() });
    }
    if let Some(clone) = &clone {
        // Left by a receive that could not be resumed, unless it runs.
        ctx.check_unused(clone.id(), clone.name())?;
    }
    if request.is_clone || request.origin.is_some() {
        return refused(ReceiveRefusal::Invalid("the stream of a clone needs a new dataset"));
    }
    if head.snapshot(&request.snapshot)?.is_some() {
        return refused(ReceiveRefusal::SnapshotExists {
            name: format!("{}@{}", request.dataset, request.snapshot),
        });
    }
    let origin = if request.from_guid == 0 {
        check_full(request, dir, &head)?;
        None
    } else {
        let source = source_of(ctx, request, &head)?;
        check_protection(ctx, request, &head, &source)?;
        Some(source)
    };
    check_redaction(request, origin.as_ref())?;
    counts::check(ctx, dir.id(), 0, 1)?;
    limits::check_pool(ctx, LeaveSlop::All)?;
    if let Some(clone) = &clone {
        destroy_partial(ctx, clone)?;
    }
    let hidden_dir = create_dir(ctx.m(), Some(dir.id()), hidden::RECEIVE)?;
    counts::adjust(ctx.m(), hidden_dir, 1, 0)?;
    let made = make_head(ctx, request, hidden_dir, origin.as_ref())?;
    Ok(Begun { head: made, replaces: true, point: None })
}

/// The hidden clone to which a stream for this dataset is applied; `None`: there is none.
fn hidden_clone(dir: &Dir) -> Result<Option<Dataset>, DslError> {
    dir.child(hidden::RECEIVE)?.map_or(Ok(None), |clone| clone.head())
}

/// Checks that a full stream may replace what is there.
fn check_full(request: &Begin, dir: &Dir, head: &Dataset) -> Result<(), DslError> {
    let name = || request.dataset.clone();
    if !request.force {
        return refused(ReceiveRefusal::Exists { name: name() });
    }
    if request.raw.is_some() || head.is_encrypted()? {
        return refused(ReceiveRefusal::EncryptedOverwrite { name: name() });
    }
    if !head.snapshot_entries()?.is_empty() || dir.origin()?.is_some() {
        return refused(ReceiveRefusal::Invalid("a full stream does not replace snapshots or a clone"));
    }
    if request.is_volume && !dir.children()?.is_empty() {
        return Err(DslError::ParentNotFilesystem { name: name() });
    }
    Ok(())
}

/// The snapshot that the hidden clone of an increment begins with.
fn source_of(ctx: &TaskCtx<'_>, request: &Begin, head: &Dataset) -> Result<Dataset, DslError> {
    let name = || request.dataset.clone();
    let own = head.snapshots()?;
    let Some(from) = own.iter().find(|snapshot| snapshot.phys().guid == request.from_guid) else {
        return refused(ReceiveRefusal::NoSource { name: name(), guid: request.from_guid });
    };
    let latest = own.iter().max_by_key(|snapshot| snapshot.phys().creation_txg).unwrap_or(from);
    if !request.force && is_modified(ctx, head, from)? {
        return refused(ReceiveRefusal::Modified { name: name() });
    }
    if request.raw.is_some() && !request.force && latest.id() != from.id() {
        return refused(ReceiveRefusal::Modified { name: name() });
    }
    let source = if request.force { from } else { latest };
    if source.phys().creation_txg >= ctx.txg() {
        return Err(DslError::Again { name: name() });
    }
    if zapify::entry(ctx.m(), source.id(), LARGE_BLOCKS)?.is_some() && !request.has_large_blocks {
        return refused(ReceiveRefusal::LargeBlocks { name: name() });
    }
    Ok(source.clone())
}

/// Guid of the feature of blocks of more than 128 KiB.
const LARGE_BLOCKS: &str = "org.open-zfs:large_blocks";

/// Whether a head has other contents than a snapshot of it.
fn is_modified(ctx: &TaskCtx<'_>, head: &Dataset, since: &Dataset) -> Result<bool, DslError> {
    let (now, then) = (head.phys().bp, since.phys().bp);
    if now.logical_birth() <= since.phys().creation_txg {
        return Ok(false);
    }
    if then.is_hole() || now.is_hole() {
        return Ok(then.is_hole() != now.is_hole());
    }
    // An intent log, and the accounting of space, change the root and no contents.
    let open = |bp| ObjSet::open(ctx.mos.store(), bp, head.id().0, KeyState::Locked);
    Ok(open(&now)?.phys().meta_dnode.encode() != open(&then)?.phys().meta_dnode.encode())
}

/// Checks that a stream fits the redaction of the snapshot that it starts from.
fn check_redaction(request: &Begin, origin: Option<&Dataset>) -> Result<(), DslError> {
    let Some(origin) = origin else { return Ok(()) };
    let Some(of_origin) = origin.redact_snaps()? else { return Ok(()) };
    if request.from_guid == 0 {
        return Ok(());
    }
    let is_subset = |snaps: &[u64]| snaps.iter().all(|snap| of_origin.contains(snap));
    let fits = match (&request.redact_from_snaps, &request.redact_snaps) {
        (Some(from), _) => is_subset(from),
        (None, Some(snaps)) => is_subset(snaps),
        (None, None) => of_origin.contains(&request.to_guid),
    };
    if fits { Ok(()) } else { refused(ReceiveRefusal::Redacted { name: origin.name().to_owned() }) }
}

/// The end of a receive.
#[derive(Debug, Clone)]
pub struct Finish {
    /// Full name of the dataset.
    pub dataset: String,
    /// The head that the records were applied to.
    pub head: ObjectId,
    /// Name of the snapshot that is made.
    pub snapshot: String,
    /// Its guid.
    pub to_guid: u64,
    /// Its creation time, in seconds since 1970.
    pub creation_time: u64,
    /// As in [`Begin`].
    pub force: bool,
    /// As in [`Begin`].
    pub raw: Option<RawStart>,
}

/// Ends a receive: the dataset gets the received contents, and a snapshot of them. Returns the snapshot. The received
/// head is no longer in use.
///
/// # Errors
/// [`DslError::Receive`] if the dataset was changed meanwhile; [`DslError::Busy`] if it is in use; [`DslError::Held`],
/// [`DslError::HasClones`] for a snapshot that would be destroyed. Nothing has changed then.
pub fn finish(ctx: &mut TaskCtx<'_>, request: &Finish) -> Result<ObjectId, DslError> {
    let dsl = ctx.dsl()?;
    let head = dsl.dir(&request.dataset)?.head()?.ok_or_else(|| DslError::not_found(&request.dataset))?;
    let received = dsl.dataset_by_object(request.head)?;
    let full_name = format!("{}@{}", request.dataset, request.snapshot);
    if head.snapshot(&request.snapshot)?.is_some() {
        return refused(ReceiveRefusal::SnapshotExists { name: full_name });
    }
    counts::check(ctx, head.dir().id(), 0, 1)?;
    limits::check_pool(ctx, LeaveSlop::Half)?;
    ctx.check_writable(head.id(), &request.dataset)?;
    ctx.check_unused(received.id(), received.name())?;
    let target = head.id();
    if received.id() != target {
        replace(ctx, request, &head, &received)?;
    }
    let m = ctx.m();
    resume_state::remove(m, target)?;
    m.change_dataset(target, |phys| phys.flags &= !DS_FLAG_INCONSISTENT)?;
    let snapshot = snapshot::take(ctx, target, &request.snapshot)?;
    m.change_dataset(snapshot, |phys| {
        phys.guid = request.to_guid;
        phys.creation_time = request.creation_time;
    })?;
    if let Some(raw) = &request.raw {
        raw::finish(ctx, head.dir().id(), snapshot, raw)?;
        // The open head knows no key.
        drop(ctx.heads.evict(target));
    }
    if received.id() != target {
        destroy_partial(ctx, &received)?;
    }
    ctx.note("finish receiving", Some((&request.dataset, target)), format!("snap={}", request.snapshot));
    Ok(snapshot)
}

/// Gives a head the contents of the hidden clone.
fn replace(
    ctx: &mut TaskCtx<'_>,
    request: &Finish,
    head: &Dataset,
    received: &Dataset,
) -> Result<(), DslError> {
    let since = received.phys().prev_snap_txg;
    let mut newer = head.snapshots()?;
    newer.retain(|snapshot| snapshot.phys().creation_txg > since);
    if !request.force {
        let base = received.phys().prev_snap.map(|id| ctx.dsl()?.dataset_by_object(id)).transpose()?;
        let is_changed = match &base {
            Some(base) if since > Txg(0) && base.dir().id() == head.dir().id() => {
                is_modified(ctx, head, base)?
            }
            _ => false,
        };
        if is_changed || !newer.is_empty() {
            return refused(ReceiveRefusal::Modified { name: request.dataset.clone() });
        }
    }
    for snapshot in &newer {
        destroy::check_snapshot(ctx, snapshot, false)?;
    }
    ctx.check_unused(head.id(), &request.dataset)?;
    check_refreservation(ctx, head, received.phys().unique)?;
    check_refquota(ctx, head, received, refquota_tolerance)?;
    for snapshot in &newer {
        destroy::destroy_snapshot(ctx, snapshot.id(), snapshot.name())?;
        ctx.note("destroy", Some((snapshot.name(), snapshot.id())), " ");
    }
    let case = received.phys().flags & DS_FLAG_CASE_INSENSITIVE;
    clone_swap(ctx, received.id(), head.id())?;
    ctx.m().change_dataset(head.id(), |phys| phys.flags = phys.flags & !DS_FLAG_CASE_INSENSITIVE | case)
}

/// Bytes by which received contents may exceed a refquota. Writers stop when it is reached, so a sender with the same
/// refquota can have a little more, and sizes on disk differ from pool to pool.
fn refquota_tolerance(quota: u64) -> u64 {
    (quota / 4).saturating_add(32 << 20)
}

/// Destroys what a receive has made so far.
fn destroy_partial(ctx: &mut TaskCtx<'_>, partial: &Dataset) -> Result<(), DslError> {
    drop(ctx.heads.evict(partial.id()));
    destroy_head(ctx, partial.id(), partial.name()).map(|_| ())
}

/// Destroys what a receive that cannot be resumed has left.
///
/// # Errors
/// Those of [`discard`].
pub fn clean_up(ctx: &mut TaskCtx<'_>, dataset: &str) -> Result<(), DslError> {
    match find_partial(ctx, dataset)? {
        Some(partial) if !resume_state::is_resumable(ctx.m(), partial.id())? => discard(ctx, dataset, None),
        _ => Ok(()),
    }
}

/// The dataset that an unfinished receive has made: a hidden clone, or the dataset itself if it was new.
fn find_partial(ctx: &TaskCtx<'_>, dataset: &str) -> Result<Option<Dataset>, DslError> {
    let dir = ctx.dsl()?.dir(dataset)?;
    let clone = hidden_clone(&dir)?;
    if clone.is_some() {
        return Ok(clone);
    }
    let head = dir.head()?.filter(Dataset::is_inconsistent);
    let is_new = head.as_ref().map(Dataset::snapshot_entries).transpose()?.is_some_and(|all| all.is_empty());
    Ok(head.filter(|_| is_new))
}

/// Discards an interrupted receive: the hidden clone of a dataset, or the dataset itself if it was new. With `only`, that
/// head and no other.
///
/// # Errors
/// [`ReceiveRefusal::NotResumable`] if there is none; [`DslError::Busy`] if it runs.
pub fn discard(ctx: &mut TaskCtx<'_>, dataset: &str, only: Option<ObjectId>) -> Result<(), DslError> {
    let none = || DslError::Receive(ReceiveRefusal::NotResumable { name: dataset.to_owned() });
    let partial = match only {
        // It may have another name by now.
        Some(id) => Some(ctx.dsl()?.dataset_by_object(id)?).filter(Dataset::is_inconsistent),
        None => find_partial(ctx, dataset)?,
    };
    let partial = partial.ok_or_else(none)?;
    ctx.check_unused(partial.id(), partial.name())?;
    destroy_partial(ctx, &partial)
}
