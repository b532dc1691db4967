//! Single cases: collisions, keys of words, normalized names, numbers, limits, damage.

use super::*;

/// Names of equal length whose CRCs differ by the same words: equal hashes under every salt.
fn colliding_names(count: usize) -> Vec<Vec<u8>> {
    let mut by_hash: HashMap<u64, Vec<Vec<u8>>> = HashMap::new();
    // The hash has 28 bits: among so many names some thousand pairs collide.
    for i in 0..1_u64 << 20 {
        let name = format!("{:08x}", i.wrapping_mul(0x9E37_79B1) & 0xFFFF_FFFF).into_bytes();
        by_hash.entry(hash_name(1, 0, &name)).or_default().push(name);
    }
    let mut hashes: Vec<_> = by_hash.into_iter().filter(|(_, names)| names.len() > 1).collect();
    hashes.sort();
    hashes.into_iter().flat_map(|(_, names)| names).take(count).collect()
}

#[test]
fn equal_hashes_are_told_apart_by_their_differentiators() {
    let names = colliding_names(40);
    for disk in [Disk::micro(1, 0), Disk::fat(14, 1, 0, 0)] {
        let zap = disk.write();
        for (i, name) in names.iter().enumerate() {
            zap.insert(name, i as u64).unwrap();
        }
        disk.verify();
        let cds: BTreeSet<u32> = zap.entries().unwrap().iter().map(|entry| entry.cd).collect();
        assert!(cds.contains(&0) && cds.contains(&1));
        // The smallest free differentiator is reused.
        let twins: Vec<ZapEntry> =
            zap.entries().unwrap().into_iter().filter(|e| names[..2].iter().any(|n| n == e.name())).collect();
        assert_eq!(twins[0].hash, twins[1].hash);
        zap.remove(twins[0].name()).unwrap();
        zap.insert(twins[0].name(), 77).unwrap();
        assert_eq!(zap.lookup(twins[0].name()).unwrap().unwrap().cd, 0);
        assert_eq!(zap.lookup(twins[1].name()).unwrap().unwrap().cd, 1);
        disk.verify();
    }
}

/// Names that agree in all bits by which a pointer table can distinguish them, as an attacker could make
/// them: the ZAP refuses those that do not fit, and keeps its entries.
#[test]
fn names_made_to_collide_cost_nobody_an_entry() {
    // CRCs are linear: of names of one length, which bytes differ decides how the hashes differ.
    let mut basis: Vec<(u64, [u8; 40])> = Vec::new();
    let zero = hash_name(1, 0, &[0; 40]);
    let mut kernel = Vec::new();
    for bit in 0..40 * 3 {
        // Only bits that keep letters letters.
        let mut name = [0; 40];
        name[bit / 3] = 1 << (bit % 3);
        let mut hash = (hash_name(1, 0, &name) ^ zero) >> 38;
        for (other, other_name) in &basis {
            if hash ^ other < hash {
                hash ^= other;
                name.iter_mut().zip(other_name).for_each(|(a, b)| *a ^= b);
            }
        }
        if hash == 0 {
            kernel.push(name);
        } else {
            basis.push((hash, name));
            basis.sort_by_key(|(hash, _)| std::cmp::Reverse(*hash));
        }
    }
    assert!(kernel.len() > 20);
    let names: Vec<Vec<u8>> = (0..1000_u32)
        .map(|i| {
            let mut name = [b'p'; 40];
            for (k, part) in kernel.iter().take(10).enumerate() {
                if i >> k & 1 == 1 {
                    name.iter_mut().zip(part).for_each(|(a, b)| *a ^= b);
                }
            }
            name.to_vec()
        })
        .collect();
    assert!(names.iter().all(|name| hash_name(7, 0, name) >> 38 == hash_name(7, 0, &names[0]) >> 38));
    let disk = Disk::micro(7, 0);
    let zap = disk.write();
    let kept = names.iter().position(|name| zap.insert(name, 5).is_err()).unwrap();
    assert!(kept > 100 && kept < 600, "{kept}");
    let error = zap.insert(&names[kept], 5).unwrap_err();
    assert!(matches!(error, DmuError::ZapFull { .. }), "{error}");
    for other in 0..500 {
        zap.insert(format!("harmless{other}").as_bytes(), 5).unwrap_or_else(|error| {
            // Still micro, because it cannot be converted.
            assert!(!zap.is_fat().unwrap() && matches!(error, DmuError::ZapFull { .. }));
        });
    }
    disk.verify();
    assert!(names[..kept].iter().all(|name| zap.contains(name).unwrap()));
    assert!(disk.max_block().0 < 30);
}

