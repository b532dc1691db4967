//! Hostile input for the structures of the pool: space maps, lists of freed blocks, intent logs, dedup and clone
//! tables, history, scans, removed vdevs, cache devices. See `fuzz.rs`.

use crate::support::{split, target};
use cenote_format::brt::{self, BrtPhys};
use cenote_format::ddt::{self, DdtHistogram, DdtKey, DdtValue, LogHeader};
use cenote_format::dsl::BookmarkPhys;
use cenote_format::history::{self, HistoryPhys};
use cenote_format::indirect::{Births, Mapping, MappingEntry, MappingPhys};
use cenote_format::l2arc::{CacheHeader, LogBlock};
use cenote_format::scan::{CondensingPhys, ErrorScrubPhys, RebuildPhys, RemovalPhys, ScanPhys};
use cenote_format::space_map::{self, Entry, MapBounds, SpaceMapPhys, Writer};
use cenote_format::zil::{self, Chain};
use cenote_format::{AllocOffset, BlockPtr, ChecksumId, Endian, VdevId, bpobj};

#[test]
fn space_maps() {
    bolero::check!(name = "space_maps").for_each(target("space_maps").bound(64 << 10, 64).checked(|input| {
        let (_, order, bytes) = split(input);
        let bounds = MapBounds { start: 1 << 40, size: 1 << 30, shift: 12 };
        let mut writer = Writer::new(0, 64);
        let mut ranges = Vec::new();
        for entry in space_map::entries(bytes, order).map_while(Result::ok) {
            let _ = MapBounds::LOG.segment(&entry);
            if let Ok(Some(segment)) = bounds.segment(&entry) {
                assert!(segment.start >= bounds.start);
                assert!(segment.start + segment.len <= bounds.start + bounds.size);
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
        !ranges.is_empty()
    }));
}

#[test]
fn space_map_headers() {
    bolero::check!(name = "space_map_headers").for_each(target("space_map_headers").checked(|input| {
        let (_, order, bytes) = split(input);
        let Ok(phys) = SpaceMapPhys::decode(bytes, order) else { return false };
        assert_eq!(SpaceMapPhys::decode(&phys.encode(order), order), Ok(phys));
        true
    }));
}

#[test]
fn freed_blocks() {
    bolero::check!(name = "freed_blocks").for_each(target("freed_blocks").checked(|input| {
        let (_, order, bytes) = split(input);
        let mut any = false;
        for stored in bpobj::entries(bytes, order).flatten() {
            any = true;
            assert_eq!(bpobj::StoredBlock::decode(&stored.encode(order), order), Ok(stored));
            let _ = bpobj::StoredBlock::new(&stored.bp, true);
        }
        any
    }));
}

/// Option bit 0: the chain structure is at the end.
#[test]
fn log_blocks() {
    bolero::check!(name = "log_blocks").for_each(target("log_blocks").checked(|input| {
        let (options, _, block) = split(input);
        let kind = if options & 1 == 1 { ChecksumId::Zilog } else { ChecksumId::Zilog2 };
        let Ok((chain, range)) = Chain::decode(block, kind) else { return false };
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
        true
    }));
}

/// One record. Option bits other than 0 are its type; its length is corrected.
#[test]
fn log_records() {
    bolero::check!(name = "log_records").for_each(target("log_records").checked(|input| {
        let (kind, order, bytes) = split(input);
        let mut record = bytes.to_vec();
        record.resize(record.len().next_multiple_of(8).max(32), 0);
        let len = record.len() as u64;
        record[8..16].copy_from_slice(&order.put_u64(len));
        if kind != 0 {
            record[..8].copy_from_slice(&order.put_u64(u64::from(kind) % 26));
        }
        let Some(Ok(raw)) = zil::records(&record, order).next() else { return false };
        let _ = (raw.pointers(), raw.object(), raw.kind());
        let Ok(decoded) = raw.decode() else { return false };
        let bytes = decoded.encode(order);
        assert_eq!(zil::records(&bytes, order).next().unwrap().unwrap().decode(), Ok(decoded));
        true
    }));
}

#[test]
fn dedup_values() {
    bolero::check!(name = "dedup_values").for_each(target("dedup_values").checked(|input| {
        let (_, order, bytes) = split(input);
        let unpacked = DdtValue::decode(bytes, order);
        if let Ok(value) = &unpacked {
            assert_eq!(value.encode(order), bytes);
            let _ = (value.refcount(), value.in_use().count());
        }
        for bp in BlockPtr::decode_all(bytes, order) {
            let key = DdtKey::of(&bp);
            assert_eq!(DdtKey::from_words(&key.to_words()), key);
        }
        let _ = brt::extra_references(1, bytes, order);
        let _ = brt::extra_references(8, bytes, order);
        unpacked.is_ok() || ddt::split_value(bytes).is_ok()
    }));
}

#[test]
fn dedup_logs() {
    bolero::check!(name = "dedup_logs").for_each(target("dedup_logs").checked(|input| {
        let (_, order, bytes) = split(input);
        let mut any = false;
        for record in ddt::log_records(bytes, order).flatten() {
            any = true;
            let again = record.encode(order);
            assert_eq!(ddt::log_records(&again, order).next(), Some(Ok(record)));
        }
        any
    }));
}

/// Bonus areas of few words: each is given to all decoders.
#[test]
fn small_headers() {
    bolero::check!(name = "small_headers").for_each(target("small_headers").checked(|input| {
        let (_, order, bytes) = split(input);
        let mut any = false;
        if let Ok(header) = LogHeader::decode(bytes, order) {
            any = true;
            assert_eq!(LogHeader::decode(&header.encode(order), order), Ok(header));
        }
        if let Ok(phys) = BrtPhys::decode(bytes, order) {
            any = true;
            assert_eq!(BrtPhys::decode(&phys.encode(order), order), Ok(phys));
            assert_eq!(phys.region_counts(bytes).count(), bytes.len() / 2);
        }
        any |= MappingPhys::decode(bytes, order).is_ok();
        any
    }));
}

#[test]
fn histories() {
    bolero::check!(name = "histories").for_each(target("histories").bound(64 << 10, 32).checked(|bytes| {
        let records = history::records(bytes);
        let mut any = false;
        let mut count = 0;
        for record in records {
            any |= record.is_ok();
            count += 1;
        }
        assert!(count <= 1 + bytes.len() / 8);
        any
    }));
}

#[test]
fn history_headers() {
    bolero::check!(name = "history_headers").for_each(target("history_headers").checked(|input| {
        let (_, order, bytes) = split(input);
        let Ok(phys) = HistoryPhys::decode(bytes, order) else { return false };
        assert_eq!(HistoryPhys::decode(&phys.encode(order), order), Ok(phys));
        for stretch in phys.stretches() {
            let len = stretch.end - stretch.start;
            let pieces = phys.pieces(stretch);
            assert!(pieces.len() <= 2 && pieces.iter().all(|piece| piece.end <= phys.end_of_ring));
            assert_eq!(pieces.iter().map(|piece| piece.end - piece.start).sum::<u64>(), len);
        }
        true
    }));
}

/// Arrays of words, as ZAPs contain them: each is given to all decoders.
#[test]
fn word_values() {
    bolero::check!(name = "word_values").for_each(target("word_values").checked(|input| {
        let (_, order, bytes) = split(input);
        let words: Vec<u64> = order.all_words(bytes).collect();
        let scan = ScanPhys::from_words(&words);
        if let Ok(scan) = &scan {
            let len = words.len().min(ScanPhys::WORDS);
            assert_eq!(scan.to_words()[..len], words[..len]);
        }
        if let Ok(histogram) = DdtHistogram::from_words(&words) {
            assert_eq!(histogram.to_words(), words[..512]);
            let _ = histogram.total();
        }
        let bookmark = BookmarkPhys::from_words(&words);
        assert_eq!(bookmark.is_ok(), words.len() >= 3);
        if let Ok(bookmark) = bookmark {
            assert_eq!(BookmarkPhys::from_words(&bookmark.to_words()), Ok(bookmark));
        }
        macro_rules! there_and_back {
            ($($kind:ident)*) => {$(
                if let Ok(decoded) = $kind::from_words(&words) {
                    assert_eq!($kind::from_words(&decoded.to_words()), Ok(decoded));
                }
            )*};
        }
        there_and_back!(ErrorScrubPhys RebuildPhys RemovalPhys CondensingPhys);
        scan.is_ok()
    }));
}

fn check_mapping(mapping: &Mapping) {
    for entry in mapping.entries() {
        assert_eq!(MappingEntry::decode(&entry.encode(Endian::Big), Endian::Big), Ok(*entry));
        let len = entry.target.asize.0;
        if let Ok(pieces) = mapping.lookup(entry.source, len) {
            assert_eq!(pieces.iter().map(|piece| piece.len).sum::<u64>(), len);
        }
        let _ = mapping.lookup(AllocOffset(entry.source.0 / 2), len.saturating_mul(3));
    }
}

/// A mapping or a births table.
#[test]
fn removed_vdevs() {
    bolero::check!(name = "removed_vdevs").for_each(target("removed_vdevs").checked(|input| {
        let (_, order, bytes) = split(input);
        let births = Births::decode(bytes, order);
        if let Ok(births) = &births {
            let _ = births.at(AllocOffset(4096));
        }
        let whole = &bytes[..bytes.len() / 24 * 24];
        let Ok(mapping) = Mapping::decode(whole, order, VdevId(99)) else { return false };
        check_mapping(&mapping);
        !mapping.entries().is_empty()
    }));
}

#[test]
fn cache_headers() {
    bolero::check!(name = "cache_headers")
        .for_each(target("cache_headers").checked(|bytes| CacheHeader::decode(bytes).is_ok()));
}

/// Two bytes for the number of entries in the header, then the block.
#[test]
fn cache_log_blocks() {
    bolero::check!(name = "cache_log_blocks").for_each(target("cache_log_blocks").checked(|input| {
        let Some(([low, high], block)) = input.split_first_chunk() else { return false };
        let count = u64::from(u16::from_le_bytes([*low, *high]));
        let _ = LogBlock::decode(block, u64::MAX - count);
        let Ok(log) = LogBlock::decode(block, count) else { return false };
        assert!(log.entries.len() * 64 <= block.len());
        true
    }));
}
