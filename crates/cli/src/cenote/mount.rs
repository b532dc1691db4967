//! `cenote mount`: a FUSE mount served by this process.
// A private mount is always served by a process of its own, not by the daemon.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use ::cenote::{Dataset, Target};
use serve::Terminator;
use serve::export::{ExportError, LiveExport, LiveFs, PoolView};
use serve::fuse::{LiveService, MountOptions, Mounted, Service, Transport, ViewService, mount};

use super::open::{Session, Source, parse};
use super::{Failure, Outcome, code, term};

/// Mount a file system or snapshot through FUSE
///
/// Served by this process until it is unmounted (umount, fusermount3 -u) or interrupted. Read-only, snapshots are
/// in the directory .zfs/snapshot, the file systems below in directories of their names; going there mounts nothing
/// more. With --read-write it is this file system alone, and the pool is this process's alone until the end. The mount
/// is nosuid and nodev.
/// Made by a user it is private, and shows that user everything, whatever the files' owners; with
/// --allow-other, and for root, the files' permissions count.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    how: How,
    /// Let files be changed
    #[arg(short = 'w', long)]
    read_write: bool,
    /// With --read-write: have each write reach this process at once; else the kernel keeps some for seconds
    #[arg(long, requires = "read_write")]
    write_through: bool,
    /// POOL/DATASET[@SNAPSHOT]
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// The directory to mount on
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// How it is served.
#[derive(clap::Args)]
pub(super) struct How {
    /// Return when it is mounted, and serve it in the background
    #[arg(short, long)]
    background: bool,
    /// Leave out the file systems below: their directories are empty
    #[arg(long)]
    no_children: bool,
    /// Let other users in
    #[arg(long)]
    allow_other: bool,
    /// Threads (default: twice the processors)
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<usize>,
    /// In the background process: tell readiness and let go of the terminal
    #[arg(long, hide = true)]
    detached: bool,
}

impl Args {
    /// The pool, unless the arguments name its devices.
    pub(super) fn pool(&self) -> Option<String> {
        if self.source.names_devices() {
            return None;
        }
        parse(&self.target).ok().map(|target| target.pool().to_owned())
    }
}

/// What the background process writes when the file system is mounted.
const READY: &[u8] = b"mounted\n";

pub(super) fn run(args: &Args) -> Outcome {
    if !args.read_write {
        return read_only(&args.how, &args.directory, || {
            Session::new(&args.source).unlocked_dataset(&whole(&args.target)?)
        });
    }
    if args.how.background && !args.how.detached {
        return in_background();
    }
    // Before any thread is started, so that all threads leave the signals to one.
    let terminator = Terminator::new()?;
    run_writable(args, terminator)
}

/// Mounts the dataset that `open` opens, read-only.
pub(super) fn read_only(
    args: &How,
    directory: &Path,
    open: impl FnOnce() -> Result<Dataset, Failure>,
) -> Outcome {
    if args.background && !args.detached {
        return in_background();
    }
    let terminator = Terminator::new()?;
    let dataset = open()?;
    let view = PoolView::new(&dataset, !args.no_children)?;
    let posix_acl = view.has_posix_acls();
    let name = dataset.name().to_owned();
    let options = options(args, &name);
    let reporter = move |node, error: &ExportError| {
        term::complain(format_args!("{name}: file with inode number {node}: {}", term::chain(error)));
    };
    let service = ViewService::new(Arc::new(view), posix_acl, Some(Box::new(reporter)));
    let mounted = mounted(args, directory, &(Arc::new(service) as Arc<dyn Service>), &options)?;
    serve_until_end(mounted, terminator)
}

fn run_writable(args: &Args, terminator: Terminator) -> Outcome {
    args.source.check_writable()?;
    let session = Session::new(&args.source);
    let target = whole(&args.target)?;
    if target.dataset.contains(['@', '#']) {
        let shown = term::escape(target.dataset.as_bytes());
        return Err(Failure::Message(format!("{shown}: a snapshot cannot be changed")));
    }
    let pool = session.open_rw(target.pool())?;
    let below = target.dataset.strip_prefix(target.pool()).unwrap_or("");
    let fs = pool.filesystem(&format!("{}{below}", pool.name()))?;
    let options = MountOptions { writable: true, ..options(&args.how, fs.name()) };
    let export = Arc::new(LiveExport::new(LiveFs::new(fs)));
    let service: Arc<dyn Service> = Arc::new(LiveService::new(export, !args.write_through));
    let done = mounted(&args.how, &args.directory, &service, &options)
        .and_then(|mounted| serve_until_end(mounted, terminator));
    drop(service);
    pool.close()?;
    done
}

/// The target, which must be a whole file system.
fn whole(target: &OsStr) -> Result<Target, Failure> {
    let target = parse(target)?;
    if target.path.as_ref().is_some_and(|path| path != b"/") {
        return Err(Failure::Message(
            "a file system is mounted as a whole: give POOL/DATASET without a path".to_owned(),
        ));
    }
    Ok(target)
}

fn options(args: &How, name: &str) -> MountOptions {
    MountOptions {
        source: name.to_owned(),
        allow_other: args.allow_other,
        threads: args.threads,
        exec: true,
        // No other mount of this process needs rings.
        transport: Transport::Ring,
        ..MountOptions::default()
    }
}

fn mounted(
    args: &How,
    directory: &Path,
    service: &Arc<dyn Service>,
    options: &MountOptions,
) -> Result<Mounted, Failure> {
    let mounted = mount(service, directory, options)?;
    if args.detached {
        let_go()?;
    }
    Ok(mounted)
}

fn serve_until_end(mounted: Mounted, terminator: Terminator) -> Outcome {
    heap::start_trim_thread();
    let at = term::escape(mounted.at().as_os_str().as_bytes());
    let (mut unmounter, waiter) = mounted.split();
    // The first signal unmounts; open files are served further. The second ends the process.
    terminator.watch(move |times| {
        if times > 1 {
            std::process::exit(1);
        }
        if let Err(error) = unmounter.unmount() {
            term::complain(format_args!("cannot unmount {at}: {}", term::io_words(&error)));
        }
    })?;
    waiter.wait()?;
    Ok(code(false))
}

/// Starts this command again as a child that serves the mount, and waits until it reports that it is mounted.
/// The child keeps the terminal until then, because it may have to ask for a key.
fn in_background() -> Outcome {
    let mut child = crate::this_program()?;
    child.args(std::env::args_os().skip(1)).arg("--detached").stdout(Stdio::piped());
    let mut child = child.spawn()?;
    let mut said = Vec::new();
    if let Some(out) = child.stdout.take() {
        out.take(READY.len() as u64).read_to_end(&mut said)?;
    }
    if said == READY {
        return Ok(0);
    }
    // The child has printed the reason.
    let status = child.wait()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1).max(1))
}

/// In the child: reports the mount, and leaves the session and the streams of the parent.
fn let_go() -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, open};
    io::stdout().write_all(READY)?;
    io::stdout().flush()?;
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
