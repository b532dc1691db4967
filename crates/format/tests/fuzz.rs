//! Hostile bytes: every decoder either fails or gives something that can be used and, where there is
//! an encoder, encodes to what decodes to the same again. Nothing panics, and nothing takes more
//! memory than a small multiple of the input.
//!
//! Two kinds of input: random bytes, and real structures with a few bytes changed or cut off, which
//! get past magics and counts. The decoders of the dataset layer are in `fuzz_dsl.rs`, those of
//! ZAPs and file systems in `fuzz_zpl.rs`.

#[path = "fuzz/generate.rs"]
mod generate;

use bolero::produce;
use cenote_format::boot_env::BootEnv;
use cenote_format::brt::{self, BrtPhys};
use cenote_format::config::PoolConfig;
use cenote_format::ddt::{self, DdtHistogram, DdtKey, DdtValue, LogHeader};
use cenote_format::dnode::Dnode;
use cenote_format::errlog::ErrorKey;
use cenote_format::history::{self, HistoryPhys};
use cenote_format::indirect::{Births, Mapping, MappingPhys};
use cenote_format::l2arc::{CacheHeader, LogBlock};
use cenote_format::label::Trailer;
use cenote_format::objset::ObjsetPhys;
use cenote_format::scan::{CondensingPhys, ErrorScrubPhys, RebuildPhys, RemovalPhys, ScanPhys};
use cenote_format::space_map::{self, Entry, MapBounds, SpaceMapPhys, Writer};
use cenote_format::zil::{self, Chain};
use cenote_format::{
    AllocOffset, BlockPtr, ChecksumId, Dva, Endian, NvList, ObjectId, Uberblock, VdevId, bpobj,
};
use generate::{any_list, bytes, bytes_in_any_order, mutants};

const LABEL: &[u8] = include_bytes!("../testdata/label-raidz1-d0.nvlist");
const UBERBLOCK: &[u8] = include_bytes!("../testdata/uberblock-raidz1.bin");
const CACHE: &[u8] = include_bytes!("../testdata/l2arc-header.bin");
const ZIL_NAMES: &[u8] = include_bytes!("../testdata/zil-names.bin");
const ZIL_WRITES: &[u8] = include_bytes!("../testdata/zil-writes.bin");

/// Values of a list, nested ones included: what a decoder may have allocated.
fn weight(list: &NvList) -> usize {
    use cenote_format::NvValue as V;
    list.iter()
        .map(|(name, value)| {
            name.len()
                + match value {
                    V::List(inner) => weight(inner),
                    V::ListArray(lists) => lists.iter().map(weight).sum(),
                    V::StringArray(strings) => strings.iter().map(|s| s.len() + 1).sum(),
                    other => other.count().max(1),
                }
        })
        .sum()
}

fn check_list(bytes: &[u8]) {
    let Ok(list) = NvList::decode(bytes) else { return };
    assert!(weight(&list) <= 2 * bytes.len());
    let (xdr, native) = (list.encode_xdr(), list.encode_native());
    // Compared as bytes: a floating point number need not equal itself.
    assert_eq!(NvList::decode(&xdr).unwrap().encode_xdr(), xdr);
    assert_eq!(NvList::decode(&native).unwrap().encode_xdr(), xdr);
    if let Ok(config) = PoolConfig::from_nvlist(&list) {
        assert!(config.vdev_tree.walk().count() <= bytes.len());
        let _ = (config.vdev_tree.guid_sum(), config.vdev_tree.metaslabs());
    }
}

#[test]
fn lists_of_random_bytes() {
    let input = (produce::<bool>(), produce::<bool>(), bytes(1024));
    bolero::check!().with_generator(input).for_each(|(xdr, little, bytes)| {
        let mut packed = vec![u8::from(*xdr), u8::from(*little), 0, 0, 0, 0, 0, 0];
        packed.extend(bytes);
        check_list(&packed);
    });
}

#[test]
fn lists_with_bytes_changed() {
    mutants(LABEL, check_list);
    let native = NvList::decode(LABEL).unwrap().encode_native();
    mutants(&native, check_list);
}

