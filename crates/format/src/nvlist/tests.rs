use super::*;

/// Configurations in labels written by OpenZFS 2.3.2: a raidz1 child, a log, a spare and a cache device.
const LABELS: [&[u8]; 4] = [
    include_bytes!("../../testdata/label-raidz1-d0.nvlist"),
    include_bytes!("../../testdata/label-classes-l0.nvlist"),
    include_bytes!("../../testdata/label-classes-h0.nvlist"),
    include_bytes!("../../testdata/label-classes-c0.nvlist"),
];

fn every_type() -> NvList {
    let inner: NvList = [("x", NvValue::Uint64(1)), ("nothing", NvValue::Boolean)].into_iter().collect();
    let mut list: NvList = [
        ("boolean", NvValue::Boolean),
        ("byte", NvValue::Byte(0xfe)),
        ("int8", NvValue::Int8(-3)),
        ("uint8", NvValue::Uint8(200)),
        ("int16", NvValue::Int16(-300)),
        ("uint16", NvValue::Uint16(65000)),
        ("int32", NvValue::Int32(-70000)),
        ("uint32", NvValue::Uint32(4_000_000_000)),
        ("int64", NvValue::Int64(i64::MIN)),
        ("uint64", NvValue::Uint64(u64::MAX)),
        ("hrtime", NvValue::Hrtime(-1)),
        ("boolean_value", NvValue::BooleanValue(true)),
        ("double", NvValue::Double(0.5)),
        ("string", "hello".into()),
        ("empty", "".into()),
        ("raw", NvValue::from_bytes(vec![0xff, b'a'])),
        ("bytes", NvValue::ByteArray(vec![1, 2, 3, 4, 5])),
        ("int8s", NvValue::Int8Array(vec![-1, 2])),
        ("uint8s", NvValue::Uint8Array(vec![255, 0, 7])),
        ("int16s", NvValue::Int16Array(vec![-1, 2, 3])),
        ("uint16s", NvValue::Uint16Array(vec![1, 65535])),
        ("int32s", NvValue::Int32Array(vec![-1])),
        ("uint32s", NvValue::Uint32Array(vec![1, 2, 3])),
        ("int64s", NvValue::Int64Array(vec![-1, 1])),
        ("uint64s", NvValue::Uint64Array(vec![])),
        ("booleans", NvValue::BooleanArray(vec![true, false, true])),
        ("strings", NvValue::StringArray(vec!["a".into(), "".into(), "abcdefgh".into()])),
        ("raws", NvValue::RawStringArray(vec![b"a".to_vec(), vec![0x80]])),
        ("list", NvValue::List(inner.clone())),
        ("lists", NvValue::ListArray(vec![inner.clone(), NvList::new(), inner])),
        ("last", NvValue::Uint64(7)),
    ]
    .into_iter()
    .collect();
    list.push([0xc3, 0x28], "the name is not UTF-8");
    list
}

#[test]
fn real_labels_encode_to_the_same_bytes() {
    for label in LABELS {
        let list = NvList::decode(label).unwrap();
        assert_eq!(list.encode_xdr(), label);
        assert_eq!(NvList::decode(&list.encode_native()).as_ref(), Ok(&list));
    }
}

#[test]
fn a_real_label_reads_as_what_it_is() {
    let list = NvList::decode(LABELS[0]).unwrap();
    assert_eq!(list.u64("version"), Some(5000));
    assert_eq!(list.str("name"), Some("t_raidz1"));
    let tree = list.list("vdev_tree").unwrap();
    assert_eq!(tree.str("type"), Some("raidz"));
    assert_eq!(tree.u64("nparity"), Some(1));
    assert_eq!(tree.lists("children").map(<[NvList]>::len), Some(4));
    assert_eq!(list.u64("name"), None);
    assert!(list.list("features_for_read").unwrap().flag("com.delphix:hole_birth"));
}

