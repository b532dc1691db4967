//! A long random run of a pool, with a map of every sector as the model.

use super::{Lab, Shape, Spec, Tx, dva};
use crate::alloc::{AllocClass, AllocError};
use format::{Dva, Psize, Txg, VdevId};
use vdev::env::Random;
use vdev::tree::RangeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sector {
    Free,
    Taken,
    /// Freed in this txg.
    Deferred(u64),
}

struct Model {
    lab: Lab,
    random: Random,
    /// Sectors of 512 bytes of each vdev.
    maps: Vec<Vec<Sector>>,
    /// Allocated extents, each with its birth.
    live: Vec<(Dva, u64)>,
    /// The txg being written; the next is open.
    txg: u64,
    what: String,
    full: usize,
}

impl Model {
    fn new(specs: &[Spec], seed: u64) -> Model {
        let maps = specs.iter().map(|spec| vec![Sector::Free; (spec.asize() >> 9) as usize]).collect();
        let (lab, random) = (Lab::new(specs), Random::from_seed(seed));
        Model { lab, random, maps, live: Vec::new(), txg: 10, what: format!("seed {seed}"), full: 0 }
    }

    fn sectors(&mut self, dva: &Dva) -> &mut [Sector] {
        let first = (dva.offset.0 >> 9) as usize;
        &mut self.maps[dva.vdev.0 as usize][first..first + (dva.asize.0 >> 9) as usize]
    }

    fn some_txg(&mut self) -> u64 {
        self.txg + u64::from(self.random.one_in(4))
    }

    fn took(&mut self, dva: Dva, txg: u64) {
        let what = self.what.clone();
        let spec = self.lab.specs[dva.vdev.0 as usize];
        let metaslab = |at: u64| at >> spec.shift;
        assert_eq!(metaslab(dva.offset.0), metaslab(dva.offset.0 + dva.asize.0 - 1), "{what}: {dva}");
        assert!(dva.offset.0.is_multiple_of(1 << spec.ashift), "{what}: {dva}");
        let sectors = self.sectors(&dva);
        assert!(sectors.iter().all(|s| *s == Sector::Free), "{what}: {dva} is in use: {sectors:?}");
        sectors.fill(Sector::Taken);
        self.live.push((dva, txg));
    }

    fn allocate(&mut self) {
        let txg = self.some_txg();
        let psize = match self.random.below(10) {
            0..6 => 512 * (1 + self.random.below(64)),
            6..9 => 128 << 10,
            _ => 512 * (1 + self.random.below(1 << 10)),
        };
        let copies = if self.random.one_in(3) { 1 + self.random.below(3) as u8 } else { 1 };
        match self.lab.allocate(psize, copies, txg) {
            Ok(dvas) => {
                assert_eq!(dvas.len(), usize::from(copies), "{}", self.what);
                for dva in dvas {
                    let asize = self.lab.tree.psize_to_asize(dva.vdev, Psize(psize), Txg(txg));
                    assert_eq!(Some(dva.asize), asize, "{}: {dva}", self.what);
                    self.took(dva, txg);
                }
            }
            Err(AllocError::NoSpace { largest, .. }) => {
                self.full += 1;
                let room = self.room(psize, txg);
                // Keeping copies apart may cut a free run in two.
                let enough = if copies == 1 { 1 } else { 2 * u64::from(copies) };
                assert!(room < enough, "{}: {copies} copies of {psize}, room for {room}", self.what);
                if largest.0 > 0 {
                    assert!(self.room(largest.0, txg) > 0, "{}: largest {largest}", self.what);
                }
                assert!(self.room(largest.0 + 4096, txg) == 0 || largest.0 + 4096 >= psize, "{}", self.what);
            }
            Err(error) => panic!("{}: {error}", self.what),
        }
    }

    /// Number of blocks of this size for which there is space.
    fn room(&self, psize: u64, txg: u64) -> u64 {
        let mut room = 0;
        for (id, spec) in self.lab.specs.iter().enumerate() {
            let asize = self.lab.tree.psize_to_asize(VdevId(id as u32), Psize(psize), Txg(txg)).unwrap();
            for metaslab in self.maps[id].chunks(1 << (spec.shift - 9)) {
                for run in metaslab.chunk_by(|a, b| a == b).filter(|run| run[0] == Sector::Free) {
                    room += ((run.len() as u64) << 9) / asize.0;
                }
            }
        }
        room
    }

