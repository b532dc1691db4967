//! The client side of commands that a daemon runs.
//!
//! # What always holds
//! - The daemon gets no descriptor of this process: the output and input of the command pass through this
//!   process, and so do questions to the user. The daemon gets the working folder and the variables that
//!   commands read.
//! - The daemon is this user's or root's: no other process is sent anything, and no other reply is trusted.
//! - Signals that end a command cancel it in the daemon; a second signal ends this process at once.
//! - A command runs once. A request that a daemon has not begun is sent again: to the next daemon, if the
//!   first ended.
//! - If no daemon runs, one is started, unless the command can run without.

// The streams and the environment of the process are used here.
#![allow(clippy::disallowed_methods)]

use crate::cenote::{can_have_holes, end_in_hole};
use crate::daemon::{self, paths};
use crate::keys::prompt;
use crate::stop::Stop;
use crate::zpool::SAID;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, fstat, open, seek};
use rustix::io::Errno;
use serve::Terminator;
use serve::control::{CallError, Came, Connection, DATA_MAX, Message, Piece, Reply, Request, Screen};
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Variable that prevents starting a daemon: a command that needs one ends silently. Used for completions.
const NO_START: &str = "CENOTE_NO_START";
/// Longest wait for a daemon that is ending, before another one is started.
const ENDING: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Exit code of a command that a signal has ended, less the number of the signal.
const INTERRUPTED: u8 = 130;
/// Exit code of a command whose reader has gone away: that of a process that SIGPIPE ended.
const NO_READER: u8 = 141;
/// Interval at which a thread that waits for a stream checks for signals.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Space in a pipe that can be written without blocking, in bytes (PIPE_BUF).
const PIPE_ROOM: usize = 4096;

/// Outcome of handing a command to a daemon.
pub(crate) enum Done {
    /// The command has run, or cannot run anywhere; all messages were printed.
    Code(u8),
    /// This process must run the command.
    Here,
}

/// Has a daemon run a command. Starts a daemon if none runs and `start` is set.
pub(crate) fn run(program: &str, args: &[OsString], start: bool) -> Done {
    let began = Instant::now();
    // The result of the user's scripts, once they have run.
    let mut said: Option<Option<String>> = None;
    loop {
        let connection = match connect(start) {
            Ok(Some(connection)) => Arc::new(connection),
            Ok(None) => return Done::Here,
            Err(code) => return Done::Code(code),
        };
        let is_others = connection.uid() != rustix::process::geteuid().as_raw();
        if is_others && program == "zpool" && said.is_none() {
            // The scripts may take long, and a daemon does not wait for silent clients.
            drop(connection);
            said = match crate::zpool::scripts_said(args) {
                Ok(columns) => Some(columns),
                Err(Stop::Failed(Some(why))) => return lost(crate::out::visible(&why)),
                Err(Stop::Code(code)) => return Done::Code(code),
                Err(_) => return Done::Code(1),
            };
            continue;
        }
        let said = said.as_ref().and_then(Option::as_deref);
        let reply = match begin(&connection, program, args, said) {
            // The daemon ended before it began the command: the next one will run it.
            Ok(Reply::Ending) if began.elapsed() < ENDING => {
                std::thread::sleep(LOOK_AGAIN);
                continue;
            }
            Err(Failed::Unanswered(error)) if error.is_gone() && began.elapsed() < ENDING => {
                std::thread::sleep(LOOK_AGAIN);
                continue;
            }
            other => other,
        };
        return match reply {
            Ok(Reply::Exit(code)) => Done::Code(code),
            Ok(Reply::Elsewhere) => Done::Here,
            Ok(Reply::Refused(why)) => lost(crate::out::visible(&why)),
            Ok(Reply::Ending) => lost("cenoted does not end"),
            Ok(_) => lost("cenoted gave no answer to this"),
            Err(Failed::Unanswered(error) | Failed::Call(error)) => lost(error),
            Err(Failed::System(error)) => lost(format_args!("cannot ask cenoted: {error}")),
        };
    }
}

fn lost(why: impl std::fmt::Display) -> Done {
    say_error_line!("{why}");
    Done::Code(1)
}

