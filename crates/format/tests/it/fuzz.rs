//! Hostile input: every decoder fails or returns a usable value which, where there is an encoder, is encoded to
//! bytes that decode to the same value. There is no panic, and memory is bounded by a small multiple of the input.
//!
//! This file has lists, labels, block pointers and dnodes. `fuzz_pool.rs` has the structures of the pool (space,
//! logs, tables, history), `fuzz_dsl.rs` the dataset layer, `fuzz_zpl.rs` ZAPs and file systems.

use crate::generate::any_list;
use crate::support::{split, target};
use cenote_format::boot_env::BootEnv;
use cenote_format::config::PoolConfig;
use cenote_format::dnode::Dnode;
use cenote_format::errlog::ErrorKey;
use cenote_format::label::{BOOT_ENV_SIZE, Trailer};
use cenote_format::objset::ObjsetPhys;
use cenote_format::{BlockPtr, Dva, Endian, NvList, ObjectId, Uberblock, feature, nicenum, prop};

/// Number of values in a list and its nested lists, as a measure of the memory that a decoder may have allocated.
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

/// A packed list; its first bytes determine encoding and byte order.
#[test]
fn lists() {
    bolero::check!(name = "lists").for_each(target("lists").checked(|bytes| {
        let Ok(list) = NvList::decode(bytes) else { return false };
        assert!(weight(&list) <= 2 * bytes.len());
        let (xdr, native) = (list.encode_xdr(), list.encode_native());
        // Compared as bytes, because a floating point number need not be equal to itself.
        assert_eq!(NvList::decode(&xdr).unwrap().encode_xdr(), xdr);
        assert_eq!(NvList::decode(&native).unwrap().encode_xdr(), xdr);
        if let Ok(config) = PoolConfig::from_nvlist(&list) {
            assert!(config.vdev_tree.walk().count() <= bytes.len());
            let _ = (config.vdev_tree.guid_sum(), config.vdev_tree.metaslabs());
        }
        true
    }));
}

#[test]
fn any_list_round_trips() {
    let bytes = bolero::produce::<Vec<u8>>().with().len(0..=1024usize);
    bolero::check!().with_generator(bytes).for_each(|bytes| {
        let list = any_list(bytes);
        assert_eq!(NvList::decode(&list.encode_xdr()).as_ref(), Ok(&list));
        assert_eq!(NvList::decode(&list.encode_native()).as_ref(), Ok(&list));
    });
}

