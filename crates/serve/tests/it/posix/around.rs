//! Files that are written past the kernel's cache, beside others that use it.

use super::mounted_pool::MountedPool;
use cenote_serve::export::Caller;
use cenote_serve::fuse::{Answer, LiveService, Opened, Service, open_flag};
use rustix::fs::{OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: usize = 8192;
/// `O_DSYNC`; the flag of this name in rustix is `O_SYNC`.
const DSYNC: OFlags = OFlags::from_bits_retain(0o1_0000);
/// More opens than a mount answers before it concludes that no program bypasses the cache.
const MANY: usize = 1000;
/// More files than are made before the mount stops opening them.
const MANY_MADE: usize = 2000;

/// Makes so many files that the mount no longer opens them.
pub(crate) fn make_many(at: &Path) {
    let folder = at.join("many");
    std::fs::create_dir(&folder).unwrap();
    for number in 0..MANY_MADE {
        std::fs::File::create_new(folder.join(format!("{number}"))).unwrap();
    }
}

#[test]
fn who_makes_many_files_makes_and_opens_them_by_separate_requests() {
    for (record, writeback, ends) in
        [(128 << 10, false, true), (8 << 10, false, false), (128 << 10, true, false)]
    {
        let Some(mut home) = MountedPool::new(1024, &[("recordsize", record)], writeback) else { return };
        home.unmount();
        let make = |service: &LiveService, name: &str, flags: OFlags| {
            service
                .create(&Caller::default(), 1, name.as_bytes(), 0o644, flags.bits())
                .map(|(_, opened)| opened)
        };
        let service = || {
            let service = home.service(writeback);
            service.abilities(u64::MAX);
            service
        };
        let one = service();
        if make(&one, "first", OFlags::RDWR).is_err() {
            testkit::skip("a kernel that does not mix both");
            return;
        }
        for number in 0..MANY_MADE {
            let last = make(&one, &format!("a{number}"), OFlags::RDWR);
            assert!(last.is_ok() || last == Err(Errno::NOSYS));
        }
        let last = make(&one, "last", OFlags::RDWR);
        assert_eq!(last.err(), ends.then_some(Errno::NOSYS), "recordsize {record}, {writeback}");
        if ends {
            let found = one.lookup(&Caller::default(), 1, b"last").unwrap();
            assert!(found.is_none(), "the kernel makes it by the next request");
            assert_eq!(open_often(&one, b"a0", OFlags::RDWR, 1).err(), Some(Errno::NOSYS));
        }
        drop(one);
        // After a program has bypassed the cache once, the mount expects more of that.
        let two = service();
        make(&two, "durable", OFlags::RDWR | DSYNC).unwrap();
        assert!((0..MANY_MADE).all(|number| make(&two, &format!("b{number}"), OFlags::RDWR).is_ok()));
    }
}

/// Opens a file with these flags repeatedly; returns the last result.
fn open_often(service: &LiveService, name: &[u8], flags: OFlags, times: usize) -> Answer<Opened> {
    let who = Caller::default();
    let known = service.lookup(&who, 1, name).unwrap().unwrap();
    let open = || service.open(&who, known.entry.node, flags.bits());
    for _ in 1..times {
        let _ = open();
    }
    open()
}

fn goes_around(opened: &Answer<Opened>) -> bool {
    opened.is_ok_and(|opened| opened.flags & open_flag::DIRECT_IO != 0)
}

#[test]
fn who_writes_durably_goes_around_the_cache_and_who_opens_much_is_not_asked() {
    let durable = OFlags::RDWR | DSYNC;
    for (record, writeback) in [(128 << 10, false), (8 << 10, false), (8 << 10, true), (128 << 10, true)] {
        let Some(mut home) = MountedPool::new(1024, &[("recordsize", record)], writeback) else { return };
        std::fs::write(home.at().join("f"), b"x").unwrap();
        home.unmount();
        let service = || {
            let service = home.service(writeback);
            service.abilities(u64::MAX);
            service
        };
        let (one, two) = (service(), service());
        let first = open_often(&one, b"f", OFlags::RDWR, 1);
        if !writeback && first.is_err() {
            testkit::skip("a kernel that does not mix both");
            return;
        }
        if writeback && record == 128 << 10 {
            assert_eq!(first.err(), Some(Errno::NOSYS), "the times of such a file would stand still");
            continue;
        }
        assert!(first.is_ok() && !goes_around(&first));
        let many = open_often(&one, b"f", OFlags::RDWR, MANY);
        assert_eq!(many.err(), (record == 128 << 10).then_some(Errno::NOSYS), "recordsize {record}");
        assert!(goes_around(&open_often(&two, b"f", durable, 1)));
        // A mount that has seen one such open expects more.
        assert!(open_often(&two, b"f", OFlags::RDWR, MANY).is_ok());
        assert!(goes_around(&open_often(&two, b"f", durable, 1)));
    }
}

#[test]
fn what_goes_around_the_cache_is_seen_by_those_who_go_through_it() {
    let Some(home) = MountedPool::new(1024, &[("recordsize", PAGE as u64)], false) else { return };
    let path = home.at().join("shared");
    std::fs::write(&path, [0; PAGE * 4]).unwrap();
    let open = |flags: OFlags| {
        std::fs::File::options()
            .read(true)
            .write(true)
            .custom_flags(flags.bits().cast_signed())
            .open(&path)
            .unwrap()
    };
    let (around, through, stop) = (open(DSYNC), open(OFlags::empty()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // A thread has the page read into the cache all the time.
        scope.spawn(|| {
            let mut page = [0; PAGE];
            while !stop.load(Ordering::Relaxed) {
                through.read_exact_at(&mut page, 0).unwrap();
            }
        });
        for round in 1..=300_u16 {
            let mut page = [round as u8; PAGE];
            around.write_all_at(&page, 0).unwrap();
            through.read_exact_at(&mut page, 0).unwrap();
            assert_eq!(page, [round as u8; PAGE], "round {round}");
            through.write_all_at(&[!round as u8; 100], 50).unwrap();
            around.read_exact_at(&mut page, 0).unwrap();
            assert_eq!(
                page[..200],
                [[round as u8; 50].as_slice(), &[!round as u8; 100], &[round as u8; 50]].concat()
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Several threads that write different pages, and one that appends.
    let mut log = std::fs::File::options();
    log.append(true).create(true).custom_flags(DSYNC.bits().cast_signed());
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let (open, log, path) = (&open, &log, home.at().join("log"));
            scope.spawn(move || {
                let (file, log) = (open(DSYNC), log.clone().open(path).unwrap());
                for _ in 0..50 {
                    file.write_all_at(&[writer; PAGE], u64::from(writer) * PAGE as u64).unwrap();
                    std::io::Write::write_all(&mut &log, &[writer; 10]).unwrap();
                }
            });
        }
    });
    let content = std::fs::read(&path).unwrap();
    assert!(content.chunks(PAGE).zip(0..4).all(|(page, writer)| page == [writer; PAGE]));
    assert_eq!(std::fs::read(home.at().join("log")).unwrap().len(), 4 * 50 * 10);
    // The times of the file change, whichever program writes it.
    let old = Timespec { tv_sec: 1000, tv_nsec: 0 };
    rustix::fs::futimens(&around, &Timestamps { last_access: old, last_modification: old }).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mtime(), 1000);
    around.write_all_at(&[1], 0).unwrap();
    assert!(std::fs::metadata(&path).unwrap().mtime() > 1000);
    drop((around, through));
    home.judge();
}
