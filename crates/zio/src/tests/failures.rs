//! Devices that fail, lie and forget.

use super::fake::{DISK, Pool, Top, Tx, block, noise, policy};
use crate::{NewBlock, ReadPolicy, WritePolicy, ZioError};
use format::{DeviceOffset, VdevId};
use vdev::device::Device;
use vdev::device::sim::{OpKind, Rates};

#[test]
fn a_block_that_no_device_took_goes_elsewhere_once() {
    let pool = Pool::new(&[Top::Single, Top::Single], 9);
    pool.disks[0].vanish();
    let new = block(noise(4096, 1), &policy());
    // The allocator takes turns: the first place is on the lost disk, the second is not.
    let bp = pool.write(&new, 12).unwrap();
    assert_eq!(bp.dvas().next().unwrap().vdev, VdevId(1));
    pool.check(&bp, &new, 12);
    assert_eq!(pool.taken(), 1);
    pool.disks[1].vanish();
    let error = pool.write(&new, 12).unwrap_err();
    assert!(matches!(error, ZioError::Unwritable { .. }), "{error:?}");
    assert_eq!(pool.taken(), 1, "what failed holds nothing");
}

#[test]
fn one_copy_is_enough() {
    let pool = Pool::new(&[Top::Single, Top::Single], 9);
    pool.disks[0].vanish();
    let new = block(noise(4096, 1), &WritePolicy { copies: 2, ..policy() });
    let bp = pool.write(&new, 12).unwrap();
    assert_eq!(pool.taken(), 2);
    assert!(pool.read(&bp) == **new.data);
}

#[test]
fn a_gang_of_which_a_part_failed_goes_elsewhere_whole() {
    for n in 0..8 {
        let pool = Pool::new(&[Top::Single], 9);
        pool.set_largest(4096);
        // Adjacent runs are written as one: the vdev tries the parts of a failed run once more.
        pool.disks[0].fail_nth(OpKind::Write, n);
        let new = block(noise(65_536, 1), &WritePolicy { gang_copies: 1, ..policy() });
        let bp = pool.write(&new, 12).unwrap();
        pool.check(&bp, &new, 12);
        pool.zio.free(&bp, &Tx(13)).unwrap();
        assert_eq!(pool.taken(), 0);
    }
}

#[test]
fn overwriting_that_fails_goes_elsewhere_and_leaves_the_old_space_alone() {
    let pool = Pool::new(&[Top::Single, Top::Single], 9);
    let old = pool.write(&block(noise(4096, 1), &policy()), 12).unwrap();
    pool.disks[0].vanish();
    let new = NewBlock { old, in_place: true, ..block(noise(4096, 2), &policy()) };
    let bp = pool.write(&new, 12).unwrap();
    assert_eq!(bp.dvas().next().unwrap().vdev, VdevId(1));
    assert_eq!(pool.taken(), 2);
    pool.zio.free(&old, &Tx(12)).unwrap();
    pool.check(&bp, &new, 12);
}

#[test]
fn disks_that_fail_at_random_lose_nothing_that_was_reported_as_written() {
    for seed in 0..20 {
        let pool = Pool::new(&[Top::Mirror(2), Top::Raidz(4, 1)], 9);
        for disk in &pool.disks {
            disk.set_rates(Rates { write_error: 20, ..Rates::default() });
        }
        let blocks: Vec<NewBlock> =
            (0..50).map(|i| block(noise(512 << (i % 6), seed * 50 + i), &policy())).collect();
        let mut results = Vec::new();
        // In small batches: neighbours are written, and fail, together.
        for some in blocks.chunks(5) {
            results.extend(pool.zio.write_many(some, &Tx(12), &pool.env));
        }
        for disk in &pool.disks {
            disk.set_rates(Rates::default());
        }
        let mut good = 0;
        for (bp, new) in results.iter().zip(&blocks) {
            if let Ok(bp) = bp {
                good += 1;
                assert!(pool.read(bp) == **new.data, "seed {seed}: {bp}");
            }
        }
        assert_eq!(pool.taken(), good, "seed {seed}");
        assert!(good > 25, "seed {seed}");
    }
}

#[test]
fn flushing_makes_what_was_written_durable() {
    let pool = Pool::new(&[Top::Mirror(2), Top::Single], 9);
    let new = block(noise(4096, 1), &WritePolicy { copies: 2, ..policy() });
    pool.write(&new, 12).unwrap();
    assert!(pool.disks.iter().all(|disk| disk.unflushed() > 0));
    pool.zio.flush_written().unwrap();
    assert!(pool.disks.iter().all(|disk| disk.unflushed() == 0));
    pool.disks.iter().for_each(|disk| disk.record(false));
    pool.zio.flush_written().unwrap();
    assert!(pool.disks.iter().all(|disk| disk.take_record().is_empty()), "nothing was written since");
    // The next flush cannot restore blocks that a flush has lost.
    pool.write(&block(noise(4096, 2), &policy()), 13).unwrap();
    pool.write(&block(noise(4096, 3), &policy()), 13).unwrap();
    pool.disks[2].fail_nth(OpKind::Flush, 0);
    let error = pool.zio.flush_written().unwrap_err();
    assert!(matches!(error, ZioError::Flush { .. }), "{error:?}");
    assert!(error.bp().is_hole());
    assert!(pool.zio.flush_written().is_err());
}

