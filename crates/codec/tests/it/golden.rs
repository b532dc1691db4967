//! Verifies every block of pools made by OpenZFS: checksums, decompression, decryption, MACs.
//!
//! Contains a minimal reader of pools with one disk: no redundancy, no gang blocks, no names. Unit tests have
//! vectors for the two gzip levels and the suite that no fixture covers.

use cenote_codec::checksum::{self, Salt, verify_trailer, verify_zil};
use cenote_codec::compress::decompress;
use cenote_codec::crypt::{DataKey, KeyObject, Suite, WrappingKey, block};
use format::blkptr::Protection;
use format::dsl::DatasetPhys;
use format::objset::ObjsetPhys;
use format::uberblock::Uberblock;
use format::zap::{Leaf, MicroZap, ZapForm};
use format::{Ashift, BlockPtr, BpKind, ChecksumId, CompressionId, Dva, Endian, Level, ObjType, label};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Directory of images that OpenZFS's test package installs.
const INSTALLED: &str = "/usr/share/zfs/zfs-tests/tests/functional/cli_root/zpool_import/blockfiles";
const PASSPHRASE: &[u8] = b"correct horse battery staple";

/// What was found, so that a test can show that it was tested.
#[derive(Default, Debug)]
struct Seen {
    blocks: usize,
    checksums: BTreeSet<ChecksumId>,
    compressions: BTreeSet<CompressionId>,
    embedded: usize,
    encrypted: usize,
    dnode_blocks: usize,
    authenticated: usize,
    indirect_macs: usize,
    objsets: BTreeMap<u64, usize>,
    local_macs: usize,
    log_blocks: usize,
    key_versions: BTreeSet<u64>,
}

struct Pool {
    image: Vec<u8>,
    salt: Option<Salt>,
    keys: Vec<DataKey>,
    seen: Seen,
}

/// An object: its dnode and its data, holes as zeros.
struct Object {
    dnode: format::dnode::Dnode,
    data: Vec<u8>,
}

/// The image of a golden pool with one disk.
fn image(name: &str) -> Vec<u8> {
    testkit::Fixture::open(name).image_bytes()
}

impl Pool {
    fn open(image: Vec<u8>) -> (Pool, Uberblock) {
        let mut found: Vec<Uberblock> = Vec::new();
        // The slot size follows from the ashift; a slot of the wrong size has no valid trailer.
        for ashift in [9, 12, 13].map(Ashift) {
            for slot in 0..label::ring_slots(ashift) {
                let at = label::slot_offset(0, slot, ashift, image.len() as u64).0 as usize;
                let region = &image[at..at + label::ring_slot_size(ashift)];
                if let Ok(Some(order)) = verify_trailer(region, [at as u64, 0, 0, 0]) {
                    let uberblock = Uberblock::decode(region).expect("uberblock behind a valid trailer");
                    assert_eq!(uberblock.order, order);
                    found.push(uberblock);
                }
            }
        }
        let best = found.into_iter().max_by_key(Uberblock::rank).expect("an uberblock");
        (Pool { image, salt: None, keys: Vec::new(), seen: Seen::default() }, best)
    }

    fn stored(&self, dva: &Dva, len: u64) -> &[u8] {
        assert!(!dva.gang && dva.vdev.0 == 0, "only pools with one disk");
        let at = dva.offset.on_device().0 as usize;
        &self.image[at..at + len as usize]
    }

    /// The block, verified, decrypted and decompressed. `None`: a hole.
    fn read(&mut self, bp: &BlockPtr, key: Option<&DataKey>) -> Option<Vec<u8>> {
        let mut plain = vec![0; bp.lsize().0 as usize];
        match bp.kind() {
            BpKind::Hole => return None,
            BpKind::Embedded => {
                let payload = bp.embedded_payload().expect("payload");
                decompress(bp.compression().unwrap(), &payload, &mut plain).expect("embedded data");
                self.seen.embedded += 1;
                self.seen.compressions.insert(bp.compression().unwrap());
                return Some(plain);
            }
            kind => assert_eq!(kind, BpKind::Normal),
        }
        let mut copies: Vec<Vec<u8>> =
            bp.dvas().map(|dva| self.stored(&dva, bp.psize().0).to_vec()).collect();
        for copy in &copies {
            assert_eq!(checksum::verify(bp, copy, self.salt.as_ref()), Ok(true), "{bp}");
        }
        let mut stored = copies.pop().expect("a copy");
        self.seen.blocks += 1;
        self.seen.checksums.insert(bp.checksum_kind().unwrap());
        if let Some(key) = key {
            self.decrypt(bp, key, &mut stored);
        } else {
            assert_eq!(bp.protection(), Protection::None, "{bp}");
        }
        decompress(bp.compression().unwrap(), &stored, &mut plain).unwrap_or_else(|e| panic!("{bp}: {e}"));
        self.seen.compressions.insert(bp.compression().unwrap());
        if key.is_some() && bp.level() > Level(0) {
            block::verify_indirect_mac(bp, &plain).unwrap_or_else(|e| panic!("{bp}: {e}"));
            self.seen.indirect_macs += 1;
        }
        Some(plain)
    }

