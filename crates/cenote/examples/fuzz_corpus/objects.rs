//! Samples from blocks and dnodes of object sets.
//!
//! Samples of structures that do not contain their byte order begin with a byte for it: 0, little-endian, as in the
//! golden pools. [`both_orders`] adds a big-endian copy.

use crate::corpus::Corpus;
use dmu::zap::{Zap, ZapKey};
use dmu::{ObjSet, Object};
use format::ddt::LogHeader;
use format::indirect::Mapping;
use format::sa::Attr;
use format::zap::{FAT_TYPE, LEAF_TYPE, MICRO_MAGIC};
use format::zil::Chain;
use format::{BlockId, BlockPtr, CompressionId, Endian, Level, ObjType, ObjectId, VdevId};
use std::collections::HashMap;
use std::sync::Arc;
use zio::ReadPolicy;

/// Maximum number of blocks of each object that are sampled.
const BLOCKS_MAX: u64 = 40;
/// Maximum number of blocks of each intent log that are sampled.
const LOG_BLOCKS_MAX: usize = 1000;
/// Maximum number of objects of each object set that are sampled.
const OBJECTS_MAX: usize = 600;

/// A sample in the byte order of the golden pools.
pub(crate) fn little(bytes: &[u8]) -> Vec<u8> {
    [&[0], bytes].concat()
}

/// Adds a structure made of `u64` words, also as a big-endian machine would have written it.
fn both_orders(corpus: &mut Corpus, target: &'static str, special: &str, bytes: &[u8]) {
    corpus.add("format", target, special, little(bytes));
    let mut swapped = vec![1];
    for word in bytes.as_chunks::<8>().0 {
        swapped.extend(word.iter().rev());
    }
    corpus.add("format", target, &format!("{special}-big"), swapped);
}

pub(crate) fn collect(fixture: &str, objset: &Arc<ObjSet>, corpus: &mut Corpus) {
    let zio = objset.store().zio();
    let policy = ReadPolicy { key: objset.key().key(), ..ReadPolicy::default() };
    if let Ok(block) = zio.read(objset.root(), &policy) {
        let special = format!("{:?}-{}", objset.kind(), block.bytes().len());
        corpus.add("format", "object_sets", &special, little(block.bytes()));
        let pointer = [objset.root().encode(Endian::Little), BlockPtr::HOLE.encode(Endian::Little)].concat();
        both_orders(corpus, "block_pointers", fixture, &pointer);
    }
    collect_log(fixture, objset, corpus);
    let layouts = layouts_of(objset);
    let mut from = ObjectId(0);
    for _ in 0..OBJECTS_MAX {
        let Ok(Some(object)) = objset.next_object(from) else { return };
        from = ObjectId(object.id().0 + 1);
        collect_dnode(&object, corpus);
        collect_bonus(fixture, &object, &layouts, corpus);
        collect_blocks(fixture, &object, corpus);
        if object.dnode().obj_type.is_zap() {
            collect_zap(fixture, &object, corpus);
        }
    }
}

fn collect_log(fixture: &str, objset: &Arc<ObjSet>, corpus: &mut Corpus) {
    let mut bp = objset.phys().zil.log;
    for i in 0..LOG_BLOCKS_MAX {
        let Ok(kind) = bp.checksum_kind() else { return };
        let Ok(Some(block)) = objset.store().zio().read_log_block(&bp, objset.key().key()) else { return };
        let Ok((chain, range)) = Chain::decode(&block.bytes, kind) else { return };
        let used = block.bytes.get(..range.end).unwrap_or(&[]);
        corpus.add("format", "log_blocks", &format!("{fixture}-{}-{i}", objset.number()), little(used));
        for record in format::zil::records(block.bytes.get(range).unwrap_or(&[]), chain.order).flatten() {
            if let (Ok(kind), Ok(decoded)) = (record.kind(), record.decode()) {
                for (big, order) in [(0, Endian::Little), (1, Endian::Big)] {
                    let mut sample = vec![big];
                    sample.extend(decoded.encode(order));
                    corpus.add("format", "log_records", &format!("{}-{big}", kind.name()), sample);
                }
            }
        }
        bp = chain.next;
    }
}

