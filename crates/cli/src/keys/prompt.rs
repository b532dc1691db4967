//! Asking for a key at the terminal: here, or, in a daemon, by the client at its own.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::console::{self, Stream};

/// Longest line taken.
const LINE_MAX: usize = 4096;
/// What the keys Ctrl-C and Ctrl-D send.
const CANCEL: u8 = 3;
const END: u8 = 4;

/// The terminal that has no echo now, and how it was before.
static QUIET: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);

/// The terminal is as it was before the user was asked. For whoever ends this process meanwhile.
pub(crate) fn put_right() {
    let quiet = QUIET.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((terminal, before)) = quiet {
        let _ = tcsetattr(&terminal, OptionalActions::Flush, &before);
    }
}

/// The terminal without echo, put right again when dropped.
struct Quiet;

impl Quiet {
    fn new(terminal: &OwnedFd) -> io::Result<Quiet> {
        let before = tcgetattr(terminal)?;
        let mut slot = QUIET.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some((terminal.try_clone()?, before.clone()));
        let mut quiet = before.clone();
        // Without signals: one that ended us here would leave the terminal without echo.
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        quiet.local_modes.insert(LocalModes::ICANON | LocalModes::ECHONL);
        tcsetattr(terminal, OptionalActions::Flush, &quiet)?;
        drop(slot);
        Ok(Quiet)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        put_right();
    }
}

/// There is a terminal to ask at.
pub(crate) fn is_possible() -> bool {
    match console::current() {
        Some(console) => console.screen.can_ask,
        None => Stream::Err.is_terminal() && terminal().is_ok(),
    }
}

/// Asks for a line that is not shown. `None`: the user does not want to.
///
/// # Errors
/// There is no terminal, or it fails.
pub(crate) fn secret(question: &str) -> io::Result<Option<Vec<u8>>> {
    if let Some(console) = console::current() {
        return console.ask(question);
    }
    let terminal = terminal()?;
    console::write(Stream::Err, question.as_bytes())?;
    let quiet = Quiet::new(&terminal)?;
    let mut line = Vec::new();
    let mut byte = [0u8];
    while line.len() < LINE_MAX && rustix::io::read(&terminal, &mut byte)? == 1 {
        match byte {
            [b'\n' | END] => break,
            [CANCEL] => {
                drop(quiet);
                console::write(Stream::Err, b"\n")?;
                return Ok(None);
            }
            [other] => line.push(other),
        }
    }
    Ok(Some(line).filter(|line| !line.is_empty()))
}

/// The terminal that the user of this process sits at.
fn terminal() -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    Ok(open("/dev/tty", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?)
}
