//! The server side of the control socket: a listening socket, and threads that answer.

use super::cancel::{Cancelled, Ends};
use super::complaints::Complaints;
use super::descriptors::Socket;
use super::frame::{
    self, Came, HEADER, Head, Message, OTHERS_ARGS_MAX, OTHERS_REQUEST_MAX, REQUEST_MAX, Reply, Request,
    VERSION, WORD_MAX,
};
use super::link::Link;
use super::peer::{self, Peer};
use super::slots::{Slots, is_other};
use super::wire::{Reader, send};
use admin::sync::lock;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time for a request to arrive.
const ARRIVAL: Duration = Duration::from_secs(10);
/// Wait after an error of `accept` that will pass (no descriptors left, no memory).
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that clients connect to.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    /// The kernel refuses descriptors that clients send.
    refuses: bool,
    /// This process has made the socket, and removes it.
    is_own: bool,
}

impl Listener {
    /// Makes the socket. Replaces one that a dead daemon left: the caller holds the lock that shows that no
    /// other daemon runs.
    ///
    /// # Errors
    /// The socket cannot be made at `path`.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Listener> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let socket = UnixListener::bind(path)?;
        let refuses = peer::refuse_descriptors(socket.as_fd());
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        Ok(Listener { socket, refuses, is_own: true })
    }

    /// Wraps a listening socket that the service manager has made.
    pub fn of(socket: OwnedFd) -> Listener {
        let refuses = peer::refuse_descriptors(socket.as_fd());
        Listener { socket: socket.into(), refuses, is_own: false }
    }

    /// Lets descriptors in, as a kernel before Linux 6.16 does.
    #[cfg(test)]
    pub(super) fn let_descriptors_in(mut self) -> Listener {
        peer::pass_rights(self.socket.as_fd(), true);
        self.refuses = false;
        self
    }

    fn accept(&self) -> io::Result<Socket> {
        Ok(Socket::new(self.socket.accept()?.0, self.refuses))
    }
}

impl Drop for Listener {
    /// Closes connections that no thread has taken in the same way as all others.
    fn drop(&mut self) {
        if self.is_own && !self.refuses {
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
            let _ = self.socket.set_nonblocking(true);
            while self.accept().is_ok() {}
        }
    }
}

/// Runs the requests of clients.
pub trait Handler: Send + Sync {
    /// Whether this client may send messages at all.
    ///
    /// # Errors
    /// The reason, as a sentence for the client.
    fn admit(&self, peer: &Peer) -> Result<(), String>;

    /// Whether a request is run here; `false`: the client runs it itself.
    ///
    /// # Errors
    /// The reason why it is not run at all, as a sentence for the client.
    fn accepts(&self, request: &Request, peer: &Peer) -> Result<bool, String>;

    /// Runs a request to its end; returns the exit code.
    fn run(&self, request: Request, call: Call) -> u8;

    /// Ends the daemon, as a client asks.
    ///
    /// # Errors
    /// The reason why the daemon will not end, as a sentence for the client.
    fn stop(&self, peer: &Peer) -> Result<(), String>;

    /// Version of the program.
    fn version(&self) -> String;
}

/// The context of a request: its client, streams and cancellation.
pub struct Call {
    /// The client that made the request.
    pub peer: Peer,
    /// Streams of the client, through its connection.
    pub link: Arc<Link>,
    /// Reports that the client cancels or has disconnected, or that the daemon ends.
    pub cancelled: Cancelled,
}

/// Takes connections, each with a thread of its own.
pub struct Server {
    handler: Arc<dyn Handler>,
    open: Mutex<Open>,
    closed: Condvar,
    complaints: Complaints,
    /// A pipe that becomes readable when no more connections are to be accepted.
    stop: (OwnedFd, OwnedFd),
}

struct Open {
    slots: Slots,
    is_stopping: bool,
}