fn collect_dnode(object: &Object, corpus: &mut Corpus) {
    let dnode = object.dnode();
    let special = format!(
        "{}-{}-{}levels-{}slots{}",
        dnode.obj_type,
        dnode.bonus_type,
        dnode.nlevels,
        dnode.slots(),
        if dnode.spill.is_some() { "-spill" } else { "" }
    );
    corpus.add("format", "dnodes", &special, little(&dnode.encode()));
    let pointers: Vec<u8> = dnode.blkptrs.iter().flat_map(|bp| bp.encode(Endian::Little)).collect();
    both_orders(corpus, "block_pointers", &format!("{}-{}", dnode.obj_type, dnode.blkptrs.len()), &pointers);
}

/// The attributes of each layout, as indexes in [`Attr::ALL`], by layout number.
fn layouts_of(objset: &Arc<ObjSet>) -> HashMap<u16, Vec<u8>> {
    let (mut names, mut layouts) = (HashMap::new(), HashMap::new());
    for (kind, is_registry) in [(ObjType::SA_ATTR_REGISTRATION, true), (ObjType::SA_ATTR_LAYOUTS, false)] {
        let Some(object) = first_of(objset, kind) else { return HashMap::new() };
        let Ok(zap) = Zap::open(&object) else { return HashMap::new() };
        for entry in zap.entries().flatten() {
            if is_registry {
                let place = Attr::ALL.iter().position(|attr| attr.name().as_bytes() == entry.name());
                if let (Some(place), Some(value)) = (place, entry.u64()) {
                    names.insert(value as u16, place as u8);
                }
            } else if let Ok(number) = String::from_utf8_lossy(entry.name()).parse() {
                let numbers = entry.value.as_chunks::<2>().0.iter().map(|raw| u16::from_be_bytes(*raw));
                layouts.insert(number, numbers.filter_map(|number| names.get(&number).copied()).collect());
            }
        }
    }
    layouts
}

fn first_of(objset: &Arc<ObjSet>, kind: ObjType) -> Option<Object> {
    let mut from = ObjectId(0);
    loop {
        let object = objset.next_object(from).ok()??;
        if object.dnode().obj_type == kind {
            return Some(object);
        }
        from = ObjectId(object.id().0 + 1);
    }
}

fn collect_bonus(fixture: &str, object: &Object, layouts: &HashMap<u16, Vec<u8>>, corpus: &mut Corpus) {
    let (kind, bonus) = (object.dnode().bonus_type, object.bonus());
    if bonus.is_empty() {
        return;
    }
    let special = format!("{fixture}-{kind}-{}", bonus.len());
    let mut dsl = |which: u8| {
        corpus.add("format", "dsl_bonuses", &special, [&[which << 1], bonus].concat());
    };
    match kind {
        ObjType::DSL_DIR => dsl(0),
        ObjType::DSL_DATASET => dsl(1),
        ObjType::BPOBJ_HDR => dsl(2),
        ObjType::DEADLIST_HDR => dsl(3),
        ObjType::SPACE_MAP_HEADER => both_orders(corpus, "space_map_headers", &special, bonus),
        ObjType::ZNODE => {
            let special = format!("{fixture}-{}", object.dnode().obj_type);
            corpus.add("format", "znodes", &special, little(bonus));
        }
        ObjType::SA => {
            let spill = object.spill().ok().flatten();
            let parts = [Some(bonus), spill.as_ref().map(zio::Block::bytes)];
            let special = format!("{fixture}-{}", object.dnode().obj_type);
            for (i, part) in parts.into_iter().flatten().enumerate() {
                collect_attributes(&format!("{special}-{i}"), part, layouts, corpus);
            }
            let mut file = (bonus.len() as u16).to_le_bytes().to_vec();
            file.extend(bonus);
            file.extend(spill.as_ref().map_or(&[][..], zio::Block::bytes));
            let special = format!("{special}-{}-{}", bonus.len() / 100, spill.is_some());
            corpus.add("zpl", "files", &special, file);
        }
        _ if object.dnode().obj_type == ObjType::SPA_HISTORY => {
            both_orders(corpus, "history_headers", fixture, bonus);
        }
        _ => {}
    }
    if bonus.len() <= 64 {
        both_orders(corpus, "small_headers", &format!("{}-{}", object.dnode().obj_type, bonus.len()), bonus);
    }
}

