//! Asking for a key at the terminal: here, or, in a daemon, by the client at its own.

use std::io;
use std::os::fd::OwnedFd;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::console::{self, Stream};

/// Longest line taken.
const LINE_MAX: usize = 4096;
/// What the keys Ctrl-C and Ctrl-D send.
const CANCEL: u8 = 3;
const END: u8 = 4;

/// The terminal without echo, put right again when dropped.
struct Quiet<'a> {
    terminal: &'a OwnedFd,
    before: Termios,
}

impl Quiet<'_> {
    fn new(terminal: &OwnedFd) -> io::Result<Quiet<'_>> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        // Without signals: one that ended us here would leave the terminal without echo.
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        quiet.local_modes.insert(LocalModes::ICANON | LocalModes::ECHONL);
        tcsetattr(terminal, OptionalActions::Flush, &quiet)?;
        Ok(Quiet { terminal, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
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
