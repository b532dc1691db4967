//! Why a device cannot be removed.

use crate::error::PoolError;
use crate::live::LivePool;
use crate::space::{self, Class};
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
    #[error("device is in use as a spare")]
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
    /// The vdev lacks data, or has blocks that cannot be moved away.
    #[error("pool is busy")]
    Busy,
    /// A removal is running.
    #[error("device removal in progress")]
    Running,
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
        if self.removals.running().is_some() {
            return Err(RemoveRefusal::Running);
        }
        let root = self.config().vdev_tree;
        self.check_room(top)?;
        let ashift = |node: &VdevNode| node.ashift.unwrap_or(Ashift(9));
        if !data_tops(&root).all(|other| is_evacuable(other) && ashift(other) == ashift(top)) {
            return Err(RemoveRefusal::Layout);
        }
        if !self.is_whole(top) {
            return Err(RemoveRefusal::Busy);
        }
        Ok(())
    }

    /// Whether all leaves of a vdev are in service and lack nothing.
    fn is_whole(&self, top: &VdevNode) -> bool {
        let tree = self.tree();
        let status = tree.status();
        top.leaves().all(|leaf| {
            let is_here = status.find(leaf.guid).is_some_and(|leaf| leaf.state >= VdevState::Degraded);
            is_here && tree.dtl(leaf.guid).is_empty()
        })
    }

    /// Checks that the others have space for the contents of a vdev, without the space that the pool keeps free.
    fn check_room(&self, top: &VdevNode) -> Result<(), RemoveRefusal> {
        let vdev = VdevId(top.id);
        let used = self.allocator.vdev_totals(vdev);
        let class = space::class_of(&self.mos.view(), top)?;
        let free_in = |class: AllocClass| {
            let all = self.allocator.totals(class);
            let own = if class_of_top(class, top, self) { used } else { Default::default() };
            let (size, taken) = (all.size - own.size, all.allocated - own.allocated);
            size.saturating_sub(taken)
        };
        let own_class = match class {
            Class::Normal => 0,
            _ => free_in(class_of(class)),
        };
        let normal = self.allocator.totals(AllocClass::Normal);
        let left = normal.size - if class == Class::Normal { used.size } else { 0 };
        let room = free_in(AllocClass::Normal).saturating_sub(space::slop_of(left));
        if room.saturating_add(own_class) < used.allocated { Err(RemoveRefusal::NoSpace) } else { Ok(()) }
    }
}

/// Whether a vdev is of a class.
fn class_of_top(class: AllocClass, top: &VdevNode, pool: &LivePool) -> bool {
    space::class_of(&pool.mos.view(), top).is_ok_and(|own| class_of(own) == class)
}