/// Connects to the daemon for this command. `None`: there is none, and none is needed.
fn connect(start: bool) -> Result<Option<Connection>, u8> {
    let env = |name: &str| std::env::var_os(name);
    let own = paths::own_socket(env);
    let found = try_connect(&own)?;
    if found.is_some() {
        return Ok(found);
    }
    if let Some(connection) = paths::system_socket(env).and_then(|socket| Connection::open(&socket).ok()) {
        return Ok(Some(connection));
    }
    if !start {
        return Ok(None);
    }
    if env(NO_START).is_some_and(|value| !value.is_empty()) {
        return Err(1);
    }
    let began = Instant::now();
    loop {
        start_daemon()?;
        if let Some(connection) = try_connect(&own)? {
            return Ok(Some(connection));
        }
        // A daemon that is ending replies no more, but keeps its state folder until its pools are closed.
        if began.elapsed() > ENDING {
            let (socket, log) = (own.display(), paths::log_path());
            say_error_line!("cenoted does not answer at {socket}\nits log: {}", log.display());
            return Err(1);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Connects to a socket; `None`: no daemon listens there.
fn try_connect(socket: &Path) -> Result<Option<Connection>, u8> {
    match Connection::open(socket) {
        Ok(connection) => Ok(Some(connection)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(e) => {
            say_error_line!("cannot connect to cenoted at {}: {e}", socket.display());
            Err(1)
        }
    }
}

/// Starts a daemon and waits until it replies; it prints itself why it does not.
fn start_daemon() -> Result<(), u8> {
    let told = |error: io::Error| {
        say_error_line!("cannot start cenoted: {error}");
        1
    };
    let mut command = crate::this_program().map_err(told)?;
    command.args(["daemon", "--detach", "--unless-running"]).stdin(Stdio::null()).stdout(Stdio::null());
    let code = command.status().map_err(told)?.code();
    match code {
        // Another command was faster.
        Some(code) if code == 0 || code == i32::from(daemon::RUNNING) => Ok(()),
        _ => {
            say_error_line!("cannot start cenoted; its log: {}", paths::log_path().display());
            Err(1)
        }
    }
}

enum Failed {
    System(io::Error),
    /// The daemon has not begun the command.
    Unanswered(CallError),
    /// The command has begun, and the connection failed before its end.
    Call(CallError),
}

impl<E: Into<io::Error>> From<E> for Failed {
    fn from(error: E) -> Failed {
        Failed::System(error.into())
    }
}

/// Sends a request, and handles the command until its end.
fn begin(
    connection: &Arc<Connection>,
    program: &str,
    args: &[OsString],
    said: Option<&str>,
) -> Result<Reply, Failed> {
    // There are no other threads that would have to block the signals.
    let terminator = Terminator::new()?;
    match ask(connection, program, args, said, &terminator) {
        Ok(Reply::Begins) => {
            let reports = program == "zfs" && args.first().is_some_and(|verb| verb == "send");
            wait_for_end(connection, terminator, reports)
        }
        other => {
            // If the command runs in this process, it handles signals itself.
            terminator.release()?;
            other
        }
    }
}

/// Sends the request and waits for the first reply. Signals before that reply end this process, and with it
/// the request; later ones are held.
fn ask(
    connection: &Connection,
    program: &str,
    args: &[OsString],
    said: Option<&str>,
    terminator: &Terminator,
) -> Result<Reply, Failed> {
    // If the folder's file system does not answer, this process waits here, not the daemon.
    let _ = open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let folder = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let request = Request {
        program: program.to_owned(),
        args: args.to_vec(),
        env: env(std::env::vars_os().chain(said.map(|said| (SAID.into(), said.into())))),
        folder: folder.into_os_string(),
        umask: crate::console::umask(),
        screen: screen(),
    };
    // A daemon that refuses at once may not have read the whole request.
    let said = connection.request(&request);
    while !connection.is_answered(LOOK_AGAIN)? {
        terminator.let_through()?;
    }
    connection.reply().map_err(|error| Failed::Unanswered(said.err().map_or(error, CallError::from)))
}

/// Describes the standard streams and the terminal of this process.
fn screen() -> Screen {
    let errors = rustix::stdio::stderr();
    let size = rustix::termios::tcgetwinsize(errors).ok().map(|size| (size.ws_col, size.ws_row));
    Screen {
        terminals: [rustix::stdio::stdin(), rustix::stdio::stdout(), errors].map(|fd| fd.is_terminal()),
        can_ask: prompt::is_possible(),
        size,
    }
}

/// Handles a command that has begun: serves its streams until it ends. A signal cancels it; a second one ends
/// this process. With `reports`, SIGUSR1 asks the command for a report.
fn wait_for_end(
    connection: &Arc<Connection>,
    terminator: Terminator,
    reports: bool,
) -> Result<Reply, Failed> {
    if reports {
        let reporting = Arc::clone(connection);
        serve::on_report(move || {
            // A daemon that is gone has nothing to report.
            let _ = reporting.say(&Message::Report);
        })?;
    }
    let times = Arc::new(AtomicU32::new(0));
    let (asked, cancelling) = (Arc::clone(&times), Arc::clone(connection));
    terminator.watch(move |count| {
        asked.store(count, Ordering::Relaxed);
        if count > 1 || cancelling.say(&Message::Cancel).is_err() {
            prompt::put_right();
            std::process::exit(INTERRUPTED.into());
        }
    })?;
    let is_interrupted = || times.load(Ordering::Relaxed) > 0;
    let mut streams = Streams::new(connection, &is_interrupted);
    let reply = streams.serve().map_err(Failed::Call)?;
    Ok(match reply {
        // The exit code of a cancelled command does not matter.
        Reply::Exit(_) if is_interrupted() => Reply::Exit(INTERRUPTED),
        Reply::Exit(code) => Reply::Exit(streams.end(code)),
        other => other,
    })
}

/// The streams of this process, for a command that runs in the daemon.
struct Streams<'a> {
    connection: &'a Connection,
    /// A signal has come: no more output is wanted.
    is_interrupted: &'a dyn Fn() -> bool,
    out: Outlet,
    errors: Outlet,
    /// Zero bytes of standard output can be left out as holes.
    can_have_holes: bool,
    ends_in_hole: bool,
}

/// An output stream.
struct Outlet {
    fd: BorrowedFd<'static>,
    is_file: bool,
    /// The error with which writing has failed.
    broken: Option<Errno>,
}

impl Outlet {
    fn new(fd: BorrowedFd<'static>) -> Outlet {
        let is_regular =
            |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Outlet { fd, is_file: fstat(fd).is_ok_and(is_regular), broken: None }
    }

    /// Writes all of `bytes`, unless a signal comes meanwhile.
    fn write(&self, mut bytes: &[u8], is_interrupted: &dyn Fn() -> bool) -> Result<(), Errno> {
        let most = if self.is_file { usize::MAX } else { PIPE_ROOM };
        while !bytes.is_empty() && !is_interrupted() {
            if let Ok(0) | Err(Errno::INTR) =
                poll(&mut [PollFd::new(&self.fd, PollFlags::OUT)], Some(&LOOK_EVERY))
            {
                continue;
            }
            match rustix::io::write(self.fd, &bytes[..bytes.len().min(most)]) {
                Ok(0) => return Err(Errno::IO),
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<'a> Streams<'a> {
    fn new(connection: &'a Connection, is_interrupted: &'a dyn Fn() -> bool) -> Streams<'a> {
        let (out, errors) = (rustix::stdio::stdout(), rustix::stdio::stderr());
        Streams {
            connection,
            is_interrupted,
            out: Outlet::new(out),
            errors: Outlet::new(errors),
            can_have_holes: can_have_holes(out),
            ends_in_hole: false,
        }
    }

    /// Serves the streams until the command has ended; returns its last reply.
    fn serve(&mut self) -> Result<Reply, CallError> {
        let mut wanted = None;
        loop {
            if let Some(most) = wanted.filter(|_| !(self.is_interrupted)()) {
                let mut ends = [
                    PollFd::new(self.connection, PollFlags::IN),
                    PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN),
                ];
                // A later read returns the error of a stream.
                let _ = poll(&mut ends, Some(&LOOK_EVERY));
                let [daemon, input] = ends.map(|end| !end.revents().is_empty());
                if input {
                    self.give_input(most);
                    wanted = None;
                }
                if input || !daemon {
                    continue;
                }
            }
            match self.connection.came()? {
                Came::Piece(Piece::Out, bytes) => self.put(1, &bytes),
                Came::Piece(Piece::Errors, bytes) => self.put(2, &bytes),
                Came::Piece(Piece::Hole, bytes) => self.hole(&bytes),
                Came::Word(Reply::Want(most)) => wanted = usize::try_from(most).ok(),
                Came::Word(Reply::Ask(question)) => {
                    let answer = prompt::secret(&question).ok().flatten();
                    let kind = if answer.is_some() { Piece::Answer } else { Piece::NoAnswer };
                    let _ = self.connection.give(kind, &answer.unwrap_or_default());
                }
                Came::Word(Reply::Title(title)) => crate::title::set(&title),
                Came::Word(reply) => return Ok(reply),
                Came::Piece(..) => return Err(CallError::Lost),
            }
        }
    }

    fn give_input(&self, most: usize) {
        let mut buffer = vec![0; most.min(DATA_MAX)];
        let count = loop {
            match rustix::io::read(rustix::stdio::stdin(), &mut *buffer) {
                Ok(count) => break count,
                Err(Errno::INTR) => {}
                // The descriptor was set not to block by another process: poll again.
                Err(Errno::AGAIN) => {
                    let _ = poll(
                        &mut [PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN)],
                        Some(&LOOK_EVERY),
                    );
                }
                // A stream that cannot be read counts as empty.
                Err(_) => break 0,
            }
        };
        let _ = self.connection.give(Piece::Input, &buffer[..count]);
    }

    /// Writes to standard output (1) or standard error (2), and tells the command if writing fails.
    fn put(&mut self, stream: u8, bytes: &[u8]) {
        if stream == 1 {
            self.ends_in_hole = false;
        }
        let outlet = if stream == 1 { &mut self.out } else { &mut self.errors };
        if outlet.broken.is_some() {
            return;
        }
        if let Err(error) = outlet.write(bytes, self.is_interrupted) {
            outlet.broken = Some(error);
            // The command may have ended already; its last reply still arrives.
            let _ = self.connection.say(&Message::Closed { stream, errno: error.raw_os_error() });
        }
    }

    fn hole(&mut self, bytes: &[u8]) {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut left = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if let Ok(skipped) = i64::try_from(left)
            && self.can_have_holes
            && seek(self.out.fd, SeekFrom::Current(skipped)).is_ok()
        {
            self.ends_in_hole = true;
            return;
        }
        while left > 0 && self.out.broken.is_none() && !(self.is_interrupted)() {
            let part = left.min(ZEROS.len() as u64);
            self.put(1, &ZEROS[..usize::try_from(part).unwrap_or(0)]);
            left -= part;
        }
    }

    /// The exit code, which is an error if some output could not be written.
    fn end(&mut self, code: u8) -> u8 {
        if self.ends_in_hole
            && let Err(error) = end_in_hole(self.out.fd)
        {
            say_error_line!("cannot write: {error}");
            return 1;
        }
        match self.out.broken {
            Some(Errno::PIPE) if code == 0 => NO_READER,
            Some(error) if code == 0 => {
                say_error_line!("cannot write: {}", io::Error::from(error));
                1
            }
            _ => code,
        }
    }
}

/// The environment variables that commands read.
fn env(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    all.filter(|(name, _)| is_looked_at(name)).collect()
}

fn is_looked_at(name: &OsStr) -> bool {
    const NAMES: [&[u8]; 14] = [
        b"TZ",
        b"LANG",
        b"COLUMNS",
        b"LINES",
        b"HOME",
        b"PATH",
        b"TERM",
        b"NO_COLOR",
        b"USER",
        b"LOGNAME",
        b"POSIXLY_CORRECT",
        b"CLICOLOR",
        b"SUDO_USER",
        b"SUDO_COMMAND",
    ];
    const PREFIXES: [&[u8]; 5] = [b"CENOTE_", b"ZFS_", b"ZPOOL_", b"LC_", b"VDEV_"];
    let name = name.as_bytes();
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_commands_look_at_is_sent() {
        let sent = |name: &str| is_looked_at(OsStr::new(name));
        assert!(sent("CENOTE_KEYS") && sent("ZPOOL_VDEV_NAME_PATH") && sent("LC_ALL") && sent("TZ"));
        assert!(!sent("AWS_SECRET_ACCESS_KEY") && !sent("SSH_AUTH_SOCK") && !sent("LD_PRELOAD"));
    }
}
