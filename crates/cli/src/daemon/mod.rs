//! `cenoted`: the process that keeps pools open and serves their mounts. Commands reach it over a socket
//! ([`serve::control`]) and run here, each on a thread of its own, with the client's console.
//!
//! # Order
//! Start: state folder locked -> socket made -> pools of the cache file imported (after a daemon that died:
//! once the kernel has released their devices) -> mounts of the dead daemon detached -> file systems mounted
//! -> requests, and replication on schedule.
//!
//! End (SIGTERM, SIGINT, `cenote daemon --stop`): no further requests, running ones cancelled -> all file
//! systems unmounted -> pools closed, but still listed in the cache file, so that the next start imports them
//! again.
//!
//! # What always holds
//! - At most one daemon has a state folder: it holds the lock on a file there, which ends with the process.
//! - A pool is consistent if the daemon ends at any moment; a panic outside of requests ends the process.
//! - Missing devices and failed mounts are logged and do not keep a daemon from starting.
//!
//! Tests: `cli/tests/commands/daemon.rs`.

// The streams and the environment of the process are used here.
#![allow(clippy::disallowed_methods)]

mod detach;
mod ending;
mod error;
mod found_policies;
mod lock;
mod log;
pub(crate) mod paths;
mod policy;
mod programs;
mod release;
mod replication;
mod requests;

use crate::console;
use admin::change::ChangeError;
use admin::mounting::{MountRefusal, MountRequest};
use admin::{Mounts, Namespace};
use ending::mounting;
use error::DaemonError;
pub(crate) use error::RUNNING;
use lock::Lock;
pub(crate) use programs::{Programs, RunProgram};
use requests::Requests;
use serve::control::{Connection, Listener, Message, Reply, Server, VERSION};
use serve::control_files::{ControlFiles, ControlMount};
use serve::mounts::{MountTable, TableSettings};
use serve::{Terminator, manager, panics};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for running requests at the end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait for the kernel to release the devices of a daemon that died.
const DYING: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Keep pools open, mount their file systems, and run what the commands ask for
///
/// The commands start it when they need it; `cenoted` is the same as `cenote daemon`. It stays in the
/// foreground, for a service manager, unless --detach is given. Environment: CENOTE_SOCKET (where it is
/// asked), CENOTE_STATE (the folder of its lock, its log and its list of pools), CENOTE_LOG (off,
/// error, warn, info, debug, trace).
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Return when it answers, and go on in the background; the log goes into the state folder
    #[arg(long, conflicts_with_all = ["stop", "status"])]
    detach: bool,
    /// In the background process: tell readiness and let go of the terminal
    #[arg(long, hide = true)]
    detached: bool,
    /// End the daemon that runs: its pools are closed, and come back with the next start
    #[arg(long, conflicts_with = "status")]
    stop: bool,
    /// Say nothing if one runs already: of commands that want one to run
    #[arg(long, hide = true)]
    unless_running: bool,
    /// Of the process beside a daemon: let go of the mounts of this one when it was killed
    #[arg(long, hide = true)]
    release: Option<u32>,
    /// Tell whether one runs; exit code 3 if none does
    #[arg(long)]
    status: bool,
}

/// Runs the verb; its exit code. `programs`: what the daemon runs for its clients.
pub(crate) fn run(args: &Args, programs: Programs) -> u8 {
    let socket = paths::own_socket(|name| std::env::var_os(name));
    let done = match () {
        () if args.stop => stop(&socket),
        () if args.status => status(&socket),
        () if args.release.is_some() => return args.release.map_or(1, release::run),
        () if args.detach => detach::start(args.unless_running),
        () => serve(&socket, args.detached, programs),
    };
    match done {
        Ok(code) => code,
        Err(DaemonError::Running { .. }) if args.unless_running => RUNNING,
        Err(error) => {
            say_error_line!("cenoted: {}", crate::out::visible(&error.to_string()));
            if matches!(error, DaemonError::Running { .. }) { RUNNING } else { 1 }
        }
    }
}

