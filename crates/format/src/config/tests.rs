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

/// Labels written by OpenZFS are encoded to the same bytes.
#[test]
fn real_labels_are_written_as_they_were() {
    let files: [&[u8]; 4] = [
        include_bytes!("../../testdata/label-raidz1-d0.nvlist"),
        include_bytes!("../../testdata/label-classes-l0.nvlist"),
        include_bytes!("../../testdata/label-classes-h0.nvlist"),
        include_bytes!("../../testdata/label-classes-c0.nvlist"),
    ];
    for bytes in files {
        let config = PoolConfig::from_nvlist(&label(bytes)).unwrap();
        assert_eq!(config.to_nvlist(ConfigForm::Label), config.raw);
        assert_eq!(config.to_nvlist(ConfigForm::Label).encode_xdr(), bytes);
    }
}

#[test]
fn every_field_of_a_vdev_is_written() {
    let mut disk = VdevNode::new(VdevKind::Disk, VdevGuid(7));
    disk.path = Some("/dev/sda1".into());
    disk.devid = Some("ata-x".into());
    disk.phys_path = Some("pci-0".into());
    disk.enc_path = Some("/sys/slot".into());
    (disk.whole_disk, disk.is_spare, disk.not_present) = (true, true, true);
    (disk.offline, disk.faulted, disk.degraded, disk.removed, disk.unspare) = (true, true, true, true, true);
    disk.dtl = crate::ObjectId(9);
    (disk.create_txg, disk.resilver_txg, disk.rebuild_txg) = (Txg(4), Txg(5), Txg(6));
    disk.resilver_defer = true;
    disk.zap_leaf = crate::ObjectId(10);
    disk.aux_state = Some("external".into());
    disk.orig_guid = Some(VdevGuid(8));
    let mut mirror = VdevNode::new(VdevKind::Mirror, VdevGuid(6));
    mirror.children.push(disk);
    let mut raidz = VdevNode::new(VdevKind::Raidz, VdevGuid(5));
    raidz.nparity = 1;
    (raidz.ashift, raidz.asize, raidz.min_alloc) = (Some(Ashift(12)), 1 << 30, Some(4096));
    (raidz.metaslab_array, raidz.metaslab_shift) = (crate::ObjectId(11), 24);
    (raidz.non_allocating, raidz.removing, raidz.raidz_expanding) = (true, true, true);
    raidz.expand_txgs = vec![Txg(50)];
    raidz.zap_top = crate::ObjectId(12);
    raidz.children = (0..4)
        .map(|id| VdevNode { id, ..VdevNode::new(VdevKind::File, VdevGuid(20 + u64::from(id))) })
        .collect();
    raidz.children[0].children = Vec::new();
    raidz.children[3] = VdevNode { id: 3, ..mirror };
    let mut indirect = VdevNode::new(VdevKind::Indirect, VdevGuid(30));
    (indirect.indirect_object, indirect.indirect_births) = (crate::ObjectId(13), crate::ObjectId(14));
    indirect.prev_indirect_vdev = Some(VdevId(0));
    let mut draid = VdevNode::new(VdevKind::Draid, VdevGuid(40));
    (draid.nparity, draid.draid) = (1, Some(DraidShape { ndata: 2, nspares: 1, ngroups: 4 }));
    draid.children = (0..5)
        .map(|id| VdevNode { id, ..VdevNode::new(VdevKind::File, VdevGuid(50 + u64::from(id))) })
        .collect();
    let mut spare = VdevNode::new(VdevKind::DistributedSpare, VdevGuid(60));
    (spare.top_guid, spare.spareid) = (Some(VdevGuid(40)), Some(0));
    let mut root = VdevNode::new(VdevKind::Root, VdevGuid(1));
    root.zap_root = crate::ObjectId(15);
    root.children = vec![raidz, indirect, draid, spare, VdevNode::new(VdevKind::Hole, VdevGuid(0))];
    for (id, child) in root.children.iter_mut().enumerate() {
        child.id = id as u32;
    }
    let list = root.to_nvlist(ConfigForm::Mos);
    assert_eq!(VdevNode::from_nvlist(&list).unwrap(), root);
    let hole = &list.lists("children").unwrap()[4];
    let keys: Vec<&str> = hole.iter().map(|(key, _)| key).collect();
    let expected =
        ["type", "id", "guid", "whole_disk", "metaslab_array", "metaslab_shift", "ashift", "asize", "is_log"];
    assert_eq!(keys[..9], expected);
    assert_eq!(hole.u64("is_hole"), Some(1));
    // Labels do not contain object ids of ZAPs.
    let label = root.children[0].to_nvlist(ConfigForm::Label);
    assert!(!label.has("com.delphix:vdev_zap_top") && label.has("metaslab_array"));
}

#[test]
fn labels_come_from_the_configuration_of_the_pool() {
    let label = PoolConfig::from_nvlist(&raidz1()).unwrap();
    let mut top = label.vdev_tree.clone();
    top.zap_top = crate::ObjectId(66);
    let mut root = VdevNode::new(VdevKind::Root, VdevGuid(label.pool_guid.0));
    root.children = vec![top];
    let pool = PoolConfig { vdev_tree: root, top_guid: None, guid: None, txg: Txg(1), ..label.clone() };
    assert_eq!(pool.label(label.guid.unwrap(), label.txg), Some(raidz1()));
    assert_eq!(pool.label(VdevGuid(1), label.txg), None);
}