    fn free(&mut self) {
        let txg = self.some_txg();
        if self.live.is_empty() {
            return;
        }
        let index = self.random.below(self.live.len() as u64) as usize;
        let (dva, birth) = self.live[index];
        let txg = txg.max(birth);
        self.live.swap_remove(index);
        self.lab.alloc.free(&dva, &Tx(txg)).unwrap_or_else(|error| panic!("{}: {error}", self.what));
        self.sectors(&dva).fill(Sector::Deferred(txg));
        let again = self.lab.alloc.free(&dva, &Tx(txg));
        assert!(matches!(again, Err(AllocError::NotAllocated { .. })), "{}: {again:?}", self.what);
    }

    /// Frees or claims random extents.
    fn meddle(&mut self) {
        let id = self.random.below(self.maps.len() as u64) as usize;
        let spec = self.lab.specs[id];
        let sector = 1 << spec.ashift;
        let offset = self.random.below(spec.asize() / sector) * sector;
        let asize = (1 + self.random.below(40)) * sector;
        let extent = dva(id as u32, offset, asize);
        let txg = self.some_txg();
        let end = offset + asize;
        if end > (offset >> spec.shift << spec.shift) + (1 << spec.shift) {
            let outcome = self.lab.alloc.free(&extent, &Tx(txg));
            assert!(matches!(outcome, Err(AllocError::NoMetaslab { .. })), "{}: {outcome:?}", self.what);
            return;
        }
        if self.sectors(&extent).iter().any(|sector| *sector != Sector::Taken) {
            let outcome = self.lab.alloc.free(&extent, &Tx(txg));
            assert!(matches!(outcome, Err(AllocError::NotAllocated { .. })), "{}: {outcome:?}", self.what);
        }
        let is_free = self.sectors(&extent).iter().all(|sector| *sector == Sector::Free);
        match self.lab.alloc.claim(&extent, &Tx(txg)) {
            Ok(()) if is_free => self.took(extent, txg),
            Err(AllocError::NotFree { .. }) if !is_free => {}
            outcome => panic!("{}: claim of {extent}: {outcome:?}", self.what),
        }
    }

    fn check(&mut self) {
        let id = self.random.below(self.maps.len() as u64) as u32;
        let metaslab = self.random.below(self.lab.specs[id as usize].metaslabs);
        let free = self.lab.alloc.free_space(VdevId(id), metaslab).unwrap();
        assert_eq!(free, self.lab.on_disk(id, metaslab), "{}: vdev {id} metaslab {metaslab}", self.what);
        let totals = self.lab.alloc.totals(AllocClass::Normal);
        let count = |wanted: fn(&Sector) -> bool| {
            self.maps.iter().flatten().filter(|sector| wanted(sector)).count() as u64 * 512
        };
        assert_eq!(totals.allocated, count(|s| *s == Sector::Taken), "{}", self.what);
        assert_eq!(totals.deferred, count(|s| matches!(s, Sector::Deferred(_))), "{}", self.what);
    }

    fn end_txg(&mut self) {
        let txg = self.txg;
        self.lab.sync(txg, &self.what);
        for sector in self.maps.iter_mut().flatten() {
            if matches!(*sector, Sector::Deferred(freed) if freed + 2 <= txg) {
                *sector = Sector::Free;
            }
        }
        self.txg += 1;
        if self.random.one_in(5) {
            self.lab.alloc.unload(Txg(txg), 0);
        }
        let is_quiet = self.live.iter().all(|(_, birth)| *birth <= txg)
            && !self.maps.iter().flatten().any(|sector| *sector == Sector::Deferred(txg + 1));
        if is_quiet {
            self.lab.reopen(true);
            for sector in self.maps.iter_mut().flatten() {
                if matches!(sector, Sector::Deferred(_)) {
                    *sector = Sector::Free;
                }
            }
            // The hints are empty: the allocated bytes are known after all is loaded.
            for (id, spec) in self.lab.specs.clone().iter().enumerate() {
                for metaslab in 0..spec.metaslabs {
                    self.lab.alloc.free_space(VdevId(id as u32), metaslab).unwrap();
                }
            }
        }
    }