/// A daemon, from its start to its end.
fn serve(socket: &Path, is_detached: bool, programs: Programs) -> Result<u8, DaemonError> {
    // Before any thread is started, so that all of them leave the signals to one.
    let terminator = Terminator::new()?;
    // A hangup of a terminal ends what runs there.
    let terminator = if io::stderr().is_terminal() { terminator } else { terminator.on_hangup(log::reopen) };
    let inherited = manager::inherited_socket()?;
    paths::prepare(socket)?;
    let lock = match Lock::take() {
        Err(DaemonError::Running { pid: Some(pid), state })
            if inherited.as_ref().is_some_and(|handed| paths::is_at(handed, socket)) =>
        {
            take_over(pid, &state)?
        }
        taken => taken?,
    };
    if is_detached {
        log::to_file()?;
    }
    log::begin()?;
    let parameters = std::env::var("CENOTE_PARAMETERS").unwrap_or_default();
    ::admin::set_tunables(&parameters)?;
    end_on_panic();
    take_descriptors();
    heap::start_trim_thread();
    let is_ours = inherited.is_none();
    let listener = match inherited {
        Some(inherited) => Listener::of(inherited),
        None => listen(socket)?,
    };
    // Another process may put another one there.
    let made = is_ours.then(|| paths::identity(socket)).flatten();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), socket = %socket.display(), "cenoted starts");
    release::start();
    let namespace = bring_back(lock.before_has_died());
    let handler = Arc::new(Requests::new(Arc::clone(&namespace), programs));
    let server = Server::new(handler.clone())?;
    handler.stops(&server);
    let stopping = Arc::clone(&server);
    terminator.watch(move |times| {
        if times > 1 {
            tracing::warn!("asked to end for the second time: the pools are not closed");
            std::process::exit(1);
        }
        tracing::info!("asked to end");
        stopping.stop();
    })?;
    let control_files = mount_control_files(&namespace);
    if is_detached {
        detach::ready()?;
    }
    tell_manager("READY=1");
    watch(&namespace);
    let schedule = replication::Schedule::start();
    let served = server.serve(&listener);
    if let Err(error) = &served {
        tracing::error!(%error, "the socket fails");
        server.stop();
    }
    tell_manager("STOPPING=1");
    drop(schedule);
    if made.is_some() && made == paths::identity(socket) {
        // From now on clients see that there is no daemon; the next one replaces it anyway.
        let _ = std::fs::remove_file(socket);
    }
    drop(listener);
    if let Some(mounted) = control_files
        && let Err(error) = mounted.unmount()
    {
        tracing::warn!(%error, "the control files are still mounted");
    }
    end(&server, &namespace);
    drop(lock);
    tracing::info!("cenoted has ended");
    Ok(u8::from(served.is_err()))
}

/// Ends a daemon that a command has started: the service manager's socket stands in the place of its own, so that
/// no client can reach it any more.
fn take_over(pid: u32, state: &Path) -> Result<Lock, DaemonError> {
    let running = |pid| DaemonError::Running { pid, state: state.to_path_buf() };
    let process = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let process = process.ok_or_else(|| running(Some(pid)))?;
    tell_manager("STATUS=waiting for the daemon that a command has started to end");
    rustix::process::kill_process(process, rustix::process::Signal::TERM)
        .map_err(|error| DaemonError::Io(error.into()))?;
    let until = Instant::now() + ending::ALL;
    loop {
        match Lock::take() {
            Err(DaemonError::Running { .. }) if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
            taken => {
                tell_manager("STATUS=");
                return taken;
            }
        }
    }
}

/// Raises the limit of descriptors as far as possible: each client takes five, and mounts and devices take
/// theirs.
fn take_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

fn listen(socket: &Path) -> Result<Listener, DaemonError> {
    // The lock shows that no daemon of this state folder runs: the listener would be a daemon of another one.
    if std::os::unix::net::UnixStream::connect(socket).is_ok() {
        return Err(DaemonError::Answers { socket: socket.to_owned() });
    }
    let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
    Listener::bind(socket, mode).map_err(|source| DaemonError::Listen { socket: socket.to_owned(), source })
}

/// Restores the state at the end of the last daemon: imports its pools and mounts its file systems.
/// `has_died`: that daemon did not end in order.
fn bring_back(has_died: bool) -> Arc<Namespace> {
    let record = paths::mount_record();
    let table: Arc<dyn Mounts> = Arc::new(MountTable::new(TableSettings::default()).recorded(record.clone()));
    let namespace = Namespace::new(Some(table));
    namespace.when_wanted(console::give_way);
    let until = Instant::now() + if has_died { DYING } else { Duration::ZERO };
    import(&namespace, until, &Namespace::import_whole);
    // Not earlier: programs could write below these mount points until the file systems are mounted again.
    match record.detach_dead() {
        Ok(dead) => {
            for at in dead {
                tracing::warn!(at = %at.display(), "detached the mount of a daemon that has died");
            }
        }
        Err(error) => tracing::error!(%error, "the record of mounts"),
    }
    let mut refused = mount_all(&namespace);
    // A pool may lie in files of another pool's file systems, and must not be imported without devices that
    // are still missing.
    loop {
        let known = namespace.names().len();
        // Errors of pools that still fail are reported after all were tried.
        drop(namespace.import_whole());
        if namespace.names().len() == known {
            break;
        }
        refused = mount_all(&namespace);
    }
    let known = namespace.names().len();
    let missing = import(&namespace, until, &|namespace| namespace.import_all(None));
    if namespace.names().len() > known {
        refused = mount_all(&namespace);
    }
    for (pool, error) in missing {
        tracing::error!(pool, %error, "a pool is not imported");
    }
    for pool in namespace.names() {
        tracing::info!(pool, "imported");
    }
    for refusal in refused {
        tracing::error!(dataset = refusal.what, why = %refusal.why, "not mounted");
    }
    namespace
}

/// Pools that cannot be imported, and the errors.
type Failed = Vec<(String, ChangeError)>;

