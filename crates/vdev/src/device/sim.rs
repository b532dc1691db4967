//! A simulated disk: the faults of real disks, reproduced from a seed.
//!
//! # Fault model
//! - **Write cache.** A write is visible to reads at once and is durable only after a flush. At a power cut
//!   each unflushed write is independently kept, lost or torn (some of its sectors are kept): a later write
//!   may survive an earlier one. A sector is old or new, never mixed.
//! - **Damage on the medium.** Flipped bits and garbage hide the true contents, which stay known; unreadable
//!   ranges give errors. Writing a range repairs it, as a disk remaps.
//! - **Failed flushes.** Of each unflushed write some, all or none of the sectors are on the medium
//!   afterwards, and the next flush does not report it: Linux behaves so with pages that it could not write.
//! - **Wrong places.** A misdirected write lands elsewhere and leaves its own place unchanged; a lost write
//!   is reported as done and never happens; a lying flush makes no write durable. Misdirected reads return
//!   the bytes of another place; short ones return only the beginning, and report success.
//! - **Failing operations.** The n-th operation from now fails, reads or writes fail at random, the disk
//!   vanishes, now or after some operations, and returns.
//! - **Power.** Disks share a [`Power`]; it counts writes, flushes and discards of all of them and goes off
//!   at a chosen one, in the middle of it. [`SimDisk::power_on`] gives the disk as it is found afterwards.
//!
//! # What always holds
//! - The same seed and the same sequence of calls give the same results.
//! - Writes before a flush that succeeded (and did not lie) survive a power cut.
//!
//! Lock order: a disk's state, then its `Power`.

use super::error::{DeviceError, IoOp};
use super::interface::{Device, check_range};
use super::sparse::SparseBytes;
use crate::random::Random;
use crate::sync::lock;
use format::DeviceOffset;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes that are written whole or not at all.
const SECTOR: u64 = 512;

/// The power supply of a set of simulated disks.
#[derive(Debug, Default)]
pub struct Power {
    state: Mutex<PowerState>,
}

#[derive(Debug, Default)]
struct PowerState {
    off: bool,
    operations: u64,
    cut_at: Option<u64>,
}

/// State of the supply during one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Supply {
    On,
    /// The power fails during this operation.
    CutNow,
    Off,
}

impl Power {
    /// A supply that stays on.
    pub fn new() -> Arc<Power> {
        Arc::default()
    }

    /// Goes off during the `n`-th write, flush or discard from now, counted from 0 over all disks.
    pub fn cut_after(&self, n: u64) {
        let mut state = self.lock();
        state.cut_at = Some(state.operations.saturating_add(n));
    }

    /// Switches the power off now.
    pub fn cut(&self) {
        self.lock().off = true;
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.lock().off
    }

    /// Writes, flushes and discards so far.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    fn lock(&self) -> MutexGuard<'_, PowerState> {
        lock(&self.state)
    }

    /// Counts an operation. Returns its number too.
    fn count(&self) -> (Supply, u64) {
        let mut state = self.lock();
        let this = state.operations;
        if state.off {
            return (Supply::Off, this);
        }
        state.operations += 1;
        if state.cut_at == Some(this) {
            state.off = true;
            return (Supply::CutNow, this);
        }
        (Supply::On, this)
    }
}

/// Fate of the writes that were not flushed when the power went off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fate {
    /// Each independently: half of them are kept whole, a quarter in part, a quarter not at all.
    #[default]
    Random,
    /// All are kept, as if the disk had no cache.
    Kept,
    /// All are lost.
    Lost,
    /// Those before a random one are kept, those after it are lost, and that one is kept in part: a disk that
    /// preserves the order.
    InOrder,
}

/// Kind of operation that a fault affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// A range was read.
    Read,
    /// A range was written.
    Write,
    /// Earlier writes were made durable.
    Flush,
    /// A range was declared unused.
    Discard,
}