#[test]
fn block_pointers() {
    bolero::check!(name = "block_pointers").for_each(target("block_pointers").checked(|input| {
        let (_, order, bytes) = split(input);
        let mut any = false;
        for bp in BlockPtr::decode_all(bytes, order) {
            any = true;
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
        any
    }));
}

#[test]
fn dnodes() {
    bolero::check!(name = "dnodes").for_each(target("dnodes").checked(|input| {
        let (_, order, bytes) = split(input);
        let _ = Dnode::slots_at(bytes);
        let Ok(Some(dnode)) = Dnode::decode(bytes, order) else { return false };
        let mut stored = bytes[..512 * dnode.slots()].to_vec();
        // A pointer under the spill pointer is left out.
        if stored[3] == 3 && dnode.blkptrs.len() == 2 && dnode.spill.is_some() {
            stored[3] = 2;
        }
        assert_eq!(dnode.encode(), stored);
        assert!(dnode.valid_bonus().len() <= bytes.len());
        let _ = (dnode.used_bytes(), dnode.data_block_size(), dnode.epbs());
        true
    }));
}

#[test]
fn object_sets() {
    bolero::check!(name = "object_sets").for_each(target("object_sets").checked(|input| {
        let (_, order, bytes) = split(input);
        let Ok(objset) = ObjsetPhys::decode(bytes, order) else { return false };
        for id in [ObjectId::USER_USED, ObjectId::GROUP_USED, ObjectId::PROJECT_USED, ObjectId(1)] {
            let _ = objset.accounting_dnode(id);
        }
        let bytes = objset.encode();
        let again = ObjsetPhys::decode(&bytes, Endian::Little).unwrap();
        assert_eq!((again.zil, again.kind, again.flags), (objset.zil, objset.kind, objset.flags));
        let pairs = again.accounting.iter().flatten().zip(objset.accounting.iter().flatten());
        for (one, other) in pairs.chain([(&again.meta_dnode, &objset.meta_dnode)]) {
            assert_eq!(
                (&one.blkptrs, one.used_raw, one.maxblkid),
                (&other.blkptrs, other.used_raw, other.maxblkid)
            );
        }
        assert_eq!(again.encode(), bytes);
        true
    }));
}

/// A slot of a ring, with its trailer.
#[test]
fn uberblocks() {
    bolero::check!(name = "uberblocks").for_each(target("uberblocks").checked(|bytes| {
        if let Ok(trailer) = Trailer::decode(bytes) {
            assert_eq!(trailer.encode(), bytes[bytes.len() - 40..]);
        }
        let Ok(ub) = Uberblock::decode(bytes) else { return false };
        assert_eq!(Uberblock::decode(&ub.encode()), Ok(ub));
        assert!(ub.slot(128) < 128 && ub.slot(0) == 0);
        let _ = ub.rank();
        true
    }));
}

/// The start of a block of 8 KiB; the rest is zero.
#[test]
fn boot_environments() {
    bolero::check!(name = "boot_environments").for_each(
        target("boot_environments").bound(96 << 10, 16).checked(|bytes| {
            let _ = BootEnv::decode(bytes);
            let mut block = bytes.to_vec();
            block.resize(BOOT_ENV_SIZE, 0);
            let Ok(env) = BootEnv::decode(&block) else { return false };
            // A list that was packed in a shorter form may not fit when it is packed again.
            if let Ok(again) = env.encode() {
                assert_eq!(BootEnv::decode(&again).unwrap().encode(), Ok(again));
            }
            true
        }),
    );
}

#[test]
fn error_log_keys() {
    bolero::check!(name = "error_log_keys").for_each(target("error_log_keys").checked(|bytes| {
        let parsed = [ErrorKey::parse(bytes), ErrorKey::parse_by_head(bytes)];
        for key in parsed.iter().flatten() {
            let text = key.to_key();
            let again = if key.objset.is_some() {
                ErrorKey::parse(text.as_bytes())
            } else {
                ErrorKey::parse_by_head(text.as_bytes())
            };
            assert_eq!(again.as_ref(), Ok(key));
        }
        parsed[0].is_ok()
    }));
}

#[test]
fn sizes() {
    bolero::check!(name = "sizes").for_each(target("sizes").checked(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(number) = nicenum::parse(&text) else { return false };
        assert_eq!(nicenum::parse(&number.to_string()), Ok(number));
        for shown in [nicenum::nicenum(number), nicenum::nicebytes(number), nicenum::nicetime(number)] {
            assert!(!shown.is_empty());
        }
        // A printed number differs by at most a hundredth, if it can be parsed at all.
        if let Ok(shown) = nicenum::parse(&nicenum::nicenum(number)) {
            assert!(shown.abs_diff(number) <= number / 90, "{number} {shown}");
        }
        true
    }));
}

#[test]
fn property_names() {
    bolero::check!(name = "property_names").for_each(target("property_names").may_be_shallow().checked(
        |bytes| {
            let text = String::from_utf8_lossy(bytes);
            // A property is found by its name or its column header, and found again by its name.
            let dataset = prop::dataset(&text).map(|prop| prop.name);
            let pool = prop::pool(&text).map(|prop| prop.name);
            let vdev = prop::vdev(&text).map(|prop| prop.name);
            assert!(dataset.is_none_or(|name| prop::dataset(name).is_some_and(|prop| prop.name == name)));
            assert!(pool.is_none_or(|name| prop::pool(name).is_some_and(|prop| prop.name == name)));
            assert!(vdev.is_none_or(|name| prop::vdev(name).is_some_and(|prop| prop.name == name)));
            if let Some((kind, owner)) = prop::per_owner(&text) {
                assert!(text.starts_with(kind) && text.ends_with(owner));
            }
            assert!(feature::by_name(&text).is_none_or(|feature| feature.name == text));
            assert!(feature::by_guid(&text).is_none_or(|feature| feature.guid == text));
            prop::is_user(&text) || dataset.or(pool).or(vdev).is_some()
        },
    ));
}
