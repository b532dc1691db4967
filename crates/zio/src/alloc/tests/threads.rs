//! Many threads at once.

use super::{Lab, Shape, Spec, Tx, dva, normal, top_space, tree};
use crate::alloc::{AllocClass, AllocError, Allocator, MetaslabHint, Request, SpaceSource};
use format::{Dva, VdevId};
use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vdev::env::Random;
use vdev::tree::RangeSet;

/// Threads allocate and free in two txgs; afterwards every extent has exactly one owner.
#[test]
fn threads_never_share_an_extent() {
    let specs = [Spec::new(Shape::Single, 9, 20, 10), Spec::new(Shape::Raidz(4, 1), 9, 20, 10)];
    let lab = Lab::new(&specs);
    let kept: Mutex<Vec<Dva>> = Mutex::default();
    for txg in 5..10 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (lab, kept) = (&lab, &kept);
                scope.spawn(move || work(lab, kept, txg, txg * 10 + thread));
            }
        });
        lab.sync(txg, "threads");
    }
    lab.pass(10, "threads");
    let kept = kept.into_inner().unwrap();
    let mut places: Vec<_> = kept.iter().map(|dva| (dva.vdev, dva.offset.0, dva.asize.0)).collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        assert!(pair[0].0 != pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1, "{pair:?}");
    }
    let sum: u64 = kept.iter().map(|dva| dva.asize.0).sum();
    assert_eq!(lab.alloc.totals(AllocClass::Normal).allocated, sum);
    let free: u64 =
        lab.disk.working.lock().unwrap().values().flat_map(RangeSet::iter).map(|r| r.end - r.start).sum();
    let size: u64 = specs.iter().map(Spec::asize).sum();
    assert_eq!(size - free, sum);
}

fn work(lab: &Lab, kept: &Mutex<Vec<Dva>>, txg: u64, seed: u64) {
    let mut random = Random::from_seed(seed);
    let mut mine: Vec<Dva> = Vec::new();
    for _ in 0..400 {
        let tx = txg + u64::from(random.one_in(3));
        match lab.allocate(512 * (1 + random.below(40)), 1 + random.below(2) as u8, tx) {
            Ok(dvas) if tx == txg => mine.extend(dvas),
            Ok(dvas) => kept.lock().unwrap().extend(dvas),
            Err(AllocError::NoSpace { .. }) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
        if random.one_in(2) && !mine.is_empty() {
            let index = random.below(mine.len() as u64) as usize;
            let dva = mine.swap_remove(index);
            lab.alloc.free(&dva, &Tx(txg)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
    kept.lock().unwrap().extend(mine);
}

/// A source on which reading the free space of vdev 0 waits for the test.
struct Slow {
    started: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl SpaceSource for Slow {
    fn free_space(&self, vdev: VdevId, _: u64) -> Result<RangeSet, Box<dyn Error + Send + Sync>> {
        if vdev == VdevId(0) {
            self.started.lock().unwrap().send(())?;
            self.go_on.lock().unwrap().recv_timeout(Duration::from_secs(60))?;
        }
        Ok(std::iter::once(0..1 << 20).collect())
    }
}

#[test]
fn others_are_served_while_a_metaslab_is_read() {
    let spec = Spec::new(Shape::Single, 12, 20, 1);
    let specs = [spec, spec];
    let ((started, has_started), (go_on, may_go_on)) = (channel(), channel());
    let source = Slow { started: Mutex::new(started), go_on: Mutex::new(may_go_on) };
    let hint = MetaslabHint { largest_free: 1 << 20, ..MetaslabHint::default() };
    let tops = (0..2).map(|id| top_space(id, &spec, vec![hint])).collect();
    let alloc = Allocator::new(tree(&specs), tops, Arc::new(source));
    let on = |vdev| {
        let want = Request { near: Some(dva(vdev, 0, 4096)), ..normal(4096, 1) };
        alloc.allocate(&want, &Tx(5)).expect("room")[0].vdev
    };
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| on(0));
        has_started.recv_timeout(Duration::from_secs(60)).expect("reading starts");
        assert_eq!(on(1), VdevId(1));
        assert_eq!(alloc.totals(AllocClass::Normal).size, 2 << 20);
        go_on.send(()).expect("the reader waits");
        assert_eq!(slow.join().expect("no panic"), VdevId(0));
    });
}
