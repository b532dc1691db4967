//! The side that is asked: a socket, and threads that answer.

use super::descriptors::{Reader, send};
use super::frame::{self, HEADER, Message, REQUEST_MAX, Reply, Request, VERSION, WORD_MAX};
use super::peer::Peer;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most connections at a time.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// Most of them that belong to users who are neither root nor the daemon's own.
pub(super) const OTHERS_MAX: usize = 64;
/// How long a request may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(10);
/// How long one waits after an error of `accept` that will pass (no descriptors left, no memory).
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that clients connect to.
#[derive(Debug)]
pub struct Listener(UnixListener);

impl Listener {
    /// Makes the socket; one that a dead daemon left is replaced (whoever calls this knows that no other is
    /// alive).
    ///
    /// # Errors
    /// The system refuses.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Listener> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let socket = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        Ok(Listener(socket))
    }

    /// A socket that somebody else has made and listens already.
    pub fn of(socket: OwnedFd) -> Listener {
        Listener(socket.into())
    }
}

/// Who runs requests.
pub trait Handler: Send + Sync {
    /// Whether this client may say anything at all.
    ///
    /// # Errors
    /// Why not, in words for it.
    fn admit(&self, peer: &Peer) -> Result<(), String>;

    /// Whether a request is run here; `false`: the client is to run it itself.
    ///
    /// # Errors
    /// Why it is run by nobody, in words for the client.
    fn accepts(&self, request: &Request, peer: &Peer) -> Result<bool, String>;

    /// Runs a request to its end; the exit code.
    fn run(&self, request: Request, call: Call) -> u8;

    /// A client wants the daemon to end.
    ///
    /// # Errors
    /// Why it will not, in words for it.
    fn stop(&self, peer: &Peer) -> Result<(), String>;

    /// Version of the program.
    fn version(&self) -> String;
}

/// What comes with a request.
pub struct Call {
    /// Who asks.
    pub peer: Peer,
    /// Standard input, output and error.
    pub streams: [OwnedFd; 3],
    /// The working folder.
    pub folder: OwnedFd,
    /// The terminal.
    pub terminal: Option<OwnedFd>,
    /// Tells that the client wants the end, or is gone.
    pub cancelled: Cancelled,
}

/// Told of the end that a client asks for.
#[derive(Clone, Default)]
pub struct Cancelled(Arc<Mutex<CancelState>>);

#[derive(Default)]
struct CancelState {
    times: u32,
    watcher: Option<Box<dyn FnMut() + Send>>,
}

impl Cancelled {
    /// Calls `watcher` each time that the end is asked for, also for the times that are past.
    pub fn watch(&self, mut watcher: impl FnMut() + Send + 'static) {
        let mut state = self.state();
        (0..state.times).for_each(|_| watcher());
        state.watcher = Some(Box::new(watcher));
    }

    fn ask(&self) {
        let mut state = self.state();
        state.times = state.times.saturating_add(1);
        if let Some(watcher) = &mut state.watcher {
            watcher();
        }
    }

    fn state(&self) -> MutexGuard<'_, CancelState> {
        // Whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes connections, each with a thread of its own.
pub struct Server {
    handler: Arc<dyn Handler>,
    open: Mutex<Open>,
    closed: Condvar,
    /// Readable when no more connections are to be taken.
    stop: (OwnedFd, OwnedFd),
}

#[derive(Default)]
struct Open {
    next: u64,
    /// Who has them, and how their requests are cancelled.
    connections: BTreeMap<u64, (u32, Cancelled)>,
    is_stopping: bool,
}

impl Server {
    /// Answers with this handler.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new(handler: Arc<dyn Handler>) -> io::Result<Arc<Server>> {
        let stop = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (open, closed) = (Mutex::default(), Condvar::new());
        Ok(Arc::new(Server { handler, open, closed, stop }))
    }

    /// Takes connections until [`Server::stop`].
    ///
    /// # Errors
    /// The socket fails for good.
    pub fn serve(self: &Arc<Server>, listener: &Listener) -> io::Result<()> {
        listener.0.set_nonblocking(true)?;
        loop {
            let mut wanted =
                [PollFd::new(&listener.0, PollFlags::IN), PollFd::new(&self.stop.0, PollFlags::IN)];
            match poll(&mut wanted, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            if !wanted[1].revents().is_empty() {
                return Ok(());
            }
            match listener.0.accept() {
                Ok((stream, _)) => self.take(stream),
                Err(e) => match e.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::Interrupted
                    | io::ErrorKind::ConnectionAborted => {}
                    io::ErrorKind::InvalidInput => return Err(e),
                    _ => {
                        tracing::warn!(error = %e, "a connection cannot be taken");
                        std::thread::sleep(PAUSE);
                    }
                },
            }
        }
    }

