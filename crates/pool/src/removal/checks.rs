//! Why a device cannot be removed.

use crate::error::PoolError;
use crate::live::LivePool;
use crate::space;
use crate::space_maps::class_of;
use dsl::DslError;
use format::config::{VdevKind, VdevNode};
use format::{Ashift, VdevId};
use vdev::tree::VdevState;
use zio::alloc::AllocClass;

/// Why a device is not removed. Each `Display` gives the words that the command prints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveRefusal {
    /// The pool has no such device.
    #[error("no such device in pool")]
    NoDevice,
    /// The device is part of a mirror or the like.
    #[error("operation not supported on this type of pool")]
    NotTop,
    /// The spare stands in for another device.
    #[error("Pool busy; removal may already be in progress")]
    SpareInUse,
    /// The pool has a RAID-Z vdev, or vdevs with different sector sizes.
    #[error("invalid config; all top-level vdevs must have the same sector size and not be raidz.")]
    Layout,
    /// The other vdevs have too little space.
    #[error("out of space")]
    NoSpace,
    /// The feature `device_removal` is not enabled.
    #[error("operation not supported on this type of pool")]
    NeedsFeature,
    /// No leaf of the vdev has all of its data, or it has blocks that cannot be moved away.
    #[error("Pool busy; removal may already be in progress")]
    Busy,
    /// The removal of another vdev is running.
    #[error("Pool busy; removal may already be in progress")]
    Running,
    /// The vdev is being removed.
    #[error("removal for this vdev is already in progress.")]
    Leaving,
    /// No removal is running.
    #[error("operation is not in progress")]
    NotRunning,
    /// The pool cannot be written.
    #[error(transparent)]
    Pool(Box<PoolError>),
}

impl From<PoolError> for RemoveRefusal {
    fn from(error: PoolError) -> RemoveRefusal {
        RemoveRefusal::Pool(Box::new(error))
    }
}

impl From<DslError> for RemoveRefusal {
    fn from(error: DslError) -> RemoveRefusal {
        PoolError::from(error).into()
    }
}

/// Whether blocks can be on a vdev and be copied from it.
fn is_evacuable(node: &VdevNode) -> bool {
    let is_plain = |kind| !matches!(kind, VdevKind::Raidz | VdevKind::Draid | VdevKind::DistributedSpare);
    is_plain(node.kind) && node.children.iter().all(is_evacuable)
}

/// The vdevs that hold data: all but logs, holes, and removed ones.
fn data_tops(root: &VdevNode) -> impl Iterator<Item = &VdevNode> {
    root.children.iter().filter(|top| {
        !top.is_log && !matches!(top.kind, VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing)
    })
}

impl LivePool {
    /// Checks that a vdev with data can be removed.
    ///
    /// # Errors
    /// The first refusal.
    pub(super) fn check_removable(&self, top: &VdevNode) -> Result<(), RemoveRefusal> {
        if !self.features.is_enabled("device_removal") {
            return Err(RemoveRefusal::NeedsFeature);
        }
        let running = self.removals.running().and_then(|phys| phys.vdev);
        if running == Some(VdevId(top.id)) {
            return Err(RemoveRefusal::Leaving);
        }
        self.check_room(top)?;
        if running.is_some() {
            return Err(RemoveRefusal::Running);
        }
        let root = self.config().vdev_tree;
        let ashift = |node: &VdevNode| node.ashift.unwrap_or(Ashift(9));
        if !data_tops(&root).all(|other| is_evacuable(other) && ashift(other) == ashift(top)) {
            return Err(RemoveRefusal::Layout);
        }
        if !self.is_whole(top) {
            return Err(RemoveRefusal::Busy);
        }
        Ok(())
    }

    /// Whether a leaf of a vdev without parity is in service and lacks nothing.
    fn is_whole(&self, top: &VdevNode) -> bool {
        let tree = self.tree();
        let status = tree.status();
        top.leaves().any(|leaf| {
            let is_here = status.find(leaf.guid).is_some_and(|leaf| leaf.state >= VdevState::Degraded);
            is_here && tree.dtl(leaf.guid).is_empty()
        })
    }

    /// Checks that the others have space for the contents of a vdev, beside the space that the pool keeps free as
    /// it is now.
    fn check_room(&self, top: &VdevNode) -> Result<(), RemoveRefusal> {
        let own = self.allocator.vdev_totals(VdevId(top.id));
        let class = class_of(space::class_of(&self.mos.view(), top)?);
        let normal = self.allocator.totals(AllocClass::Normal);
        let kept = space::slop_of(normal.size).saturating_add(normal.allocated);
        let room = match class {
            AllocClass::Normal => normal.size.saturating_sub(own.size).saturating_sub(kept),
            other => {
                let all = self.allocator.totals(other);
                let beside = all.size.saturating_sub(own.size);
                let free = beside.saturating_sub(all.allocated.saturating_sub(own.allocated));
                normal.size.saturating_sub(kept).saturating_add(free)
            }
        };
        // The contents of a normal vdev are in `kept`.
        let needed = if class == AllocClass::Normal { 1 } else { own.allocated };
        if room < needed { Err(RemoveRefusal::NoSpace) } else { Ok(()) }
    }
}
