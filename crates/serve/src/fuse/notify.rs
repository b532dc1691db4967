//! Notifications: a server tells the kernel to forget what it remembers.
//!
//! # What always holds
//! - The kernel answers within the call. For contents it may have to wait until pages were read from the
//!   server or written back to it, for single names until what is done in their directory was answered: the
//!   thread that notifies it of these answers no requests, and others answer meanwhile.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Kinds of notifications (`enum fuse_notify_code`).
const INVAL_INODE: u32 = 2;
const INVAL_ENTRY: u32 = 3;
const INC_EPOCH: u32 = 8;
/// A name is looked up again before it is used, and no more.
const EXPIRE_ONLY: u32 = 1;

/// Tells the kernel what it must forget of a mount.
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

    /// The number of the device that the mount is: major and minor.
    pub(crate) fn number(&self) -> Option<(u32, u32)> {
        self.number
    }

    /// The descriptor from which requests are read.
    pub(super) fn device(&self) -> &OwnedFd {
        &self.device
    }

    /// The mount has not ended: the number of its device is its own, and no other's.
    pub(crate) fn is_connected(&self) -> bool {
        let mut asked = [PollFd::new(&*self.device, PollFlags::IN)];
        // Nothing is waited for.
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let done = rustix::io::retry_on_intr(|| poll(&mut asked, Some(&now)));
        done.is_ok() && !asked.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP))
    }

    /// Attributes and contents of a file, or the listing of a directory, are not what they were.
    pub(crate) fn forget_file(&self, node: u64) {
        // From the first byte to the last.
        let body = [node.to_ne_bytes(), 0_i64.to_ne_bytes(), 0_i64.to_ne_bytes()].concat();
        self.tell(INVAL_INODE, &body);
    }

    /// A range of a file is not what it was; `len` 0: all that follows. The kernel writes back first what
    /// programs have changed of it. `false`: it has not heard of it.
    pub(crate) fn forget_range(&self, node: u64, offset: u64, len: u64) -> bool {
        let body = [node, offset, len].map(u64::to_ne_bytes).concat();
        self.tell(INVAL_INODE, &body)
    }

    /// Attributes of a file are not what they were.
    pub(crate) fn forget_attributes(&self, node: u64) {
        let body = [node.to_ne_bytes(), (-1_i64).to_ne_bytes(), 0_i64.to_ne_bytes()].concat();
        self.tell(INVAL_INODE, &body);
    }

    /// A name may not be what it was: it is looked up before it is used again. If it is the same file, what
    /// is mounted there stays. Before Linux 6.2 the kernel cannot do that, and is told nothing.
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

    /// No name is what it was. The kernel takes off what is mounted below. `false`: it is older than Linux
    /// 6.16 and cannot be told.
    pub(crate) fn forget_names(&self) -> bool {
        self.tell(INC_EPOCH, &[])
    }

    /// Whether the kernel has taken it. That it knew nothing to forget is as good.
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