    fn live_through(&mut self, txgs: u64) {
        for _ in 0..txgs {
            let grows = self.random.below(3);
            for step in 0..200 {
                self.what = format!("{} txg {} step {step}", first_words(&self.what), self.txg);
                match self.random.below(20) {
                    0..9 => self.allocate(),
                    9..17 if self.random.below(3) >= grows => self.free(),
                    9..17 => self.allocate(),
                    17 => self.meddle(),
                    18 => self.check(),
                    _ if self.random.one_in(10) => {
                        self.lab.pass(self.txg, &self.what);
                    }
                    _ => {}
                }
            }
            self.end_txg();
        }
    }
}

/// "seed N" of a longer text.
fn first_words(text: &str) -> String {
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[test]
fn nothing_is_given_out_twice_or_early() {
    let specs = [
        Spec::new(Shape::Single, 9, 20, 6),
        Spec::new(Shape::Raidz(3, 1), 12, 20, 8),
        Spec::new(Shape::Mirror(2), 12, 19, 5),
    ];
    let mut full = 0;
    for seed in 0..12 {
        let mut model = Model::new(&specs[..1 + seed as usize % 3], seed);
        model.live_through(30);
        full += model.full;
    }
    assert!(full > 100, "the pool was full only {full} times");
}

#[test]
fn what_a_txg_takes_and_gives_back_is_no_change() {
    let lab = Lab::new(&[Spec::new(Shape::Single, 9, 24, 4)]);
    let kept = lab.one(4096, 5);
    let gone = lab.one(4096, 5);
    lab.alloc.free(&gone, &Tx(5)).unwrap();
    let changes = lab.alloc.take_changes(Txg(5));
    assert_eq!(changes.len(), 1);
    let range = kept.offset.0..kept.offset.0 + kept.asize.0;
    assert_eq!(changes[0].allocs, [range].into_iter().collect());
    assert_eq!(changes[0].frees, RangeSet::new());
    assert!(lab.alloc.take_changes(Txg(5)).is_empty());
    assert_eq!(lab.alloc.totals(AllocClass::Normal).deferred, 4096);
}

#[test]
fn freed_space_waits_for_two_txgs() {
    // One metaslab with room for four blocks.
    let lab = Lab::new(&[Spec::new(Shape::Single, 12, 14, 1)]);
    let dvas: Vec<_> = (0..4).map(|_| lab.one(4096, 5)).collect();
    lab.sync(5, "");
    lab.alloc.free(&dvas[2], &Tx(6)).unwrap();
    for txg in [6, 7] {
        assert!(matches!(lab.allocate(4096, 1, txg), Err(AllocError::NoSpace { .. })));
        lab.sync(txg, "");
    }
    assert_eq!(lab.alloc.totals(AllocClass::Normal).deferred, 4096);
    assert!(lab.allocate(4096, 1, 8).is_err());
    lab.sync(8, "");
    assert_eq!(lab.one(4096, 9), dvas[2]);
    assert_eq!(lab.alloc.totals(AllocClass::Normal).deferred, 0);
}

#[test]
#[should_panic(expected = "were not taken")]
fn changes_of_a_synced_txg_must_have_been_taken() {
    let lab = Lab::new(&[Spec::new(Shape::Single, 9, 24, 4)]);
    lab.one(4096, 5);
    lab.alloc.synced(Txg(5));
}

#[test]
fn histogram_counts_free_segments() {
    let lab = Lab::new(&[Spec::new(Shape::Single, 12, 24, 1)]);
    for _ in 0..3 {
        lab.one(4096, 5);
    }
    lab.alloc.claim(&dva(0, 8 << 20, 4096), &Tx(5)).unwrap();
    let histogram = lab.alloc.histogram(VdevId(0), 0).unwrap();
    // 12 KiB to 8 MiB, 8 MiB + 4 KiB to 16 MiB: both somewhat less than 8 MiB.
    let mut expected = [0; 32];
    expected[22 - 12] = 2;
    assert_eq!(histogram, expected);
}
