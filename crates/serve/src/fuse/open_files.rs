//! The files that a program has open, from `/proc`: whether one is open through a mount that can be written
//! to.

use crate::export::Caller;

/// Identity of a file in `/proc`.
pub(crate) struct OpenFile {
    /// Device number of the mount: major and minor; `None` if it is not known.
    pub(crate) device: Option<(u32, u32)>,
    /// Its possible inode numbers: the node number and the object number.
    pub(crate) numbers: [u64; 2],
}

/// Whether the calling program has a file open through a mount that can be written to.
pub(crate) fn writes_to(caller: &Caller, file: &OpenFile) -> bool {
    if caller.pid == 0 {
        return true;
    }
    let of = |file: &str| format!("/proc/{}/{file}", caller.pid);
    let mounts = std::fs::read_to_string(of("mountinfo")).unwrap_or_default();
    let open = std::fs::read_dir(of("fdinfo")).into_iter().flatten().flatten();
    open.filter_map(|file| std::fs::read_to_string(file.path()).ok()).any(|info| {
        let says = |field: &str| numbered(&info, field);
        says("ino:").is_some_and(|ino| file.numbers.contains(&ino))
            && says("mnt_id:").is_some_and(|mount| is_writable(&mounts, mount, file.device))
    })
}

/// The number after a word at the beginning of a line.
fn numbered(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
}

/// Whether mount number `mount` is of this device, and its own options allow writing.
fn is_writable(mountinfo: &str, mount: u64, device: Option<(u32, u32)>) -> bool {
    let device = device.map(|(major, minor)| format!("{major}:{minor}"));
    mountinfo.lines().any(|line| {
        let mut words = line.split(' ');
        let is_it = words.next().and_then(|word| word.parse().ok()) == Some(mount);
        // Files of other file systems have the same inode numbers.
        let number = words.nth(1);
        let is_here = device.as_deref().is_none_or(|device| number == Some(device));
        let options = words.nth(2);
        is_it && is_here && options.is_some_and(|options| options.split(',').all(|option| option != "ro"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_that_are_only_read_are_told_from_others() {
        let table = "31 1 0:27 / /a rw,nosuid - fuse p rw\n32 1 0:27 / /b ro,nosuid - fuse p rw\n";
        let writable = |mount, device| is_writable(table, mount, device);
        assert!(writable(31, None) && !writable(32, None) && !writable(3, None));
        assert!(writable(31, Some((0, 27))) && !writable(31, Some((0, 28))));
        let info = "pos:\t0\nflags:\t0100000\nmnt_id:\t32\nino:\t7\n";
        assert_eq!((numbered(info, "mnt_id:"), numbered(info, "ino:")), (Some(32), Some(7)));
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let file = rustix::fs::open("/proc/self/status", flags, rustix::fs::Mode::empty()).unwrap();
        let caller = Caller { pid: std::process::id(), ..Caller::default() };
        let ino = rustix::fs::fstat(&file).unwrap().st_ino;
        let writes = |device, ino| writes_to(&caller, &OpenFile { device, numbers: [ino, ino] });
        assert!(writes(None, ino) && !writes(None, u64::MAX) && !writes(Some((u32::MAX, 0)), ino));
    }
}