#[test]
fn any_list_round_trips() {
    bolero::check!().with_generator(bytes(1024)).for_each(|bytes| {
        let list = any_list(bytes);
        assert_eq!(NvList::decode(&list.encode_xdr()).as_ref(), Ok(&list));
        assert_eq!(NvList::decode(&list.encode_native()).as_ref(), Ok(&list));
    });
}

#[test]
fn block_pointers_and_addresses() {
    bytes_in_any_order(|bytes, order| {
        for bp in BlockPtr::decode_all(bytes, order) {
            assert_eq!(BlockPtr::decode(&bp.encode(order), order), Ok(bp));
            let _ = (bp.to_string(), bp.validate(), bp.fill(), bp.crypt_params(), bp.physical_birth());
            assert!(bp.dvas().count() <= 3);
            if let Some(payload) = bp.embedded_payload() {
                assert_eq!(payload.len() as u64, bp.psize().0);
            }
            for dva in bp.dvas() {
                let [place, position] = dva.to_words();
                assert_eq!(Dva::from_words(place, position), Some(dva));
            }
        }
    });
}

#[test]
fn dnodes_encode_to_the_same_bytes() {
    let check = |bytes: &[u8], order| {
        if let Ok(Some(dnode)) = Dnode::decode(bytes, order) {
            assert_eq!(dnode.encode(), bytes[..512 * dnode.slots()]);
            assert!(dnode.valid_bonus().len() <= bytes.len());
            let _ = (dnode.used_bytes(), dnode.data_block_size(), dnode.epbs());
        }
        let _ = Dnode::slots_at(bytes);
    };
    bytes_in_any_order(check);
    mutants(&generate::dnode(), |bytes| check(bytes, Endian::Little));
}

#[test]
fn object_sets() {
    bytes_in_any_order(|bytes, order| {
        let _ = ObjsetPhys::decode(bytes, order);
    });
    mutants(&generate::objset(), |bytes| {
        if let Ok(objset) = ObjsetPhys::decode(bytes, Endian::Little) {
            let _ = objset.accounting_dnode(ObjectId::GROUP_USED);
        }
    });
}

#[test]
fn uberblocks() {
    let check = |bytes: &[u8]| {
        let _ = Trailer::decode(bytes);
        if let Ok(ub) = Uberblock::decode(bytes) {
            assert_eq!(Uberblock::decode(&ub.encode()), Ok(ub));
            assert!(ub.slot(128) < 128 && ub.slot(0) == 0);
            let _ = ub.rank();
        }
    };
    bytes_in_any_order(|bytes, _| check(bytes));
    mutants(UBERBLOCK, check);
}

#[test]
fn boot_environments() {
    bolero::check!().with_generator((produce::<u8>(), bytes(1024))).for_each(|(version, bytes)| {
        let mut block = vec![0, 0, 0, 0, 0, 0, 0, version & 3];
        block.extend(bytes);
        block.resize(0x2000, 0);
        if let Ok(env) = BootEnv::decode(&block) {
            assert_eq!(BootEnv::decode(&env.encode().unwrap()), Ok(env));
        }
        let _ = BootEnv::decode(bytes);
    });
}

#[test]
fn space_maps_write_the_ranges_they_read() {
    bytes_in_any_order(|bytes, order| {
        if let Ok(phys) = SpaceMapPhys::decode(bytes, order) {
            assert_eq!(SpaceMapPhys::decode(&phys.encode(order), order), Ok(phys));
        }
        let mut writer = Writer::new(0, 64);
        let mut ranges = Vec::new();
        for entry in space_map::entries(bytes, order).map_while(Result::ok) {
            let _ = MapBounds::LOG.segment(&entry);
            let bounds = MapBounds { start: 1 << 40, size: 1 << 30, shift: 12 };
            if let Ok(Some(segment)) = bounds.segment(&entry) {
                assert!(
                    segment.start >= bounds.start && segment.start + segment.len <= (1 << 40) + (1 << 30)
                );
            }
            if let Entry::Range { kind, offset, run, vdev } = entry
                && writer.range(kind, offset, run, vdev).is_ok()
            {
                ranges.push((kind, offset, run));
            }
        }
        let stream = writer.finish(order);
        let again: Vec<_> = stream
            .chunks(64)
            .flat_map(|block| space_map::entries(block, order).map(Result::unwrap))
            .filter_map(|entry| match entry {
                Entry::Range { kind, offset, run, .. } => Some((kind, offset, run)),
                Entry::Debug { .. } => None,
            })
            .collect();
        assert_eq!(again, ranges);
    });
}