    fn decrypt(&mut self, bp: &BlockPtr, key: &DataKey, stored: &mut [u8]) {
        let opened = match bp.protection() {
            Protection::Encrypted if bp.obj_type() == ObjType::DNODE => {
                self.seen.dnode_blocks += 1;
                block::decrypt_dnode_block(key, bp, stored)
            }
            Protection::Encrypted => {
                self.seen.encrypted += 1;
                block::decrypt_block(key, bp, stored)
            }
            Protection::Authenticated if bp.level() == Level(0) && bp.obj_type() != ObjType::OBJSET => {
                self.seen.authenticated += 1;
                block::verify_auth(key, bp, stored)
            }
            Protection::Authenticated => Ok(()),
            Protection::None => panic!("{bp}: in clear in an encrypted object set"),
        };
        opened.unwrap_or_else(|e| panic!("{bp}: {e}"));
    }

    /// Reads the tree below a pointer; the data of level 0 is added to `out` unless it is too long.
    fn walk(
        &mut self,
        bp: &BlockPtr,
        key: Option<&DataKey>,
        block_size: usize,
        span: u64,
        out: &mut Vec<u8>,
    ) {
        const KEEP_MAX: usize = 64 << 20;
        let Some(plain) = self.read(bp, key) else {
            let len = (span as usize).saturating_mul(block_size);
            if out.len().saturating_add(len) < KEEP_MAX {
                out.resize(out.len() + len, 0);
            }
            return;
        };
        if bp.level() == Level(0) {
            if out.len() + plain.len() < KEEP_MAX {
                out.extend_from_slice(&plain);
            }
            return;
        }
        let children: Vec<BlockPtr> = BlockPtr::decode_all(&plain, bp.byte_order()).collect();
        let span = span / children.len() as u64;
        for child in &children {
            self.walk(child, key, block_size, span, out);
        }
    }

    fn object(&mut self, dnode: &format::dnode::Dnode, key: Option<&DataKey>) -> Vec<u8> {
        let mut data = Vec::new();
        let below = u32::from(dnode.nlevels - 1) * dnode.epbs();
        for bp in &dnode.blkptrs {
            self.walk(bp, key, dnode.data_block_size() as usize, 1 << below.min(40), &mut data);
        }
        if let Some(spill) = &dnode.spill {
            self.read(spill, key).expect("spill block");
        }
        data
    }

    /// All objects of an object set with their data, by object id.
    fn objset(&mut self, root: &BlockPtr) -> (ObjsetPhys, BTreeMap<usize, Object>) {
        // The root of an encrypted set is only authenticated, by MACs inside it.
        let clear = root.with_prop_bits(61, 1, 0);
        let bytes = self.read(&clear, None).expect("an object set");
        let phys = ObjsetPhys::decode(&bytes, root.byte_order()).expect("an object set");
        let keys = std::mem::take(&mut self.keys);
        let key = root.uses_crypt().then(|| {
            keys.iter()
                .find(|key| {
                    let macs = block::objset_macs(key, &bytes, root.byte_order()).unwrap();
                    macs.0 == phys.portable_mac
                })
                .expect("a key whose portable MAC is right")
        });
        if let Some(key) = key {
            let (_, local) = block::objset_macs(key, &bytes, root.byte_order()).unwrap();
            assert_eq!(local, phys.local_mac, "local MAC");
            self.seen.local_macs += usize::from(local != [0; 32]);
        }
        self.seen.key_versions.extend(key.map(DataKey::version));
        *self.seen.objsets.entry(key.map_or(0, |key| key.suite().id())).or_default() += 1;
        let objects = self.objects(&phys, key);
        self.log(&phys, key);
        self.keys = keys;
        (phys, objects)
    }