/// With keys that are their own hash, any set of keys can collide.
#[test]
fn keys_of_one_hash_fill_a_leaf_and_then_the_zap() {
    let disk = Disk::fat(12, 5, 0, FLAG_UINT64_KEY | FLAG_PRE_HASHED_KEY);
    let zap = disk.write();
    let mut count = 0;
    let error = loop {
        match zap.insert_words(&[0xABCD_0000_0000_0000, count], count) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, DmuError::ZapFull { .. }));
    // An entry takes three of a leaf's 158 chunks; no table was grown in vain.
    assert_eq!((count, disk.max_block().0), (52, 1));
    disk.verify();
    zap.insert_words(&[0x1234_0000_0000_0000, 1], 1).unwrap();
    disk.verify();
    for i in (0..count).rev() {
        assert_eq!(zap.lookup_words(&[0xABCD_0000_0000_0000, i]).unwrap().unwrap().u64(), Some(i));
        zap.remove_words(&[0xABCD_0000_0000_0000, i]).unwrap();
    }
    disk.verify();
    // Keys that differ only in low bits lengthen the table; if the bits are too low, they are refused before
    // that.
    let insert = |top: u64, shift: u32, i: u64| zap.insert_words(&[(i & 3) << shift | top, i], 0_u64);
    let refused = (0..200).find_map(|i| insert(1 << 60, 39, i).err());
    assert!(matches!(refused, Some(DmuError::ZapFull { .. })), "{refused:?}");
    assert!(disk.max_block().0 < 10);
    let refused = (0..200).find_map(|i| insert(1 << 61, 44, i).err());
    assert!(refused.is_none(), "{refused:?}");
    disk.verify();
}

#[test]
fn words_are_keys_like_names() {
    for flags in [FLAG_UINT64_KEY, FLAG_UINT64_KEY | FLAG_HASH64, FLAG_UINT64_KEY | FLAG_PRE_HASHED_KEY] {
        let disk = Disk::fat(12, 5, 0, flags);
        let zap = disk.write();
        let mut random = Seeded(flags);
        let mut model = BTreeMap::new();
        for i in 0..1000_u64 {
            let key = [random.next(), i, random.next()];
            zap.insert_words(&key, &[i, i + 1][..]).unwrap();
            assert!(matches!(zap.insert_words(&key, i), Err(DmuError::KeyExists { .. })));
            model.insert(key, i);
            if i % 3 == 0 {
                zap.update_words(&key, ZapValue::U16s(&[1, 2, 3])).unwrap();
                assert_eq!(zap.lookup_words(&key).unwrap().unwrap().u64s(), [1, 2, 3]);
                zap.remove_words(&key).unwrap();
                assert!(matches!(zap.remove_words(&key), Err(DmuError::NoKey { .. })));
                model.remove(&key);
            }
        }
        disk.verify();
        let read = disk.read();
        for (key, value) in &model {
            assert_eq!(read.lookup_words(key).unwrap().unwrap().u64s(), [*value, value + 1]);
        }
        assert_eq!(read.entries().count(), model.len());
        assert!(zap.insert(b"name", 1).is_err() && zap.lookup(b"name").is_err());
    }
    assert!(Disk::micro(1, 0).write().insert_words(&[1], 1).is_err());
}