/// A recorded operation of a simulated disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// Its number among the writes, flushes and discards of all disks on one power supply; 0 for reads.
    pub order: u64,
    /// What the operation did.
    pub kind: OpKind,
    /// First byte of the range.
    pub at: DeviceOffset,
    /// Number of bytes of the range.
    pub len: u64,
    /// The written bytes, if [`SimDisk::record`] was asked to keep them.
    pub data: Option<Vec<u8>>,
    /// Whether success was reported to the caller.
    pub ok: bool,
}

/// Rates of random faults: each occurs once in so many operations; 0: never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// A read fails, though the data are intact.
    pub read_error: u64,
    /// A write fails and may or may not have happened.
    pub write_error: u64,
    /// A write is reported as done and did not happen.
    pub lost_write: u64,
    /// A write lands in another place.
    pub misdirected_write: u64,
    /// A flush makes nothing durable.
    pub lying_flush: u64,
    /// A flush fails and loses some of what was unflushed.
    pub flush_error: u64,
}

/// Damage of a range on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    /// Every byte is xored with this.
    Xor(u8),
    /// The bytes are random, from this seed.
    Garbage(u64),
    /// The bytes are those so much further on, modulo the size of the disk.
    Elsewhere(u64),
    /// Reads of the range fail.
    Unreadable,
}

/// Handling of the next write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextWrite {
    Lose,
    Misdirect(u64),
    /// Only the first so many sectors are written, but it is reported as done.
    Tear(u64),
}

#[derive(Debug)]
struct State {
    /// True contents of the medium, without the damage.
    durable: SparseBytes,
    /// Unflushed writes, in the order in which they were made.
    cache: Vec<(u64, Vec<u8>)>,
    /// Damage by first byte; ranges do not overlap.
    damage: BTreeMap<u64, (u64, Damage)>,
    random: Random,
    rates: Rates,
    fail_next: Vec<(OpKind, u64)>,
    next_write: Option<NextWrite>,
    gone: bool,
    /// Number of operations after which the disk vanishes.
    operations_left: Option<u64>,
    /// Most bytes that a read fills; 0: all.
    read_at_most: usize,
    recording: Option<(Vec<Op>, bool)>,
    /// Number of the last operation other than a read.
    order: u64,
}

/// A simulated disk; its fault model is in the header of the module.
#[derive(Debug)]
pub struct SimDisk {
    size: u64,
    base: Option<Arc<dyn Device>>,
    power: Arc<Power>,
    sectors: (u64, u64),
    state: Mutex<State>,
}

impl SimDisk {
    /// An empty disk of `size` bytes on its own power supply.
    pub fn new(size: u64, seed: u64) -> SimDisk {
        SimDisk::powered(size, seed, Power::new())
    }

    /// An empty disk on a supply that it shares with others.
    pub fn powered(size: u64, seed: u64, power: Arc<Power>) -> SimDisk {
        let state = State {
            durable: SparseBytes::default(),
            cache: Vec::new(),
            damage: BTreeMap::new(),
            random: Random::from_seed(seed),
            rates: Rates::default(),
            fail_next: Vec::new(),
            next_write: None,
            gone: false,
            operations_left: None,
            read_at_most: 0,
            recording: None,
            order: 0,
        };
        SimDisk { size, base: None, power, sectors: (512, 512), state: Mutex::new(state) }
    }

    /// A disk that starts with the contents of another device, which is never written.
    pub fn over(base: Arc<dyn Device>, seed: u64, power: Arc<Power>) -> SimDisk {
        let mut disk = SimDisk::powered(base.size(), seed, power);
        disk.base = Some(base);
        disk
    }

    /// Changes the sector sizes that the disk reports, logical and physical. Writes stay atomic in units of
    /// 512 bytes.
    pub fn with_sectors(mut self, logical: u64, physical: u64) -> SimDisk {
        self.sectors = (logical, physical);
        self
    }

    /// The power supply that the disk is connected to.
    pub fn power(&self) -> &Arc<Power> {
        &self.power
    }

    /// Flips the bits of `mask` in `len` bytes from `at` on.
    pub fn flip(&self, at: DeviceOffset, len: u64, mask: u8) {
        self.damage(at, len, Damage::Xor(mask));
    }

