//! The list at the start of a package: its datasets, with their snapshots, properties and holds
//! (docs/on-disk/30-send-streams.md, section 5).
//!
//! # What always holds
//! - A list that lacks what it must have is refused; names and values that no dataset can have are refused when they
//!   are used.

use dsl::prop::PropValue;
use format::nvlist::{NvList, NvValue};
use std::collections::HashMap;

/// What a package contains, as its list says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Package {
    /// Name of the topmost dataset.
    pub(super) top: String,
    /// The snapshots of an increment begin behind this one (name without its dataset).
    pub(super) from_snapshot: Option<String>,
    /// It has all datasets below the topmost one.
    pub(super) is_recursive: bool,
    /// The datasets, if they are listed.
    pub(super) datasets: Vec<Sent>,
    /// Indices of dataset and snapshot, by the guid of the snapshot.
    by_guid: HashMap<u64, (usize, usize)>,
}

/// A dataset of a package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Full name at the sender.
    pub(super) name: String,
    /// Names, without the dataset, and guids of its snapshots.
    pub(super) snapshots: Vec<(String, u64)>,
    /// It has a key of its own, which those below it inherit.
    pub(super) is_encryption_root: bool,
    /// Its properties, if they were sent.
    pub(super) properties: Option<Properties>,
    /// The properties of snapshots, by name.
    pub(super) snapshot_properties: Vec<(String, Properties)>,
    /// Tags of holds of snapshots, by name.
    pub(super) holds: Vec<(String, Vec<String>)>,
}

/// Names and values of properties.
pub(super) type Properties = Vec<(String, PropValue)>;

impl Package {
    /// Decodes the list. `top` is the name of the topmost dataset in the header; a package may have no list.
    /// `None`: the list is malformed.
    pub(super) fn decode(top: &str, payload: &[u8]) -> Option<Package> {
        if payload.is_empty() {
            return Some(Package { top: top.to_owned(), ..Package::default() });
        }
        let list = NvList::decode(payload).ok()?;
        let listed = list.list("fss");
        let datasets = listed.into_iter().flat_map(NvList::iter).map(|(_, value)| sent(value));
        let from_snapshot = list.str("fromsnap").map(str::to_owned);
        let is_recursive = listed.is_some() && !list.has("not_recursive");
        Some(Package::of(top, from_snapshot, is_recursive, datasets.collect::<Option<_>>()?))
    }

    /// A package of these datasets.
    pub(super) fn of(
        top: &str,
        from_snapshot: Option<String>,
        is_recursive: bool,
        datasets: Vec<Sent>,
    ) -> Package {
        let mut by_guid = HashMap::new();
        for (index, sent) in datasets.iter().enumerate() {
            for (snapshot, (_, guid)) in sent.snapshots.iter().enumerate() {
                by_guid.entry(*guid).or_insert((index, snapshot));
            }
        }
        Package { top: top.to_owned(), from_snapshot, is_recursive, datasets, by_guid }
    }

    /// The place in the list of the dataset that has a snapshot of this guid.
    pub(super) fn index_of(&self, guid: u64) -> Option<usize> {
        self.by_guid.get(&guid).map(|(index, _)| *index)
    }

    /// The name, without its dataset, of the snapshot of this guid.
    pub(super) fn snapshot_name(&self, guid: u64) -> Option<&str> {
        let (index, snapshot) = self.by_guid.get(&guid)?;
        Some(self.datasets.get(*index)?.snapshots.get(*snapshot)?.0.as_str())
    }

    /// Whether it can only have the stream of one snapshot.
    pub(super) fn is_single(&self) -> bool {
        match &self.datasets[..] {
            [one] => !self.is_recursive && one.snapshots.len() == 1,
            _ => false,
        }
    }
}

fn sent(value: &NvValue) -> Option<Sent> {
    let NvValue::List(list) = value else { return None };
    let snapshots = list.list("snaps").into_iter().flat_map(NvList::iter);
    let snapshots = snapshots.map(|(name, guid)| match guid {
        NvValue::Uint64(guid) => Some((name.to_owned(), *guid)),
        _ => None,
    });
    let of_snapshots = list.list("snapprops").into_iter().flat_map(NvList::iter);
    let held = list.list("snapholds").into_iter().flat_map(NvList::iter);
    Some(Sent {
        name: list.str("name")?.to_owned(),
        snapshots: snapshots.collect::<Option<_>>()?,
        is_encryption_root: list.has("is_encroot"),
        properties: list.list("props").map(properties),
        snapshot_properties: of_snapshots
            .map(|(name, value)| Some((name.to_owned(), properties(as_list(value)?))))
            .collect::<Option<_>>()?,
        holds: held
            .map(|(name, value)| {
                let tags = as_list(value)?.iter().map(|(tag, _)| tag.to_owned());
                Some((name.to_owned(), tags.collect()))
            })
            .collect::<Option<_>>()?,
    })
}

fn as_list(value: &NvValue) -> Option<&NvList> {
    match value {
        NvValue::List(list) => Some(list),
        _ => None,
    }
}

/// Values of other types are none of properties.
fn properties(list: &NvList) -> Properties {
    let value = |value: &NvValue| match value {
        NvValue::Uint64(number) => Some(PropValue::Number(*number)),
        NvValue::String(text) => Some(PropValue::String(text.clone())),
        _ => None,
    };
    list.iter().filter_map(|(name, stored)| Some((name.to_owned(), value(stored)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stream::Reader;

    fn package(name: &str) -> Package {
        let bytes = testkit::stream(name);
        let frame = Reader::new(&bytes[..]).next_frame().expect("whole").expect("a record");
        let format::stream::Record::Begin(begin) = &frame.header.record else { panic!("{name}") };
        let top = std::str::from_utf8(begin.name()).expect("text").split('@').next().expect("a name");
        Package::decode(top, &frame.payload).expect("a list")
    }

    #[test]
    fn lists_of_golden_packages() {
        let tree = package("replicate-r2-r3");
        assert_eq!((tree.top.as_str(), tree.from_snapshot.as_deref()), ("src/tree", Some("r2")));
        assert!(tree.is_recursive && !tree.is_single());
        let named = |name: &str| tree.datasets.iter().find(|sent| sent.name == name).expect(name);
        let props = named("src/tree").properties.as_ref().expect("sent");
        assert!(props.contains(&("compression".to_owned(), PropValue::Number(10))));
        assert!(props.contains(&("com.example:k".to_owned(), PropValue::String("v".into()))));
        let guid = 0xb0ee_e56c_11b3_913f;
        assert_eq!(tree.index_of(guid).map(|index| &tree.datasets[index]), Some(named("src/tree/three")));
        assert_eq!((tree.snapshot_name(guid), tree.index_of(1)), (Some("r3"), None));
        let held = package("full-holds");
        assert_eq!(held.datasets[0].holds, [("c".to_owned(), vec!["keepme".to_owned()])]);
        assert!(held.is_single() && !held.is_recursive);
        assert!(package("interval-a-c").datasets.is_empty());
    }

    #[test]
    fn malformed_lists_are_none() {
        assert_eq!(Package::decode("a", &[1, 2, 3]), None);
        let mut list = NvList::new();
        let mut fss = NvList::new();
        fss.push("0x1", 7_u64);
        list.push("fss", fss);
        assert_eq!(Package::decode("a", &list.encode_xdr()), None);
    }
}
