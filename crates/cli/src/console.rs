//! What a command talks to: standard input, output and error, the environment. A command of its own process has
//! those of the process; one that a daemon runs for a client has the client's.
//!
//! # What always holds
//! - A thread that runs a command for a client has that client's console, and no other thread has.
//!   Threads that a command starts talk through the thread that started them, or take its console along
//!   ([`current`], [`Console::enter`]).
//! - Nothing else in this crate uses the standard streams or the environment of the process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

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
        (Some(console), stream) => write_fd(&console.streams[stream.index()], bytes),
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

/// Standard input.
pub(crate) fn input() -> Box<dyn Read> {
    match current() {
        Some(console) => Box::new(Input(console)),
        None => Box::new(io::stdin()),
    }
}

struct Input(Arc<Console>);

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(&self.0.streams[0], &mut *buffer))?)
    }
}

/// A descriptor of somebody else's may be one that does not wait.
fn write_fd(fd: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(fd, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
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

pub(crate) use {say_error, say_error_line};