    /// No more requests: new connections are not taken, what runs is cancelled.
    pub fn stop(&self) {
        let cancelled: Vec<Cancelled> = {
            let mut open = self.open();
            open.is_stopping = true;
            open.connections.values().map(|(_, cancelled)| cancelled.clone()).collect()
        };
        cancelled.iter().for_each(Cancelled::ask);
        // Only to be readable: nobody reads it, and once is enough.
        let _ = rustix::io::write(&self.stop.1, b"x");
    }

    /// Waits until all requests have ended; how many have not after that time.
    pub fn wait(&self, time: Duration) -> usize {
        let end = Instant::now() + time;
        let mut open = self.open();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if open.connections.is_empty() || left.is_zero() {
                return open.connections.len();
            }
            open = self.closed.wait_timeout(open, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Whole between any two statements.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Server>, stream: UnixStream) {
        // Accepted sockets of Linux do not inherit this; others do.
        let peer = stream.set_nonblocking(false).and_then(|()| Peer::of(stream.as_fd()));
        let peer = match peer {
            Ok(peer) => peer,
            Err(error) => return tracing::warn!(%error, "a client that cannot be known is not answered"),
        };
        // No thread for somebody who may not speak.
        let admitted = self.handler.admit(&peer).map_err(Reply::Refused);
        let (id, cancelled) = match admitted.and_then(|()| self.enter(peer.uid)) {
            Ok(entered) => entered,
            Err(reply) => {
                tracing::warn!(uid = peer.uid, pid = peer.pid, ?reply, "client refused");
                // A few bytes into the empty buffer of a new socket do not wait.
                answer(&stream, &reply);
                return;
            }
        };
        let server = Arc::clone(self);
        let talk = move || {
            server.talk(&stream, peer, &cancelled);
            server.leave(id);
        };
        if let Err(error) = std::thread::Builder::new().name("request".to_owned()).spawn(talk) {
            tracing::warn!(%error, "no thread for a request");
            self.leave(id);
        }
    }

    /// Takes the place of a connection; what its client is told if there is none.
    fn enter(&self, uid: u32) -> Result<(u64, Cancelled), Reply> {
        let own = rustix::process::geteuid().as_raw();
        let is_other = |uid: u32| uid != 0 && uid != own;
        let mut open = self.open();
        let others = open.connections.values().filter(|(uid, _)| is_other(*uid)).count();
        let is_full = open.connections.len() >= CONNECTIONS_MAX || is_other(uid) && others >= OTHERS_MAX;
        if open.is_stopping {
            return Err(Reply::Ending);
        }
        if is_full {
            return Err(Reply::Refused("too many requests".to_owned()));
        }
        let id = open.next;
        open.next += 1;
        let cancelled = Cancelled::default();
        open.connections.insert(id, (uid, cancelled.clone()));
        Ok((id, cancelled))
    }

    fn leave(&self, id: u64) {
        self.open().connections.remove(&id);
        self.closed.notify_all();
    }

    /// One connection, from its first byte to its last.
    fn talk(&self, stream: &UnixStream, peer: Peer, cancelled: &Cancelled) {
        let mut reader = Reader::new(stream.as_fd(), Some(ARRIVAL));
        let (uid, pid) = (peer.uid, peer.pid);
        let refuse = |why: String| {
            tracing::warn!(uid, pid, why, "bad message");
            Reply::Refused(why)
        };
        let reply = match first(&mut reader) {
            // Somebody looked whether there is a daemon.
            Ok(None) => return,
            Ok(Some(Message::Request(request))) => {
                let fds = std::mem::take(&mut reader.fds);
                match descriptors(&request, fds, peer, cancelled) {
                    Ok(call) => match self.begin(stream, request, call, cancelled) {
                        Some(reply) => reply,
                        None => return,
                    },
                    Err(why) => refuse(why),
                }
            }
            Ok(Some(Message::Ping { .. })) => {
                let (program, pid) = (self.handler.version(), std::process::id());
                Reply::Pong { version: VERSION, program, pid }
            }
            Ok(Some(Message::Stop { .. })) => match self.handler.stop(&peer) {
                Ok(()) => Reply::Stopping,
                Err(why) => Reply::Refused(why),
            },
            Ok(Some(Message::Cancel)) => Reply::Refused("nothing runs".to_owned()),
            Err(why) => refuse(why),
        };
        answer(stream, &reply);
    }

    /// Runs a request, if it is to be run, and its client knows that it is. `None`: it is gone.
    fn begin(
        &self,
        stream: &UnixStream,
        request: Request,
        call: Call,
        cancelled: &Cancelled,
    ) -> Option<Reply> {
        match self.handler.accepts(&request, &call.peer) {
            Ok(true) => {}
            Ok(false) => return Some(Reply::Elsewhere),
            Err(why) => return Some(Reply::Refused(why)),
        }
        if self.open().is_stopping {
            return Some(Reply::Ending);
        }
        // What nobody waits for any more is not begun.
        answer(stream, &Reply::Begins)
            .then(|| Reply::Exit(run(&*self.handler, stream, request, call, cancelled)))
    }
}

/// Runs a request, while another thread listens for its end.
fn run(
    handler: &dyn Handler,
    stream: &UnixStream,
    request: Request,
    call: Call,
    cancelled: &Cancelled,
) -> u8 {
    std::thread::scope(|scope| {
        let listen = || listen_for_end(stream, cancelled);
        if let Err(error) = std::thread::Builder::new().name("client".to_owned()).spawn_scoped(scope, listen)
        {
            tracing::warn!(%error, "no thread to listen to a client: it cannot cancel");
        }
        let code = handler.run(request, call);
        // Ends the other thread.
        let _ = stream.shutdown(Shutdown::Read);
        code
    })
}

/// Until the client goes away, or nobody listens any more.
fn listen_for_end(stream: &UnixStream, cancelled: &Cancelled) {
    let mut reader = Reader::new(stream.as_fd(), None);
    loop {
        match next(&mut reader, WORD_MAX) {
            Ok(Some(Message::Cancel)) => cancelled.ask(),
            // One that says something else now is as good as gone.
            Ok(_) | Err(_) => return cancelled.ask(),
        }
        reader.fds.clear();
    }
}

fn first(reader: &mut Reader<'_>) -> Result<Option<Message>, String> {
    next(reader, REQUEST_MAX)
}

/// The next message; `None` when the other side has ended.
fn next(reader: &mut Reader<'_>, max: usize) -> Result<Option<Message>, String> {
    let io = |e: io::Error| match e.kind() {
        io::ErrorKind::TimedOut => "the message did not arrive in time".to_owned(),
        _ => e.to_string(),
    };
    let mut header = [0; HEADER];
    if !reader.fill(&mut header).map_err(io)? {
        return Ok(None);
    }
    let length = frame::length(header, max).map_err(|e| e.to_string())?;
    // Memory for what has come, not for what was announced.
    let mut body = Vec::new();
    while body.len() < length {
        let have = body.len();
        body.resize(length.min(have + WORD_MAX), 0);
        if !reader.fill(&mut body[have..]).map_err(io)? {
            return Err("the message ends early".to_owned());
        }
    }
    frame::decode(&body).map(Some).map_err(|e| e.to_string())
}

fn descriptors(
    request: &Request,
    fds: Vec<OwnedFd>,
    peer: Peer,
    cancelled: &Cancelled,
) -> Result<Call, String> {
    let wanted = if request.terminal { 5 } else { 4 };
    let count = fds.len();
    let mut fds = fds.into_iter();
    match (count == wanted, fds.next(), fds.next(), fds.next(), fds.next()) {
        (true, Some(input), Some(output), Some(errors), Some(folder)) => Ok(Call {
            peer,
            streams: [input, output, errors],
            folder,
            terminal: fds.next(),
            cancelled: cancelled.clone(),
        }),
        _ => Err(format!("{wanted} descriptors belong to the request, {count} came")),
    }
}

/// False: the client is gone.
fn answer(stream: &UnixStream, reply: &Reply) -> bool {
    // A client that does not read must not hold us.
    let _ = stream.set_write_timeout(Some(ARRIVAL));
    send(stream.as_fd(), &frame::encode(reply), &[]).is_ok()
}
