//! I/O counters of a device or a process, as the kernel reports them.

use std::path::Path;

/// Unit of the counts of `/sys/block/NAME/stat`, in bytes.
const SECTOR: u64 = 512;

/// I/O of a device or a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DeviceUse {
    /// Bytes read.
    pub(super) read: u64,
    /// Bytes written.
    pub(super) written: u64,
    /// Number of read requests, if it is known.
    pub(super) reads: Option<u64>,
}

impl DeviceUse {
    /// Totals of a block device since it was attached.
    pub(super) fn of_disk(device: &Path) -> Option<DeviceUse> {
        let name = device.file_name()?.to_str()?;
        DeviceUse::of_stat(&std::fs::read_to_string(format!("/sys/block/{name}/stat")).ok()?)
    }

    /// Totals from the text of `/sys/block/NAME/stat`.
    pub(super) fn of_stat(text: &str) -> Option<DeviceUse> {
        let fields: Vec<u64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let (reads, read, written) = (fields.first()?, fields.get(2)? * SECTOR, fields.get(6)? * SECTOR);
        Some(DeviceUse { read, written, reads: Some(*reads) })
    }

    /// Totals of all devices on behalf of a process.
    pub(super) fn of_process(pid: u32) -> Option<DeviceUse> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        Some(DeviceUse { read: value("read_bytes:")?, written: value("write_bytes:")?, reads: None })
    }

    /// The difference from an earlier total.
    pub(super) fn since(self, before: DeviceUse) -> DeviceUse {
        let reads = self.reads.zip(before.reads).map(|(now, before)| now.saturating_sub(before));
        let (read, written) =
            (self.read.saturating_sub(before.read), self.written.saturating_sub(before.written));
        DeviceUse { read, written, reads }
    }
}
