//! What a server tells the kernel unasked: that it must forget what it remembers.
//!
//! # What always holds
//! - The kernel answers within the call. It may have to wait for pages that are being written back to the server:
//!   whoever notifies is no thread that answers requests.

use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Kinds of notifications.
const INVAL_INODE: u32 = 2;
const INVAL_ENTRY: u32 = 3;
const INC_EPOCH: u32 = 8;

/// Tells the kernel what it must forget of a mount.
#[derive(Debug)]
pub struct Notifier {
    device: OwnedFd,
}

impl Notifier {
    pub(super) fn new(device: OwnedFd) -> Notifier {
        Notifier { device }
    }

    /// Attributes and contents of a file, or the listing of a directory, are not what they were.
    pub fn forget_file(&self, node: u64) {
        // From the first byte to the last.
        let body = [node.to_ne_bytes(), 0_i64.to_ne_bytes(), 0_i64.to_ne_bytes()].concat();
        self.tell(INVAL_INODE, &body);
    }

    /// A name is not what it was, or is there now.
    pub fn forget_name(&self, dir: u64, name: &[u8]) {
        let mut body = dir.to_ne_bytes().to_vec();
        body.extend(u32::try_from(name.len()).unwrap_or(0).to_ne_bytes());
        body.extend(0_u32.to_ne_bytes());
        body.extend(name);
        body.push(0);
        self.tell(INVAL_ENTRY, &body);
    }

    /// No name is what it was. `false`: the kernel is older than Linux 6.16 and cannot be told.
    pub fn forget_names(&self) -> bool {
        self.tell(INC_EPOCH, &[])
    }

    /// Whether the kernel has taken it. That it knew nothing to forget is as good.
    fn tell(&self, kind: u32, body: &[u8]) -> bool {
        const HEADER: usize = 16;
        let len = u32::try_from(HEADER + body.len()).unwrap_or(0);
        let mut message = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        message.extend(0_u64.to_ne_bytes());
        message.extend(body);
        match rustix::io::retry_on_intr(|| rustix::io::write(&self.device, &message)) {
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY) => true,
            Err(error) => {
                tracing::debug!(kind, %error, "the kernel did not take a notification");
                false
            }
        }
    }
}
