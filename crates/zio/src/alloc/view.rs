//! The top-level vdevs as one request sees them: the vdevs that serve a class, and the vdev whose turn it is.
//!
//! The vdevs of a class take turns. A turn is 512 KiB for each disk of the class, distributed by free space:
//! so vdevs fill up together, and blocks that are written together lie together.

use super::top::Top;
use super::types::{AllocClass, Request};
use format::{Psize, Txg, VdevId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};
use vdev::tree::{VdevState, VdevTree};

/// Bytes of a turn for each child of a vdev.
const ALIQUOT: u64 = 512 << 10;
/// Fewest bytes that are allocated from a vdev before the next one takes its turn.
const TURN_MIN: u64 = 64 << 10;

/// A kind of space that can serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pick {
    /// Vdevs of a class, without the metaslabs that they set aside for the intent log.
    Class(AllocClass),
    /// Metaslabs that normal vdevs set aside for the intent log.
    EmbeddedLog,
}

/// The kinds of space that serve a class, in order.
pub(super) fn fallbacks(class: AllocClass) -> &'static [Pick] {
    use AllocClass::{Dedup, Log, Normal, Special};
    match class {
        Normal => &[Pick::Class(Normal)],
        Log => &[Pick::Class(Log), Pick::EmbeddedLog, Pick::Class(Normal)],
        Special => &[Pick::Class(Special), Pick::Class(Normal)],
        Dedup => &[Pick::Class(Dedup), Pick::Class(Special), Pick::Class(Normal)],
    }
}

/// The vdevs that serve a [`Pick`].
#[derive(Debug, Default)]
pub(super) struct Group {
    /// The vdevs of the group, as indexes into [`View::tops`].
    pub(super) tops: Vec<usize>,
    turn: AtomicUsize,
    left: AtomicI64,
}

impl Group {
    /// Position in `tops` of the vdev whose turn it is.
    pub(super) fn turn(&self) -> usize {
        self.turn.load(Relaxed)
    }

    /// Notes that `bytes` were allocated from the vdev at `position`.
    pub(super) fn took(&self, position: usize, bytes: u64, view: &View) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if position != self.turn() {
            // The vdev whose turn it was had no space for such a block.
            self.turn.store(position, Relaxed);
            self.left.store(self.turn_bytes(position, view), Relaxed);
        }
        if self.left.fetch_sub(bytes, Relaxed) <= bytes {
            let next = (position + 1) % self.tops.len();
            self.turn.store(next, Relaxed);
            self.left.store(self.turn_bytes(next, view), Relaxed);
        }
    }

    fn turn_bytes(&self, position: usize, view: &View) -> i64 {
        let round: u64 = self.tops.iter().map(|top| view.children[*top] * ALIQUOT).sum();
        let free = |top: &usize| u128::from(view.tops[*top].free());
        let all: u128 = self.tops.iter().map(free).sum();
        let share = u128::from(round) * self.tops.get(position).map_or(0, free) / all.max(1);
        i64::try_from(share).unwrap_or(i64::MAX).max(TURN_MIN as i64)
    }
}

/// A snapshot of the pool's vdevs.
#[derive(Debug)]
pub(super) struct View {
    pub(super) tree: Arc<VdevTree>,
    pub(super) tops: Vec<Arc<Top>>,
    by_vdev: HashMap<VdevId, usize>,
    /// Deflate ratio of each of `tops`.
    pub(super) ratios: Vec<u64>,
    /// Children of each of `tops`, at least 1.
    children: Vec<u64>,
    /// Whether each of `tops` takes new blocks.
    pub(super) is_usable: Vec<bool>,
    normal: Group,
    log: Group,
    special: Group,
    dedup: Group,
    embedded_log: Group,
}

impl View {
    pub(super) fn new(tree: Arc<VdevTree>, tops: Vec<Arc<Top>>) -> View {
        let is_usable = usable(&tree, &tops);
        let group = |serves: &dyn Fn(&Top) -> bool| {
            let tops = tops.iter().enumerate().filter(|(index, top)| is_usable[*index] && serves(top));
            Group { tops: tops.map(|(index, _)| index).collect(), ..Group::default() }
        };
        let of_class = |class| group(&|top| top.class == class);
        let children =
            |top: &Arc<Top>| tree.top(top.vdev).map_or(1, |node| node.children.len().max(1) as u64);
        View {
            by_vdev: tops.iter().enumerate().map(|(index, top)| (top.vdev, index)).collect(),
            ratios: tops.iter().map(|top| tree.deflate_ratio(top.vdev)).collect(),
            children: tops.iter().map(children).collect(),
            normal: of_class(AllocClass::Normal),
            log: of_class(AllocClass::Log),
            special: of_class(AllocClass::Special),
            dedup: of_class(AllocClass::Dedup),
            embedded_log: group(&|top| top.log_metaslab.is_some()),
            is_usable,
            tree,
            tops,
        }
    }

    /// Whether the state of a vdev has changed since this was made.
    pub(super) fn is_outdated(&self) -> bool {
        usable(&self.tree, &self.tops) != self.is_usable
    }

    pub(super) fn find(&self, vdev: VdevId) -> Option<usize> {
        self.by_vdev.get(&vdev).copied()
    }

    pub(super) fn group(&self, pick: Pick) -> &Group {
        match pick {
            Pick::EmbeddedLog => &self.embedded_log,
            Pick::Class(AllocClass::Normal) => &self.normal,
            Pick::Class(AllocClass::Log) => &self.log,
            Pick::Class(AllocClass::Special) => &self.special,
            Pick::Class(AllocClass::Dedup) => &self.dedup,
        }
    }

    /// The largest block below the size of `want` that fits a free segment, as far as known.
    pub(super) fn largest(&self, want: &Request, txg: Txg) -> Psize {
        let mut largest = Psize(0);
        for pick in fallbacks(want.class) {
            for index in &self.group(*pick).tops {
                let top = &self.tops[*index];
                let room = top.largest(*pick == Pick::EmbeddedLog);
                largest = largest.max(self.psize_within(top, room, want.psize, txg));
            }
        }
        largest
    }

    /// The largest block smaller than `below` that takes at most `room` bytes of a vdev.
    fn psize_within(&self, top: &Top, room: u64, below: Psize, txg: Txg) -> Psize {
        let sector = 1_u64 << top.ashift();
        let fits = |sectors: u64| {
            let asize = self.tree.psize_to_asize(top.vdev, Psize(sectors * sector), txg);
            asize.is_some_and(|asize| asize.0 <= room)
        };
        // The allocated size of a block never decreases with its size.
        let (mut fitting, mut too_large) = (0, below.0.div_ceil(sector));
        while fitting + 1 < too_large {
            let middle = fitting + (too_large - fitting) / 2;
            if fits(middle) {
                fitting = middle;
            } else {
                too_large = middle;
            }
        }
        Psize(fitting * sector)
    }
}

/// The vdevs that take new blocks: by their own state, the configuration and the administrator.
fn usable(tree: &VdevTree, tops: &[Arc<Top>]) -> Vec<bool> {
    let status = tree.status();
    let usable = |top: &Arc<Top>| {
        let vdev = status.children.get(top.vdev.0 as usize);
        top.is_allocating
            && vdev.is_some_and(|v| v.state >= VdevState::Degraded && !v.removing && !v.non_allocating)
    };
    tops.iter().map(usable).collect()
}