    fn objects(&mut self, phys: &ObjsetPhys, key: Option<&DataKey>) -> BTreeMap<usize, Object> {
        let mut objects = BTreeMap::new();
        for dnode in phys.accounting.iter().flatten() {
            self.object(dnode, key);
        }
        let dnodes = self.object(&phys.meta_dnode, key);
        let mut slot = 0;
        while let Some(bytes) = dnodes.get(slot * 512..).filter(|rest| !rest.is_empty()) {
            if let Some(dnode) = format::dnode::Dnode::decode(bytes, phys.order).expect("dnode") {
                let data = self.object(&dnode, key);
                let slots = dnode.slots();
                objects.insert(slot, Object { dnode, data });
                slot += slots;
            } else {
                slot += 1;
            }
        }
        objects
    }

    /// Follows the intent log as far as its blocks are valid.
    fn log(&mut self, phys: &ObjsetPhys, key: Option<&DataKey>) {
        let mut bp = phys.zil.log;
        while bp.kind() == BpKind::Normal {
            let mut bytes = self.stored(&bp.dvas().next().unwrap(), bp.psize().0).to_vec();
            let Some((order, used)) = verify_zil(&bp, &bytes) else { break };
            if let Some(key) = key {
                block::decrypt_zil_block(key, &bp, &mut bytes).unwrap_or_else(|e| panic!("{bp}: {e}"));
            }
            assert!(used <= bytes.len());
            self.seen.log_blocks += 1;
            bp = BlockPtr::decode(&bytes[8..136], order).expect("next pointer");
        }
    }
}

/// The entries of a ZAP, as arrays of integers.
fn zap(object: &Object) -> BTreeMap<String, Vec<u8>> {
    let (block_size, order) = (object.dnode.data_block_size() as usize, object.dnode.order);
    let mut out = BTreeMap::new();
    let Some(first) = object.data.get(..block_size) else { return out };
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    match ZapForm::of(first, order) {
        Ok(ZapForm::Micro) => {
            for entry in MicroZap::decode(first, order).expect("micro ZAP").entries() {
                out.insert(text(entry.name), entry.value.to_be_bytes().to_vec());
            }
        }
        Ok(ZapForm::Fat) => {
            for leaf in object.data.chunks_exact(block_size).filter_map(|b| Leaf::decode(b, order).ok()) {
                for entry in (0..leaf.buckets).flat_map(|bucket| leaf.chain(bucket)) {
                    let entry = entry.expect("entry");
                    if let Ok(name) = leaf.name(&entry) {
                        out.insert(text(&name), leaf.value(&entry).expect("value"));
                    }
                }
            }
        }
        Err(_) => {}
    }
    out
}

fn key_object(entries: &BTreeMap<String, Vec<u8>>, passphrase: &[u8]) -> Option<DataKey> {
    let bytes = |name: &str| entries.get(name).cloned();
    let number = |name: &str| Some(u64::from_be_bytes(bytes(name)?.try_into().ok()?));
    let object = KeyObject {
        suite: Suite::from_id(number("DSL_CRYPTO_SUITE")?)?,
        guid: number("DSL_CRYPTO_GUID")?,
        version: number("DSL_CRYPTO_VERSION").unwrap_or(0),
        iv: bytes("DSL_CRYPTO_IV")?.try_into().ok()?,
        mac: bytes("DSL_CRYPTO_MAC")?.try_into().ok()?,
        master: bytes("DSL_CRYPTO_MASTER_KEY_1")?.try_into().ok()?,
        hmac: bytes("DSL_CRYPTO_HMAC_KEY_1")?.try_into().ok()?,
    };
    let wrapping = match number("keyformat")? {
        3 => {
            let (salt, rounds) = (number("pbkdf2salt")?, number("pbkdf2iters")?);
            WrappingKey::from_passphrase(passphrase, salt, rounds).expect("rounds")
        }
        _ => WrappingKey::new(std::array::from_fn(|i| i as u8)),
    };
    Some(object.unwrap_key(&wrapping).expect("the right key"))
}

