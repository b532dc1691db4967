//! FUSE: the adapter between the kernel and a [`Service`].
//!
//! `proto` is the protocol in bytes, `dispatch` goes from a request to its reply, and two transports carry
//! requests and replies: `classic` reads and writes `/dev/fuse`; `ring` shares memory with the kernel over
//! io_uring if the kernel offers that. [`ViewService`] serves a read-only [`View`](crate::export::View),
//! [`LiveService`] a file system that is open for writing.
//!
//! # What always holds
//! - A mount is served until it is unmounted, by any process; then all its threads end.
//! - Every request is answered: if answering one panics, the program gets an input/output error.
//! - The protocol is spoken to kernels from Linux 5.4 on.
//!
//! # Threads
//! Classic: the threads of `thread_pool`, which serve all mounts; there may be more of them than processors
//! because they wait for disks. Ring: several threads for each queue of a mount, until its end, for a bounded
//! number of busy mounts (`rings`); requests that do not come through the ring go to the thread pool.

mod cache_mode;
mod classic;
mod clone;
pub(crate) mod connections;
mod counters;
pub(crate) mod dirty_pages;
mod dispatch;
mod errno;
mod interrupts;
mod ioctl;
mod live_service;
mod load;
mod mount;
mod notify;
mod open_files;
mod options;
mod pages;
mod proto;
mod ring;
mod ring_threads;
mod rings;
mod seek;
mod service;
mod thread_pool;
mod view_service;
mod write_back;

use proto::MAX_WRITE;
use proto::input::Init;
use ring_threads::RingThreads;
use rings::Rings;
use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thread_pool::Served;

pub use counters::FileCounters;
pub use live_service::LiveService;
pub use notify::Notifier;
pub use options::{MountError, MountOptions, Transport};
pub use proto::flag;
pub use service::{Answer, Opened, Service, WriteAt, open_flag};
pub use view_service::{Reporter, ViewService};
pub use write_back::write_back;
pub(crate) use write_back::{is_answering, write_back_beside};

const PAGE: usize = 4096;
/// Most requests that the kernel may have under way without a waiting program: read-ahead and write-back.
const MAX_BACKGROUND: u16 = 128;
/// Most bytes that the kernel may read ahead.
const MAX_READAHEAD: u32 = 1 << 20;

/// Threads that serve one mount at once, on a machine with this many processors.
fn default_threads() -> usize {
    let cpus = std::thread::available_parallelism().map_or(4, std::num::NonZero::get);
    (2 * cpus).clamp(16, 32)
}

