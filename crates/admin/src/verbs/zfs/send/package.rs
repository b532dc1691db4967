//! The list at the start of a package: its datasets with their snapshots, properties and holds
//! (docs/on-disk/30-send-streams.md, section 5).

use super::plan::Planner;
use super::tree::Member;
use super::{Refusal, Request, refusal};
use dsl::keys::encryption_root;
use dsl::prop::{self as stored, PropValue, Source, Value};
use dsl::{Dataset, DslError};
use format::nvlist::NvValue;
use format::{NvList, prop};

/// Greatest number of bytes of the list, if the request does not say.
const BYTES_MAX: u64 = 64 << 20;

/// The list of a package.
///
/// # Errors
/// A dataset is encrypted, and its blocks are not sent as they are; the list is too long; something cannot be read.
pub(super) fn list(planner: &Planner<'_>, members: &[Member]) -> Result<NvList, Refusal> {
    let request = planner.request;
    let mut list = NvList::new();
    let top = members.iter().find(|member| member.dir.id() == planner.to.dir().id());
    if let Some(short) = top.and_then(Member::start_name) {
        list.push("fromsnap", short);
    }
    list.push("tosnap", planner.to.snapshot_name().unwrap_or_default());
    if !request.replicate {
        list.push("not_recursive", NvValue::Boolean);
    }
    if request.raw {
        list.push("raw", NvValue::Boolean);
    }
    let mut datasets = NvList::new();
    for member in members {
        let failed = |error| refusal::unreadable(member.head.name(), error);
        if !request.raw && member.head.is_encrypted().map_err(failed)? {
            let (root, dataset) = (planner.to.name().to_owned(), member.head.name().to_owned());
            return Err(Refusal::Encrypted { root, dataset });
        }
        let guid = format!("{:#x}", member.head.phys().guid);
        datasets.push(guid, dataset(request, member).map_err(failed)?);
    }
    list.push("fss", datasets);
    // The length has 32 bits.
    let max = match request.list_bytes_max.unwrap_or(BYTES_MAX) {
        0 => u64::from(u32::MAX),
        max => max.min(u32::MAX.into()),
    };
    let bytes = list.encode_xdr().len() as u64;
    if bytes >= max {
        return Err(Refusal::ListTooLong { root: planner.to.name().to_owned(), bytes, max });
    }
    Ok(list)
}

/// The entry of a dataset.
fn dataset(request: &Request, member: &Member) -> Result<NvList, DslError> {
    let mut entry = NvList::new();
    entry.push("name", member.head.name());
    entry.push("parentfromsnap", member.parent_guid);
    if let Some(origin) = member.dir.origin()? {
        entry.push("origin", origin.phys().guid);
    }
    if request.replicate || request.props || request.backup {
        entry.push("props", properties(&member.head, request.backup)?);
    }
    if encryption_root(&member.dir)?.is_some_and(|root| root.id() == member.dir.id()) {
        entry.push("is_encroot", NvValue::Boolean);
    }
    let (mut guids, mut props, mut holds) = (NvList::new(), NvList::new(), NvList::new());
    for snapshot in member.listed() {
        let name = snapshot.snapshot_name().unwrap_or_default();
        guids.push(name, snapshot.phys().guid);
        // The receiver of an increment has the start.
        if !request.replicate && member.start_name() == Some(name) {
            continue;
        }
        props.push(name, properties(snapshot, request.backup)?);
        if request.holds {
            let tags: NvList = snapshot.holds()?.into_iter().map(|hold| (hold.tag, hold.time)).collect();
            holds.push(name, tags);
        }
    }
    entry.push("snaps", guids);
    entry.push("snapprops", props);
    if request.holds {
        entry.push("snapholds", holds);
    }
    Ok(entry)
}

/// The properties of a dataset that are its own: set here, or received; with `received`, the received values only.
fn properties(dataset: &Dataset, received: bool) -> Result<NvList, DslError> {
    let mut all = stored::all(dataset)?;
    all.retain(|(name, _)| is_sent(name));
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    let value = |value: Value| match (received, value.source) {
        (true, _) => value.received,
        (false, Source::Local | Source::Received) => Some(value.raw),
        (false, _) => None,
    };
    let pairs = all.into_iter().filter_map(|(name, found)| Some((name, value(found)?)));
    let number_or_text = |value| match value {
        PropValue::Number(number) => NvValue::Uint64(number),
        PropValue::String(text) => NvValue::String(text),
    };
    Ok(pairs.map(|(name, value)| (name, number_or_text(value))).collect())
}

/// Whether receivers set a property. The size of a volume is in its contents.
fn is_sent(name: &str) -> bool {
    prop::is_user(name) || (name != "volsize" && prop::dataset(name).is_some_and(prop::Prop::editable))
}