#[test]
fn what_is_found_damaged_is_repaired() {
    let pool = Pool::new(&[Top::Mirror(2)], 9);
    let new = block(noise(65_536, 1), &policy());
    let bp = pool.write(&new, 12).unwrap();
    let at = bp.dvas().next().unwrap().offset.on_device();
    for disk in &pool.disks {
        // Whichever side is read first: damage one, and read until the damage was seen.
        let mut bytes = vec![0; 512];
        disk.write_at(&noise(512, 9), DeviceOffset(at.0 + 4096)).unwrap();
        let scrub = pool.zio.check(&bp, &ReadPolicy::SCRUB);
        assert_eq!(scrub.faults.len(), 1);
        disk.read_at(&mut bytes, DeviceOffset(at.0 + 4096)).unwrap();
        assert_eq!(bytes, new.data[4096..4608], "written back");
    }
    pool.check(&bp, &new, 12);
}

#[test]
fn a_second_copy_repairs_the_first_and_gang_headers_too() {
    let pool = Pool::new(&[Top::Single, Top::Single], 9);
    let policy = WritePolicy { copies: 2, ..policy() };
    let new = block(noise(16_384, 1), &policy);
    let whole = pool.write(&new, 12).unwrap();
    pool.set_largest(4096);
    let gang = pool.write(&new, 12).unwrap();
    let first = |bp: &format::BlockPtr| bp.dvas().next().unwrap();
    for bp in [whole, gang] {
        let dva = first(&bp);
        let disk = &pool.disks[dva.vdev.0 as usize];
        disk.write_at(&noise(512, 7), dva.offset.on_device()).unwrap();
        assert!(pool.read(&bp) == **new.data);
        pool.check(&bp, &new, 12);
    }
    assert!(pool.disks.iter().all(|disk| disk.size() == DISK));
}

#[test]
fn a_pointer_kept_after_its_block_was_freed_repairs_nothing() {
    let pool = Pool::new(&[Top::Single, Top::Single], 9);
    let policy = WritePolicy { copies: 2, ..policy() };
    let old = pool.write(&block(noise(4096, 1), &policy), 12).unwrap();
    pool.zio.free(&old, &Tx(13)).unwrap();
    // Another block takes the space of the first copy; the second copy is still intact.
    let first = old.dvas().next().unwrap();
    let disk = &pool.disks[first.vdev.0 as usize];
    let other = noise(4096, 2);
    disk.write_at(&other, first.offset.on_device()).unwrap();
    assert!(pool.read(&old) == noise(4096, 1));
    let mut bytes = vec![0; 4096];
    disk.read_at(&mut bytes, first.offset.on_device()).unwrap();
    assert!(bytes == other, "the new block is as it was written");
}

#[test]
fn a_damaged_block_of_a_batch_fails_alone() {
    let pool = Pool::new(&[Top::Single], 9);
    let blocks: Vec<NewBlock> = (0..8).map(|i| block(noise(4096, i), &policy())).collect();
    let bps: Vec<_> = blocks.iter().map(|new| pool.write(new, 12).unwrap()).collect();
    let damaged = bps[3].dvas().next().unwrap();
    pool.disks[0].write_at(&noise(512, 99), damaged.offset.on_device()).unwrap();
    let batch = pool.zio.read_many(&bps, &ReadPolicy::default());
    assert_eq!(batch.len(), bps.len());
    for (i, (read, new)) in batch.into_iter().zip(&blocks).enumerate() {
        match read {
            Ok(read) => assert!(i != 3 && read.bytes() == new.data.as_slice(), "block {i}"),
            Err(ZioError::Unreadable { bp, faults, .. }) => {
                assert!(i == 3 && bp == bps[3] && faults.len() == 1, "block {i}: {faults:?}");
            }
            Err(error) => panic!("block {i}: {error:?}"),
        }
    }
    let errors = pool.zio.tree().status().children[0].checksum_errors;
    assert_eq!(errors, 1, "a block that a batch has read is not read again for its error");
}

#[test]
fn a_batch_takes_second_copies_and_gangs_and_holes() {
    let pool = Pool::new(&[Top::Single, Top::Single], 9);
    let policy = WritePolicy { copies: 2, ..policy() };
    let mut blocks: Vec<NewBlock> = (0..4).map(|i| block(noise(16_384, i), &policy)).collect();
    let mut bps: Vec<_> = blocks.iter().map(|new| pool.write(new, 12).unwrap()).collect();
    pool.set_largest(4096);
    blocks.push(block(noise(16_384, 9), &policy));
    bps.push(pool.write(&blocks[4], 12).unwrap());
    let first = bps[1].dvas().next().unwrap();
    let disk = &pool.disks[first.vdev.0 as usize];
    disk.write_at(&noise(512, 7), first.offset.on_device()).unwrap();
    bps.push(format::BlockPtr::HOLE);
    let batch = pool.zio.read_many(&bps, &ReadPolicy::default());
    let (hole, rest) = batch.split_last().unwrap();
    assert!(
        rest.iter().zip(&blocks).all(|(read, new)| read.as_ref().unwrap().bytes() == new.data.as_slice())
    );
    assert!(hole.as_ref().unwrap().bytes().iter().all(|byte| *byte == 0));
    let mut bytes = vec![0; 512];
    disk.read_at(&mut bytes, first.offset.on_device()).unwrap();
    assert!(bytes == blocks[1].data[..512], "the damaged copy was written again");
}
