//! Computed properties: counters, names, states, and the properties that a file system or volume stores in
//! its own objects.

use super::inherit::{Source, Value, native};
use crate::bookmark::Bookmark;
use crate::dataset::{Dataset, DatasetKind};
use crate::keys::{self, CryptoKey};
use crate::name::{Name, Tail};
use crate::stored_props::PropValue;
use crate::{DslError, mos, resume};
use dmu::KeyState;
use format::names;
use format::objset::FLAG_USERACCOUNTING_COMPLETE;
use format::prop::{DatasetProp, Fallback};

/// Result of computing a property.
pub(super) enum Computed {
    /// The property is computed and has this value.
    Value(Value),
    /// The property has no value on this dataset.
    Absent,
    /// The property is a stored one.
    Stored,
}

fn number(n: u64) -> Computed {
    Computed::Value(Value::computed(PropValue::Number(n)))
}

fn text(text: impl Into<String>) -> Computed {
    Computed::Value(Value::computed(PropValue::String(text.into())))
}

fn present<T>(value: Option<T>, as_computed: impl FnOnce(T) -> Computed) -> Computed {
    value.map_or(Computed::Absent, as_computed)
}

/// A number that is fixed at creation: its source is the default if it equals the default.
fn fixed(prop: &DatasetProp, n: u64) -> Computed {
    let source = if prop.fallback == Fallback::Number(n) { Source::Default } else { Source::None };
    Computed::Value(Value { raw: PropValue::Number(n), source, received: None })
}

fn local(raw: PropValue) -> Computed {
    Computed::Value(Value { raw, source: Source::Local, received: None })
}