#[test]
fn names_that_match_are_one_or_two_as_asked() {
    let flags = NORM_CANONICAL | NORM_UPPER;
    for disk in [Disk::micro(3, flags), Disk::fat(14, 3, flags, 0)] {
        let zap = disk.write();
        zap.insert_matching("Caf\u{e9}".as_bytes(), 1, Match::Normalized).unwrap();
        let again = zap.insert_matching("CAFE\u{301}".as_bytes(), 2, Match::Normalized);
        assert!(matches!(again, Err(DmuError::KeyExists { .. })));
        // Another case: another name, if case is significant.
        assert!(zap.has_conflict("CAFE\u{301}".as_bytes(), Match::Normalized).unwrap());
        assert!(!zap.has_conflict("CAFE\u{301}".as_bytes(), Match::NormalizedMatchCase).unwrap());
        zap.insert_matching("CAFE\u{301}".as_bytes(), 2, Match::NormalizedMatchCase).unwrap();
        disk.verify();
        let first = zap.lookup_matching(b"cafe\xCC\x81", Match::Normalized).unwrap().unwrap();
        assert_eq!((first.name(), first.cd), ("Caf\u{e9}".as_bytes(), 0));
        let exact = zap.lookup_matching("CAFE\u{301}".as_bytes(), Match::Exact).unwrap().unwrap();
        assert_eq!((exact.u64(), exact.cd), (Some(2), 1));
        zap.update_matching("cafe\u{301}".as_bytes(), 9, Match::Normalized).unwrap();
        assert_eq!(zap.lookup_u64("Caf\u{e9}".as_bytes()).unwrap(), Some(9));
        let gone = zap.remove_matching("CAF\u{c9}".as_bytes(), Match::NormalizedMatchCase).unwrap();
        assert_eq!(gone.name(), "CAFE\u{301}".as_bytes());
        let gone = zap.remove_matching(b"cafe\xCC\x81", Match::Normalized).unwrap();
        assert_eq!(gone.name(), "Caf\u{e9}".as_bytes());
        assert_eq!(zap.count().unwrap(), 0);
        disk.verify();
    }
}

#[test]
fn counts_and_sets_of_numbers() {
    let disk = Disk::micro(3, 0);
    let zap = disk.write();
    assert_eq!(zap.increment(b"3e8", 100).unwrap(), 100);
    assert_eq!(zap.increment_int_key(1000, -40).unwrap(), 60);
    assert_eq!(zap.increment(b"3e8", -60).unwrap(), 0);
    assert_eq!(zap.increment(b"3e8", 0).unwrap(), 0);
    assert_eq!(zap.count().unwrap(), 0);
    zap.insert_int(0xAB).unwrap();
    assert!(zap.contains_int(0xAB).unwrap() && zap.insert_int(0xAB).is_err());
    assert_eq!(zap.lookup_u64(b"ab").unwrap(), Some(0xAB));
    zap.remove_int(0xAB).unwrap();
    zap.insert_int_key(5, 6).unwrap();
    zap.upsert_int_key(5, 7).unwrap();
    assert_eq!(zap.lookup_int_key(5).unwrap(), Some(7));
    zap.insert(b"text", "value").unwrap();
    assert!(zap.increment(b"text", 1).is_err());
    assert_eq!(zap.lookup(b"text").unwrap().unwrap().string(), Some(b"value".to_vec()));
    let other = Disk::micro(11, 0);
    other.write().join_increment(&disk_without_text(&disk).read()).unwrap();
    other.write().join_increment(&disk_without_text(&disk).read()).unwrap();
    assert_eq!(other.write().lookup_int_key(5).unwrap(), Some(14));
    assert!(other.write().join(&disk.read()).is_err());
    other.write().remove_int_key(5).unwrap();
    other.write().join(&disk.read()).unwrap();
    assert_eq!(other.write().count().unwrap(), 2);
    let third = Disk::micro(11, 0);
    third.write().join_with(&disk.read(), 3).unwrap();
    assert_eq!(third.write().lookup_u64(b"text").unwrap(), Some(3));
}

