use super::*;
use crate::BpKind;

/// Log blocks of a pool of OpenZFS 2.3.2 whose log was not replayed: one with changes of names and a clone, one
/// with new directories and an immediate write.
const NAMES: &[u8] = include_bytes!("../../testdata/zil-names.bin");
const WRITES: &[u8] = include_bytes!("../../testdata/zil-writes.bin");

fn decode_block(block: &[u8]) -> Vec<Record> {
    let (chain, range) = Chain::decode(block, ChecksumId::Zilog2).unwrap();
    assert_eq!((chain.order, chain.nused as usize), (Endian::Little, block.len()));
    records(&block[range], chain.order).map(|raw| raw.unwrap().decode().unwrap()).collect()
}

fn sample_bp() -> BlockPtr {
    BlockPtr::from_words([8, 16, 0, 0, 0, 0, 0x8013_070f_0000_00ff, 0, 0, 0, 5, 1, 1, 2, 3, 4])
}

fn sample_create(what: CreateKind) -> Create {
    Create {
        what,
        dir: ObjectId(34),
        object: ObjectId(77),
        slots: 3,
        mode: 0o100644,
        uid: 1 << 32 | 5,
        gid: 2 << 32 | 6,
        generation: 9,
        crtime: LogTime { secs: 1, nanos: 2 },
        rdev: 3,
        xvattr: None,
        acl: None,
        domains: vec![b"S-1-5".to_vec(), b"S-1-6".to_vec()],
        name: b"name".to_vec(),
        target: Vec::new(),
    }
}

fn sample_xvattr() -> Xvattr {
    Xvattr {
        requested: vec![xat::PROJID as u32, 0, 0],
        attrs: xat::IMMUTABLE,
        crtime: LogTime { secs: 4, nanos: 5 },
        scanstamp: [7; 32],
    }
}

fn sample_acl() -> LoggedAcl {
    LoggedAcl { count: 2, flags: 8, aces: vec![1; 20], fuids: vec![10, 11, 12] }
}

fn samples() -> Vec<Body> {
    let names =
        Rename { from_dir: ObjectId(1), to_dir: ObjectId(2), from: b"from".to_vec(), to: b"to".to_vec() };
    let (object, dir) = (ObjectId(9), ObjectId(34));
    let whiteout = Create {
        dir: ObjectId(1),
        name: b"from".to_vec(),
        domains: vec![],
        ..sample_create(CreateKind::File)
    };
    let set = SetAttr {
        object,
        mask: 0x8000_0002,
        mode: 1,
        uid: 2,
        gid: 3,
        size: 4,
        atime: LogTime { secs: 5, nanos: 6 },
        mtime: LogTime { secs: 7, nanos: 8 },
        xvattr: Some(sample_xvattr()),
        domains: vec![b"S-1-5".to_vec()],
    };
    let create = |what| sample_create(what);
    let mut bodies: Vec<Body> = [CreateKind::File, CreateKind::Dir]
        .into_iter()
        .flat_map(|what| {
            [
                create(what),
                Create { xvattr: Some(sample_xvattr()), ..create(what) },
                Create { acl: Some(sample_acl()), ..create(what) },
                Create { acl: Some(sample_acl()), xvattr: Some(sample_xvattr()), ..create(what) },
            ]
        })
        .chain([
            Create { name: vec![], ..create(CreateKind::XattrDir) },
            Create { target: b"/a/b".to_vec(), ..create(CreateKind::Symlink) },
        ])
        .map(|create| Body::Create(Box::new(create)))
        .collect();
    bodies.extend([
        Body::Remove { dir, name: b"n".to_vec() },
        Body::Rmdir { dir, name: b"n".to_vec() },
        Body::Link { dir, object, name: b"n".to_vec() },
        Body::Rename(names.clone()),
        Body::Exchange(names.clone()),
        Body::Whiteout(names, Box::new(whiteout)),
        Body::Write { object, offset: 5, length: 3, bp: BlockPtr::HOLE, data: Some(b"abc".to_vec()) },
        Body::Write { object, offset: 5, length: 0, bp: BlockPtr::HOLE, data: Some(vec![]) },
        Body::Write { object, offset: 131_072, length: 131_072, bp: sample_bp(), data: None },
        Body::Write2 { object, offset: 1, length: 2 },
        Body::Truncate { object, offset: 1, length: 0 },
        Body::SetAttr(Box::new(set)),
        Body::AclV0 { object, aces: vec![3; 36] },
        Body::Acl { object, acl: sample_acl(), domains: vec![b"S".to_vec()] },
        Body::SetSaXattr { object, name: b"user.x".to_vec(), value: vec![0, 1, 2] },
        Body::CloneRange(CloneRange {
            object,
            offset: 0,
            length: 200_000,
            block_size: 131_072,
            pointers: vec![sample_bp(), BlockPtr::HOLE],
        }),
    ]);
    bodies
}

