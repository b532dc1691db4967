//! What a command talks to: standard input, output and error, the environment. A command of its own process has
//! those of the process; one that a daemon runs for a client has the client's.
//!
//! # What always holds
//! - A thread that runs a command for a client has that client's console, and no other thread has.
//!   Threads that a command starts talk through the thread that started them, or take its console along
//!   ([`current`], [`Console::enter`]).
//! - Nothing else in this crate uses the standard streams or the environment of the process.

// The one place that may use what all others may not.
#![allow(clippy::disallowed_methods)]

mod cancel;
mod held;
mod progress;

#[allow(unused_imports)] // For commands that take long.
pub(crate) use cancel::{Cancel, end_if_cancelled, is_cancelled, on_cancel, sleep};
pub(crate) use held::Held;
pub(crate) use progress::progress_target;

use cenote::admin::{Caller, Namespace};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How often one that waits for a client's descriptor looks whether the command is to end.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Bytes for which a pipe has room when it says that it can be written (PIPE_BUF).
const PIPE_ROOM: usize = 4096;

thread_local! {
    static CONSOLE: RefCell<Option<Arc<Console>>> = const { RefCell::new(None) };
}

/// The streams and the environment of a client.
#[derive(Debug)]
pub(crate) struct Console {
    /// Standard input, output and error.
    pub(crate) streams: [OwnedFd; 3],
    /// Its environment, as far as commands look at it.
    pub(crate) env: BTreeMap<OsString, OsString>,
    /// The terminal that its user sits at, if there is one.
    pub(crate) terminal: Option<OwnedFd>,
    /// Permissions that it does not give to new files.
    pub(crate) umask: u32,
    /// The pools that verbs find open.
    pub(crate) namespace: Arc<Namespace>,
    /// In whose name verbs run.
    pub(crate) caller: Caller,
    /// Whether the command is to end.
    pub(crate) cancel: Arc<Cancel>,
    /// Its output that the client has not taken yet.
    pub(crate) held: Held,
}

impl Console {
    /// Runs `work` with this console on the calling thread.
    pub(crate) fn enter<T>(self: &Arc<Console>, work: impl FnOnce() -> T) -> T {
        struct Restore(Option<Arc<Console>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CONSOLE.with_borrow_mut(|slot| *slot = self.0.take());
            }
        }
        let _restore = Restore(CONSOLE.with_borrow_mut(|slot| slot.replace(Arc::clone(self))));
        work()
    }
}

/// The console of the calling thread; `None`: that of the process.
pub(crate) fn current() -> Option<Arc<Console>> {
    CONSOLE.with_borrow(Clone::clone)
}

/// One of the streams that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Writes all of it.
pub(crate) fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match (current(), stream) {
        (Some(console), stream) => console.write(stream, bytes),
        (None, Stream::Out) => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        }
        (None, Stream::Err) => io::stderr().lock().write_all(bytes),
    }
}

impl Stream {
    fn index(self) -> usize {
        match self {
            Stream::Out => 1,
            Stream::Err => 2,
        }
    }

    /// Somebody looks at it.
    pub(crate) fn is_terminal(self) -> bool {
        match (current(), self) {
            (Some(console), stream) => console.streams[stream.index()].as_fd().is_terminal(),
            (None, Stream::Out) => io::stdout().is_terminal(),
            (None, Stream::Err) => io::stderr().is_terminal(),
        }
    }
}

/// A variable of the environment.
pub(crate) fn env(name: impl AsRef<OsStr>) -> Option<OsString> {
    match current() {
        Some(console) => console.env.get(name.as_ref()).cloned(),
        None => std::env::var_os(name),
    }
}

/// All variables of the environment.
pub(crate) fn all_env() -> Vec<(OsString, OsString)> {
    match current() {
        Some(console) => console.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        None => std::env::vars_os().collect(),
    }
}

/// Standard output, written without a buffer between.
#[derive(Debug)]
pub(crate) struct RawOut(Option<Arc<Console>>);

impl RawOut {
    /// That of the calling thread.
    pub(crate) fn new() -> RawOut {
        RawOut(current())
    }
}

impl AsFd for RawOut {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Some(console) => console.streams[Stream::Out.index()].as_fd(),
            None => rustix::stdio::stdout(),
        }
    }
}

impl Write for RawOut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Some(console) => console.write(Stream::Out, bytes).map(|()| bytes.len()),
            None => Ok(rustix::io::retry_on_intr(|| rustix::io::write(rustix::stdio::stdout(), bytes))?),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard input.
