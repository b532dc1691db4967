use super::*;
use crate::{Ashift, NvValue};

fn label(bytes: &[u8]) -> NvList {
    NvList::decode(bytes).unwrap()
}

fn raidz1() -> NvList {
    label(include_bytes!("../../testdata/label-raidz1-d0.nvlist"))
}

/// The list with a key of its vdev tree set.
fn with_tree(mut list: NvList, key: &str, value: impl Into<NvValue>) -> NvList {
    let mut tree = list.list("vdev_tree").unwrap().clone();
    tree.set(key, value);
    list.set("vdev_tree", tree);
    list
}

fn leaf(id: u64, guid: u64) -> NvList {
    [
        ("type", NvValue::from("file")),
        ("id", id.into()),
        ("guid", guid.into()),
        ("path", format!("/f{guid}").into()),
    ]
    .into_iter()
    .collect()
}

fn draid(children: u64, ndata: u64, nspares: u64, ngroups: u64) -> NvList {
    [
        ("type", NvValue::from("draid")),
        ("id", 0u64.into()),
        ("guid", 1000u64.into()),
        ("nparity", 1u64.into()),
        ("draid_ndata", ndata.into()),
        ("draid_nspares", nspares.into()),
        ("draid_ngroups", ngroups.into()),
        ("children", (0..children).map(|i| leaf(i, i + 1)).collect::<Vec<_>>().into()),
    ]
    .into_iter()
    .collect()
}

#[test]
fn a_real_raidz_label() {
    let config = PoolConfig::from_nvlist(&raidz1()).unwrap();
    assert_eq!((config.version, config.name.as_str(), config.state), (5000, "t_raidz1", PoolState::Exported));
    assert_eq!(config.vdev_children, Some(1));
    assert!(config.features_for_read.iter().any(|name| name == "com.delphix:embedded_data"));
    let tree = &config.vdev_tree;
    assert_eq!((tree.kind, tree.nparity, tree.ashift), (VdevKind::Raidz, 1, Some(Ashift(9))));
    assert_eq!(config.top_guid, Some(tree.guid));
    assert_eq!(tree.leaves().count(), 4);
    assert!(tree.leaves().any(|leaf| Some(leaf.guid) == config.guid));
    assert_eq!(tree.children[2].path.as_deref(), Some("/img/raidz1/d2.img"));
    assert!(tree.metaslab_array.0 != 0 && tree.metaslabs() > 0);
    assert_eq!(config.raw.encode_xdr(), include_bytes!("../../testdata/label-raidz1-d0.nvlist"));
}

#[test]
fn real_labels_of_log_spare_and_cache() {
    let log =
        PoolConfig::from_nvlist(&label(include_bytes!("../../testdata/label-classes-l0.nvlist"))).unwrap();
    assert!(log.is_log && log.vdev_tree.is_log && !log.is_aux());
    let spare =
        PoolConfig::from_nvlist(&label(include_bytes!("../../testdata/label-classes-h0.nvlist"))).unwrap();
    assert_eq!((spare.state, spare.is_aux()), (PoolState::Spare, true));
    assert_eq!(Some(spare.vdev_tree.guid), spare.guid);
    let cache =
        PoolConfig::from_nvlist(&label(include_bytes!("../../testdata/label-classes-c0.nvlist"))).unwrap();
    assert_eq!((cache.state, cache.vdev_tree.kind), (PoolState::L2cache, VdevKind::File));
    assert!(cache.vdev_tree.ashift.is_some());
}

#[test]
fn bad_trees_are_refused() {
    let refuse = |list: NvList| assert!(PoolConfig::from_nvlist(&list).is_err());
    refuse(with_tree(raidz1(), "type", "raidq"));
    refuse(with_tree(raidz1(), "nparity", 4u64));
    refuse(with_tree(raidz1(), "nparity", 0u64));
    refuse(with_tree(raidz1(), "guid", 0u64));
    refuse(with_tree(raidz1(), "ashift", 17u64));
    refuse(with_tree(raidz1(), "id", 1u64));
    refuse(with_tree(raidz1(), "metaslab_shift", 64u64));
    refuse(with_tree(raidz1(), "children", vec![leaf(0, 7), leaf(1, 7)]));
    refuse(with_tree(raidz1(), "children", vec![leaf(0, 7), leaf(2, 8)]));
    refuse(with_tree(raidz1(), "children", vec![leaf(0, 7)]));
    refuse(with_tree(raidz1(), "type", "file"));
    refuse(with_tree(raidz1(), "raidz_expand_txgs", vec![5u64, 5]));
    refuse(with_tree(raidz1(), "raidz_expand_txgs", vec![5u64, 6, 7]));
    let mut nameless = raidz1();
    nameless.remove("name");
    refuse(nameless);
}

#[test]
fn unknown_version_keeps_its_number() {
    let mut newer = raidz1();
    newer.set("version", 999u64);
    assert_eq!(PoolConfig::from_nvlist(&newer).unwrap().version, 999);
    let mut none = raidz1();
    none.remove("version");
    assert!(PoolConfig::from_nvlist(&none).is_err());
}

#[test]
fn depth_is_bounded() {
    let mut node = leaf(0, 1);
    for guid in 2..30u64 {
        node = [
            ("type", NvValue::from("mirror")),
            ("id", 0u64.into()),
            ("guid", guid.into()),
            ("children", vec![node].into()),
        ]
        .into_iter()
        .collect();
    }
    assert!(VdevNode::from_nvlist(&node).is_err());
}

#[test]
fn draid_shapes_must_divide() {
    let shape = VdevNode::from_nvlist(&draid(5, 2, 1, 4)).unwrap();
    assert_eq!(shape.draid, Some(DraidShape { ndata: 2, nspares: 1, ngroups: 4 }));
    assert!(VdevNode::from_nvlist(&draid(5, 2, 1, 3)).is_err());
    assert!(VdevNode::from_nvlist(&draid(5, 4, 1, 4)).is_err());
    assert!(VdevNode::from_nvlist(&draid(5, 0, 1, 4)).is_err());
    assert!(VdevNode::from_nvlist(&draid(1, 2, 1, 4)).is_err());
    assert!(VdevNode::from_nvlist(&draid(5, 2, 1, 0)).is_err());
    let mut domains = draid(5, 2, 1, 4);
    domains.push("draid_nchildren", 5u64);
    assert!(VdevNode::from_nvlist(&domains).is_err());
}

#[test]
fn guid_sums_wrap_and_holes_add_nothing() {
    let hole: NvList =
        [("type", NvValue::from("hole")), ("id", 1u64.into()), ("guid", 0u64.into())].into_iter().collect();
    let root: NvList = [
        ("type", NvValue::from("root")),
        ("id", 0u64.into()),
        ("guid", u64::MAX.into()),
        ("children", vec![leaf(0, 5), hole].into()),
    ]
    .into_iter()
    .collect();
    let tree = VdevNode::from_nvlist(&root).unwrap();
    assert_eq!(tree.guid_sum(), 4);
    assert_eq!(tree.find(VdevGuid(5)).and_then(|node| node.path.as_deref()), Some("/f5"));
}