impl Server {
    /// A server that answers with this handler, as many connections at a time as the present limit of
    /// descriptors allows.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(handler: Arc<dyn Handler>) -> io::Result<Arc<Server>> {
        let stop = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let open = Mutex::new(Open { slots: Slots::new(descriptors), is_stopping: false });
        let (closed, complaints) = (Condvar::new(), Complaints::default());
        Ok(Arc::new(Server { handler, open, closed, complaints, stop }))
    }

    /// Accepts connections until [`Server::stop`].
    ///
    /// # Errors
    /// The socket fails for good.
    pub fn serve(self: &Arc<Server>, listener: &Listener) -> io::Result<()> {
        listener.socket.set_nonblocking(true)?;
        loop {
            let mut wanted =
                [PollFd::new(&listener.socket, PollFlags::IN), PollFd::new(&self.stop.0, PollFlags::IN)];
            match poll(&mut wanted, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            if !wanted[1].revents().is_empty() {
                return Ok(());
            }
            match listener.accept() {
                Ok(stream) => self.take(stream),
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

    /// Stops: accepts no further connections, and cancels the commands that run.
    pub fn stop(&self) {
        let cancelled: Vec<Cancelled> = {
            let mut open = self.open();
            open.is_stopping = true;
            open.slots.end_idle();
            open.slots.cancelled()
        };
        cancelled.iter().for_each(|cancelled| cancelled.ask(Ends::Daemon));
        // The byte is never read: the pipe only has to be readable, and once is enough.
        let _ = rustix::io::write(&self.stop.1, b"x");
    }

    /// Waits until all requests have ended, at most `time`; returns how many have not.
    pub fn wait(&self, time: Duration) -> usize {
        let end = Instant::now() + time;
        let mut open = self.open();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if open.slots.len() == 0 || left.is_zero() {
                return open.slots.len();
            }
            open = self.closed.wait_timeout(open, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // The data is consistent between any two statements.
        lock(&self.open)
    }

    fn take(self: &Arc<Server>, stream: Socket) {
        let peer = match Peer::of(stream.as_fd()) {
            Ok(peer) => peer,
            Err(error) => return tracing::warn!(%error, "a client that cannot be known is not answered"),
        };
        let stream = Arc::new(stream);
        // A client without admission gets no thread.
        let admitted = self.handler.admit(&peer).map_err(Reply::Refused);
        let (id, cancelled) = match admitted.and_then(|()| self.enter(peer.uid, &stream)) {
            Ok(entered) => entered,
            Err(reply) => {
                self.complaints.tell(peer.uid, peer.pid, "client refused", &format!("{reply:?}"));
                // A few bytes into the empty buffer of a new socket do not block.
                answer(&stream, &reply);
                return;
            }
        };
        let server = Arc::clone(self);
        let talk = move || {
            server.talk(&stream, &peer, id, &cancelled);
            server.leave(id);
        };
        if let Err(error) = std::thread::Builder::new().name("request".to_owned()).spawn(talk) {
            tracing::warn!(%error, "no thread for a request");
            self.leave(id);
        }
    }

    /// Takes a slot for a connection. The error is the reply to the client if there is none.
    fn enter(&self, uid: u32, stream: &Arc<Socket>) -> Result<(u64, Cancelled), Reply> {
        let mut open = self.open();
        if open.is_stopping {
            return Err(Reply::Ending);
        }
        open.slots.enter(uid, stream).ok_or_else(|| Reply::Refused("too many requests".to_owned()))
    }

    fn leave(&self, id: u64) {
        self.open().slots.leave(id);
        self.closed.notify_all();
    }

    /// Serves one connection from its first byte to its last.
    fn talk(&self, stream: &Arc<Socket>, peer: &Peer, id: u64, cancelled: &Cancelled) {
        let mut reader = Reader::of_client(stream, Some(ARRIVAL));
        let refuse = |why: String| {
            self.complaints.tell(peer.uid, peer.pid, "bad message", &why);
            Reply::Refused(why)
        };
        let reply = match next(&mut reader) {
            // The client only checked whether a daemon listens.
            Ok(None) => return,
            Ok(Some(Came::Word(Message::Request(head)))) => match command_line(&mut reader, head, peer.uid) {
                // A client whose slot was taken away was told by the end of its connection.
                Ok(_) if !self.open().slots.asked(id) => return,
                Ok(request) => match self.begin(stream, request, peer, cancelled) {
                    Some(reply) => reply,
                    None => return,
                },
                Err(why) => refuse(why),
            },
            Ok(Some(Came::Word(Message::Ping { .. }))) => {
                let (program, pid) = (self.handler.version(), std::process::id());
                Reply::Pong { version: VERSION, program, pid }
            }
            Ok(Some(Came::Word(Message::Stop { .. }))) => {
                // The client waits for the reply.
                self.open().slots.asked(id);
                match self.handler.stop(peer) {
                    Ok(()) => Reply::Stopping,
                    Err(why) => Reply::Refused(why),
                }
            }
            Ok(Some(_)) => Reply::Refused("nothing runs".to_owned()),
            Err(why) => refuse(why),
        };
        answer(stream, &reply);
    }

    /// Decides whether a request is run, tells the client, and runs it. `None`: the client has disconnected.
    fn begin(
        &self,
        stream: &Arc<Socket>,
        request: Request,
        peer: &Peer,
        cancelled: &Cancelled,
    ) -> Option<Reply> {
        match self.handler.accepts(&request, peer) {
            Ok(true) => {}
            Ok(false) => return Some(Reply::Elsewhere),
            Err(why) => return Some(Reply::Refused(why)),
        }
        if self.open().is_stopping {
            return Some(Reply::Ending);
        }
        let link = Arc::new(Link::new(stream));
        let call = Call { peer: peer.clone(), link: Arc::clone(&link), cancelled: cancelled.clone() };
        // A request is not begun if its client has disconnected.
        answer(stream, &Reply::Begins).then(|| run(&*self.handler, stream, &link, request, call))
    }
}

/// Runs a request while another thread listens to its client. Without that thread the command could neither
/// be cancelled nor read input, so it is not run.
fn run(handler: &dyn Handler, stream: &Socket, link: &Link, request: Request, call: Call) -> Reply {
    let cancelled = call.cancelled.clone();
    std::thread::scope(|scope| {
        let listen = || listen_to(stream, link, &cancelled);
        if let Err(error) = std::thread::Builder::new().name("client".to_owned()).spawn_scoped(scope, listen)
        {
            tracing::warn!(%error, "no thread to listen to a client");
            return Reply::Refused(format!("cenoted has no thread left for this: {error}; nothing was done"));
        }
        let code = handler.run(request, call);
        // Ends the listening thread.
        stream.shutdown(Shutdown::Read);
        Reply::Exit(code)
    })
}

/// Delivers messages of the client until it disconnects or the connection is shut down.
fn listen_to(stream: &Socket, link: &Link, cancelled: &Cancelled) {
    let mut reader = Reader::of_client(stream, None);
    loop {
        match next(&mut reader) {
            Ok(Some(Came::Word(Message::Cancel))) => cancelled.ask(Ends::Client),
            // A client that breaks the protocol is treated as if it had disconnected.
            Ok(Some(came)) => {
                if !link.deliver(came) {
                    return cancelled.ask(Ends::Client);
                }
            }
            Ok(None) | Err(_) => return cancelled.ask(Ends::Client),
        }
    }
}

/// The next message; `None` when the other side has closed the connection.
fn next(reader: &mut Reader<'_>) -> Result<Option<Came<Message>>, String> {
    let mut header = [0; HEADER];
    if !reader.fill(&mut header).map_err(|e| words(&e))? {
        return Ok(None);
    }
    let (kind, length) = frame::announced(header).map_err(|e| e.to_string())?;
    let mut body = vec![0; length];
    if !reader.fill(&mut body).map_err(|e| words(&e))? {
        return Err("the message ends early".to_owned());
    }
    frame::decode(kind, body).map(Some).map_err(|e| e.to_string())
}

/// Reads the command line behind its head.
fn command_line(reader: &mut Reader<'_>, head: Head, uid: u32) -> Result<Request, String> {
    let max = if is_other(uid) { OTHERS_REQUEST_MAX } else { REQUEST_MAX };
    let is_too_long = head.bytes > max;
    let length = usize::try_from(head.bytes.min(REQUEST_MAX)).unwrap_or(usize::MAX);
    // Memory is allocated for bytes that have arrived, not for the announced length.
    let (mut line, mut come) = (Vec::new(), 0);
    while come < length {
        let part = WORD_MAX.min(length - come);
        // A command line that is too long is read to its end and dropped, so that the client can read the
        // reply.
        let have = if is_too_long { 0 } else { come };
        line.resize(have + part, 0);
        if !reader.fill(&mut line[have..]).map_err(|e| words(&e))? {
            return Err("the message ends early".to_owned());
        }
        come += part;
    }
    if is_too_long {
        return Err(format!("a command line of {} bytes: at most {max} are allowed", head.bytes));
    }
    if is_other(uid) && head.args > OTHERS_ARGS_MAX {
        return Err(format!(
            "a command line of {} arguments: at most {OTHERS_ARGS_MAX} are allowed",
            head.args
        ));
    }
    frame::command_line(head, &line).map_err(|e| e.to_string())
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => "the message did not arrive in time".to_owned(),
        _ => error.to_string(),
    }
}

/// Sends a reply. `false`: the client has disconnected or does not read, which must not block the daemon.
fn answer(stream: &Socket, reply: &Reply) -> bool {
    send(stream.as_fd(), &frame::word(reply), Some(ARRIVAL)).is_ok()
}

/// The command line of a client whose first message is a request.
#[cfg(test)]
pub(super) fn first_of(stream: &Socket, uid: u32) -> Result<Request, String> {
    let mut reader = Reader::of_client(stream, Some(ARRIVAL));
    match next(&mut reader)? {
        Some(Came::Word(Message::Request(head))) => command_line(&mut reader, head, uid),
        other => Err(format!("{other:?}")),
    }
}