fn collect_attributes(special: &str, buffer: &[u8], layouts: &HashMap<u16, Vec<u8>>, corpus: &mut Corpus) {
    let Ok(Some(header)) = format::sa::SaHeader::decode(buffer) else { return };
    let Some(layout) = layouts.get(&header.layout) else { return };
    let mut sample = vec![layout.len() as u8];
    sample.extend(layout);
    sample.extend(buffer);
    corpus.add("format", "attributes", &format!("{special}-layout{}", header.layout), sample);
    let registry = made_registry();
    let numbers: Vec<u16> = layout.iter().map(|attr| u16::from(*attr)).collect();
    let Ok(resolved) = format::sa::Layout::resolve(header.layout, &numbers, &registry) else { return };
    let Ok(sa) = format::sa::SaBuffer::new(buffer, header, &resolved) else { return };
    if let Ok(Some(list)) = sa.get(Attr::Dxattr) {
        corpus.add("format", "lists", &format!("attributes-{special}"), list.to_vec());
        if let Ok(list) = format::NvList::decode(list) {
            for (name, value) in list.iter_bytes() {
                if let (true, format::NvValue::ByteArray(acl)) =
                    (name.starts_with(b"system.posix_acl"), value)
                {
                    corpus.add("format", "posix_acls", &format!("{special}-{}", acl.len()), acl.clone());
                }
            }
        }
    }
    if let (Ok(Some(aces)), Ok(Some(count))) = (sa.get(Attr::DaclAces), sa.u64(Attr::DaclCount)) {
        // Little-endian, the current version, the count, the entries.
        let sample = [&[2], &(count as u16).to_le_bytes()[..], aces].concat();
        corpus.add("format", "aces", &format!("{special}-{count}"), sample);
    }
}

/// The registry that the target `attributes` uses: every attribute by its index in [`Attr::ALL`].
fn made_registry() -> format::sa::Registry {
    let entry = |(number, attr): (usize, &Attr)| {
        let value = number as u64 | u64::from(attr.size()) << 24;
        format::sa::Registration::decode(attr.name().as_bytes(), value)
    };
    format::sa::Registry::new(Attr::ALL.iter().enumerate().map(entry).collect())
}

fn collect_blocks(fixture: &str, object: &Object, corpus: &mut Corpus) {
    let kind = object.dnode().obj_type;
    for i in 0..BLOCKS_MAX {
        let Ok(bp) = object.block_ptr(Level(0), BlockId(i)) else { return };
        if bp.is_hole() {
            continue;
        }
        collect_image(object, &bp, corpus);
        let Ok(Some(block)) = object.block(BlockId(i)) else { continue };
        let bytes = block.bytes();
        let special = format!("{fixture}-{}-{}", object.objset().number(), object.id());
        match kind {
            ObjType::SPACE_MAP => {
                let used = crate::devices::trimmed(bytes[..bytes.len().min(2048)].to_vec());
                both_orders(corpus, "space_maps", &format!("{fixture}-{}", used.len() / 256), &used);
            }
            ObjType::BPOBJ | ObjType::DEADLIST => {
                let used = crate::devices::trimmed(bytes[..bytes.len().min(2048)].to_vec());
                both_orders(corpus, "freed_blocks", &special, &used);
            }
            ObjType::BPOBJ_SUBOBJ => {}
            ObjType::PACKED_NVLIST => {
                let used = crate::devices::trimmed(bytes.to_vec());
                corpus.add("format", "lists", &format!("object-{special}"), used);
            }
            ObjType::SPA_HISTORY if i == 0 => {
                let end = bytes.len().min(3000);
                corpus.add("format", "histories", fixture, bytes[..end].to_vec());
            }
            ObjType::U64_METADATA => collect_words(fixture, object, bytes, corpus),
            _ if kind.is_zap() => collect_zap_block(kind, bytes, corpus),
            _ => {}
        }
    }
    for level in 1..object.dnode().nlevels {
        let Ok(bp) = object.block_ptr(Level(level), BlockId(0)) else { return };
        let policy = ReadPolicy { key: object.objset().key().key(), ..ReadPolicy::default() };
        if let Ok(block) = object.objset().store().zio().read(&bp, &policy) {
            let start = &block.bytes()[..block.bytes().len().min(1024)];
            both_orders(corpus, "block_pointers", &format!("{kind}-level{level}"), start);
        }
    }
}

