//! Commands that a daemon runs: the side of whoever typed them.
//!
//! # What always holds
//! - The daemon gets this process's streams, working folder, terminal and those variables that commands look at;
//!   what it writes goes where this process's output goes.
//! - Signals that end a command cancel it there; the second one ends this process at once.
//! - A command runs once. One that a daemon has not begun is asked for again: of the next daemon, if that one ended.
//! - If no daemon runs, one is started, unless the command can do without.

// Here is the process whose streams and environment these are.
#![allow(clippy::disallowed_methods)]

use crate::daemon::{self, places};
use crate::stop::Stop;
use crate::zpool::SAID;
use rustix::fs::{CWD, Mode, OFlags, open, openat};
use serve::Terminator;
use serve::control::{CallError, Connection, Message, Name, Reply, Request, VERSION};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Not to start a daemon: a command that would have to ends silently. For completions.
const NO_START: &str = "CENOTE_NO_START";
/// How long a daemon that ends is waited for, before another one is started.
const ENDING: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// What a command that a signal has ended leaves behind, less the number of the signal.
const INTERRUPTED: u8 = 130;

/// What has become of a command.
pub(crate) enum Done {
    /// It has run, or nobody can run it; all has been said.
    Code(u8),
    /// It is this process's to run.
    Here,
}

