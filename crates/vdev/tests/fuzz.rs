//! Decoders fed with anything: no panic, no memory or time out of proportion.

use cenote_vdev::device::Device;
use cenote_vdev::device::memory::MemoryDevice;
use cenote_vdev::geometry::{Draid, DraidParams, Expansion, Raidz, ReflowState};
use cenote_vdev::{gpt, label};
use codec::checksum::write_trailer;
use format::label::{CONFIG_OFFSET, CONFIG_SIZE, LABEL_SIZE, RING_OFFSET, verifier};
use format::{AllocOffset, Ashift, DeviceOffset, Psize, Txg};

const DISK: u64 = 64 << 20;

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 },
        )
    })
}

#[test]
fn gpt_of_anything() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let disk = MemoryDevice::new(1 << 20);
        let head = &bytes[..bytes.len().min(1 << 19)];
        disk.write_at(head, DeviceOffset(512)).unwrap();
        for partition in gpt::partitions(&disk).unwrap().unwrap_or_default() {
            assert!(partition.start.0 + partition.len <= disk.size());
        }
    });
}

/// A header whose checksum is right, so that what is behind it is reached.
#[test]
fn gpt_with_right_checksums() {
    bolero::check!().with_type::<(u64, u32, u32, u16, Vec<u8>)>().for_each(
        |(table, count, entry_size, len, entries)| {
            let disk = MemoryDevice::new(1 << 20);
            let mut header = vec![0; usize::from(*len % 513).max(92)];
            header[..8].copy_from_slice(b"EFI PART");
            let length = header.len() as u32;
            header[12..16].copy_from_slice(&length.to_le_bytes());
            header[24..32].copy_from_slice(&1u64.to_le_bytes());
            // Mostly the usual place and size, so that entries are decoded.
            let table = if table % 4 == 0 { *table } else { 2 };
            let entry_size = if entry_size % 4 == 0 { *entry_size } else { 128 };
            let count = if count % 4 == 0 { *count } else { (entries.len() / 128) as u32 };
            header[72..80].copy_from_slice(&table.to_le_bytes());
            header[80..84].copy_from_slice(&count.to_le_bytes());
            header[84..88].copy_from_slice(&entry_size.to_le_bytes());
            let used = entries.len() / 128 * 128;
            header[88..92].copy_from_slice(&crc32(&entries[..used]).to_le_bytes());
            let crc = crc32(&header);
            header[16..20].copy_from_slice(&crc.to_le_bytes());
            disk.write_at(&header, DeviceOffset(512)).unwrap();
            disk.write_at(&entries[..used], DeviceOffset(1024)).unwrap();
            for partition in gpt::partitions(&disk).unwrap().unwrap_or_default() {
                assert!(partition.len > 0 && partition.start.0 + partition.len <= disk.size());
            }
        },
    );
}

#[test]
fn labels_of_anything() {
    bolero::check!().with_type::<(u8, u32, Vec<u8>)>().for_each(|(label, offset, bytes)| {
        let disk = MemoryDevice::new(DISK);
        let base = format::label::label_offset(usize::from(label % 4), DISK).0;
        let at = base + u64::from(*offset) % LABEL_SIZE;
        let room = (DISK - at).min(bytes.len() as u64) as usize;
        disk.write_at(&bytes[..room], DeviceOffset(at)).unwrap();
        let probe = label::probe(&disk);
        assert!(probe.configs.len() <= 4 && probe.uberblocks.len() <= 4 * 128 * 4);
    });
}

/// Contents behind trailers that verify: any list, any uberblock.
#[test]
fn labels_with_right_checksums() {
    bolero::check!().with_type::<(u8, Vec<u8>, Vec<u8>)>().for_each(|(slot, config, uberblock)| {
        let disk = MemoryDevice::new(DISK);
        let mut region = vec![0; CONFIG_SIZE];
        let len = config.len().min(CONFIG_SIZE - 40);
        region[..len].copy_from_slice(&config[..len]);
        let at = DeviceOffset(CONFIG_OFFSET);
        write_trailer(&mut region, verifier(at)).unwrap();
        disk.write_at(&region, at).unwrap();
        let mut region = vec![0; 1024];
        let len = uberblock.len().min(1024 - 40 - 8);
        region[..8].copy_from_slice(&format::uberblock::UBERBLOCK_MAGIC.to_le_bytes());
        region[8..8 + len].copy_from_slice(&uberblock[..len]);
        let at = DeviceOffset(RING_OFFSET + u64::from(slot % 128) * 1024);
        write_trailer(&mut region, verifier(at)).unwrap();
        disk.write_at(&region, at).unwrap();
        let probe = label::probe(&disk);
        assert!(probe.configs.len() <= 1);
        let reported = probe.uberblocks.len()
            + probe.problems.iter().filter(|p| matches!(p, label::LabelProblem::Uberblock { .. })).count();
        assert!(reported >= 1, "a slot with a right checksum is read or reported");
    });
}

#[test]
fn geometry_of_anything() {
    type Numbers = (u8, u8, u8, Vec<u64>, Option<(u64, bool)>, u64, u32, u64);
    bolero::check!().with_type::<Numbers>().for_each(
        |(children, nparity, ashift, txgs, running, offset, psize, birth)| {
            let expansion = Expansion {
                txgs: txgs.iter().map(|txg| Txg(*txg)).collect(),
                running: running.map(|(offset, in_scratch)| ReflowState { offset, in_scratch }),
            };
            let psize = Psize(u64::from(*psize) % (1 << 18));
            let offset = AllocOffset(offset & !511);
            let sectors = psize.0.div_ceil(512) as usize;
            let check = |map: Option<cenote_vdev::geometry::BlockMap>| {
                let columns: usize = map.iter().flat_map(|map| &map.rows).map(|row| row.columns.len()).sum();
                assert!(columns <= 255 + 4 * sectors);
            };
            if let Some(raidz) = Raidz::new((*children).into(), *nparity, Ashift(*ashift), expansion) {
                check(raidz.map(offset, psize, Txg(*birth)));
                let _ = raidz.asize(Psize(*birth), Txg(*birth));
            }
            let params = DraidParams {
                children: (*children).into(),
                ndata: usize::from(*ashift % 16),
                nparity: *nparity % 4,
                nspares: usize::from(*nparity / 64),
                ngroups: birth % 300,
                ashift: Ashift(9 + ashift % 8),
            };
            if let Ok(draid) = Draid::new(params) {
                let stripe = draid.group_width() as u64 * params.ashift.sector();
                let map = draid.map(AllocOffset(offset.0 / stripe * stripe), psize);
                assert!(map.is_none_or(|map| map.rows.len() <= 2));
                let _ = draid.spare_child(0, *birth);
            }
        },
    );
}
