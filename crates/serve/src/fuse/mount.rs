//! Mounting and unmounting: by system call for root, through `fusermount3` for everybody else.

use super::{MountError, MountOptions};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The type of file system that the table of mounts shows.
const KIND: &str = "fuse.cenote";
const HELPER: &str = "fusermount3";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Mounts on a directory; what the kernel asks comes out of the descriptor.
pub(super) fn mount(dir: &OwnedFd, at: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let refused = |source| MountError::Refused { at: at.to_path_buf(), source };
    if is_root() { by_call(dir, options).map_err(refused) } else { by_helper(at, options) }
}

pub(super) fn flags(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    for (wanted, flag) in [
        (!options.writable, MountFlags::RDONLY),
        (!options.setuid, MountFlags::NOSUID),
        (!options.devices, MountFlags::NODEV),
        (!options.exec, MountFlags::NOEXEC),
        // Times of access are kept here, by the dataset's own rules.
        (true, MountFlags::NOATIME),
    ] {
        flags.set(flag, wanted);
    }
    flags
}

/// The options that FUSE itself knows.
fn fuse_options(options: &MountOptions) -> String {
    let mut text = String::new();
    if options.allow_other || is_root() {
        text.push_str(",default_permissions");
    }
    if options.allow_other {
        text.push_str(",allow_other");
    }
    text
}

fn by_call(dir: &OwnedFd, options: &MountOptions) -> io::Result<OwnedFd> {
    // Whatever its path leads to by now.
    let at = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid}{}",
        device.as_raw_fd(),
        fuse_options(options)
    );
    let data = CString::new(data)?;
    let source = CString::new(options.source.as_bytes())?;
    rustix::mount::mount(source, at, KIND, flags(options), data.as_c_str())?;
    Ok(device)
}

/// `fusermount3` mounts, and sends the descriptor over the socket that it finds as its standard input.
fn by_helper(at: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let refused = |source| MountError::Refused { at: at.to_path_buf(), source };
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|e| refused(e.into()))?;
    // A comma ends an option, a backslash keeps it from that.
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let access = if options.writable { "rw" } else { "ro" };
    let text = format!(
        "{access},nosuid,nodev,noatime,fsname={source},subtype=cenote{}{}",
        if options.exec { "" } else { ",noexec" },
        fuse_options(options)
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

/// A descriptor sent over a socket; `None`: the other side closed it first.
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

/// Unmounts, by a path that leads there for this process alone, or, for the helper, one that does for all.
pub(super) fn unmount_in(by_call: &Path, at: &Path, detach: bool) -> io::Result<()> {
    unmount(if is_root() { by_call } else { at }, detach)
}

/// Unmounts. With `detach` it disappears from its directory at once, and is served until its files are closed.
pub(super) fn unmount(at: &Path, detach: bool) -> io::Result<()> {
    if is_root() {
        let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return Ok(rustix::mount::unmount(at, flags | UnmountFlags::NOFOLLOW)?);
    }
    let options: &[&str] = if detach { &["-u", "-z", "-q", "--"] } else { &["-u", "-q", "--"] };
    let status = Command::new(HELPER).args(options).arg(at).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::ErrorKind::ResourceBusy.into()) }
}

/// The program that mounts for users is there, or none is needed.
pub(super) fn can_mount() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    is_root()
        || std::env::split_paths(&path)
            .any(|dir| !dir.as_os_str().as_bytes().is_empty() && dir.join(HELPER).is_file())
}
