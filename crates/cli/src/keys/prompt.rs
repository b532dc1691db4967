//! Asks for a key at the terminal: of this process, or, in a daemon, of the client.

use admin::sync::lock;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::console::{self, Stream};

/// Longest line that is accepted, in bytes.
const LINE_MAX: usize = 4096;
/// Characters of Ctrl-C and Ctrl-D.
const CANCEL: u8 = 3;
const END: u8 = 4;

/// The terminal whose echo is off, and its previous settings.
static QUIET: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);

/// Restores the settings of the terminal. For code that ends this process while the user is being asked.
pub(crate) fn put_right() {
    let quiet = lock(&QUIET).take();
    if let Some((terminal, before)) = quiet {
        let _ = tcsetattr(&terminal, OptionalActions::Flush, &before);
    }
}

/// Switches the echo of the terminal off until dropped.
struct Quiet;

impl Quiet {
    fn new(terminal: &OwnedFd) -> io::Result<Quiet> {
        let before = tcgetattr(terminal)?;
        let mut slot = lock(&QUIET);
        *slot = Some((terminal.try_clone()?, before.clone()));
        let mut quiet = before.clone();
        // Without signals: a signal that ended the process now would leave the terminal without echo.
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

/// Whether there is a terminal at which to ask.
pub(crate) fn is_possible() -> bool {
    match console::current() {
        Some(console) => console.screen.can_ask,
        None => Stream::Err.is_terminal() && terminal().is_ok(),
    }
}

/// Asks for a line that is not shown. `None`: the user gives no answer.
///
/// # Errors
/// There is no terminal, or it cannot be used.
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

/// The controlling terminal of this process.
fn terminal() -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    Ok(open("/dev/tty", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?)
}
