//! Mounting and unmounting: by system call for root, with `fusermount3` for other users.

use super::options::{MountError, MountOptions};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Type and subtype of the file system: the table of mounts shows both, with a dot between them.
const KIND: &str = "fuse";
const SUBKIND: &str = "cenote";
const HELPER: &str = "fusermount3";

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A mount that is not attached to a directory yet; it ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Apart {
    mount: OwnedFd,
    /// Device number of the mount: major and minor.
    pub(super) number: (u32, u32),
}

/// A new mount, and the descriptor from which its requests are read.
pub(super) struct Made {
    pub(super) device: OwnedFd,
    /// The mount itself, if it still has to be attached to its directory.
    pub(super) apart: Option<Apart>,
}

/// Makes a mount for the directory `at`.
pub(super) fn mount(at: &Path, options: &MountOptions) -> Result<Made, MountError> {
    let refused = |source| MountError::Refused { at: at.to_path_buf(), source };
    if !is_root() {
        return Ok(Made { device: by_helper(at, options)?, apart: None });
    }
    let open = || rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let device = open().map_err(|error| refused(error.into()))?;
    let apart = Some(Apart::new(&device, options).map_err(refused)?);
    Ok(Made { device, apart })
}

/// Device number behind a descriptor, from the kernel's own tables: no file system is asked.
pub(super) fn number(dir: impl AsFd) -> io::Result<(u32, u32)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let found = statx(dir, c"", flags, StatxFlags::BASIC_STATS)?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

impl Apart {
    /// A mount of the connection behind `device`: the first, or, from Linux 5.15 on, a further one of the
    /// same file system.
    pub(super) fn new(device: &OwnedFd, options: &MountOptions) -> io::Result<Apart> {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let fs = fsopen(KIND, FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in [
            ("source", options.source.clone()),
            ("subtype", SUBKIND.to_owned()),
            ("fd", device.as_raw_fd().to_string()),
            ("rootmode", "40000".to_owned()),
            ("user_id", uid.to_string()),
            ("group_id", gid.to_string()),
        ] {
            fsconfig_set_string(&fs, key, value)?;
        }
        fuse_options(options).into_iter().try_for_each(|key| fsconfig_set_flag(&fs, key))?;
        if !options.writable {
            fsconfig_set_flag(&fs, "ro")?;
        }
        fsconfig_create(&fs)?;
        let mount = fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes(options))?;
        let number = number(&mount)?;
        Ok(Apart { mount, number })
    }

    /// Attaches the mount to a directory, whatever the directory's path leads to by now.
    pub(super) fn put_on(self, dir: &OwnedFd) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(move_mount(&self.mount, c"", dir, c"", flags)?)
    }
}

/// The flags of a mount, for the call that makes one.
fn attributes(options: &MountOptions) -> MountAttrFlags {
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOATIME;
    for (wanted, attribute) in [
        (!options.writable, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (!options.setuid, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (!options.devices, MountAttrFlags::MOUNT_ATTR_NODEV),
        (!options.exec, MountAttrFlags::MOUNT_ATTR_NOEXEC),
    ] {
        attributes.set(attribute, wanted);
    }
    attributes
}

/// Flags of a mount, for the call that changes them.
pub(super) fn flags(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    for (wanted, flag) in [
        (!options.writable, MountFlags::RDONLY),
        (!options.setuid, MountFlags::NOSUID),
        (!options.devices, MountFlags::NODEV),
        (!options.exec, MountFlags::NOEXEC),
        // The server updates access times, by the rules of the dataset.
        (true, MountFlags::NOATIME),
    ] {
        flags.set(flag, wanted);
    }
    flags
}

/// Mount options that FUSE itself defines.
fn fuse_options(options: &MountOptions) -> Vec<&'static str> {
    let checks = (options.allow_other || is_root()).then_some("default_permissions");
    checks.into_iter().chain(options.allow_other.then_some("allow_other")).collect()
}

/// Mounts with `fusermount3`, which sends the descriptor over the socket that is its standard input.
fn by_helper(at: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let refused = |source| MountError::Refused { at: at.to_path_buf(), source };
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|e| refused(e.into()))?;
    // A comma ends an option; a backslash escapes it.
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let access = if options.writable { "rw" } else { "ro" };
    let text = format!(
        "{access},nosuid,nodev,noatime,fsname={source},subtype=cenote{}{}",
        if options.exec { "" } else { ",noexec" },
        fuse_options(options).iter().map(|option| format!(",{option}")).collect::<String>()
    );
    let child = Command::new(HELPER)
        .args(["-o", &text, "--"])
        .arg(at)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| if e.kind() == io::ErrorKind::NotFound { MountError::NoHelper } else { refused(e) })?;
    let received = receive(&ours);
    let done = child.wait_with_output().map_err(refused)?;
    match received {
        Ok(Some(device)) if done.status.success() => Ok(device),
        Err(e) => Err(refused(e)),
        Ok(_) => {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            Err(refused(io::Error::other(if said.is_empty() { format!("{HELPER} failed") } else { said })))
        }
    }
}

/// Receives a descriptor from a socket; `None`: the other side has closed the socket without sending one.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut byte = [0_u8; 1];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    loop {
        let mut parts = [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
            Ok(_) => break,
        }
    }
    let fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(fds.flatten().next())
}

/// Unmounts: `by_call` is a path that is valid in this process only; `at`, for the helper, one that is valid
/// for all.
pub(super) fn unmount_in(by_call: &Path, at: &Path, detach: bool) -> io::Result<()> {
    unmount(if is_root() { by_call } else { at }, detach)
}

/// Unmounts. With `detach` the mount disappears from its directory at once, and is served until its files are
/// closed.
pub(super) fn unmount(at: &Path, detach: bool) -> io::Result<()> {
    if is_root() {
        let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return Ok(rustix::mount::unmount(at, flags | UnmountFlags::NOFOLLOW)?);
    }
    let options: &[&str] = if detach { &["-u", "-z", "-q", "--"] } else { &["-u", "-q", "--"] };
    let status = Command::new(HELPER).args(options).arg(at).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::ErrorKind::ResourceBusy.into()) }
}

/// Whether this user can mount: as root, or because `fusermount3` is installed.
pub(super) fn can_mount() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    is_root()
        || std::env::split_paths(&path)
            .any(|dir| !dir.as_os_str().as_bytes().is_empty() && dir.join(HELPER).is_file())
}