#[derive(Debug)]
pub(crate) struct Input(Option<Arc<Console>>);

/// That of the calling thread.
pub(crate) fn input() -> Input {
    Input(current())
}

impl AsFd for Input {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Some(console) => console.streams[0].as_fd(),
            None => rustix::stdio::stdin(),
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use rustix::io::Errno;
        loop {
            // A client may be gone for good before a byte comes.
            if let Some(console) = &self.0 {
                // Whoever is asked sees the question first.
                console.send_all()?;
                console.wait_for(self.as_fd(), PollFlags::IN)?;
            }
            match rustix::io::read(self.as_fd(), &mut *buffer) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                done => return Ok(done?),
            }
        }
    }
}

/// The terminal that the user sits at, to ask and to be answered there.
///
/// # Errors
/// There is none.
pub(crate) fn terminal() -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    match current() {
        Some(console) => match &console.terminal {
            Some(terminal) => {
                console.send_all()?;
                terminal.try_clone()
            }
            None => Err(rustix::io::Errno::NXIO.into()),
        },
        None => Ok(open("/dev/tty", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?),
    }
}

/// The permissions that are not given to new files.
pub(crate) fn umask() -> u32 {
    if let Some(console) = current() {
        return console.umask;
    }
    // There is no way to ask but to set it.
    let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::umask(old);
    old.as_raw_mode()
}

impl Console {
    /// Writes as much as can be written at once, or, if it is to `wait`, all unless the command is to end; how much
    /// that was.
    fn send(&self, stream: Stream, bytes: &[u8], wait: bool) -> io::Result<usize> {
        use rustix::io::Errno;
        let fd = self.streams[stream.index()].as_fd();
        // What fits into a pipe that has room does not wait, and files never do.
        let is_file = |fd| rustix::fs::fstat(fd).is_ok_and(|stat| is_regular(stat.st_mode));
        let most = if bytes.len() > PIPE_ROOM && is_file(fd) { bytes.len() } else { PIPE_ROOM };
        let mut sent = 0;
        while sent < bytes.len() {
            // A descriptor of somebody else's may be one that nobody reads: that must not hold us.
            if wait {
                self.wait_for(fd, PollFlags::OUT)?;
            } else if !self.is_ready(fd, PollFlags::OUT, Some(&Timespec::default()))? {
                break;
            }
            let left = &bytes[sent..];
            match rustix::io::write(fd, &left[..left.len().min(most)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => sent += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if wait => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
    }

    /// Waits until one of the client's descriptors is ready.
    fn wait_for(&self, fd: BorrowedFd<'_>, what: PollFlags) -> io::Result<()> {
        while !self.is_ready(fd, what, Some(&LOOK_EVERY))? {}
        Ok(())
    }

    /// Whether one of the client's descriptors is ready within a time.
    fn is_ready(&self, fd: BorrowedFd<'_>, what: PollFlags, time: Option<&Timespec>) -> io::Result<bool> {
        if self.cancel.times() > 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        match poll(&mut [PollFd::new(&fd, what)], time) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
            // What is wrong with it is told by using it.
            Ok(_) | Err(_) => Ok(true),
        }
    }
}

fn is_regular(mode: u32) -> bool {
    rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::RegularFile
}

/// Ends the command with this code: the process, or what a daemon does for a client.
pub(crate) fn exit(code: u8) -> ! {
    if current().is_some() {
        // Taken up by the one who runs the command; no panic, nothing is told.
        std::panic::resume_unwind(Box::new(Exit(code)))
    }
    std::process::exit(code.into())
}

/// Why a command's thread unwinds: it has ended.
#[derive(Debug)]
pub(crate) struct Exit(pub(crate) u8);

/// Writes to standard error. Nobody can be told if that fails.
macro_rules! say_error {
    ($($arg:tt)*) => {{
        let _ = $crate::console::write($crate::console::Stream::Err, format!($($arg)*).as_bytes());
    }};
}

/// The same, with the end of a line.
macro_rules! say_error_line {
    () => { $crate::console::say_error!("\n") };
    ($($arg:tt)*) => {{
        let mut text = format!($($arg)*);
        text.push('\n');
        let _ = $crate::console::write($crate::console::Stream::Err, text.as_bytes());
    }};
}

#[allow(unused_imports)] // By path, where a module is compiled for other programs.
pub(crate) use {say_error, say_error_line};