fn disk_without_text(disk: &Disk) -> Disk {
    let copy = disk.copy();
    copy.write().remove(b"text").unwrap();
    copy
}

#[test]
fn readers_share_the_index() {
    let disk = Disk::micro(3, NORM_UPPER);
    let find = |name: &[u8], how| lookup_shared(&disk, &disk.state, (0, ObjectId(7)), name, how).unwrap();
    for i in 0..500_u64 {
        disk.write().insert(format!("Name{i}").as_bytes(), i).unwrap();
        assert_eq!(find(format!("name{i}").as_bytes(), Match::Normalized).unwrap().u64(), Some(i));
        assert_eq!(find(format!("name{i}").as_bytes(), Match::Exact), None);
    }
    assert!(disk.state.lock().is_some());
    // A ZAP created again in the same object has no entry of the old one.
    disk.blocks.lock().unwrap().1.clear();
    create_micro(&disk, 5, 0).unwrap();
    assert_eq!(find(b"Name1", Match::Exact), None);
    disk.verify();
}

#[test]
fn renaming_keeps_the_value() {
    let disk = Disk::micro(3, 0);
    let zap = disk.write();
    zap.insert(b"a", "text").unwrap();
    zap.insert(b"b", 5).unwrap();
    assert!(matches!(zap.rename(b"a", b"b"), Err(DmuError::KeyExists { .. })));
    assert!(matches!(zap.rename(b"c", b"d"), Err(DmuError::NoKey { .. })));
    zap.rename(b"a", b"c").unwrap();
    assert_eq!(zap.lookup(b"c").unwrap().unwrap().string(), Some(b"text".to_vec()));
    assert_eq!(zap.count().unwrap(), 2);
}

#[test]
fn what_the_format_has_no_room_for_is_refused() {
    let disk = Disk::micro(3, 0);
    let zap = disk.write();
    let limit = |result: Result<(), DmuError>| assert!(matches!(result, Err(DmuError::ZapLimit { .. })));
    limit(zap.insert(b"", 1));
    limit(zap.insert(&[b'x'; 1024], 1));
    limit(zap.insert(b"a\0b", 1));
    limit(zap.insert(b"a", ZapValue::Bytes(&[0; 8193])));
    limit(zap.insert(b"a", ZapValue::Packed { int_size: 3, bytes: &[0; 3] }));
    limit(zap.insert(b"a", ZapValue::Packed { int_size: 8, bytes: &[0; 12] }));
    assert_eq!(disk.raw(0), Disk::micro(3, 0).raw(0));
    zap.insert(&[b'x'; 1023], ZapValue::Bytes(&[7; 8192])).unwrap();
    zap.insert(&[b'y'; 1023], ZapValue::Bytes(&[8; 8192])).unwrap();
    disk.verify();
    let small = Disk::fat(9, 1, 0, 0);
    limit(small.write().insert(b"a", ZapValue::Bytes(&[0; 400])));
    small.verify();
}

#[test]
fn a_zap_of_the_other_byte_order_is_turned_as_it_is_changed() {
    let little = Disk::micro(0x55, 0);
    little.write().insert(b"one", 1).unwrap();
    let big = Disk::default();
    big.set_block_size(512).unwrap();
    let mut bytes = little.raw(0);
    for (at, len) in [(0, 8), (8, 8), (16, 8), (64, 8), (72, 4)] {
        bytes[at..at + len].reverse();
    }
    assert_eq!(bytes[..8], MICRO_MAGIC.to_be_bytes());
    big.blocks.lock().unwrap().1.insert(0, Block::new(bytes, Endian::Big));
    assert_eq!(big.write().lookup_u64(b"one").unwrap(), Some(1));
    assert!(big.write().insert(b"one", 1).is_err());
    for disk in [&little, &big] {
        (0..10_u64).for_each(|i| disk.write().insert_int(i).unwrap());
    }
    assert_eq!(big.raw(0), little.raw(0));
}