    /// Overwrites a range with garbage.
    pub fn garble(&self, at: DeviceOffset, len: u64) {
        let seed = self.lock().random.next();
        self.damage(at, len, Damage::Garbage(seed));
    }

    /// Makes reads of a range fail until it is written.
    pub fn make_unreadable(&self, at: DeviceOffset, len: u64) {
        self.damage(at, len, Damage::Unreadable);
    }

    /// Misdirects reads of a range, all by the same distance: they return the bytes `distance` further on,
    /// modulo the size of the disk. Those were written there, and so look like data of the pool.
    pub fn misdirect_reads(&self, at: DeviceOffset, len: u64, distance: u64) {
        self.damage(at, len, Damage::Elsewhere(distance));
    }

    /// From now on each read fills at most `at_most` bytes, leaves the rest of the caller's memory unchanged,
    /// and reports success. 0 ends this.
    pub fn cut_reads_short(&self, at_most: usize) {
        self.lock().read_at_most = at_most;
    }

    /// Removes all damage: reads return the true contents again.
    pub fn repair(&self) {
        self.lock().damage.clear();
    }

    /// Sets the rates of random faults from now on.
    pub fn set_rates(&self, rates: Rates) {
        self.lock().rates = rates;
    }

    /// Makes the `n`-th operation of this kind from now fail, counted from 0. A write that fails may or may
    /// not have happened.
    pub fn fail_nth(&self, kind: OpKind, n: u64) {
        self.lock().fail_next.push((kind, n));
    }

    /// Makes the next write be reported as done without happening.
    pub fn lose_next_write(&self) {
        self.lock().next_write = Some(NextWrite::Lose);
    }

    /// Makes the next write land at `to` instead of its place.
    pub fn misdirect_next_write(&self, to: DeviceOffset) {
        self.lock().next_write = Some(NextWrite::Misdirect(to.0));
    }

    /// Makes only the first `sectors` sectors of the next write happen; it is reported as done.
    pub fn tear_next_write(&self, sectors: u64) {
        self.lock().next_write = Some(NextWrite::Tear(sectors));
    }

    /// Unplugs the disk: every request fails with [`DeviceError::Gone`]. The cache is kept.
    pub fn vanish(&self) {
        self.lock().gone = true;
    }

    /// Unplugs the disk after `n` more operations, reads included.
    pub fn vanish_after(&self, n: u64) {
        self.lock().operations_left = Some(n);
    }

    /// Plugs the disk in again, with its contents unchanged.
    pub fn come_back(&self) {
        let mut state = self.lock();
        (state.gone, state.operations_left) = (false, None);
    }

    /// Starts recording operations, with the data of writes if wanted.
    pub fn record(&self, with_data: bool) {
        self.lock().recording = Some((Vec::new(), with_data));
    }

    /// The operations since recording started or they were last taken.
    pub fn take_record(&self) -> Vec<Op> {
        self.lock().recording.as_mut().map(|(ops, _)| std::mem::take(ops)).unwrap_or_default()
    }

    /// Number of writes that are not durable yet.
    pub fn unflushed(&self) -> usize {
        self.lock().cache.len()
    }

    /// The disk as it is found when the power is back: each unflushed write was kept, torn or lost. It is
    /// connected to `power`; the old disk stays unchanged, so that one run can be continued in many ways.
    pub fn power_on(&self, seed: u64, power: Arc<Power>) -> SimDisk {
        self.power_on_after(Fate::Random, seed, power)
    }

    /// Like [`SimDisk::power_on`], with a given fate of the unflushed writes.
    pub fn power_on_after(&self, fate: Fate, seed: u64, power: Arc<Power>) -> SimDisk {
        let state = self.lock();
        let mut disk = SimDisk::powered(self.size, seed, power);
        disk.base.clone_from(&self.base);
        disk.sectors = self.sectors;
        {
            let mut after = disk.lock();
            after.durable = state.durable.clone();
            after.damage.clone_from(&state.damage);
            let last = after.random.below(state.cache.len() as u64 + 1) as usize;
            for (i, (at, data)) in state.cache.iter().enumerate() {
                match fate {
                    Fate::Random => disk.settle(&mut after, *at, data),
                    Fate::Kept => disk.store(&mut after, *at, data),
                    Fate::InOrder if i < last => disk.store(&mut after, *at, data),
                    Fate::InOrder if i == last => disk.settle(&mut after, *at, data),
                    Fate::InOrder | Fate::Lost => {}
                }
            }
        }
        disk
    }

