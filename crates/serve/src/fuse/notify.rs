//! Notifications: a server tells the kernel to drop cached data.
//!
//! # What always holds
//! - The kernel completes a notification within the call. For contents it may have to wait until pages were
//!   read from the server or written back to it, for single names until calls in their directory were
//!   answered. So the thread that sends these notifications must not be one that answers requests, and other
//!   threads must answer meanwhile.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Kinds of notifications (`enum fuse_notify_code`).
const INVAL_INODE: u32 = 2;
const INVAL_ENTRY: u32 = 3;
const INC_EPOCH: u32 = 8;
/// Flag: the name is looked up again before its next use, and not dropped.
const EXPIRE_ONLY: u32 = 1;

/// Tells the kernel what to drop from its caches of a mount.
#[derive(Debug)]
pub struct Notifier {
    device: Arc<OwnedFd>,
    /// Major and minor number of the device of the mount; `None` if it is not known.
    number: Option<(u32, u32)>,
    can_expire: bool,
}

impl Notifier {
    pub(super) fn new(device: Arc<OwnedFd>, number: Option<(u32, u32)>, can_expire: bool) -> Notifier {
        Notifier { device, number, can_expire }
    }

    /// Device number of the mount: major and minor; `None` if it is not known.
    pub(crate) fn number(&self) -> Option<(u32, u32)> {
        self.number
    }

    /// The descriptor from which requests are read.
    pub(super) fn device(&self) -> &OwnedFd {
        &self.device
    }

    /// Whether the mount has not ended. While it has not, its device number belongs to no other mount.
    pub(crate) fn is_connected(&self) -> bool {
        let mut asked = [PollFd::new(&*self.device, PollFlags::IN)];
        // The timeout is zero: the call does not wait.
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let done = rustix::io::retry_on_intr(|| poll(&mut asked, Some(&now)));
        done.is_ok() && !asked.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP))
    }

    /// Has the kernel drop the attributes and contents of a file, or the listing of a directory.
    pub(crate) fn forget_file(&self, node: u64) {
        // From the first byte to the last.
        let body = [node.to_ne_bytes(), 0_i64.to_ne_bytes(), 0_i64.to_ne_bytes()].concat();
        self.tell(INVAL_INODE, &body);
    }

    /// Has the kernel write back and drop a range of a file; `len` 0: to the end. `false`: the kernel did not
    /// do it.
    pub(crate) fn forget_range(&self, node: u64, offset: u64, len: u64) -> bool {
        let body = [node, offset, len].map(u64::to_ne_bytes).concat();
        self.tell(INVAL_INODE, &body)
    }

    /// Has the kernel drop the attributes of a file.
    pub(crate) fn forget_attributes(&self, node: u64) {
        let body = [node.to_ne_bytes(), (-1_i64).to_ne_bytes(), 0_i64.to_ne_bytes()].concat();
        self.tell(INVAL_INODE, &body);
    }

    /// Has the kernel look a name up again before its next use. If it still is the same file, mounts on it
    /// stay. Does nothing before Linux 6.2, which cannot do that.
    pub(crate) fn look_again(&self, dir: u64, name: &[u8]) {
        if !self.can_expire {
            return;
        }
        let mut body = dir.to_ne_bytes().to_vec();
        body.extend(u32::try_from(name.len()).unwrap_or(0).to_ne_bytes());
        body.extend(EXPIRE_ONLY.to_ne_bytes());
        body.extend(name);
        body.push(0);
        self.tell(INVAL_ENTRY, &body);
    }

    /// Has the kernel drop all names of the mount, with the mounts on directories below. `false`: the kernel
    /// is older than Linux 6.16 and cannot.
    pub(crate) fn forget_names(&self) -> bool {
        self.tell(INC_EPOCH, &[])
    }

    /// Sends a notification; returns whether the kernel has processed it. An answer that the kernel has
    /// nothing to drop counts as success.
    fn tell(&self, kind: u32, body: &[u8]) -> bool {
        const HEADER: usize = 16;
        let len = u32::try_from(HEADER + body.len()).unwrap_or(0);
        let mut message = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        message.extend(0_u64.to_ne_bytes());
        message.extend(body);
        match rustix::io::retry_on_intr(|| rustix::io::write(&*self.device, &message)) {
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY) => true,
            Err(error) => {
                tracing::debug!(kind, %error, "the kernel did not take a notification");
                false
            }
        }
    }
}