#[test]
fn lists_of_freed_blocks() {
    bytes_in_any_order(|bytes, order| {
        for stored in bpobj::entries(bytes, order).flatten() {
            assert_eq!(bpobj::StoredBlock::decode(&stored.encode(order), order), Ok(stored));
            let _ = bpobj::StoredBlock::new(&stored.bp, true);
        }
    });
}

fn check_log_block(block: &[u8], kind: ChecksumId) {
    let Ok((chain, range)) = Chain::decode(block, kind) else { return };
    assert_eq!(chain.encode().len(), zil::CHAIN_SIZE);
    let _ = chain.follows(&chain.next);
    for raw in zil::records(&block[range], chain.order).flatten() {
        let _ = (raw.pointers(), raw.object());
        if let Ok(record) = raw.decode() {
            let bytes = record.encode(chain.order);
            let again = zil::records(&bytes, chain.order).next().unwrap().unwrap();
            assert_eq!(again.decode(), Ok(record));
        }
    }
}

#[test]
fn log_blocks() {
    for block in [ZIL_NAMES, ZIL_WRITES] {
        mutants(block, |bytes| check_log_block(bytes, ChecksumId::Zilog2));
    }
    bytes_in_any_order(|bytes, _| check_log_block(bytes, ChecksumId::Zilog));
}

#[test]
fn log_records_of_every_type() {
    let input = (produce::<u8>(), produce::<bool>(), bytes(512));
    bolero::check!().with_generator(input).for_each(|(kind, big, bytes)| {
        let order = if *big { Endian::Big } else { Endian::Little };
        let len = (32 + bytes.len()).next_multiple_of(8);
        let mut record: Vec<u8> =
            [u64::from(kind % 26), len as u64, 1, 1].into_iter().flat_map(|w| order.put_u64(w)).collect();
        record.extend(bytes);
        record.resize(len, 0);
        let raw = zil::records(&record, order).next().unwrap().unwrap();
        let _ = raw.pointers();
        if let Ok(decoded) = raw.decode() {
            let bytes = decoded.encode(order);
            assert_eq!(zil::records(&bytes, order).next().unwrap().unwrap().decode(), Ok(decoded));
        }
    });
}

#[test]
fn dedup_and_clone_tables() {
    bytes_in_any_order(|bytes, order| {
        if let Ok(value) = DdtValue::decode(bytes, order) {
            assert_eq!(value.encode(order), bytes);
            let _ = value.refcount();
        }
        if let Ok(header) = LogHeader::decode(bytes, order) {
            assert_eq!(LogHeader::decode(&header.encode(order), order), Ok(header));
        }
        for record in ddt::log_records(bytes, order).flatten() {
            let again = record.encode(order);
            assert_eq!(ddt::log_records(&again, order).next(), Some(Ok(record)));
        }
        let _ = ddt::split_value(bytes);
        for bp in BlockPtr::decode_all(bytes, order) {
            let key = DdtKey::of(&bp);
            assert_eq!(DdtKey::from_words(&key.to_words()), key);
        }
        let words: Vec<u64> = order.all_words(bytes).collect();
        if let Ok(histogram) = DdtHistogram::from_words(&words) {
            assert_eq!(histogram.to_words(), words[..512]);
            let _ = histogram.total();
        }
        if let Ok(phys) = BrtPhys::decode(bytes, order) {
            assert_eq!(BrtPhys::decode(&phys.encode(order), order), Ok(phys));
            assert_eq!(phys.region_counts(bytes).count(), bytes.len() / 2);
        }
        let _ = brt::extra_references(1, bytes, order);
    });
    mutants(&generate::ddt_log(), |bytes| {
        for record in ddt::log_records(bytes, Endian::Little).flatten() {
            let again = record.encode(Endian::Little);
            assert_eq!(ddt::log_records(&again, Endian::Little).next(), Some(Ok(record)));
        }
    });
}