/// Mounts a file system on the directory `at`. It is served until it is unmounted, by any process.
///
/// # Errors
/// See [`MountError`].
pub fn mount(service: &Arc<dyn Service>, at: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
    let refused = |source| MountError::Refused { at: at.to_path_buf(), source };
    let real = at.canonicalize().map_err(refused)?;
    if !real.is_dir() {
        return Err(MountError::NotADirectory { at: real });
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = open(&real, flags, Mode::empty()).map_err(|error| refused(error.into()))?;
    mount_in(service, dir, real, options)
}

/// [`mount`] on a directory that is held open until it is mounted on; `at` is its path, without links.
pub(crate) fn mount_in(
    service: &Arc<dyn Service>,
    dir: OwnedFd,
    at: PathBuf,
    options: &MountOptions,
) -> Result<Mounted, MountError> {
    if !Path::new("/dev/fuse").exists() {
        return Err(MountError::NoFuse);
    }
    if !mount::can_mount() {
        return Err(MountError::NoHelper);
    }
    let before = mount::number(&dir).ok();
    let mount::Made { device, apart } = mount::mount(&at, options)?;
    let number = apart.as_ref().map(|apart| apart.number).or_else(|| number_at(&at));
    let unmounter = Unmounter { at, number };
    let device = Arc::new(device);
    // The mount is served before any program can reach it. If it is not put on its directory, it ends with
    // its descriptor.
    let started = start(service, &device, options).and_then(|started| {
        apart.map_or(Ok(()), |apart| apart.put_on(&dir))?;
        Ok(started)
    });
    drop(dir);
    match started {
        Ok((waiter, agreed)) => {
            let notifier = Arc::new(notify::Notifier::new(device, number, agreed.can_expire));
            service.set_notifier(&notifier);
            Ok(Mounted { waiter, unmounter, notifier })
        }
        Err(error) => {
            // No thread would ever answer requests of this mount.
            drop(device);
            if !mount::is_root() && number != before {
                let _ = mount::unmount(&unmounter.at, true);
            }
            Err(match error {
                StartError::Old(init) => MountError::OldKernel { major: init.major, minor: init.minor },
                StartError::System(source) => MountError::Refused { at: unmounter.at, source },
            })
        }
    }
}

/// Device number of the topmost mount at a path.
fn number_at(at: &Path) -> Option<(u32, u32)> {
    let dir = open(at, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    mount::number(dir).ok()
}

/// Mounts a file system that is mounted already on one more directory, which is held open until then.
///
/// # Errors
/// The kernel is older than Linux 5.15 or has this file system mounted on this directory, or the caller is
/// not root.
pub(crate) fn mount_beside(notifier: &Notifier, dir: &OwnedFd, options: &MountOptions) -> io::Result<()> {
    mount::Apart::new(notifier.device(), options)?.put_on(dir)
}

enum StartError {
    Old(Init),
    System(io::Error),
}

impl<E: Into<io::Error>> From<E> for StartError {
    fn from(e: E) -> StartError {
        StartError::System(e.into())
    }
}

/// Capabilities that were agreed on with the kernel.
#[derive(Clone, Copy)]
struct Agreed {
    /// Requests come over io_uring.
    ring: bool,
    /// The kernel can be told to look up a name again without unmounting what is mounted there.
    can_expire: bool,
}

/// Answers the kernel's `INIT` and starts to serve.
fn start(
    service: &Arc<dyn Service>,
    device: &Arc<OwnedFd>,
    options: &MountOptions,
) -> Result<(Waiter, Agreed), StartError> {
    let at_once = match options.transport {
        Transport::Ring => true,
        Transport::Best => !mount::is_root() || !rings::can_come_late(),
        Transport::Classic => false,
    };
    // Before the kernel is told of rings, because it then waits for them. Without a share it is not told.
    let share =
        if at_once && ring::is_enabled() { ring::queues().ok().and_then(ring::Share::take) } else { None };
    let rings = share.and_then(|share| Rings::prepare(service, device, share).ok());
    let left_to_us = if options.setuid { !flag::HANDLE_KILLPRIV_V2 } else { u64::MAX };
    let agreed = greet(&**service, device, left_to_us, rings.is_some())?;
    let ring = rings.filter(|_| agreed.ring).and_then(Rings::begin).unwrap_or_default();
    // With a ring, only forgetting and interrupts still come over `/dev/fuse`. If the kernel did not take the
    // rings after all, all requests do.
    let device = if ring.is_empty() { Arc::clone(device) } else { Arc::new(clone::clone(device)?) };
    fcntl_setfl(&*device, OFlags::RDWR | OFlags::NONBLOCK)?;
    let how = thread_pool::ServeOptions {
        requests: if ring.is_empty() { thread_pool::Requests::All } else { thread_pool::Requests::Rest },
        threads: options.threads.unwrap_or_else(default_threads),
        when_busy: (options.transport == Transport::Best && !at_once)
            .then_some(rings::bring_to as fn(&Arc<Served>)),
        group: options.group,
    };
    let served = thread_pool::serve(service, device, how)?;
    Ok((Waiter { ring, served }, agreed))
}

/// Answers `INIT`, the kernel's first request. `wanted` masks the capabilities of the service.
fn greet(service: &dyn Service, device: &OwnedFd, wanted: u64, ring: bool) -> Result<Agreed, StartError> {
    let mut room = classic::request_room()?;
    let mut reply = [0; proto::OUT_HEADER + INIT_OUT];
    loop {
        let classic::Next::Request(len) = classic::next(device, &mut room)? else {
            return Err(Errno::NODEV.into());
        };
        let bytes = room.get(..len).unwrap_or_default();
        let header = proto::input::Header::decode(bytes);
        let init = Init::decode(bytes.get(proto::IN_HEADER..).unwrap_or_default());
        let (Some(header), Some(init)) = (header, init) else { return Err(Errno::IO.into()) };
        if header.opcode != proto::op::INIT {
            return Err(Errno::IO.into());
        }
        let unique = header.unique;
        if init.major > proto::MAJOR {
            // The kernel sends INIT again, with our version.
            hello(&init, 0, &mut reply)?;
            classic::send(device, unique, None, &mut reply, INIT_OUT)?;
            continue;
        }
        if (init.major, init.minor) < (proto::MAJOR, proto::MINOR_MIN) {
            classic::send(device, unique, Some(Errno::PROTO), &mut reply, 0)?;
            return Err(StartError::Old(init));
        }
        let abilities = init.flags
            & ((service.abilities(init.flags) & wanted)
                | ALWAYS
                | if ring { flag::OVER_IO_URING } else { 0 });
        hello(&init, abilities, &mut reply)?;
        classic::send(device, unique, None, &mut reply, INIT_OUT)?;
        return Ok(Agreed {
            ring: abilities & flag::OVER_IO_URING != 0,
            can_expire: init.flags & flag::HAS_EXPIRE_ONLY != 0,
        });
    }
}

/// Capabilities that suit every file system.
const ALWAYS: u64 = flag::ASYNC_READ
    | flag::BIG_WRITES
    | flag::MAX_PAGES
    | flag::ABORT_ERROR
    | flag::INIT_EXT
    | flag::PARALLEL_DIROPS
    | flag::ASYNC_DIO
    | flag::SETXATTR_EXT;

const INIT_OUT: usize = 64;

/// Writes the reply to `INIT`.
fn hello(init: &Init, abilities: u64, reply: &mut [u8]) -> Result<(), Errno> {
    let mut body = proto::output::Body::new(reply.get_mut(proto::OUT_HEADER..).unwrap_or_default());
    let [low, high] = [abilities & u64::from(u32::MAX), abilities >> 32];
    let word = |value: u64| u32::try_from(value).unwrap_or(0);
    for value in [proto::MAJOR, proto::MINOR, init.max_readahead.min(MAX_READAHEAD), word(low)] {
        body.u32(value)?;
    }
    body.u16(MAX_BACKGROUND)?;
    body.u16(MAX_BACKGROUND / 4 * 3)?;
    body.u32(word(MAX_WRITE as u64))?;
    // Granularity of timestamps: one nanosecond.
    body.u32(1)?;
    body.u16(u16::try_from(MAX_WRITE / PAGE).unwrap_or(u16::MAX))?;
    body.u16(0)?;
    body.u32(word(high))?;
    body.put(&[0; 28])
}

/// A mount that is being served.
#[derive(Debug)]
pub struct Mounted {
    waiter: Waiter,
    unmounter: Unmounter,
    notifier: Arc<Notifier>,
}

impl Mounted {
    /// The directory that it is mounted on, without symbolic links.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.unmounter.at
    }

    /// Whether requests come over io_uring at present.
    #[must_use]
    pub fn is_over_io_uring(&self) -> bool {
        !self.waiter.ring.is_empty() || self.waiter.served.has_rings()
    }

    /// Device number of the mount: major and minor.
    #[must_use]
    pub(crate) fn number(&self) -> Option<(u32, u32)> {
        self.unmounter.number
    }

    /// The notifier, which tells the kernel what to drop from its caches.
    pub(crate) fn notifier(&self) -> &Arc<Notifier> {
        &self.notifier
    }

    /// Splits the mount into a value that ends it and a value that waits for its end, for two threads.
    #[must_use]
    pub fn split(self) -> (Unmounter, Waiter) {
        (self.unmounter, self.waiter)
    }

    /// Unmounts and waits until all requests are answered.
    ///
    /// # Errors
    /// The system cannot unmount it.
    pub fn unmount(self) -> io::Result<()> {
        let (mut unmounter, waiter) = self.split();
        unmounter.unmount()?;
        waiter.wait()
    }
}

/// Waits for the end of a mount.
#[derive(Debug)]
pub struct Waiter {
    /// The threads of rings that it had from the beginning.
    ring: RingThreads,
    served: Arc<Served>,
}

impl Waiter {
    /// Waits until the mount has ended.
    ///
    /// # Errors
    /// The connection to the kernel failed.
    pub fn wait(self) -> io::Result<()> {
        let result = ring_threads::join(self.ring);
        let served = self.served.wait();
        result.and(served).and(ring_threads::join(self.served.take_rings()))
    }

    /// Has `told` called when the mount has ended, with the error of [`Waiter::wait`].
    ///
    /// # Errors
    /// A thread is needed to wait, and the system has no more.
    pub(crate) fn when_ended(self, told: impl FnOnce(io::Result<()>) + Send + 'static) -> io::Result<()> {
        if self.ring.is_empty() {
            let served = Arc::clone(&self.served);
            self.served.when_ended(move |result| match served.take_rings() {
                none if none.is_empty() => told(result),
                rings => ring_threads::join_elsewhere(rings, move |joined| told(result.and(joined))),
            });
            return Ok(());
        }
        crate::affinity::spawn_anywhere("mount", move || told(self.wait())).map(drop)
    }
}

/// Unmounts the topmost mount of a directory, unless it is in use; with `detach` it disappears at once and is
/// served until no program uses it. `by_call` is a path of the directory that is valid in this process only
/// (by an open descriptor), `at` one that is valid for all.
pub(crate) fn unmount_in(by_call: &Path, at: &Path, detach: bool) -> io::Result<()> {
    mount::unmount_in(by_call, at, detach)
}

/// The flags of a mount for the system call that changes them.
pub(crate) fn mount_flags(options: &MountOptions) -> rustix::mount::MountFlags {
    mount::flags(options)
}

/// Unmounts a mount.
#[derive(Debug)]
pub struct Unmounter {
    at: PathBuf,
    /// Major and minor number of the device of the mount; `None` if it is not known.
    number: Option<(u32, u32)>,
}

impl Unmounter {
    /// Unmounts. If files of the mount are open, it disappears from its directory at once and is served until
    /// they are closed.
    ///
    /// # Errors
    /// The system refuses to detach it too.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.check()?;
        mount::unmount(&self.at, false).or_else(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => mount::unmount(&self.at, true),
            _ => Err(error),
        })
    }

    /// Checks that the topmost mount of the directory is this one: a later mount of another program is left
    /// alone.
    fn check(&self) -> io::Result<()> {
        if number_at(&self.at) == self.number { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}