#[test]
fn a_real_block_of_names() {
    let records = decode_block(NAMES);
    let names: Vec<&str> = records.iter().map(|r| r.body.kind().name()).collect();
    assert_eq!(
        names,
        [
            "TX_SYMLINK",
            "TX_LINK",
            "TX_RENAME",
            "TX_RENAME",
            "TX_RENAME",
            "TX_RENAME_EXCHANGE",
            "TX_RENAME_WHITEOUT",
            "TX_REMOVE",
            "TX_RMDIR",
            "TX_REMOVE",
            "TX_CREATE",
            "TX_CREATE",
            "TX_CREATE",
            "TX_CLONE_RANGE",
        ]
    );
    assert_eq!(records.iter().map(|r| r.seq).collect::<Vec<_>>(), (28..42).collect::<Vec<_>>());
    let Body::Create(link) = &records[0].body else { panic!("{:?}", records[0]) };
    assert_eq!((&link.name[..], &link.target[..]), (&b"newlink"[..], &b"newdir/sub/f"[..]));
    assert_eq!((link.mode, link.object, link.slots), (0o120777, ObjectId(39), 1));
    let Body::Whiteout(rename, whiteout) = &records[6].body else { panic!("{:?}", records[6]) };
    assert_eq!((&rename.from[..], &rename.to[..]), (&b"pre-w"[..], &b"white-target"[..]));
    assert_eq!((whiteout.mode, whiteout.object), (0o020000, ObjectId(40)));
    let Body::CloneRange(clone) = &records[13].body else { panic!("{:?}", records[13]) };
    assert_eq!((clone.length, clone.block_size, clone.pointers.len()), (140_000, 131_072, 2));
    assert!(clone.pointers.iter().all(|bp| bp.validate().is_ok()));
}

#[test]
fn a_real_block_of_writes() {
    let records = decode_block(WRITES);
    let Body::Write { length, bp, data, .. } = &records[3].body else { panic!("{:?}", records[3]) };
    assert_eq!((*length, bp.kind(), data.as_ref().map(Vec::len)), (2000, BpKind::Hole, Some(2000)));
}

#[test]
fn real_blocks_encode_to_the_same_bytes() {
    for block in [NAMES, WRITES] {
        let (chain, range) = Chain::decode(block, ChecksumId::Zilog2).unwrap();
        assert_eq!(chain.encode(), block[..CHAIN_SIZE]);
        let encoded: Vec<u8> = decode_block(block).iter().flat_map(|r| r.encode(chain.order)).collect();
        assert_eq!(encoded, block[range]);
    }
}

#[test]
fn every_kind_round_trips_in_both_orders() {
    for body in samples() {
        for order in [Endian::Little, Endian::Big] {
            let record = Record { case_insensitive: true, txg: Txg(7), seq: 8, body: body.clone() };
            let bytes = record.encode(order);
            let raw = records(&bytes, order).next().unwrap().unwrap();
            assert_eq!(raw.kind(), Ok(body.kind()));
            assert_eq!(raw.decode(), Ok(record));
        }
    }
}

#[test]
fn every_cut_of_a_record_is_an_error_or_the_record_itself() {
    for body in samples() {
        let record = Record { case_insensitive: false, txg: Txg(7), seq: 8, body };
        let whole = record.encode(Endian::Little);
        for len in (RECORD_HEADER..whole.len()).step_by(8) {
            let mut cut = whole[..len].to_vec();
            cut[8..16].copy_from_slice(&(len as u64).to_le_bytes());
            if let Ok(shorter) = records(&cut, Endian::Little).next().unwrap().unwrap().decode() {
                // Without its data, a write is indirect; domains can be left out.
                assert!(
                    matches!(shorter.body, Body::Write { data: None, .. } | Body::SetAttr(_)),
                    "{shorter:?}"
                );
            }
        }
    }
}