/// Has a daemon run a command; which is started for it if `start` says so.
pub(crate) fn run(program: &str, args: &[OsString], start: bool) -> Done {
    let began = Instant::now();
    let mut said = None;
    loop {
        let (connection, is_others) = match connect(start) {
            Ok(Some((connection, is_others))) => (Arc::new(connection), is_others),
            Ok(None) => return Done::Here,
            Err(code) => return Done::Code(code),
        };
        if is_others && program == "zpool" && said.is_none() {
            said = match crate::zpool::scripts_said(args) {
                Ok(columns) => columns,
                Err(Stop::Failed(Some(why))) => return lost(crate::out::visible(&why)),
                Err(Stop::Code(code)) => return Done::Code(code),
                Err(_) => return Done::Code(1),
            };
        }
        let reply = match begin(&connection, program, args, said.as_deref()) {
            // It ended before it began anything: another one will run it.
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

/// A connection to the daemon that is to be asked, and whether it is somebody else's. `None`: there is none, and none
/// is needed.
fn connect(start: bool) -> Result<Option<(Connection, bool)>, u8> {
    let env = |name: &str| std::env::var_os(name);
    let own = places::own_socket(env);
    let system = places::system_socket(env);
    let found = try_connect(&own)?;
    if let Some(connection) = found {
        return Ok(Some((connection, is_others(&own))));
    }
    if let Some(connection) = system.and_then(|socket| Connection::open(&socket).ok()) {
        return Ok(Some((connection, true)));
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
            return Ok(Some((connection, false)));
        }
        // One that ends answers no more, and has its state folder until its pools are closed.
        if began.elapsed() > ENDING {
            let (socket, log) = (own.display(), places::log_path());
            say_error_line!("cenoted does not answer at {socket}\nits log: {}", log.display());
            return Err(1);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Whether a socket belongs to somebody else.
fn is_others(socket: &Path) -> bool {
    std::fs::metadata(socket).is_ok_and(|found| found.uid() != rustix::process::geteuid().as_raw())
}

/// `None`: nobody is there.
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

/// Starts a daemon and waits until it answers; it says itself why it does not.
fn start_daemon() -> Result<(), u8> {
    let told = |error: io::Error| {
        say_error_line!("cannot start cenoted: {error}");
        1
    };
    let mut command = crate::this_program().map_err(told)?;
    command.args(["daemon", "--detach", "--unless-running"]).stdin(Stdio::null()).stdout(Stdio::null());
    // What belongs to this command alone is not the daemon's.
    for name in ["CENOTE_KEYS", "CENOTE_DIRECT", "CENOTE_DEVICES", "ZPOOL_IMPORT_PATH"] {
        command.env_remove(name);
    }
    let code = command.status().map_err(told)?.code();
    match code {
        // Somebody else was faster.
        Some(code) if code == 0 || code == i32::from(daemon::RUNNING) => Ok(()),
        _ => {
            say_error_line!("cannot start cenoted; its log: {}", places::log_path().display());
            Err(1)
        }
    }
}

enum Failed {
    System(io::Error),
    /// Nothing has begun.
    Unanswered(CallError),
    /// What has begun has no end.
    Call(CallError),
}

impl<E: Into<io::Error>> From<E> for Failed {
    fn from(error: E) -> Failed {
        Failed::System(error.into())
    }
}

/// Has a command run, from the request to its end.
fn begin(
    connection: &Arc<Connection>,
    program: &str,
    args: &[OsString],
    said: Option<&str>,
) -> Result<Reply, Failed> {
    // There are no other threads, which would have to leave the signals to one.
    let terminator = Terminator::new()?;
    match ask(connection, program, args, said, &terminator) {
        Ok(Reply::Begins) => wait_for_end(connection, terminator),
        other => {
            // What runs here instead has its own ways.
            terminator.release()?;
            other
        }
    }
}

/// Asks, and waits for the first answer. Signals that come before it end this process, and with it the request; those
/// that come after it are held.
fn ask(
    connection: &Connection,
    program: &str,
    args: &[OsString],
    said: Option<&str>,
    terminator: &Terminator,
) -> Result<Reply, Failed> {
    let folder = open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .or_else(|_| openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()))?;
    let terminal = open("/dev/tty", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).ok();
    // One that is closed here is closed there.
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (input, output, errors) = (rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr());
    let standard = [input, output, errors].map(|fd| match rustix::io::fcntl_getfd(fd) {
        Ok(_) => fd,
        Err(_) => null.as_fd(),
    });
    let mut fds = standard.to_vec();
    fds.push(folder.as_fd());
    fds.extend(terminal.as_ref().map(AsFd::as_fd));
    let request = Request {
        version: VERSION,
        program: program.to_owned(),
        args: args.iter().map(|arg| Name::from(&**arg)).collect(),
        env: env(std::env::vars_os().chain(said.map(|said| (SAID.into(), said.into())))),
        umask: crate::console::umask(),
        terminal: terminal.is_some(),
    };
    // One that refuses at once need not have read all of it.
    let said = connection.say(&Message::Request(request), &fds);
    while !connection.is_answered(LOOK_AGAIN)? {
        terminator.let_through()?;
    }
    connection.reply().map_err(|error| Failed::Unanswered(said.err().map_or(error, CallError::from)))
}

/// The end of a command that has begun. A signal cancels it, the second one ends this process.
fn wait_for_end(connection: &Arc<Connection>, terminator: Terminator) -> Result<Reply, Failed> {
    let times = Arc::new(AtomicU32::new(0));
    let (asked, cancelling) = (Arc::clone(&times), Arc::clone(connection));
    terminator.watch(move |count| {
        asked.store(count, Ordering::Relaxed);
        if count > 1 || cancelling.say(&Message::Cancel, &[]).is_err() {
            std::process::exit(INTERRUPTED.into());
        }
    })?;
    let reply = connection.reply().map_err(Failed::Call)?;
    // Whoever asked for the end need not see what that did to the command.
    let is_interrupted = times.load(Ordering::Relaxed) > 0 && matches!(reply, Reply::Exit(_));
    Ok(if is_interrupted { Reply::Exit(INTERRUPTED) } else { reply })
}

/// The variables that commands look at.
fn env(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<(Name, Name)> {
    let wanted = all.filter(|(name, _)| is_looked_at(name));
    wanted.map(|(name, value)| (Name::from(&*name), Name::from(&*value))).collect()
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
