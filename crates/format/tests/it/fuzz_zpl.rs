//! Hostile input for ZAP blocks and structures of file systems. See `fuzz.rs`. Every walk ends, and no value is
//! longer than the block allows.

use crate::support::{split, target};
use cenote_format::Endian;
use cenote_format::acl::{AclVersion, MAX_ACES, decode_aces, decode_posix};
use cenote_format::sa::{Attr, Layout, Registration, Registry, SaBuffer, SaHeader};
use cenote_format::zap::{CHUNK_DATA, FatHeader, Leaf, MicroZap, ZapForm};
use cenote_format::znode::{DirentValue, LegacyZnode};

/// `bytes` as a block with a power of two as its size.
fn block(bytes: &[u8]) -> Vec<u8> {
    let mut block = bytes.to_vec();
    block.resize(bytes.len().next_power_of_two().clamp(512, 1 << 15), 0);
    block
}

#[test]
fn micro_zaps() {
    bolero::check!(name = "micro_zaps").for_each(target("micro_zaps").checked(|input| {
        let (_, order, bytes) = split(input);
        let whole = &bytes[..bytes.len() / 64 * 64];
        let _ = MicroZap::decode(bytes, order);
        let Ok(zap) = MicroZap::decode(whole, order) else { return false };
        assert_eq!(ZapForm::of(whole, order), Ok(ZapForm::Micro));
        assert!(zap.entries().count() <= whole.len() / 64);
        assert!(zap.entries().all(|entry| (1..50).contains(&entry.name.len())));
        assert!(zap.entry(0).is_none() && zap.entry(usize::MAX).is_none());
        true
    }));
}

#[test]
fn fat_headers() {
    bolero::check!(name = "fat_headers").for_each(target("fat_headers").checked(|input| {
        let (_, order, bytes) = split(input);
        let bytes = block(bytes);
        let Ok(header) = FatHeader::decode(&bytes, order) else { return false };
        for hash in [0, 1 << 63, u64::MAX, header.salt, header.entries.rotate_right(9)] {
            let index = header.table_index(hash);
            assert!(index < header.table_len());
            let (id, at) = header.table_slot(index);
            assert!(at + 8 <= bytes.len());
            assert!(id.0 < header.free_block.0 || header.table_blocks == 0);
        }
        true
    }));
}

#[test]
fn leaves() {
    bolero::check!(name = "leaves").for_each(target("leaves").checked(|input| {
        let (_, order, bytes) = split(input);
        let bytes = block(bytes);
        let Ok(leaf) = Leaf::decode(&bytes, order) else { return false };
        let bound = leaf.chunks * CHUNK_DATA;
        let mut looked_at = 0;
        for bucket in 0..leaf.buckets {
            assert!(leaf.chain(bucket).count() <= leaf.chunks + 1);
            for entry in leaf.chain(bucket).flatten() {
                looked_at += 1;
                if looked_at > 64 {
                    break;
                }
                assert!(leaf.covers(entry.hash) && leaf.bucket(entry.hash) < leaf.buckets);
                assert!(
                    leaf.value(&entry).is_ok_and(|value| value.len() <= bound) || leaf.value(&entry).is_err()
                );
                let _ = leaf.words(&entry);
                if let Ok(name) = leaf.name(&entry) {
                    assert!(name.len() <= bound);
                    assert_eq!(leaf.name_is(&entry, &name), Ok(true));
                }
            }
            // A limited number of buckets, because long chains in all of them would take too long.
            if looked_at > 64 {
                break;
            }
        }
        looked_at > 0
    }));
}

/// A registry in which the number of every attribute is its index in [`Attr::ALL`].
fn registry() -> Registry {
    let entry = |(number, attr): (usize, &Attr)| {
        let value = number as u64 | u64::from(attr.size()) << 24;
        Registration::decode(attr.name().as_bytes(), value)
    };
    Registry::new(Attr::ALL.iter().enumerate().map(entry).collect())
}

