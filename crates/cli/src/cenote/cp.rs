//! `cenote cp`: copies files, trees and volumes to a folder of this machine, or into a pool
//! ([`super::cp_into`]).

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ::cenote::copy::{Damaged, Extractor, HostTree, Stamp, children};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::bytes_out::{Output, Sink};
use super::copying::Teller;
use super::cp_args::{Args, How};
use super::open::{Found, Session};
use super::{Failure, Outcome, code, cp_into, term};

/// Where copies go: into a folder under their own names, or to one name in a folder.
struct Destination {
    folder: PathBuf,
    /// The name of the copy; `None`: the name of the source.
    name: Option<Vec<u8>>,
}

impl Destination {
    fn new(to: &OsStr, is_single: bool) -> Result<Destination, Failure> {
        let path = Path::new(to);
        if path.is_dir() {
            return Ok(Destination { folder: path.to_path_buf(), name: None });
        }
        let shown = term::escape(to.as_bytes());
        if !is_single {
            return Err(Failure::Message(format!("{shown}: not a directory")));
        }
        let name = path.file_name().filter(|_| !to.as_bytes().ends_with(b"/."));
        let name = name.ok_or_else(|| Failure::Message(format!("{shown}: no such directory")))?;
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_path_buf();
        Ok(Destination { folder, name: Some(name.as_bytes().to_vec()) })
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    let Some((to, sources)) = args.paths.split_last() else { return Err(Failure::Silent) };
    if cp_into::is_into_pool(to, sources) {
        return cp_into::run(args, to, sources);
    }
    copy_out(&Session::new(&args.source), &args.how, sources, to)
}

/// Copies out of a pool.
pub(super) fn copy_out(session: &Session<'_>, args: &How, sources: &[OsString], to: &OsStr) -> Outcome {
    if let ([source], true) = (sources, is_device(Path::new(to))) {
        return onto_device(args, session, source, to);
    }
    let destination = Destination::new(to, sources.len() == 1)?;
    let tree = HostTree::open(&destination.folder, !args.no_owner).map_err(|error| {
        let folder = term::escape(destination.folder.as_os_str().as_bytes());
        Failure::Message(format!("{folder}: {}", term::io_words(&error)))
    })?;
    let damaged = if args.partial { Damaged::ZeroFill } else { Damaged::LeaveOut };
    let mut teller = Teller::new(args.verbose);
    let mut failed = false;
    let mut extractor = Extractor::new(tree, damaged, &mut teller);
    for source in sources {
        if let Err(failure) = copy(args, session, source, &destination, &mut extractor) {
            failed = true;
            failure.tell()?;
        }
    }
    let summary = extractor.summary().clone();
    drop(extractor);
    teller.finish(&summary);
    Ok(code(failed || summary.failures > 0))
}

/// Whether a path names a device of this machine, possibly through links: the user named it, not a pool.
fn is_device(path: &Path) -> bool {
    let stat = rustix::fs::stat(path).map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(stat, Ok(FileType::CharacterDevice | FileType::BlockDevice))
}

/// An open device.
struct Device(OwnedFd);

impl Device {
    /// Opens a device. The system refuses a disk that is in use, for example mounted.
    fn open(path: &Path) -> io::Result<Device> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let is_disk = FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode) == FileType::BlockDevice;
        let flags = if is_disk { flags | OFlags::EXCL } else { flags };
        Ok(Device(rustix::fs::open(path, flags, Mode::empty())?))
    }
}

impl Sink for &mut Device {
    fn own(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn hole(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Write for Device {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::write(&self.0, bytes))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        match rustix::fs::fsync(&self.0) {
            // Not every device stores data.
            Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
            done => Ok(done?),
        }
    }
}

/// Copies the bytes of one file or volume onto a device.
fn onto_device(args: &How, session: &Session<'_>, source: &OsStr, to: &OsStr) -> Outcome {
    let found = session.find(source, false)?;
    let shown = term::escape(source.as_bytes());
    let content = found.content().map_err(|why| Failure::Message(format!("{shown}: {why}")))?;
    let failed = |error: io::Error| {
        let device = term::escape(to.as_bytes());
        Failure::Message(format!("{device}: {}", term::io_words(&error)))
    };
    let mut device = Device::open(Path::new(to)).map_err(failed)?;
    let mut out = Output::new(&mut device);
    let is_lost = out.content(content, &shown, args.partial)?;
    out.finish()?;
    device.flush().map_err(failed)?;
    Ok(code(is_lost))
}

fn copy(
    args: &How,
    session: &Session<'_>,
    source: &OsStr,
    destination: &Destination,
    to: &mut Extractor<'_>,
) -> Result<(), Failure> {
    let shown = source.as_bytes();
    match session.find(source, false)? {
        Found::Volume(dataset, volume) => {
            let own = dataset.name().rsplit('/').next().unwrap_or_default().as_bytes();
            let name = destination.name.as_deref().unwrap_or(own);
            let written = i64::try_from(dataset.dsl().phys().creation_time).unwrap_or_default();
            to.copy_volume(&volume, shown, name, Stamp { secs: written, nanos: 0 });
        }
        Found::File(file) => {
            if file.node.is_dir() && !(args.recursive || args.archive) {
                let shown = term::escape(shown);
                return Err(Failure::Message(format!("-r not given; leaving out directory '{shown}'")));
            }
            let own = file.path.rsplit(|&byte| byte == b'/').next().filter(|name| !name.is_empty());
            let name = destination.name.as_deref().or(own);
            let pool = file.dataset.pool().clone();
            let below = move |dataset: &str| children(&pool, dataset);
            let below: Option<&dyn Fn(&str) -> _> = if args.children { Some(&below) } else { None };
            to.copy(&file.fs, &file.node, (file.dataset.name(), shown), name, below);
        }
    }
    Ok(())
}
