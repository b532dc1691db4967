//! Detaching a side of a mirror, of a replacement or of a spare (docs/on-disk/14-vdevs.md, section 8).
//!
//! # What always holds
//! - A leaf is detached only if the others have every block without it.
//! - Its labels are rewritten after the txg that detaches it is on disk: a crash before that leaves the pool as it
//!   was, with the leaf; a crash after it leaves a device whose labels name a leaf that the pool does not have.
//! - A spare goes back to the list of spares with a label that says so. A spare whose device is detached instead
//!   stays for good, and is no spare any more.
//!
//! Tests: `tests/it/live/replacing.rs`, `crates/crash`.

use crate::attach::refuse;
use crate::aux::change::{AuxKind, aux_label};
use crate::config::{find_mut, initial_label};
use crate::diagnosis;
use crate::error::PoolError;
use crate::live::{LivePool, PoolTask};
use crate::refusal::ShapeRefusal;
use crate::vdev_shape::{self as shape, Departed};
use crate::vdev_zaps;
use dsl::TaskCtx;
use format::config::{PoolConfig, VdevNode};
use format::nvlist::NvList;
use format::uberblock::Uberblock;
use format::{Txg, VdevGuid};
use std::sync::Arc;
use vdev::sync::lock;
use vdev::{Device, VdevTree, label_write};

/// The labels that a device gets when it has left the tree.
struct LastLabels {
    device: Arc<dyn Device>,
    list: NvList,
    template: Uberblock,
}

/// What has left the tree, and the tree before that.
struct Outcome {
    departed: Departed,
    before: Arc<VdevTree>,
    labels: Option<LastLabels>,
}

impl LivePool {
    /// Detaches a leaf. Its device is free for other uses then; a spare is available again.
    ///
    /// # Errors
    /// [`PoolError::Shape`] with the reason: nothing has changed then. Otherwise the error of the txg that failed.
    pub fn detach(&self, leaf: VdevGuid) -> Result<(), PoolError> {
        // Ends a running slice, which may still write to the leaf.
        drop(self.jobs.hold());
        self.detach_now(leaf)
    }

    /// Like [`LivePool::detach`], for a caller that holds the jobs.
    pub(crate) fn detach_now(&self, leaf: VdevGuid) -> Result<(), PoolError> {
        let Outcome { departed, before, labels } =
            self.run_on_pool(move |ctx, pool| pool.detach(ctx, leaf))?;
        if let Some(LastLabels { device, list, template }) = labels
            && let Err(error) = label_write::init(&*device, &list, &template)
        {
            // The pool does not need the device any more.
            tracing::warn!(pool = self.name(), %leaf, %error, "the labels of a detached device");
        }
        if departed.heir.is_some() {
            self.events().sysevent("vdev_remove_aux", NvList::new());
        }
        self.events().vdev_sysevent("vdev_remove", &before, leaf);
        self.events().sysevent("config_sync", NvList::new());
        Ok(())
    }
}

impl PoolTask<'_> {
    fn detach(&mut self, ctx: &mut TaskCtx<'_>, leaf: VdevGuid) -> Result<Outcome, PoolError> {
        let (m, pool, template) = (ctx.m(), self.pool, self.state.uberblock);
        let before = pool.tree();
        let labels_of = |config: &PoolConfig, departed: &Departed| {
            let device = before.device(leaf)?;
            let list = if departed.leaf.is_spare {
                aux_label(AuxKind::Spare, config, &departed.leaf)
            } else {
                let mut config = config.clone();
                find_mut(&mut config.vdev_tree, leaf)?.create_txg = Txg(0);
                initial_label(&config, leaf, Txg(0))
            };
            Some(LastLabels { device, list, template })
        };
        let (departed, labels) = pool.change_tree(self.state, |next| {
            let config = next.config.clone();
            pool.check_no_checkpoint()?;
            let root = &mut next.config.vdev_tree;
            let place = shape::place_of(root, leaf).ok_or(refuse(ShapeRefusal::NoSuchDevice))?;
            let departed = shape::part(root, &place).map_err(refuse)?;
            if !diagnosis::can_do_without(next.now(), &[leaf]) {
                return Err(refuse(ShapeRefusal::NoReplicas));
            }
            next.former.extend(departed.renamed);
            next.check()?;
            let labels = labels_of(&config, &departed);
            vdev_zaps::free_of_leaf(m, &departed.leaf)?;
            if let Some(heir) = &departed.heir {
                pool.forget_spare(m, heir.guid)?;
            }
            Ok((departed, labels))
        })?;
        pool.follow(&departed, &before);
        self.end_deferring(m)?;
        self.state.diagnosis.leave(leaf);
        self.state.mark_all();
        let path = |node: &VdevNode| node.path.clone().unwrap_or_default();
        if let Some(heir) = &departed.heir {
            ctx.note("vdev remove", None, format!("{} vdev (spare) {}", pool.name(), path(heir)));
        }
        ctx.note("detach", None, format!("vdev={}", path(&departed.leaf)));
        Ok(Outcome { departed, before, labels })
    }
}

impl LivePool {
    /// Has what the pool remembers of its leaves follow the change.
    fn follow(&self, departed: &Departed, before: &VdevTree) {
        let gone = departed.leaf.guid;
        self.out_of_service.forget(gone);
        self.scans.forget_leaf(gone);
        if let Some((now, former)) = departed.renamed {
            self.scans.rename(now, former);
        }
        let mut aux = lock(&self.aux);
        if departed.leaf.is_spare {
            aux.insert(gone, before.device(gone));
        }
        if let Some(heir) = &departed.heir {
            aux.remove(&heir.guid);
        }
    }
}