#[test]
fn histories() {
    bytes_in_any_order(|bytes, order| {
        if let Ok(phys) = HistoryPhys::decode(bytes, order) {
            assert_eq!(HistoryPhys::decode(&phys.encode(order), order), Ok(phys));
            for stretch in phys.stretches() {
                let len = stretch.end - stretch.start;
                let pieces = phys.pieces(stretch);
                assert!(pieces.len() <= 2 && pieces.iter().all(|p| p.end <= phys.end_of_ring));
                assert_eq!(pieces.iter().map(|p| p.end - p.start).sum::<u64>(), len);
            }
        }
        assert!(history::records(bytes).count() <= bytes.len());
    });
    bolero::check!().with_type::<[u16; 5]>().for_each(|words| {
        let bytes: Vec<u8> = words.iter().flat_map(|w| u64::from(*w).to_le_bytes()).collect();
        let Ok(phys) = HistoryPhys::decode(&bytes, Endian::Little) else { return };
        for stretch in phys.stretches() {
            let len = stretch.end - stretch.start;
            assert_eq!(phys.pieces(stretch).iter().map(|p| p.end - p.start).sum::<u64>(), len);
        }
    });
    let mut stream = history::encode_record(&NvList::decode(LABEL).unwrap());
    stream.extend(stream.clone());
    mutants(&stream, |bytes| assert!(history::records(bytes).count() <= 1 + bytes.len() / 8));
}

#[test]
fn states_of_scans() {
    bytes_in_any_order(|bytes, order| {
        let words: Vec<u64> = order.all_words(bytes).map(|w| if w % 3 == 0 { w % 7 } else { w }).collect();
        if let Ok(scan) = ScanPhys::from_words(&words) {
            assert_eq!(scan.to_words()[..words.len()], words);
        }
        let _ = ErrorScrubPhys::from_words(&words);
        let _ = RebuildPhys::from_words(&words);
        let _ = RemovalPhys::from_words(&words);
        let _ = CondensingPhys::from_words(&words);
    });
}

#[test]
fn error_log_keys() {
    bolero::check!().with_type::<([u64; 4], Vec<u8>)>().for_each(|([a, b, c, d], bytes)| {
        let text = format!("{a:x}:{b:x}:{c:x}:{d:x}");
        assert_eq!(ErrorKey::parse(text.as_bytes()).unwrap().to_key(), text);
        assert_eq!(ErrorKey::parse_by_head(text.as_bytes()).unwrap().to_key(), text);
        let _ = ErrorKey::parse(bytes);
    });
}

#[test]
fn removed_vdevs() {
    bytes_in_any_order(|bytes, order| {
        let _ = MappingPhys::decode(bytes, order);
        let whole = &bytes[..bytes.len() / 24 * 24];
        if let Ok(mapping) = Mapping::decode(whole, order, VdevId(7)) {
            check_mapping(&mapping);
        }
        let _ = Births::decode(bytes, order).map(|births| births.at(AllocOffset(4096)));
    });
    mutants(&generate::mapping(), |bytes| {
        let whole = &bytes[..bytes.len() / 24 * 24];
        if let Ok(mapping) = Mapping::decode(whole, Endian::Little, VdevId(7)) {
            check_mapping(&mapping);
        }
    });
}

fn check_mapping(mapping: &Mapping) {
    for entry in mapping.entries() {
        let len = entry.target.asize.0;
        if let Ok(pieces) = mapping.lookup(entry.source, len) {
            assert_eq!(pieces.iter().map(|p| p.len).sum::<u64>(), len);
        }
        let _ = mapping.lookup(AllocOffset(entry.source.0 / 2), len.saturating_mul(3));
    }
}

#[test]
fn cache_devices() {
    mutants(CACHE, |bytes| {
        let _ = CacheHeader::decode(bytes);
    });
    bolero::check!().with_generator((produce::<u64>(), bytes(1024))).for_each(|(count, bytes)| {
        let mut block = cenote_format::l2arc::LOG_BLOCK_MAGIC.to_le_bytes().to_vec();
        block.extend(bytes);
        for count in [*count, count % 64] {
            if let Ok(log) = LogBlock::decode(&block, count) {
                assert!(log.entries.len() * 64 <= block.len());
            }
        }
    });
}
