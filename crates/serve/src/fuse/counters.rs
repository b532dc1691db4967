//! Counters of the requests of a mount, by kind. Each thread has its own set of counters while there are
//! enough sets, so that counting is an addition to memory that no other thread writes.

use super::proto::input::{Bytes, Request};
use super::proto::op;
use admin::{FILE_OPS, FileOp, FileOps};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of sets of counters.
const SHARDS: usize = 8;

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS
    };
}

/// One set of counters, in cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Shard([AtomicU64; FILE_OPS]);

impl Default for Shard {
    fn default() -> Shard {
        Shard([const { AtomicU64::new(0) }; FILE_OPS])
    }
}

/// Counters of one mount.
#[derive(Debug, Default)]
pub struct FileCounters([Shard; SHARDS]);

impl FileCounters {
    fn add(&self, op: FileOp, number: u64) {
        let shard = &self.0[SHARD.with(|shard| *shard)];
        shard.0[op as usize].fetch_add(number, Ordering::Relaxed);
    }

    /// The sums of all sets at this moment.
    pub(crate) fn sample(&self) -> FileOps {
        let sum = |i: usize| self.0.iter().map(|shard| shard.0[i].load(Ordering::Relaxed)).sum();
        FileOps(std::array::from_fn(sum))
    }

    /// Counts a request that was answered with so many bytes.
    pub(super) fn note(&self, request: &Request<'_>, answer: &Result<usize, Errno>) {
        let Some(kind) = kind(request.header.opcode) else { return };
        // The kernel then does the same by other requests, which are counted.
        if matches!(answer, Err(rustix::io::Errno::NOSYS)) {
            return;
        }
        self.add(kind, 1);
        let Ok(bytes) = answer else { return };
        match kind {
            FileOp::Read => self.add(FileOp::ReadBytes, *bytes as u64),
            FileOp::ReadDir => self.add(FileOp::ReadDirBytes, *bytes as u64),
            // The size follows the handle and the offset.
            FileOp::Write => {
                let size = request.fixed.get(16..).and_then(|rest| Bytes::new(rest).u32());
                self.add(FileOp::WriteBytes, u64::from(size.unwrap_or(0)));
            }
            _ => {}
        }
    }
}

/// The counter of a kind of request; `None` for kinds that are not counted.
fn kind(opcode: u32) -> Option<FileOp> {
    Some(match opcode {
        op::CREATE | op::MKNOD | op::TMPFILE => FileOp::Create,
        op::MKDIR => FileOp::MakeDir,
        op::SYMLINK => FileOp::Symlink,
        op::LINK => FileOp::Link,
        op::UNLINK => FileOp::Remove,
        op::RMDIR => FileOp::RemoveDir,
        op::RENAME | op::RENAME2 => FileOp::Rename,
        op::LOOKUP => FileOp::Lookup,
        op::READDIR | op::READDIRPLUS => FileOp::ReadDir,
        op::READLINK => FileOp::ReadLink,
        op::GETATTR | op::STATX => FileOp::GetAttr,
        op::SETATTR => FileOp::SetAttr,
        op::GETXATTR | op::LISTXATTR => FileOp::GetXattr,
        op::SETXATTR | op::REMOVEXATTR => FileOp::SetXattr,
        op::OPEN | op::OPENDIR => FileOp::Open,
        op::RELEASE | op::RELEASEDIR => FileOp::Close,
        op::FSYNC | op::FSYNCDIR | op::SYNCFS => FileOp::Sync,
        op::READ => FileOp::Read,
        op::WRITE => FileOp::Write,
        op::FALLOCATE => FileOp::Space,
        op::COPY_FILE_RANGE => FileOp::Copy,
        op::LSEEK => FileOp::Seek,
        op::STATFS => FileOp::StatFs,
        // Part of closing a file, or not made by a program.
        op::FLUSH | op::DESTROY | op::INIT | op::FORGET | op::BATCH_FORGET | op::INTERRUPT => return None,
        _ => FileOp::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::super::proto::input::Header;
    use super::*;

    fn request(opcode: u32, fixed: &[u8]) -> Request<'_> {
        let header = Header { len: 40, opcode, unique: 1, node: 1, uid: 0, gid: 0, pid: 1, extensions: 0 };
        Request { header, fixed, rest: &[] }
    }

    #[test]
    fn requests_and_their_bytes_are_counted() {
        let counters = FileCounters::default();
        let mut write = vec![0; 16];
        write.extend(300_u32.to_ne_bytes());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        counters.note(&request(op::READ, &[]), &Ok(4096));
                        counters.note(&request(op::WRITE, &write), &Ok(8));
                    }
                });
            }
        });
        counters.note(&request(op::READ, &[]), &Err(rustix::io::Errno::IO));
        counters.note(&request(op::RENAME2, &[]), &Ok(0));
        counters.note(&request(op::FLUSH, &[]), &Ok(0));
        counters.note(&request(op::CREATE, &[]), &Err(rustix::io::Errno::NOSYS));
        counters.note(&request(op::WRITE, &[1, 2]), &Ok(8));
        let sum = counters.sample();
        assert_eq!((sum.of(FileOp::Read), sum.of(FileOp::ReadBytes)), (401, 400 * 4096));
        assert_eq!((sum.of(FileOp::Write), sum.of(FileOp::WriteBytes)), (401, 400 * 300));
        assert_eq!((sum.of(FileOp::Rename), sum.of(FileOp::Other)), (1, 0));
        assert_eq!(sum.of(FileOp::Create), 0);
    }
}
