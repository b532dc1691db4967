//! Many threads at once.

use super::{Lab, Shape, Spec, Tx};
use crate::alloc::{AllocClass, AllocError};
use format::Dva;
use std::sync::Mutex;
use vdev::env::Random;
use vdev::tree::RangeSet;

/// Threads allocate and free in two txgs; afterwards every extent is someone's, once.
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