    /// One unflushed write after a cut or a failed flush: half of them whole, a quarter torn, a quarter lost.
    fn settle(&self, after: &mut State, at: u64, data: &[u8]) {
        match after.random.below(4) {
            0 | 1 => self.store(after, at, data),
            2 => {
                let sectors = (data.len() as u64).div_ceil(SECTOR);
                let scattered = after.random.one_in(2);
                let prefix = after.random.below(sectors + 1);
                for sector in 0..sectors {
                    let keep = if scattered { after.random.one_in(2) } else { sector < prefix };
                    if keep {
                        let from = (sector * SECTOR) as usize;
                        let to = data.len().min(from + SECTOR as usize);
                        self.store(after, at + from as u64, &data[from..to]);
                    }
                }
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Writes bytes to the medium, and removes damage there.
    fn store(&self, state: &mut State, at: u64, data: &[u8]) {
        heal(&mut state.damage, at..at + data.len() as u64);
        let base = self.base.as_deref();
        let stored: Result<(), std::convert::Infallible> = state.durable.write(data, at, |page, pos| {
            read_base(base, page, pos);
            Ok(())
        });
        let Ok(()) = stored;
    }

    fn damage(&self, at: DeviceOffset, len: u64, damage: Damage) {
        let mut state = self.lock();
        let range = at.0.min(self.size)..at.0.saturating_add(len).min(self.size);
        heal(&mut state.damage, range.clone());
        if !range.is_empty() {
            state.damage.insert(range.start, (range.end, damage));
        }
    }

    /// Decides about one operation before it is done.
    fn start(&self, state: &mut State, kind: OpKind) -> Result<Supply, DeviceError> {
        match &mut state.operations_left {
            Some(0) => state.gone = true,
            Some(left) => *left -= 1,
            None => {}
        }
        if state.gone {
            return Err(DeviceError::Gone);
        }
        let supply = match kind {
            OpKind::Read if self.power.is_off() => Supply::Off,
            OpKind::Read => Supply::On,
            _ => {
                let (supply, order) = self.power.count();
                state.order = order;
                supply
            }
        };
        if supply == Supply::Off { Err(DeviceError::PowerOff) } else { Ok(supply) }
    }

    fn note(state: &mut State, kind: OpKind, at: DeviceOffset, len: u64, data: Option<&[u8]>, ok: bool) {
        if let Some((ops, with_data)) = &mut state.recording {
            let data = data.filter(|_| *with_data).map(<[u8]>::to_vec);
            let order = if kind == OpKind::Read { 0 } else { state.order };
            ops.push(Op { order, kind, at, len, data, ok });
        }
    }

    fn read_now(&self, state: &mut State, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.start(state, OpKind::Read)?;
        let rate = state.rates.read_error;
        if fails_now(state, OpKind::Read) || state.random.one_in(rate) {
            return Err(io(IoOp::Read, at, buf.len()));
        }
        let there = match state.read_at_most {
            0 => buf.len(),
            most => buf.len().min(most),
        };
        let buf = &mut buf[..there];
        self.read_medium(state, buf, at.0);
        self.apply_damage(state, buf, at)?;
        for (pos, data) in &state.cache {
            overlap(buf, at.0, data, *pos);
        }
        Ok(())
    }

    /// Reads the true contents of the medium, without the damage.
    fn read_medium(&self, state: &State, buf: &mut [u8], at: u64) {
        let base = self.base.as_deref();
        let read: Result<(), std::convert::Infallible> = state.durable.read(buf, at, |out, pos| {
            read_base(base, out, pos);
            Ok(())
        });
        let Ok(()) = read;
    }

    /// Reads a range that continues at the beginning of the disk after its end.
    fn read_round(&self, state: &State, buf: &mut [u8], at: u64) {
        let at = at % self.size.max(1);
        let first = (self.size - at).min(buf.len() as u64) as usize;
        let (head, tail) = buf.split_at_mut(first);
        self.read_medium(state, head, at);
        self.read_medium(state, tail, 0);
    }

    /// Applies the damage to bytes that were read from the medium.
    fn apply_damage(&self, state: &State, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        let end = at.0 + buf.len() as u64;
        for (start, (stop, kind)) in state.damage.range(..end) {
            let (from, to) = ((*start).max(at.0), (*stop).min(end));
            if from >= to {
                continue;
            }
            let len = buf.len();
            let hit = &mut buf[(from - at.0) as usize..(to - at.0) as usize];
            match kind {
                Damage::Xor(mask) => hit.iter_mut().for_each(|byte| *byte ^= mask),
                Damage::Garbage(seed) => garbage(hit, from, *seed),
                Damage::Elsewhere(distance) => self.read_round(state, hit, from.wrapping_add(*distance)),
                Damage::Unreadable => return Err(io(IoOp::Read, at, len)),
            }
        }
        Ok(())
    }

    fn write_now(&self, state: &mut State, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        let supply = self.start(state, OpKind::Write)?;
        let rates = state.rates;
        if fails_now(state, OpKind::Write) || state.random.one_in(rates.write_error) {
            if state.random.one_in(2) {
                state.cache.push((at.0, buf.to_vec()));
            }
            return Err(io(IoOp::Write, at, buf.len()));
        }
        let fate = state.next_write.take().or_else(|| {
            if state.random.one_in(rates.lost_write) {
                return Some(NextWrite::Lose);
            }
            state.random.one_in(rates.misdirected_write).then(|| {
                let places = (self.size.saturating_sub(buf.len() as u64)) / SECTOR + 1;
                NextWrite::Misdirect(state.random.below(places) * SECTOR)
            })
        });
        let (at, data) = match fate {
            None => (at.0, buf),
            Some(NextWrite::Lose) => (at.0, &buf[..0]),
            Some(NextWrite::Misdirect(to)) => (to.min(self.size.saturating_sub(buf.len() as u64)), buf),
            Some(NextWrite::Tear(sectors)) => {
                let keep = sectors.saturating_mul(SECTOR).min(buf.len() as u64) as usize;
                (at.0, &buf[..keep])
            }
        };
        if !data.is_empty() {
            state.cache.push((at, data.to_vec()));
        }
        if supply == Supply::CutNow { Err(DeviceError::PowerOff) } else { Ok(()) }
    }

    fn flush_now(&self, state: &mut State) -> Result<(), DeviceError> {
        let supply = self.start(state, OpKind::Flush)?;
        let rate = state.rates.flush_error;
        if fails_now(state, OpKind::Flush) || state.random.one_in(rate) {
            for (at, data) in std::mem::take(&mut state.cache) {
                self.settle(state, at, &data);
            }
            return Err(io(IoOp::Flush, DeviceOffset(0), 0));
        }
        if supply == Supply::CutNow {
            return Err(DeviceError::PowerOff); // `power_on` decides what of the cache was written
        }
        let rate = state.rates.lying_flush;
        if !state.random.one_in(rate) {
            for (at, data) in std::mem::take(&mut state.cache) {
                self.store(state, at, &data);
            }
        }
        Ok(())
    }
}

fn io(op: IoOp, at: DeviceOffset, len: usize) -> DeviceError {
    DeviceError::Io { op, at, len, cause: Errno::IO.into() }
}

/// Counts down to the failures that were asked for.
fn fails_now(state: &mut State, kind: OpKind) -> bool {
    let mut fails = false;
    state.fail_next.retain_mut(|(which, left)| {
        if *which != kind {
            return true;
        }
        let now = *left == 0;
        fails |= now;
        *left = left.saturating_sub(1);
        !now
    });
    fails
}

/// The cached writes without a range.
fn cut_out(cache: Vec<(u64, Vec<u8>)>, range: Range<u64>) -> Vec<(u64, Vec<u8>)> {
    let mut left = Vec::with_capacity(cache.len());
    for (at, data) in cache {
        let end = at + data.len() as u64;
        if end <= range.start || at >= range.end {
            left.push((at, data));
            continue;
        }
        if at < range.start {
            left.push((at, data[..(range.start - at) as usize].to_vec()));
        }
        if end > range.end {
            left.push((range.end, data[(range.end - at) as usize..].to_vec()));
        }
    }
    left
}

/// Removes the damage of a range.
fn heal(damage: &mut BTreeMap<u64, (u64, Damage)>, range: Range<u64>) {
    let touched: Vec<(u64, (u64, Damage))> = damage
        .range(..range.end)
        .filter(|(_, (end, _))| *end > range.start)
        .map(|(start, rest)| (*start, *rest))
        .collect();
    for (start, (end, kind)) in touched {
        damage.remove(&start);
        if start < range.start {
            damage.insert(start, (range.start, kind));
        }
        if end > range.end {
            damage.insert(range.end, (end, kind));
        }
    }
}

/// Fills a buffer with garbage that depends only on the place, so that repeated reads agree.
fn garbage(bytes: &mut [u8], at: u64, seed: u64) {
    for (pos, byte) in (at..).zip(bytes.iter_mut()) {
        let word = Random::from_seed(seed ^ (pos / 8)).next();
        *byte = word.to_le_bytes()[(pos % 8) as usize];
    }
}

/// Copies the part of `data` (at `pos`) that lies in `buf` (at `at`).
fn overlap(buf: &mut [u8], at: u64, data: &[u8], pos: u64) {
    let from = at.max(pos);
    let to = (at + buf.len() as u64).min(pos + data.len() as u64);
    if from < to {
        buf[(from - at) as usize..(to - at) as usize]
            .copy_from_slice(&data[(from - pos) as usize..(to - pos) as usize]);
    }
}

/// Reads the contents below all writes; zeros without a base.
fn read_base(base: Option<&dyn Device>, buf: &mut [u8], at: u64) {
    let Some(base) = base else { return buf.fill(0) };
    let there = base.size().saturating_sub(at).min(buf.len() as u64) as usize;
    let (head, tail) = buf.split_at_mut(there);
    tail.fill(0);
    if base.read_at(head, DeviceOffset(at)).is_err() {
        head.fill(0);
    }
}

impl Device for SimDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_sizes(&self) -> (u64, u64) {
        self.sectors
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        check_range(at, buf.len() as u64, self.size)?;
        let mut state = self.lock();
        let result = self.read_now(&mut state, buf, at);
        SimDisk::note(&mut state, OpKind::Read, at, buf.len() as u64, None, result.is_ok());
        result
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        check_range(at, buf.len() as u64, self.size)?;
        let mut state = self.lock();
        let result = self.write_now(&mut state, buf, at);
        SimDisk::note(&mut state, OpKind::Write, at, buf.len() as u64, Some(buf), result.is_ok());
        result
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut state = self.lock();
        let result = self.flush_now(&mut state);
        SimDisk::note(&mut state, OpKind::Flush, DeviceOffset(0), 0, None, result.is_ok());
        result
    }

    fn discard(&self, at: DeviceOffset, len: u64) -> Result<(), DeviceError> {
        check_range(at, len, self.size)?;
        let mut state = self.lock();
        let result = self.start(&mut state, OpKind::Discard).and_then(|supply| {
            if fails_now(&mut state, OpKind::Discard) {
                return Err(io(IoOp::Discard, at, 0));
            }
            // Undefined contents: garbage exposes callers that rely on them.
            let seed = state.random.next();
            state.cache = cut_out(std::mem::take(&mut state.cache), at.0..at.0 + len);
            let mut pos = at.0;
            while pos < at.0 + len {
                let mut bytes = vec![0; (at.0 + len - pos).min(super::sparse::PAGE) as usize];
                garbage(&mut bytes, pos, seed);
                self.store(&mut state, pos, &bytes);
                pos += bytes.len() as u64;
            }
            if supply == Supply::CutNow { Err(DeviceError::PowerOff) } else { Ok(()) }
        });
        SimDisk::note(&mut state, OpKind::Discard, at, len, None, result.is_ok());
        result
    }
}
