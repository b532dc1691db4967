//! What a command talks to: standard input, output and error, the environment. A command of its own process has
//! those of the process; one that a daemon runs for a client has the client's, at the other end of a connection.
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
pub(crate) use held::{Held, give_way};
pub(crate) use progress::progress_target;

use admin::{Caller, Namespace};
use serve::control::{Link, Piece, Screen};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How often one that waits for a client looks whether the command is to end.
const LOOK_EVERY: Duration = Duration::from_millis(200);

thread_local! {
    static CONSOLE: RefCell<Option<Arc<Console>>> = const { RefCell::new(None) };
}

/// The streams and the environment of a client.
#[derive(Debug)]
pub(crate) struct Console {
    /// Where its streams are.
    pub(crate) link: Arc<Link>,
    /// What is at their other ends.
    pub(crate) screen: Screen,
    /// Its working folder, where the command is too if the client is trusted.
    pub(crate) folder: OsString,
    /// Its environment, as far as commands look at it.
    pub(crate) env: BTreeMap<OsString, OsString>,
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
    fn piece(self) -> Piece {
        match self {
            Stream::Out => Piece::Out,
            Stream::Err => Piece::Errors,
        }
    }

    /// Somebody looks at it.
    pub(crate) fn is_terminal(self) -> bool {
        match (current(), self) {
            (Some(console), stream) => console.screen.terminals[stream.piece() as usize],
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

impl RawOut {
    /// The descriptor, where it is this process's.
    pub(crate) fn own(&self) -> Option<BorrowedFd<'_>> {
        self.0.is_none().then(rustix::stdio::stdout)
    }

    /// Has the client leave out so many zero bytes, or write them where it must. Only where the descriptor is not this
    /// process's.
    pub(crate) fn hole(&self, bytes: u64) -> io::Result<()> {
        match &self.0 {
            Some(console) => console.hole(bytes),
            None => Err(io::ErrorKind::Unsupported.into()),
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

impl Input {
    /// Somebody types.
    pub(crate) fn is_terminal(&self) -> bool {
        match &self.0 {
            Some(console) => console.screen.terminals[0],
            None => rustix::stdio::stdin().is_terminal(),
        }
    }

    /// Whether there is something to be read within a time, or the end. `most`: bytes that will be read.
    pub(crate) fn is_ready(&self, most: usize, within: Duration) -> io::Result<bool> {
        let Some(console) = &self.0 else {
            let time = Timespec::try_from(within).map_err(|_| io::ErrorKind::InvalidInput)?;
            // What is wrong with it is told by reading.
            let stdin = rustix::stdio::stdin();
            return Ok(!matches!(
                poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&time)),
                Ok(0) | Err(rustix::io::Errno::INTR)
            ));
        };
        if let Some(frame) = console.link.want(most) {
            console.queue(frame)?;
        }
        // Whoever is asked sees the question first.
        console.send_all()?;
        Ok(console.link.has_input(within))
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use rustix::io::Errno;
        if buffer.is_empty() {
            return Ok(0);
        }
        // A client may be gone for good before a byte comes.
        if let Some(console) = self.0.clone() {
            while !self.is_ready(buffer.len(), LOOK_EVERY)? {
                console.check_wanted()?;
            }
            return Ok(console.link.take_input(buffer));
        }
        loop {
            match rustix::io::read(rustix::stdio::stdin(), &mut *buffer) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => while !self.is_ready(buffer.len(), LOOK_EVERY)? {},
                done => return Ok(done?),
            }
        }
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
    /// Its client has not asked for the end.
    fn check_wanted(&self) -> io::Result<()> {
        if self.cancel.times() > 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// Asks the client's user. `None`: no answer is given.
    ///
    /// # Errors
    /// The client is gone.
    pub(crate) fn ask(&self, question: &str) -> io::Result<Option<Vec<u8>>> {
        self.queue(self.link.ask(question))?;
        self.send_all()?;
        loop {
            if let Some(answer) = self.link.answer(LOOK_EVERY) {
                return Ok(answer);
            }
            self.check_wanted()?;
        }
    }
}

/// Ends the command with this code: the process, or what a daemon does for a client.
pub(crate) fn exit(code: u8) -> ! {
    if current().is_some() {
        // Taken up by the one who runs the command; no panic, nothing is told.
        serve::panics::leave(Box::new(Exit(code)))
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