/// Reads and verifies everything reachable from the pool's last uberblock.
fn check_pool(image: Vec<u8>, passphrase: &[u8]) -> Seen {
    let (mut pool, uberblock) = Pool::open(image);
    // The salt is in the MOS. The MOS directory has no salted checksum; other MOS blocks may have one.
    let root_objset = pool.read(&uberblock.root, None).expect("MOS");
    let phys = ObjsetPhys::decode(&root_objset, uberblock.root.byte_order()).expect("MOS");
    let first_dnodes = pool.first_block(&phys.meta_dnode);
    if let Ok(Some(directory)) = format::dnode::Dnode::decode(&first_dnodes[512..], phys.order) {
        let data = pool.object(&directory, None);
        let entries = zap(&Object { dnode: directory, data });
        pool.salt = entries.get("org.illumos:checksum_salt").map(|salt| Salt(salt[..].try_into().unwrap()));
    }
    let (_, mos) = pool.objset(&uberblock.root);
    pool.keys = mos.values().filter_map(|object| key_object(&zap(object), passphrase)).collect();
    for object in mos.values().filter(|object| object.dnode.bonus_type == ObjType::DSL_DATASET) {
        let dataset = DatasetPhys::decode(object.dnode.valid_bonus(), object.dnode.order).expect("dataset");
        if dataset.bp.kind() == BpKind::Normal {
            pool.objset(&dataset.bp);
        }
    }
    pool.seen
}

impl Pool {
    fn first_block(&mut self, dnode: &format::dnode::Dnode) -> Vec<u8> {
        let mut bp = dnode.blkptrs[0];
        loop {
            let plain = self.read(&bp, None).expect("the first block of dnodes");
            if bp.level() == Level(0) {
                return plain;
            }
            bp = BlockPtr::decode(&plain, bp.byte_order()).expect("pointer");
        }
    }
}

#[test]
fn checksum_every_algorithm() {
    let seen = check_pool(image("checksum"), PASSPHRASE);
    for id in [6, 7, 8, 11, 12, 13, 14] {
        assert!(seen.checksums.contains(&ChecksumId::from_id(id).unwrap()), "checksum {id}: {seen:?}");
    }
}

#[test]
fn compression_every_algorithm() {
    let seen = check_pool(image("compression"), PASSPHRASE);
    for id in [2, 3, 5, 10, 13, 14, 15, 16] {
        assert!(
            seen.compressions.contains(&CompressionId::from_id(id).unwrap()),
            "compression {id}: {seen:?}"
        );
    }
}

#[test]
fn embedded_and_large_blocks() {
    assert!(check_pool(image("embedded"), PASSPHRASE).embedded > 100);
    assert!(check_pool(image("recordsize"), PASSPHRASE).blocks > 1000);
}

#[test]
fn encryption_every_suite_and_every_mac() {
    let seen = check_pool(image("encryption"), PASSPHRASE);
    for suite in [Suite::Aes192Ccm, Suite::Aes256Ccm, Suite::Aes128Gcm, Suite::Aes256Gcm] {
        assert!(seen.objsets.contains_key(&suite.id()), "{suite}: {seen:?}");
    }
    assert!(seen.encrypted > 500 && seen.dnode_blocks > 10, "{seen:?}");
    assert!(seen.authenticated > 10 && seen.indirect_macs > 10 && seen.local_macs > 5, "{seen:?}");
}

#[test]
fn zil_encrypted() {
    let seen = check_pool(image("zil-encrypted"), PASSPHRASE);
    assert!(seen.log_blocks > 10, "{seen:?}");
}

/// An image of OpenZFS's test package. `None`: the package is not installed.
fn installed(name: &str) -> Option<Vec<u8>> {
    let path = Path::new(INSTALLED).join(name);
    if !path.exists() {
        eprintln!("SKIPPED: {} is not installed (package zfs-test)", path.display());
        return None;
    }
    let unpacked = Command::new("bzip2").arg("-dc").arg(&path).output().ok()?;
    unpacked.status.success().then_some(unpacked.stdout)
}

#[test]
fn encryption_public_test_pool() {
    if let Some(image) = installed("missing_ivset.dat.bz2") {
        let seen = check_pool(image, b"password");
        assert!(seen.objsets.contains_key(&Suite::Aes256Ccm.id()) && seen.encrypted > 0, "{seen:?}");
    }
}

#[test]
fn encryption_before_the_format_was_final() {
    if let Some(image) = installed("cryptv0.dat.bz2") {
        let seen = check_pool(image, b"password");
        assert!(seen.encrypted > 0 && seen.key_versions.contains(&0), "{seen:?}");
    }
}

#[test]
fn byte_order_of_the_fixtures_is_little() {
    let (_, uberblock) = Pool::open(image("embedded"));
    assert_eq!(uberblock.order, Endian::Little);
}