#[test]
fn names_and_numbers_are_checked() {
    let refuse = |body: Body| {
        let bytes = Record { case_insensitive: false, txg: Txg(1), seq: 1, body }.encode(Endian::Little);
        let raw = records(&bytes, Endian::Little).next().unwrap().unwrap();
        assert!(raw.decode().is_err(), "{raw:?}");
    };
    let (object, dir) = (ObjectId(9), ObjectId(34));
    refuse(Body::Remove { dir, name: vec![] });
    refuse(Body::Remove { dir, name: b"a/b".to_vec() });
    refuse(Body::Remove { dir, name: vec![b'x'; NAME_MAX + 1] });
    refuse(Body::Truncate { object, offset: i64::MAX as u64, length: 1 });
    refuse(Body::Truncate { object, offset: u64::MAX, length: 1 });
    refuse(Body::Create(Box::new(Create { object: ObjectId(0), ..sample_create(CreateKind::File) })));
    refuse(Body::Create(Box::new(Create { slots: 33, ..sample_create(CreateKind::File) })));
    refuse(Body::Write { object, offset: 1, length: 131_072, bp: sample_bp(), data: None });
    let level1 = sample_bp().with_prop_bits(56, 5, 1);
    refuse(Body::Write { object, offset: 0, length: 1, bp: level1, data: None });
    let clone = |block_size, length| CloneRange {
        object,
        offset: 0,
        length,
        block_size,
        pointers: vec![sample_bp()],
    };
    refuse(Body::CloneRange(clone(0, 1)));
    refuse(Body::CloneRange(clone(513, 1)));
    refuse(Body::CloneRange(clone(512, 513)));
    refuse(Body::Acl { object, acl: LoggedAcl { count: 3, ..sample_acl() }, domains: vec![] });
}

#[test]
fn pointers_for_a_claim_need_no_decoding() {
    let (chain, range) = Chain::decode(NAMES, ChecksumId::Zilog2).unwrap();
    let counts: Vec<usize> =
        records(&NAMES[range], chain.order).map(|raw| raw.unwrap().pointers().unwrap().len()).collect();
    assert_eq!((counts[..13].iter().sum::<usize>(), counts[13]), (0, 2));
}

#[test]
fn chains_are_checked() {
    let first = BlockPtr::HOLE.with_word(12, 5).with_word(13, 6).with_word(14, 54).with_word(15, 1);
    let chain = Chain {
        next: first.with_word(15, 2),
        nused: CHAIN_SIZE as u64,
        checksum: Checksum([1, 2, 3, 4]),
        order: Endian::Big,
    };
    assert!(chain.follows(&first) && !chain.follows(&chain.next));
    assert_eq!((block_seq(&first), block_objset(&first)), (1, ObjectId(54)));
    let mut block = chain.encode().to_vec();
    block.resize(4096, 0);
    assert_eq!(Chain::decode(&block, ChecksumId::Zilog2), Ok((chain, 184..184)));
    assert!(Chain::decode(&block, ChecksumId::Zilog).is_err());
    let old = Chain { nused: 3912, ..chain };
    let mut block = vec![0; 3912];
    block.extend(old.encode());
    assert_eq!(Chain::decode(&block, ChecksumId::Zilog), Ok((old, 0..3912)));
    for nused in [183, 4097, u64::MAX] {
        let mut block = Chain { nused, ..chain }.encode().to_vec();
        block.resize(4096, 0);
        assert!(Chain::decode(&block, ChecksumId::Zilog2).is_err());
    }
    assert!(Chain::decode(&[0; 183], ChecksumId::Zilog2).is_err());
}

#[test]
fn record_lengths_are_checked() {
    let record = |len: u64| [9u64, len, 1, 1].into_iter().flat_map(u64::to_le_bytes).collect::<Vec<_>>();
    for len in [0, 31, 36, 40, u64::MAX] {
        let bytes = record(len);
        assert!(records(&bytes, Endian::Little).next().unwrap().is_err(), "{len}");
        assert_eq!(records(&bytes, Endian::Little).count(), 1);
    }
    assert_eq!(records(&record(32)[..31], Endian::Little).count(), 0);
    let unknown = [25u64, 32, 1, 1].into_iter().flat_map(u64::to_le_bytes).collect::<Vec<_>>();
    let raw = records(&unknown, Endian::Little).next().unwrap().unwrap();
    assert!(raw.kind().is_err() && raw.decode().is_err());
    assert_eq!(raw.pointers(), Ok(vec![]));
}
