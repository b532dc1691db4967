//! The console of a command: standard input, output and error, and the environment. A command in a process of
//! its own has those of the process; a command that a daemon runs for a client has the client's, over a
//! connection.
//!
//! # What always holds
//! - A thread that runs a command for a client has that client's console, and no other thread has it. Threads
//!   that a command starts pass their output to the thread that started them, or take its console along
//!   ([`current`], [`Console::enter`]).
//! - No other module of this crate uses the standard streams or the environment of the process.

// The only module that may use the calls that are disallowed elsewhere.
#![allow(clippy::disallowed_methods)]

mod cancel;
mod held;
mod progress;
mod reports;

#[allow(unused_imports)] // For commands that take long.
pub(crate) use cancel::{Cancel, end_if_cancelled, end_without_client, is_cancelled, on_cancel, sleep};
pub(crate) use held::{Held, give_way};
pub(crate) use progress::progress_target;
pub(crate) use reports::Reports;

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

/// Interval at which a thread that waits for a client checks for cancellation.
const LOOK_EVERY: Duration = Duration::from_millis(200);

thread_local! {
    static CONSOLE: RefCell<Option<Arc<Console>>> = const { RefCell::new(None) };
}

/// The streams and the environment of a client.
#[derive(Debug)]
pub(crate) struct Console {
    /// The connection that carries its streams.
    pub(crate) link: Arc<Link>,
    /// What the client's standard streams are, and the size of its terminal.
    pub(crate) screen: Screen,
    /// Working folder of the client; the command has the same one if the client is trusted.
    pub(crate) folder: OsString,
    /// Environment of the client: the variables that commands read.
    pub(crate) env: BTreeMap<OsString, OsString>,
    /// File mode creation mask of the client.
    pub(crate) umask: u32,
    /// The open pools that verbs use.
    pub(crate) namespace: Arc<Namespace>,
    /// The user for whom verbs run.
    pub(crate) caller: Caller,
    /// Cancellation of the command.
    pub(crate) cancel: Arc<Cancel>,
    /// Output that the client has not taken yet.
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

/// The console of the calling thread; `None`: the process's own.
pub(crate) fn current() -> Option<Arc<Console>> {
    CONSOLE.with_borrow(Clone::clone)
}

/// An output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Writes all of `bytes`.
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

    /// Whether the stream is a terminal.
    pub(crate) fn is_terminal(self) -> bool {
        match (current(), self) {
            (Some(console), stream) => console.screen.terminals[stream.piece() as usize],
            (None, Stream::Out) => io::stdout().is_terminal(),
            (None, Stream::Err) => io::stderr().is_terminal(),
        }
    }
}

/// Sets the title of the command's process: that of the client, if the command runs for one.
pub(crate) fn set_title(title: &str) {
    match current() {
        // A client that is gone needs no title.
        Some(console) => drop(console.queue(console.link.title(title))),
        None => crate::title::set(title),
    }
}

/// A variable of the environment; `None` if it is not set.
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

/// Unbuffered standard output.
#[derive(Debug)]
pub(crate) struct RawOut(Option<Arc<Console>>);

impl RawOut {
    /// Standard output of the calling thread's console.
    pub(crate) fn new() -> RawOut {
        RawOut(current())
    }
}

impl RawOut {
    /// Its descriptor, if it belongs to this process.
    pub(crate) fn own(&self) -> Option<BorrowedFd<'_>> {
        self.0.is_none().then(rustix::stdio::stdout)
    }

    /// Has the client leave out `bytes` zero bytes as a hole, or write them. Only for output that does not
    /// belong to this process.
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

/// Standard input of the calling thread's console.
pub(crate) fn input() -> Input {
    Input(current())
}

impl Input {
    /// Whether standard input is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        match &self.0 {
            Some(console) => console.screen.terminals[0],
            None => rustix::stdio::stdin().is_terminal(),
        }
    }

    /// Whether input, or its end, is there within a time. `most`: greatest number of bytes that will be read.
    pub(crate) fn is_ready(&self, most: usize, within: Duration) -> io::Result<bool> {
        let Some(console) = &self.0 else {
            let time = Timespec::try_from(within).map_err(|_| io::ErrorKind::InvalidInput)?;
            // A later read returns the error.
            let stdin = rustix::stdio::stdin();
            return Ok(!matches!(
                poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&time)),
                Ok(0) | Err(rustix::io::Errno::INTR)
            ));
        };
        if let Some(frame) = console.link.want(most) {
            console.queue(frame)?;
        }
        // The user must see the question before input is read.
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
        // The client may disconnect before any input arrives.
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

/// The permission bits that new files do not get.
pub(crate) fn umask() -> u32 {
    if let Some(console) = current() {
        return console.umask;
    }
    // The only way to read the mask is to set it.
    let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::umask(old);
    old.as_raw_mode()
}

impl Console {
    /// Checks that the command was not cancelled.
    fn check_wanted(&self) -> io::Result<()> {
        if self.cancel.times() > 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// Asks the client's user. `None`: the user gives no answer.
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

/// Ends the command with this exit code: the process, or the command that a daemon runs for a client.
pub(crate) fn exit(code: u8) -> ! {
    if current().is_some() {
        // The thread that runs the command catches this; it is no panic, and is not logged.
        serve::panics::leave(Box::new(Exit(code)))
    }
    std::process::exit(code.into())
}

/// Payload of the unwinding that ends a command; holds the exit code.
#[derive(Debug)]
pub(crate) struct Exit(pub(crate) u8);

/// Writes to standard error. A failure is ignored: it cannot be reported.
macro_rules! say_error {
    ($($arg:tt)*) => {{
        let _ = $crate::console::write($crate::console::Stream::Err, format!($($arg)*).as_bytes());
    }};
}

/// [`say_error`] with a line end.
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
