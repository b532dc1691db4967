//! Any bytes are either the structure or an error; never a panic, a walk without end or more memory
//! than the input accounts for. Magic numbers are put in place, so that most inputs get past them.

use cenote_format::Endian;
use cenote_format::acl::{AclVersion, MAX_ACES, decode_aces, decode_posix};
use cenote_format::sa::{Attr, Layout, Registration, Registry, SA_MAGIC, SaBuffer, SaHeader};
use cenote_format::zap::{
    CHUNK_DATA, FAT_MAGIC, FAT_TYPE, FatHeader, LEAF_MAGIC, LEAF_TYPE, Leaf, MICRO_MAGIC, MicroZap, ZapForm,
};
use cenote_format::znode::{DirentValue, LegacyZnode};

fn order(big: bool) -> Endian {
    if big { Endian::Big } else { Endian::Little }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(field) = bytes.get_mut(at..at + value.len()) {
        field.copy_from_slice(value);
    }
}

/// `bytes` as a block of a power of two.
fn block(bytes: &[u8]) -> Vec<u8> {
    let mut block = bytes.to_vec();
    block.resize(bytes.len().next_power_of_two().clamp(512, 1 << 15), 0);
    block
}

#[test]
fn micro_zaps() {
    bolero::check!().with_type::<(bool, Vec<u8>)>().for_each(|(big, bytes)| {
        let order = order(*big);
        let mut bytes = bytes.clone();
        put(&mut bytes, 0, &order.put_u64(MICRO_MAGIC));
        if let Ok(zap) = MicroZap::decode(&bytes, order) {
            assert_eq!(ZapForm::of(&bytes, order), Ok(ZapForm::Micro));
            assert!(zap.entries().count() <= bytes.len() / 64);
            assert!(zap.entries().all(|entry| (1..50).contains(&entry.name.len())));
        }
        let _ = zap_entry_out_of_range(&bytes, order);
    });
}

fn zap_entry_out_of_range(bytes: &[u8], order: Endian) -> Option<()> {
    let zap = MicroZap::decode(bytes, order).ok()?;
    assert_eq!(zap.entry(0), None);
    assert_eq!(zap.entry(usize::MAX), None);
    Some(())
}

#[test]
fn fat_headers() {
    bolero::check!().with_type::<(bool, u64, Vec<u8>)>().for_each(|(big, hash, bytes)| {
        let order = order(*big);
        let mut bytes = block(bytes);
        put(&mut bytes, 0, &order.put_u64(FAT_TYPE));
        put(&mut bytes, 8, &order.put_u64(FAT_MAGIC));
        if let Ok(header) = FatHeader::decode(&bytes, order) {
            let index = header.table_index(*hash);
            assert!(index < header.table_len());
            let (id, at) = header.table_slot(index);
            assert!(at + 8 <= bytes.len());
            assert!(id.0 < header.free_block.0 || header.table_blocks == 0);
        }
    });
}

#[test]
fn leaves() {
    bolero::check!().with_type::<(bool, u64, Vec<u8>)>().for_each(|(big, hash, bytes)| {
        let order = order(*big);
        let mut bytes = block(bytes);
        put(&mut bytes, 0, &order.put_u64(LEAF_TYPE));
        put(&mut bytes, 24, &order.put_u32(LEAF_MAGIC));
        let Ok(leaf) = Leaf::decode(&bytes, order) else { return };
        assert!(leaf.bucket(*hash) < leaf.buckets);
        let bound = leaf.chunks * CHUNK_DATA;
        // Some buckets only: a long chain in each of them would take its time.
        for bucket in (0..leaf.buckets).take(8) {
            assert!(leaf.chain(bucket).count() <= leaf.chunks + 1);
            for entry in leaf.chain(bucket).flatten().take(8) {
                assert!(leaf.covers(entry.hash));
                assert!(
                    leaf.value(&entry).is_ok_and(|value| value.len() <= bound) || leaf.value(&entry).is_err()
                );
                let _ = leaf.words(&entry);
                if let Ok(name) = leaf.name(&entry) {
                    assert!(name.len() <= bound);
                    assert_eq!(leaf.name_is(&entry, &name), Ok(true));
                }
            }
        }
    });
}

#[test]
fn attributes() {
    type Input = (bool, Vec<(u8, u64)>, Vec<u8>, Vec<u8>);
    bolero::check!().with_type::<Input>().for_each(|(big, entries, attrs, bytes)| {
        let order = order(*big);
        let registrations = entries.iter().map(|(which, value)| {
            let attr = Attr::ALL[usize::from(*which) % Attr::ALL.len()];
            Registration::decode(attr.name().as_bytes(), *value & 0xFF_FFFF_00FF)
        });
        let registry = Registry::new(registrations.collect());
        let numbers: Vec<u16> = attrs.iter().map(|attr| u16::from(*attr) % 32).collect();
        let Ok(layout) = Layout::resolve(2, &numbers, &registry) else { return };
        let mut bytes = bytes.clone();
        put(&mut bytes, 0, &order.put_u32(SA_MAGIC));
        let Ok(Some(header)) = SaHeader::decode(&bytes) else { return };
        assert_eq!(header.order, order);
        let Ok(sa) = SaBuffer::new(&bytes, header, &layout) else { return };
        assert!(sa.iter().count() <= numbers.len());
        for attr in Attr::ALL {
            if let Ok(found) = sa.get(*attr) {
                assert_eq!(found.is_some(), layout.has(*attr));
            }
            let _ = sa.u64(*attr);
        }
    });
}

#[test]
fn znodes_and_acls() {
    bolero::check!().with_type::<(bool, u64, Vec<u8>)>().for_each(|(big, count, bytes)| {
        let order = order(*big);
        if let Ok(znode) = LegacyZnode::decode(bytes, order) {
            let _ = znode.decode_acl();
            if let Some(target) = znode.inline_target(bytes) {
                assert_eq!(target.len() as u64, znode.size);
            }
        }
        for version in [AclVersion::V0, AclVersion::Fuid] {
            if let Ok(aces) = decode_aces(bytes, *count % 2048, version, order) {
                assert!(aces.len() <= MAX_ACES && 8 * aces.len() <= bytes.len());
            }
        }
        let _ = decode_posix(bytes);
        let _ = DirentValue::decode(*count);
    });
}