/// Objects whose type does not tell their structure: a block that decodes as a structure is a sample of it.
fn collect_words(fixture: &str, object: &Object, bytes: &[u8], corpus: &mut Corpus) {
    let order = Endian::Little;
    if LogHeader::decode(object.bonus(), order).is_ok() {
        let used = &bytes[..bytes.len().min(1024)];
        return corpus.add("format", "dedup_logs", &format!("{fixture}-{}", object.id()), little(used));
    }
    let used = crate::devices::trimmed(bytes.to_vec());
    let entries = used.len() / 24 * 24;
    if object.bonus().len() >= 24
        && entries > 0
        && Mapping::decode(&used[..entries], order, VdevId(99)).is_ok()
    {
        both_orders(corpus, "removed_vdevs", &format!("{fixture}-{}", object.id()), &used[..entries]);
    }
}

/// The stored form of a small block.
fn collect_image(object: &Object, bp: &BlockPtr, corpus: &mut Corpus) {
    let is_plain = bp.embedded_payload().is_none() && bp.crypt_params().is_none();
    let Ok(compression) = bp.compression() else { return };
    let (lsize, psize) = (bp.lsize().0, bp.psize().0);
    if !is_plain || psize > 2048 || lsize > 1 << 19 || compression == CompressionId::Off {
        return;
    }
    let Ok(image) = object.objset().store().zio().read_physical(bp, &ReadPolicy::default()) else { return };
    let mut sample = vec![compression.id()];
    sample.extend(((lsize / 16) as u16).to_le_bytes());
    sample.extend(image);
    corpus.add("codec", "decompress_any_bytes", &format!("{compression}-{lsize}-{psize}"), sample);
}

fn collect_zap_block(kind: ObjType, bytes: &[u8], corpus: &mut Corpus) {
    let target = match Endian::Little.get_u64(bytes, 0) {
        Some(MICRO_MAGIC) => "micro_zaps",
        Some(FAT_TYPE) => "fat_headers",
        Some(LEAF_TYPE) => "leaves",
        _ => return,
    };
    corpus.add("format", target, &format!("{kind}-{}", bytes.len()), little(bytes));
}

fn collect_zap(fixture: &str, object: &Object, corpus: &mut Corpus) {
    let Ok(zap) = Zap::open(object) else { return };
    collect_whole_zap(object, &zap, corpus);
    for entry in zap.entries().flatten().take(300) {
        let value = &entry.value[..];
        // Values are big-endian.
        match (&entry.key, entry.int_size) {
            (ZapKey::Words(_), 1) if object.dnode().obj_type == ObjType::DDT_ZAP => {
                corpus.add("format", "dedup_values", &format!("{fixture}-{}", value.len()), little(value));
            }
            (ZapKey::Name(name), 8) if value.len() >= 24 => {
                let special = format!("{}-{}", String::from_utf8_lossy(name), value.len());
                corpus.add("format", "word_values", &special, [&[1], value].concat());
            }
            _ => {}
        }
    }
}

/// Adds a whole ZAP: the binary logarithm of the block size, then the blocks.
fn collect_whole_zap(object: &Object, zap: &Zap, corpus: &mut Corpus) {
    let size = zap.block_size();
    let mut sample = vec![0, size.trailing_zeros() as u8];
    for i in 0..=object.dnode().maxblkid.0.min(8) {
        match object.block(BlockId(i)) {
            Ok(Some(block)) => sample.extend(block.bytes()),
            _ => sample.resize(sample.len() + size as usize, 0),
        }
    }
    let form = if zap.fat_header().is_some() { "fat" } else { "micro" };
    let count = zap.count().unwrap_or(0).next_power_of_two();
    corpus.add("dmu", "whole_zaps", &format!("{form}-{}-{size}-{count}", object.dnode().obj_type), sample);
}