/// Input: the number of attributes in the layout, their numbers, the buffer.
#[test]
fn attributes() {
    let registry = registry();
    bolero::check!(name = "attributes").for_each(target("attributes").checked(move |input| {
        let Some((count, rest)) = input.split_first() else { return false };
        let Some((numbers, bytes)) = rest.split_at_checked(usize::from(*count)) else { return false };
        let numbers: Vec<u16> = numbers.iter().map(|number| u16::from(*number)).collect();
        let Ok(layout) = Layout::resolve(2, &numbers, &registry) else { return false };
        let Ok(Some(header)) = SaHeader::decode(bytes) else { return false };
        let Ok(sa) = SaBuffer::new(bytes, header, &layout) else { return false };
        assert!(sa.iter().count() <= numbers.len());
        for attr in Attr::ALL {
            if let Ok(found) = sa.get(*attr) {
                assert_eq!(found.is_some(), layout.has(*attr));
            }
            let _ = sa.u64(*attr);
        }
        true
    }));
}

/// A registry with any entries: pairs of a byte that selects the name, and the value.
#[test]
fn registries() {
    let entries = bolero::produce::<Vec<(u8, u64, u8)>>().with().len(0..=300usize);
    bolero::check!().with_generator(entries).for_each(|entries| {
        let entry = |(which, value, shift): &(u8, u64, u8)| {
            let attr = Attr::ALL[usize::from(*which) % Attr::ALL.len()];
            Registration::decode(attr.name().as_bytes(), value >> (shift % 64))
        };
        let registry = Registry::new(entries.iter().map(entry).collect());
        let numbers: Vec<u16> =
            entries.iter().map(|(_, value, shift)| (value >> (shift % 64)) as u16).collect();
        for entry in registry.iter() {
            assert_eq!(registry.get(entry.number), Some(entry));
        }
        if let Ok(layout) = Layout::resolve(3, &numbers, &registry) {
            assert_eq!(layout.numbers().count(), numbers.len());
        }
    });
}

#[test]
fn znodes() {
    bolero::check!(name = "znodes").for_each(target("znodes").checked(|input| {
        let (_, order, bytes) = split(input);
        let Ok(znode) = LegacyZnode::decode(bytes, order) else { return false };
        if let Ok(acl) = znode.decode_acl() {
            let _ = decode_aces(&acl.inline, acl.count.into(), acl.version, acl.order);
        }
        if let Some(target) = znode.inline_target(bytes) {
            assert_eq!(target.len() as u64, znode.size);
        }
        true
    }));
}

/// Option bit 0: the current version; then two bytes for the count, and the entries.
#[test]
fn aces() {
    bolero::check!(name = "aces").for_each(target("aces").checked(|input| {
        let (version, order, rest) = split(input);
        let Some(([low, high], bytes)) = rest.split_first_chunk() else { return false };
        let count = u64::from(u16::from_le_bytes([*low, *high]));
        let version = if version & 1 == 1 { AclVersion::Fuid } else { AclVersion::V0 };
        let _ = decode_aces(bytes, count.rotate_right(8), version, order);
        let Ok(aces) = decode_aces(bytes, count, version, order) else { return false };
        assert!(aces.len() <= MAX_ACES && 8 * aces.len() <= bytes.len());
        true
    }));
}

#[test]
fn posix_acls() {
    bolero::check!(name = "posix_acls").for_each(target("posix_acls").checked(|bytes| {
        let word = Endian::Little.get_u64(bytes, 0).unwrap_or(0);
        let _ = DirentValue::decode(word);
        decode_posix(bytes).is_ok_and(|entries| 8 * entries.len() <= bytes.len())
    }));
}

#[test]
fn domain_tables() {
    bolero::check!(name = "domain_tables").for_each(target("domain_tables").checked(|bytes| {
        let Ok(rows) = cenote_format::fuid::decode_table(bytes) else { return false };
        assert!(rows.iter().map(|row| row.name.len() + 1).sum::<usize>() <= bytes.len());
        true
    }));
}