#[test]
fn a_growth_left_half_done_is_finished() {
    let disk = Disk::fat(12, 1, 0, 0);
    let zap = disk.write();
    let mut i = 0_u64;
    while disk.read().fat_header().unwrap().table_blocks == 0 {
        zap.insert_int(i).unwrap();
        i += 1;
    }
    // As OpenZFS leaves it: space for the next table, one block of it copied.
    let old = disk.read().fat_header().unwrap().clone();
    let mut header = old.clone();
    header.next_block = header.free_block;
    header.free_block.0 += 2;
    disk.put_block(header.next_block, vec![0xEE; 4096]).unwrap();
    disk.put_block(BlockId(header.next_block.0 + 1), vec![0xEE; 4096]).unwrap();
    disk.edit(0, |bytes| header.encode_into(bytes));
    while disk.read().fat_header().unwrap().leaves == old.leaves {
        zap.insert_int(i).unwrap();
        i += 1;
    }
    let grown = disk.read().fat_header().unwrap().clone();
    assert_eq!((grown.table_block, grown.table_blocks), (header.next_block, 2));
    assert!(disk.block(old.table_block).unwrap().is_none());
    disk.verify();
    assert!((0..i).all(|n| zap.contains_int(n).unwrap()));
}

#[test]
fn damage_on_the_way_is_an_error_and_changes_nothing() {
    let disk = Disk::fat(12, 1, 0, 0);
    for i in 0..400_u64 {
        disk.write().insert_int(i).unwrap();
    }
    let mut random = Seeded(5);
    for round in 0..300 {
        let copy = disk.copy();
        let id = random.below(disk.max_block().0 + 1);
        for _ in 0..=random.below(4) {
            let (at, byte) = (random.below(4096) as usize, random.next() as u8);
            copy.edit(id, |bytes| bytes[at] = byte);
        }
        let Ok(zap) = ZapMut::open(&copy, 0, ObjectId(7)) else { continue };
        for i in 0..40 {
            // Errors are allowed, panics and endless walks are not.
            let _ = zap.remove_if_present(format!("{i:x}").as_bytes());
            let _ = zap.insert(format!("new{i}").as_bytes(), ZapValue::Bytes(&vec![1; (i * round) % 90]));
            let _ = zap.update(format!("{:x}", i + 100).as_bytes(), ZapValue::Bytes(&[3; 30]));
        }
        let _ = zap.entries();
    }
    let hole = disk.copy();
    let leaf = disk.max_block();
    hole.free_blocks(leaf, 1).unwrap();
    let results: Vec<_> = (0..2000_u64).map(|i| hole.write().upsert_int_key(i, 1)).collect();
    assert!(results.iter().any(Result::is_err) && results.iter().any(Result::is_ok));
}

/// The index and the block always agree.
#[test]
fn an_index_can_be_thrown_away_at_any_time() {
    let (kept, thrown) = (Disk::micro(9, 0), Disk::micro(9, 0));
    let mut random = Seeded(77);
    for _ in 0..3000 {
        let name = format!("n{}", random.below(500)).into_bytes();
        let is_removed = random.below(2) == 0;
        for disk in [&kept, &thrown] {
            if is_removed {
                disk.write().remove_if_present(&name).unwrap();
            } else {
                disk.write().upsert(&name, 5).unwrap();
            }
        }
        thrown.state.clear();
    }
    assert_eq!(kept.raw(0), thrown.raw(0));
}

#[test]
fn a_leaf_made_by_hand_is_the_one_written() {
    let disk = Disk::fat(14, 21, 0, 0);
    disk.write().insert(b"name", 5).unwrap();
    let mut leaf = format::zap::new_leaf(14, 0, 0, false);
    let hash = hash_name(21, 0, b"name");
    let new = NewEntry { hash, cd: 0, key: b"name\0", int_size: 8, value: &5_u64.to_be_bytes() };
    assert!(LeafMut::open(&mut leaf, 1).unwrap().insert(&new).unwrap());
    assert_eq!(disk.raw(1), leaf);
}