#[test]
fn the_example_of_the_spec_is_reproduced() {
    let mut list = NvList::new();
    list.push("version", 5000u64);
    list.push("name", "dpool");
    let expected: Vec<u8> = [
        "01010000 00000000 00000001",
        "00000024 00000020 00000007 76657273696f6e00 00000008 00000001 0000000000001388",
        "00000024 00000020 00000004 6e616d65 00000009 00000001 00000005 64706f6f6c000000",
        "00000000 00000000",
    ]
    .concat()
    .replace(' ', "")
    .as_bytes()
    .chunks(2)
    .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
    .collect();
    assert_eq!(list.encode_xdr(), expected);
}

#[test]
fn every_type_round_trips_in_both_encodings() {
    let list = every_type();
    assert_eq!(NvList::decode(&list.encode_xdr()).as_ref(), Ok(&list));
    assert_eq!(NvList::decode(&list.encode_native()).as_ref(), Ok(&list));
    assert_eq!(list.get([0xc3, 0x28]), Some(&NvValue::from("the name is not UTF-8")));
}

#[test]
fn every_truncation_is_an_error() {
    let list = every_type();
    for packed in [list.encode_xdr(), list.encode_native()] {
        for len in 0..packed.len() {
            assert!(NvList::decode(&packed[..len]).is_err(), "{len} of {}", packed.len());
        }
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: u32| {
        let mut list = NvList::new();
        for _ in 1..depth {
            list = [("inner", NvValue::List(list))].into_iter().collect();
        }
        list
    };
    for pack in [NvList::encode_xdr, NvList::encode_native] {
        assert!(NvList::decode(&pack(&nested(DEPTH_MAX))).is_ok());
        let deep = NvList::decode(&pack(&nested(DEPTH_MAX + 1)));
        assert_eq!(deep, Err(DecodeError::field(WHAT, "depth", DEPTH_MAX + 1)));
    }
}

#[test]
fn a_huge_count_allocates_nothing() {
    for array in [
        NvValue::Uint64Array(vec![1]),
        NvValue::StringArray(vec!["a".into()]),
        NvValue::ListArray(vec![NvList::new()]),
        NvValue::ByteArray(vec![1]),
    ] {
        let list: NvList = [("n", array)].into_iter().collect();
        // Offset of the element count: in XDR after header, list head, pair head, name and type; in native encoding
        // after header, list head, size and name length.
        for (mut packed, at) in [(list.encode_xdr(), 12 + 8 + 8 + 4), (list.encode_native(), 12 + 8)] {
            packed[at..at + 4].copy_from_slice(&[0xff, 0xff, 0xff, 0x7f]);
            assert!(NvList::decode(&packed).is_err());
        }
    }
}

#[test]
fn native_lists_of_the_other_byte_order_are_read() {
    let mut packed = vec![0, 0, 0, 0];
    packed.extend([0, 0, 0, 0, 0, 0, 0, 1]);
    packed.extend([0, 0, 0, 32, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 8, b'x', 0, 0, 0, 0, 0, 0, 0]);
    packed.extend([0, 0, 0, 0, 0, 0, 1, 2]);
    packed.extend([0, 0, 0, 0]);
    assert_eq!(NvList::decode(&packed).unwrap().u64("x"), Some(258));
}

#[test]
fn strings_with_nul_and_unknown_types_are_refused() {
    let list: NvList = [("n", NvValue::from("ab"))].into_iter().collect();
    let packed = list.encode_xdr();
    let mut nul = packed.clone();
    let at = packed.windows(2).position(|w| w == b"ab").unwrap();
    nul[at] = 0;
    assert!(NvList::decode(&nul).is_err());
    let mut unknown = packed;
    unknown[12 + 8 + 8 + 3] = 99;
    assert_eq!(NvList::decode(&unknown), Err(DecodeError::field(WHAT, "type", 99u32)));
}

#[test]
fn set_and_remove_keep_the_order() {
    let mut list: NvList = [("a", 1u64), ("b", 2), ("c", 3)].into_iter().collect();
    list.set("b", 5u64);
    list.set("d", 6u64);
    assert_eq!(list.remove("a"), Some(NvValue::Uint64(1)));
    let names: Vec<&str> = list.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["b", "c", "d"]);
    assert_eq!(list.u64("b"), Some(5));
}
