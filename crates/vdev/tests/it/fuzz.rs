//! Decoders with arbitrary input: no panic, no memory or time out of proportion.

use cenote_vdev::device::Device;
use cenote_vdev::device::memory::MemoryDevice;
use cenote_vdev::geometry::{BlockMap, Draid, DraidParams, Expansion, Raidz, ReflowState};
use cenote_vdev::{gpt, label};
use codec::checksum::write_trailer;
use format::label::{CONFIG_OFFSET, CONFIG_SIZE, RING_OFFSET, label_offset, verifier};
use format::{AllocOffset, Ashift, DeviceOffset, Psize, Txg};
use testkit::fuzz::Target;

const DISK: u64 = 64 << 20;

fn target(name: &str) -> Target {
    Target::new(env!("CARGO_MANIFEST_DIR"), name)
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 },
        )
    })
}

/// Corrects the checksums of a table's header.
fn make_right(disk: &MemoryDevice, header: &mut [u8]) {
    let word = |at: usize| u64::from(u32::from_le_bytes(header[at..at + 4].try_into().unwrap()));
    let (count, size, len) = (word(80), word(84), word(12) as usize);
    let table = u64::from_le_bytes(header[72..80].try_into().unwrap()).saturating_mul(512);
    let total = count * size;
    if total <= 1 << 20 && table.saturating_add(total) <= disk.size() {
        let mut entries = vec![0; total as usize];
        disk.read_at(&mut entries, DeviceOffset(table)).unwrap();
        header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
    }
    header[16..20].fill(0);
    let mut whole = header.to_vec();
    whole.resize(len.clamp(92, 512), 0);
    header[16..20].copy_from_slice(&crc32(&whole).to_le_bytes());
}

/// Option bit 0: the checksums stay as they are. Then the 92 bytes of a header, then entries.
#[test]
fn partition_tables() {
    // At most 1 MiB of entries is read; the test reads them once, too.
    bolero::check!(name = "partition_tables").for_each(
        target("partition_tables").bound(5 << 19, 16).checked(|input| {
            let Some(([options, header @ ..], entries)) = input.split_first_chunk::<93>() else {
                return false;
            };
            let disk = MemoryDevice::new(1 << 20);
            let mut header = header.to_vec();
            disk.write_at(&entries[..entries.len().min(1 << 18)], DeviceOffset(1024)).unwrap();
            if options & 1 == 0 {
                make_right(&disk, &mut header);
            }
            disk.write_at(&header, DeviceOffset(512)).unwrap();
            let Some(found) = gpt::partitions(&disk).unwrap() else { return false };
            for partition in &found {
                assert!(partition.len > 0 && partition.start.0 + partition.len <= disk.size());
            }
            true
        }),
    );
}

/// A label with valid trailers. Input: the number of the label, the number of a slot, two bytes for the
/// length of the configuration, that configuration, an uberblock. If bit 2 of the number is set, the
/// checksums are not corrected.
#[test]
fn labels() {
    // Configuration and ring of one label at a time, and 4 KiB for each page of the disk in memory.
    bolero::check!(name = "labels").for_each(target("labels").bound(1 << 20, 64).checked(|input| {
        let Some(([number, slot, low, high], rest)) = input.split_first_chunk() else { return false };
        let is_right = number & 4 == 0;
        let base = label_offset(usize::from(number % 4), DISK).0;
        let len = usize::from(u16::from_le_bytes([*low, *high]));
        let (config, uberblock) = rest.split_at(len.min(rest.len()));
        let disk = MemoryDevice::new(DISK);
        for (contents, size, at) in [
            (config, CONFIG_SIZE, base + CONFIG_OFFSET),
            (uberblock, 1024, base + RING_OFFSET + u64::from(slot % 128) * 1024),
        ] {
            let mut region = vec![0; size];
            let len = contents.len().min(size - 40);
            region[..len].copy_from_slice(&contents[..len]);
            if is_right {
                write_trailer(&mut region, verifier(DeviceOffset(at))).unwrap();
            }
            disk.write_at(&region, DeviceOffset(at)).unwrap();
        }
        let probe = label::probe(&disk);
        assert!(probe.configs.len() <= 1 && probe.uberblocks.len() <= 1);
        for label in 0..4 {
            let _ = label::boot_env(&disk, label);
        }
        let _ = (probe.guid(), probe.newest_uberblock(), label::looks_like_leaf(&disk));
        !probe.is_empty()
    }));
}

/// Numbers from the front of the input; zeros after its end.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        for byte in &mut out {
            if let Some((first, rest)) = self.0.split_first() {
                (*byte, self.0) = (*first, rest);
            }
        }
        out
    }

    fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

/// Input: kind (bit 0: expanded, bit 1: being expanded, bit 2: draid), children, parity, ashift, offset,
/// size, then txgs of expansions and the progress of the running one, or the shape of a draid.
#[test]
fn geometry() {
    // A map has a column per sector at most, and one for each child and row.
    bolero::check!(name = "geometry").for_each(target("geometry").bound(1 << 20, 0).checked(|input| {
        let mut numbers = Numbers(input);
        let [kind, children, nparity, ashift] = numbers.take();
        let (offset, psize) = (AllocOffset(numbers.long() & !511), u32::from_le_bytes(numbers.take()));
        let psize = Psize(u64::from(psize) % (1 << 18));
        let sectors = psize.0.div_ceil(512) as usize;
        let check = |map: Option<BlockMap>| {
            let columns: usize = map.iter().flat_map(|map| &map.rows).map(|row| row.columns.len()).sum();
            assert!(columns <= 255 + 4 * sectors);
            columns > 0
        };
        if kind & 4 != 0 {
            return draid(&mut numbers, children, nparity, ashift, offset, psize);
        }
        let txgs = if kind & 1 == 1 { vec![Txg(numbers.long()), Txg(numbers.long())] } else { Vec::new() };
        let running = (kind & 2 == 2)
            .then(|| ReflowState { offset: numbers.long(), in_scratch: numbers.byte() & 1 == 1 });
        let birth = Txg(numbers.long());
        let expansion = Expansion { txgs, running };
        let Some(raidz) = Raidz::new(children.into(), nparity, Ashift(ashift), expansion) else {
            return false;
        };
        let _ = raidz.asize(Psize(birth.0), birth);
        check(raidz.map(offset, psize, birth)) | check(raidz.map(offset, psize, Txg(70)))
    }));
}

fn draid(
    numbers: &mut Numbers<'_>,
    children: u8,
    nparity: u8,
    ashift: u8,
    offset: AllocOffset,
    psize: Psize,
) -> bool {
    let params = DraidParams {
        children: children.into(),
        ndata: numbers.byte().into(),
        nparity: nparity % 4,
        nspares: numbers.byte().into(),
        ngroups: numbers.byte().into(),
        ashift: Ashift(9 + ashift % 8),
    };
    let Ok(draid) = Draid::new(params) else { return false };
    let stripe = draid.group_width() as u64 * params.ashift.sector();
    let map = draid.map(AllocOffset(offset.0 / stripe * stripe), psize);
    assert!(map.as_ref().is_none_or(|map| map.rows.len() <= 2));
    let _ = draid.spare_child(0, numbers.long());
    map.is_some()
}
