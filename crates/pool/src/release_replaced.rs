//! The end of replacements, and spares that go back (docs/on-disk/14-vdevs.md, section 8).
//!
//! # What always holds
//! - A device that is replaced leaves when the new one has all data: after the resilver, or when the pool is
//!   opened, if a crash came between.
//! - A spare leaves when the device that it stands in for has all data again and was declared to be in order
//!   (`unspare`): it was replaced or cleared, or an attended pool saw it return.
//! - Nothing leaves that other devices still need, and nothing while there is a checkpoint: its configuration names what
//!   would leave.

use crate::diagnosis;
use crate::error::PoolError;
use crate::live::LivePool;
use crate::vdev_shape::is_mirror_like;
use format::VdevGuid;
use format::config::{VdevKind, VdevNode};
use vdev::VdevTree;
use vdev::tree::VdevState;

impl LivePool {
    /// Detaches all leaves that are not needed any more, one after the other.
    ///
    /// # Errors
    /// [`PoolError`] if a txg cannot be written.
    pub(crate) fn release_replaced(&self) -> Result<(), PoolError> {
        if self.check_no_checkpoint().is_err() {
            return Ok(());
        }
        while let Some(leaf) = superfluous(&self.tree()) {
            match self.detach_now(leaf) {
                Ok(()) => {}
                // Something has changed meanwhile.
                Err(
                    why @ (PoolError::Shape { .. }
                    | PoolError::CheckpointExists { .. }
                    | PoolError::DiscardingCheckpoint { .. }),
                ) => {
                    tracing::debug!(pool = self.name(), %leaf, %why, "a leaf stays");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Like [`LivePool::release_replaced`], for a caller that does not hold the jobs.
    ///
    /// # Errors
    /// [`PoolError`] if a txg cannot be written.
    pub(crate) fn release_idle(&self) -> Result<(), PoolError> {
        if self.check_no_checkpoint().is_err() || superfluous(&self.tree()).is_none() {
            return Ok(());
        }
        let _driver = self.jobs.hold();
        self.release_replaced()
    }
}

/// The next leaf that is not needed any more.
fn superfluous(tree: &VdevTree) -> Option<VdevGuid> {
    let has_any = |node: &VdevNode| matches!(node.kind, VdevKind::Replacing | VdevKind::Spare);
    if !tree.config().walk().any(has_any) {
        return None;
    }
    let status = tree.status();
    let facts = Facts {
        tree,
        is_online: &|leaf| status.find(leaf).is_some_and(|leaf| leaf.state == VdevState::Online),
    };
    tree.config().children.iter().find_map(|top| facts.superfluous_below(top))
}

/// The facts about leaves on which it depends whether they are needed.
struct Facts<'a> {
    tree: &'a VdevTree,
    is_online: &'a dyn Fn(VdevGuid) -> bool,
}

impl Facts<'_> {
    /// The vdevs below come first: a replacement below a spare ends before the spare is looked at.
    fn superfluous_below(&self, node: &VdevNode) -> Option<VdevGuid> {
        let below = node.children.iter().find_map(|child| self.superfluous_below(child));
        below.or_else(|| {
            let candidate = match node.kind {
                VdevKind::Replacing => self.replaced(node),
                VdevKind::Spare => self.returning(node),
                _ => None,
            };
            candidate.filter(|leaf| diagnosis::can_do_without(self.tree, &[*leaf]))
        })
    }

    /// The device that is replaced, if the last one has all data.
    fn replaced(&self, node: &VdevNode) -> Option<VdevGuid> {
        let (last, others) = node.children.split_last()?;
        if !self.is_whole(last) {
            return None;
        }
        // Of a device and its spare the spare leaves first, so that it goes back to the spares.
        others.iter().find_map(|other| other.leaves().last()).map(|leaf| leaf.guid)
    }

    /// The spare that is not needed any more, because the original is in order, or a later spare has all data.
    fn returning(&self, node: &VdevNode) -> Option<VdevGuid> {
        let (first, spares) = node.children.split_first()?;
        let (last, earlier) = spares.split_last()?;
        if first.unspare && self.is_whole(first) {
            return Some(last.guid).filter(|_| last.is_spare);
        }
        let earlier = earlier.first().filter(|spare| spare.is_spare && self.is_whole(last));
        earlier.map(|spare| spare.guid)
    }

    /// Whether a vdev has all data and can be relied on.
    fn is_whole(&self, node: &VdevNode) -> bool {
        if is_mirror_like(node.kind) {
            return node.children.iter().any(|child| self.is_whole(child));
        }
        node.resilver_txg.0 == 0
            && node.rebuild_txg.0 == 0
            && (self.is_online)(node.guid)
            && self.tree.dtl(node.guid).is_empty()
    }
}