/// Imports the pools of the last daemon. The lock of a killed daemon is free before the kernel has released
/// everything else that it held, so devices that are still in use are waited for. Returns the pools that
/// fail, with the errors.
fn import(namespace: &Arc<Namespace>, until: Instant, import: &dyn Fn(&Arc<Namespace>) -> Failed) -> Failed {
    let mut is_waiting = false;
    loop {
        let failed = import(namespace);
        let held = failed.iter().find(|(_, error)| matches!(error, ChangeError::Busy { .. }));
        let Some((pool, error)) = held.filter(|_| Instant::now() < until) else { return failed };
        if !is_waiting {
            tracing::warn!(pool, %error, "the daemon before this one has died: waiting for what it had");
            is_waiting = true;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Mounts all file systems that should be mounted; returns those that could not be.
fn mount_all(namespace: &Arc<Namespace>) -> Vec<MountRefusal> {
    let Some(mounting) = mounting(namespace) else { return Vec::new() };
    let mut refused = mounting.mount_all(None, &MountRequest::default());
    refused.extend(mounting.mount_by_hand_again());
    refused
}

/// Mounts the control files (counters and parameters).
fn mount_control_files(namespace: &Arc<Namespace>) -> Option<ControlMount> {
    let at = paths::control_folder(|name| std::env::var_os(name))?;
    if let Err(error) = paths::mount_record().note(&at) {
        tracing::warn!(%error, "the record of mounts");
    }
    match ControlFiles::mount(namespace, &at) {
        Ok(mounted) => Some(mounted),
        Err(error) => {
            tracing::warn!(at = %at.display(), %error, "the control files are not mounted");
            None
        }
    }
}

/// No more requests; what is mounted is unmounted; the pools are closed.
fn end(server: &Server, namespace: &Arc<Namespace>) {
    let _giving_up = ending::GivingUp::begin(namespace);
    let left = server.wait(PATIENCE);
    if left > 0 {
        tracing::warn!(requests = left, "these have not ended, and are not waited for any longer");
    }
    if let Some(mounting) = mounting(namespace) {
        mounting.leaving();
    }
    ending::close_all(namespace);
}

/// Sends the service manager its watchdog messages, as often as it expects them.
fn watch(namespace: &Arc<Namespace>) {
    let Some(interval) = manager::watchdog() else { return };
    let namespace = Arc::clone(namespace);
    let tell = move || loop {
        // A lock that hangs keeps this thread from sending the next message.
        let _ = namespace.names();
        tell_manager("WATCHDOG=1");
        std::thread::sleep(interval / 3);
    };
    if let Err(error) = std::thread::Builder::new().name("watchdog".to_owned()).spawn(tell) {
        tracing::error!(%error, "no thread for the watchdog");
    }
}

fn tell_manager(text: &str) {
    if let Err(error) = manager::notify(text) {
        tracing::warn!(%error, text, "the service manager does not listen");
    }
}

/// Makes panics outside of requests end the process. A panic of a request is reported to its client, and one
/// that leaves a pool in doubt stops that pool (`panics`). After any other panic, threads could wait for the
/// dead one for ever, and a pool is consistent after an end at any moment.
fn end_on_panic() {
    std::panic::set_hook(Box::new(move |info| {
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::force_capture();
        tracing::error!(thread = thread.name(), "{info}\n{backtrace}");
        if !panics::is_survived() {
            std::process::abort();
        }
    }));
}

/// Ends the running daemon, and waits until it has ended.
fn stop(socket: &Path) -> Result<u8, DaemonError> {
    let Some(connection) = open(socket)? else {
        say_error_line!("cenoted is not running");
        return Ok(RUNNING);
    };
    let pid = match Connection::open(socket)?.ping() {
        Ok(Reply::Pong { pid, .. }) => pid,
        _ => 0,
    };
    connection.say(&Message::Stop { version: VERSION })?;
    match connection.reply() {
        Ok(Reply::Refused(why)) => {
            say_error_line!("cenoted: {}", crate::out::visible(&why));
            return Ok(1);
        }
        Ok(_) => {}
        Err(error) => {
            say_error_line!("cenoted: {error}");
            return Ok(1);
        }
    }
    // The lock ends with the process, so another daemon can start at once.
    while pid > 0 && is_alive(pid) {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(0)
}

/// Connects to a daemon; `None`: none listens.
fn open(socket: &Path) -> Result<Option<Connection>, DaemonError> {
    match Connection::open(socket) {
        Ok(connection) => Ok(Some(connection)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(source) => Err(DaemonError::Connect { socket: socket.to_owned(), source }),
    }
}

/// Whether a process runs. A zombie, which has ended but was not waited for, does not.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process name before the state may contain any character.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn status(socket: &Path) -> Result<u8, DaemonError> {
    let answer = open(socket)?.and_then(|connection| connection.ping().ok());
    Ok(match answer {
        Some(Reply::Pong { program, pid, .. }) => {
            let line = format!("cenoted {program} is running, process {pid}, socket {}\n", socket.display());
            let _ = console::write(console::Stream::Out, line.as_bytes());
            0
        }
        _ => {
            say_error_line!("cenoted is not running");
            RUNNING
        }
    })
}