fn guids(guids: &[u64]) -> String {
    guids.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

pub(super) fn value(dataset: &Dataset, kind: DatasetKind, prop: &DatasetProp) -> Result<Computed, DslError> {
    let phys = dataset.phys();
    let used_by = || dataset.used_by();
    Ok(match prop.name {
        "name" => text(dataset.name()),
        "type" => text(kind.name()),
        "creation" => number(phys.creation_time),
        "createtxg" => number(phys.creation_txg.0),
        "guid" => number(phys.guid),
        "objsetid" => number(dataset.id().0),
        "mounted" => number(0),
        "used" => number(dataset.used()),
        "available" => number(dataset.available()?),
        "referenced" => number(dataset.referenced()),
        "logicalused" => number(dataset.logical_used()),
        "logicalreferenced" => number(dataset.logical_referenced()),
        "compressratio" => number(dataset.compress_ratio()),
        "refcompressratio" => number(dataset.ref_compress_ratio()),
        "unique" => number(dataset.unique()),
        // Without a previous snapshot there is no reference point (pools of the first versions).
        "written" if phys.prev_snap.is_none() => Computed::Absent,
        "written" => number(dataset.written()?),
        "usedbydataset" => present(used_by(), |u| number(u.dataset)),
        "usedbysnapshots" => present(used_by(), |u| number(u.snapshots)),
        "usedbychildren" => present(used_by(), |u| number(u.children)),
        "usedbyrefreservation" => present(used_by(), |u| number(u.refreservation)),
        "inconsistent" => number(u64::from(dataset.is_inconsistent())),
        "defer_destroy" => number(u64::from(dataset.is_deferred())),
        "userrefs" => number(dataset.holds()?.len() as u64),
        "numclones" => number(phys.num_children.saturating_sub(1)),
        "origin" => present(dataset.dir().origin()?, |origin| text(origin.name())),
        "clones" => names(&dataset.clones()?),
        "prevsnap" => present(dataset.previous()?, |s| text(s.name())),
        "useraccounting" => {
            let flags = dataset.objset(KeyState::Locked)?.phys().flags;
            number(flags & FLAG_USERACCOUNTING_COMPLETE)
        }
        "quota" => bonus_number(dataset, prop, dataset.dir().phys().quota)?,
        "reservation" => bonus_number(dataset, prop, dataset.dir().phys().reserved)?,
        "filesystem_count" => count(dataset.dir().filesystem_count()?),
        "snapshot_count" => count(dataset.dir().snapshot_count()?),
        "snapshots_changed" => present(dataset.dir().snapshots_changed()?, |(secs, _)| number(secs)),
        "receive_resume_token" => present(resume::token_of(dataset)?, text),
        "redacted" => number(u64::from(dataset.redact_snaps()?.is_some())),
        "redact_snaps" => present(dataset.redact_snaps()?, |list| text(guids(&list))),
        "ivsetguid" => present(dataset.ivset_guid()?, number),
        "mountpoint" => mountpoint(dataset, native(dataset, prop)?),
        // A dataset that is being received may lack these objects.
        "version" | "utf8only" | "normalization" | "casesensitivity" if dataset.is_inconsistent() => {
            Computed::Absent
        }
        "version" => number(master_node(dataset, names::master_node::VERSION)?),
        "utf8only" | "normalization" | "casesensitivity" => number(master_node(dataset, prop.name)?),
        "volsize" | "volblocksize" if dataset.is_inconsistent() => Computed::Absent,
        "volsize" => local(PropValue::Number(volume_size(dataset)?)),
        "volblocksize" => fixed(prop, volume_block_size(dataset)?),
        "remaptxg" => Computed::Absent,
        "encryption" | "keyformat" | "keystatus" | "encryptionroot" | "keyguid" | "pbkdf2salt"
        | "pbkdf2iters" => encryption(dataset, prop)?,
        _ => Computed::Stored,
    })
}

fn names(datasets: &[Dataset]) -> Computed {
    match datasets {
        [] => Computed::Absent,
        _ => text(datasets.iter().map(Dataset::name).collect::<Vec<_>>().join(",")),
    }
}

/// Counts exist only below a limit; without them the tools print `none`.
fn count(stored: Option<u64>) -> Computed {
    match stored {
        Some(n) => local(PropValue::Number(n)),
        None => {
            let (raw, source) = (PropValue::Number(u64::MAX), Source::Default);
            Computed::Value(Value { raw, source, received: None })
        }
    }
}

/// A number that the directory's bonus holds; the ZAP only tells its source.
fn bonus_number(dataset: &Dataset, prop: &DatasetProp, n: u64) -> Result<Computed, DslError> {
    let mut value = native(dataset, prop)?;
    value.raw = PropValue::Number(n);
    value.source = match value.source {
        // A limit that was removed was also set here.
        set @ (Source::Received | Source::Local) => set,
        _ if n == 0 => Source::Default,
        _ => Source::Local,
    };
    Ok(Computed::Value(value))
}

/// A mount point is stored where it was set; for datasets below, the rest of the name is appended.
fn mountpoint(dataset: &Dataset, mut value: Value) -> Computed {
    let name = dataset.dir().name();
    let below = match &value.source {
        Source::Default => Some(("/", name)),
        Source::Inherited(from) => name.get(from.len()..).zip(value.raw.string()).map(|(n, v)| (v, n)),
        _ => None,
    };
    if let Some((base, rest)) = below
        && base.starts_with('/')
    {
        let rest = rest.trim_start_matches('/');
        let base = base.trim_end_matches('/');
        value.raw = PropValue::String(format!("{base}/{rest}"));
    }
    Computed::Value(value)
}

/// An entry of a file system's master node, which is readable without a key.
fn master_node(dataset: &Dataset, key: &str) -> Result<u64, DslError> {
    let objset = dataset.objset(KeyState::Locked)?;
    let zap = mos::zap(&objset, names::master_node::OBJECT)?;
    Ok(mos::lookup_number(&zap, names::master_node::OBJECT, key)?.unwrap_or(0))
}

fn volume_size(dataset: &Dataset) -> Result<u64, DslError> {
    let objset = dataset.objset(KeyState::Locked)?;
    let zap = mos::zap(&objset, names::volume::PROPERTIES)?;
    Ok(mos::lookup_number(&zap, names::volume::PROPERTIES, names::volume::SIZE)?.unwrap_or(0))
}

fn volume_block_size(dataset: &Dataset) -> Result<u64, DslError> {
    let objset = dataset.objset(KeyState::Locked)?;
    Ok(objset.object(names::volume::DATA)?.block_size())
}

fn encryption(dataset: &Dataset, prop: &DatasetProp) -> Result<Computed, DslError> {
    let dir = dataset.dir();
    let Some(key) = CryptoKey::of(dir)? else {
        return Ok(match prop.name {
            "encryption" | "keyformat" | "pbkdf2iters" | "pbkdf2salt" => match prop.fallback {
                Fallback::Number(n) => fixed(prop, n),
                _ => Computed::Absent,
            },
            _ => Computed::Absent,
        });
    };
    Ok(match prop.name {
        "encryption" => number(key.wrapped.suite.id()),
        "keyformat" => number(key.format.map_or(0, keys::KeyFormat::id)),
        "keyguid" => number(key.wrapped.guid),
        "pbkdf2salt" => fixed(prop, key.salt),
        "pbkdf2iters" => fixed(prop, key.iterations),
        "keystatus" => number(dir.dsl().keyring().status(dir)?.id()),
        _ => present(keys::encryption_root(dir)?, |root| text(root.name())),
    })
}

/// `written@SNAP` and `written#MARK`: bytes that this dataset wrote since a short or full name.
pub(super) fn written_since(dataset: &Dataset, is_mark: bool, rest: &str) -> Result<Option<u64>, DslError> {
    let delimiter = if is_mark { '#' } else { '@' };
    let full = if rest.contains(delimiter) {
        rest.to_owned()
    } else {
        format!("{}{delimiter}{rest}", dataset.dir().name())
    };
    match Name::parse(&full)?.tail {
        Tail::Bookmark(_) => dataset.written_since_bookmark(&dataset.dsl().bookmark(&full)?),
        _ => dataset.written_since(&dataset.dsl().dataset(&full)?).map(Some),
    }
}

pub(super) fn of_bookmark(mark: &Bookmark) -> Result<Vec<(String, Value)>, DslError> {
    let phys = mark.phys();
    let mut values = Vec::new();
    let mut push = |name: &str, raw| values.push((name.to_owned(), Value::computed(raw)));
    push("type", PropValue::String("bookmark".to_owned()));
    push("creation", PropValue::Number(phys.creation_time));
    if let Some(v2) = phys.v2.filter(|v2| v2.flags != 0) {
        push("referenced", PropValue::Number(v2.referenced));
    }
    push("createtxg", PropValue::Number(phys.creation_txg.0));
    push("guid", PropValue::Number(phys.guid));
    if let Some(v2) = phys.v2.filter(|v2| v2.flags != 0) {
        push("logicalreferenced", PropValue::Number(v2.uncompressed));
    }
    if let Some(list) = mark.redact_snaps()? {
        push("redact_snaps", PropValue::String(guids(&list)));
    }
    Ok(values)
}
