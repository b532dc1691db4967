use super::frame::{self, HEADER, OTHERS_REQUEST_MAX, REQUEST_MAX, WORD_MAX};
use super::*;
use admin::sync::lock;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn request(args: &[&[u8]]) -> Request {
    Request {
        program: "zpool".to_owned(),
        args: args.iter().map(|arg| OsStr::from_bytes(arg).to_owned()).collect(),
        env: vec![("TZ".into(), "UTC0".into())],
        folder: "/".into(),
        umask: 0o022,
        screen: Screen::default(),
    }
}

fn head(bytes: u32) -> Head {
    let screen = Screen::default();
    Head { version: VERSION, program: "zpool".to_owned(), args: 1, bytes, umask: 0, screen }
}

/// Writes its arguments to the client's output; `wait` runs until it is cancelled, `cat` writes what it
/// reads.
struct Echo {
    running: Mutex<mpsc::Sender<()>>,
    /// No client is admitted if this is set; no client gets a reply while it is locked.
    is_closed: Arc<Mutex<bool>>,
}

impl Handler for Echo {
    fn admit(&self, peer: &Peer) -> Result<(), String> {
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.pid, rustix::process::getpid().as_raw_nonzero().get());
        if *self.is_closed.lock().expect("whole") { Err("closed".to_owned()) } else { Ok(()) }
    }

    fn accepts(&self, request: &Request, _: &Peer) -> Result<bool, String> {
        Ok(request.program == "zpool")
    }

    fn run(&self, request: Request, call: Call) -> u8 {
        let args: Vec<OsString> = request.args;
        if args.first().is_some_and(|arg| arg == "wait") {
            let (tell, told) = mpsc::channel();
            call.cancelled.watch(move |_| {
                let _ = tell.send(());
            });
            self.running.lock().expect("whole").send(()).expect("a test listens");
            return if told.recv().is_ok() { 130 } else { 1 };
        }
        let text = args.join(OsStr::new(" "));
        let frame = piece(Piece::Out, text.as_bytes());
        assert_eq!(call.link.send(&frame).expect("sent"), frame.len());
        7
    }

    fn stop(&self, _: &Peer) -> Result<(), String> {
        Err("not this one".to_owned())
    }

    fn version(&self) -> String {
        "1".to_owned()
    }
}

/// Held by tests that count the descriptors of this process, and by tests that open many.
static DESCRIPTORS: Mutex<()> = Mutex::new(());

struct Fixture {
    folder: tempfile::TempDir,
    server: Arc<Server>,
    running: mpsc::Receiver<()>,
    is_closed: Arc<Mutex<bool>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with(|listener| listener)
    }

    fn with(listener: impl FnOnce(Listener) -> Listener) -> Fixture {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = listener(Listener::bind(&folder.path().join("socket"), 0o600).expect("a socket"));
        let (tell, running) = mpsc::channel();
        let is_closed: Arc<Mutex<bool>> = Arc::default();
        let echo = Echo { running: Mutex::new(tell), is_closed: Arc::clone(&is_closed) };
        let server = Server::new(Arc::new(echo)).expect("a server");
        let serving = Arc::clone(&server);
        let thread = std::thread::spawn(move || serving.serve(&listener).expect("served"));
        Fixture { folder, server, running, is_closed, thread: Some(thread) }
    }

    fn connect(&self) -> Connection {
        Connection::open(&self.folder.path().join("socket")).expect("somebody listens")
    }

    fn raw(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("socket")).expect("somebody listens")
    }

    /// The daemon's reply to these bytes, which are no message.
    fn refused(&self, bytes: &[u8]) -> String {
        let mut stream = self.raw();
        // The daemon may close the connection before it has read all bytes.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        match said.get(HEADER..).map(|body| frame::decode_reply(frame::Kind::Word, body.to_vec())) {
            Some(Ok(Came::Word(Reply::Refused(why)))) => why,
            other => panic!("{other:?}"),
        }
    }

    fn run(&self, args: &[&[u8]]) -> (Reply, Vec<u8>) {
        let connection = self.connect();
        connection.request(&request(args)).expect("said");
        assert_eq!(connection.reply().expect("an answer"), Reply::Begins);
        let mut out = Vec::new();
        loop {
            match connection.came().expect("an answer") {
                Came::Piece(Piece::Out, mut bytes) => out.append(&mut bytes),
                Came::Word(reply) => return (reply, out),
                other => panic!("{other:?}"),
            }
        }
    }

    /// A request that runs until it is cancelled.
    fn waiting(&self) -> Connection {
        let connection = self.connect();
        connection.request(&request(&[b"wait"])).expect("said");
        self.running.recv().expect("it runs");
        assert_eq!(connection.reply().expect("an answer"), Reply::Begins);
        connection
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.server.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("served to the end");
        }
    }
}

#[test]
fn what_a_command_writes_comes_through_the_connection() {
    let fixture = Fixture::new();
    // A long command line arrives in many pieces.
    let long = vec![b'x'; 1 << 20];
    let (reply, out) = fixture.run(&[b"list", b"a\xffb"]);
    assert_eq!((reply, &out[..]), (Reply::Exit(7), &b"list a\xffb"[..]));
    let connection = fixture.connect();
    connection.request(&request(&[b"wait", &long])).expect("said");
    assert_eq!(connection.reply().expect("an answer"), Reply::Begins);
}

#[test]
fn what_is_no_message_ends_its_connection_only() {
    let fixture = Fixture::new();
    let waiting = fixture.waiting();
    assert_eq!(fixture.refused(b"GET / HTTP/1.1\r\n\r\n"), "this is not Cenote's protocol");
    let too_long = [&b"CntC"[..], &u32::MAX.to_le_bytes()].concat();
    let why = fixture.refused(&too_long);
    assert_eq!(why, format!("a message of {} bytes: at most {WORD_MAX} are allowed", u32::MAX));
    assert!(fixture.refused(b"CntC\x02\0\0\0{}").starts_with("malformed message"));
    assert_eq!(fixture.refused(b"CntC\x40\0\0\0{"), "unexpected end of file");
    assert_eq!(fixture.refused(&word(&Message::Cancel)), "nothing runs");
    assert_eq!(fixture.refused(&piece(Piece::Input, b"x")), "nothing runs");
    assert_eq!(fixture.refused(b"CntD\x01\0\0\0\x99"), "malformed message: a piece of no stream");
    let other = Message::Request(Head { version: VERSION + 1, ..head(1) });
    let why = fixture.refused(&word(&other));
    let said =
        format!("version {} of the protocol is not spoken here: this is version {VERSION};", VERSION + 1);
    assert!(why.starts_with(&said), "{why}");
    assert!(fixture.refused(&word(&Message::Stop { version: VERSION + 1 })) == "not this one");
    let line = |bytes: &[u8]| {
        let head = head(u32::try_from(bytes.len()).expect("short"));
        fixture.refused(&[&word(&Message::Request(head)), bytes].concat())
    };
    assert!(line(b"/\0list\0TZ\0").contains("a variable without a name"));
    assert!(line(b"/\0").contains("fewer arguments"));
    assert!(line(b"/\0list").contains("without an end") && line(b"").contains("without an end"));
    let why = fixture.refused(&word(&Message::Request(head(REQUEST_MAX + 1))));
    assert_eq!(why, "the message ends early");
    // The other command is not affected.
    waiting.say(&Message::Cancel).expect("said");
    assert_eq!(waiting.reply().expect("an answer"), Reply::Exit(130));
}

/// Files of a client could be of a kind whose closing the client can delay.
#[test]
fn no_descriptor_of_a_client_is_ever_taken() {
    let _alone = lock(&DESCRIPTORS);
    let fixture = Fixture::new();
    // Both ends of a pipe that no other test has.
    let (null, _end) = std::io::pipe().expect("a pipe");
    let link = |fd: &str| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
    let pipe = link(&null.as_raw_fd().to_string()).expect("there");
    let open = || {
        let all = std::fs::read_dir("/proc/self/fd").expect("there").flatten();
        all.filter(|fd| fd.file_name().to_str().and_then(link).as_ref() == Some(&pipe)).count()
    };
    assert_eq!(open(), 2);
    for count in [1, 5, 100] {
        let stream = fixture.raw();
        let fds = vec![null.as_fd(); count];
        let mut space = vec![std::mem::MaybeUninit::uninit(); 4096];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
        let bytes = frame::request(&request(&[b"wait"]));
        let parts = [std::io::IoSlice::new(&bytes)];
        let flags = rustix::net::SendFlags::NOSIGNAL;
        // The kernel refuses them, or they are closed on arrival.
        if rustix::net::sendmsg(&stream, &parts, &mut control, flags).is_ok() {
            let mut said = Vec::new();
            // A connection that is closed with unread bytes is reset after its last reply.
            let _ = (&stream).read_to_end(&mut said);
            match said.get(HEADER..).map(|body| frame::decode_reply(frame::Kind::Word, body.to_vec())) {
                Some(Ok(Came::Word(Reply::Refused(why)))) => assert!(why.contains("descriptors"), "{why}"),
                other => panic!("{count}: {other:?}"),
            }
        }
    }
    drop(fixture);
    assert_eq!(open(), 2, "none was taken and kept");
}

/// A socket whose last descriptor can be closed only when its bytes have been sent, or after an hour; and its
/// other end, which accepts no bytes.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let mut one = TcpStream::connect(listener.local_addr().expect("it has one")).expect("connected");
    let other = listener.accept().expect("connected").0;
    one.set_nonblocking(true).expect("set");
    while one.write(&[0; 64 << 10]).is_ok() {}
    one.set_nonblocking(false).expect("set");
    let hour = Some(Duration::from_secs(3600));
    rustix::net::sockopt::set_socket_linger(&one, hour).expect("set");
    (one, other)
}

/// Sends bytes together with a descriptor that lingers, and closes that descriptor here.
fn send_lingering(stream: &UnixStream, bytes: &[u8], flags: rustix::net::SendFlags) -> TcpStream {
    let (lingers, other) = lingering();
    send_descriptor(stream, bytes, lingers.as_fd(), flags);
    // This close waits itself if the server was faster.
    std::thread::spawn(move || drop(lingers));
    other
}

fn send_descriptor(
    stream: &UnixStream,
    bytes: &[u8],
    descriptor: std::os::fd::BorrowedFd<'_>,
    flags: rustix::net::SendFlags,
) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut space = vec![std::mem::MaybeUninit::uninit(); 256];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [descriptor];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let parts = [std::io::IoSlice::new(bytes)];
    let sent = sendmsg(stream, &parts, &mut control, flags | SendFlags::NOSIGNAL).expect("sent");
    assert_eq!(sent, bytes.len());
}

/// On kernels before 6.16; on later ones only here, where the test makes the socket accept descriptors.
#[test]
fn descriptors_that_linger_hold_no_thread() {
    use rustix::net::SendFlags;
    let _alone = lock(&DESCRIPTORS);
    let fixture = Fixture::with(Listener::let_descriptors_in);
    let command = frame::request(&request(&[b"list"]));
    let mut others = Vec::new();
    let answers = |what: &str| {
        let pong = fixture.connect().ping();
        assert!(matches!(pong, Ok(Reply::Pong { .. })), "{what}: {pong:?}");
    };
    let plain = SendFlags::empty();
    // In the place of a request, and after the first bytes of one.
    let stream = fixture.raw();
    others.push(send_lingering(&stream, &command, plain));
    answers("with a command");
    let stream = fixture.raw();
    (&stream).write_all(&command[..10]).expect("sent");
    others.push(send_lingering(&stream, &command[10..], plain));
    answers("within a command");
    // With urgent bytes, which are read out of order.
    let stream = fixture.raw();
    others.push(send_lingering(&stream, b"C", SendFlags::OOB));
    let _ = (&stream).write_all(&command);
    answers("with urgent bytes");
    // To a command that runs, and after bytes that the client was asked for.
    let (waiting, stream) = (fixture.waiting(), fixture.raw());
    others.push(send_lingering(&stream, &word(&Message::Cancel), plain));
    drop(stream);
    answers("closed at once");
    waiting.say(&Message::Cancel).expect("said");
    assert_eq!(waiting.reply().expect("an answer"), Reply::Exit(130));
    // To a server that replies to no client, many times.
    let mut is_closed = fixture.is_closed.lock().expect("whole");
    *is_closed = true;
    for _ in 0..20 {
        let stream = fixture.raw();
        (&stream).write_all(&command).expect("sent");
        others.push(send_lingering(&stream, &command, plain));
    }
    drop(is_closed);
    assert_eq!(fixture.refused(b""), "closed");
    *fixture.is_closed.lock().expect("whole") = false;
    answers("refused");
    // All accepted connections are closed, whichever process closes their descriptors.
    fixture.server.stop();
    assert_eq!(fixture.server.wait(Duration::from_secs(60)), 0);
    // All descriptors are closed in the end, which their other ends see. All at once, because processes that
    // are started here may hold this process's descriptors for a moment.
    let ends: Vec<_> =
        others.into_iter().map(|other| std::thread::spawn(move || sees_the_end(other))).collect();
    assert!(ends.into_iter().all(|end| end.join().expect("no panic")));
}

#[test]
fn connections_that_wait_to_be_closed_take_few_descriptors() {
    let _alone = lock(&DESCRIPTORS);
    let fixture = Fixture::with(Listener::let_descriptors_in);
    let command = frame::request(&request(&[b"list"]));
    let answers = || {
        let pong = fixture.connect().ping();
        assert!(matches!(pong, Ok(Reply::Pong { .. })), "{pong:?}");
    };
    let count = || std::fs::read_dir("/proc/self/fd").expect("there").count();
    answers();
    let busy = super::descriptors::AllBusy::of(rustix::process::geteuid().as_raw());
    let (mut end, before) = (std::io::pipe().expect("a pipe"), count());
    let send = || {
        let stream = fixture.raw();
        send_descriptor(&stream, &command, end.1.as_fd(), rustix::net::SendFlags::empty());
    };
    (0..300).for_each(|_| send());
    answers();
    // Connections that are still being checked come on top.
    let begun = std::time::Instant::now();
    while count() > before + 50 && begun.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(count() <= before + 50, "{} descriptors, {before} before", count());
    // In the end all are closed.
    drop(busy);
    send();
    drop(end.1);
    assert_eq!(end.0.read(&mut [0]).expect("the end"), 0);
}

/// Whether the other end is closed within a minute.
fn sees_the_end(mut other: TcpStream) -> bool {
    other.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let mut bytes = [0; 64 << 10];
    loop {
        match other.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn other_users_have_shorter_command_lines() {
    let (one, two) = UnixStream::pair().expect("a pair");
    let two = super::descriptors::Socket::new(two, true);
    let line = |uid: u32| {
        let long = vec![b'x'; usize::try_from(OTHERS_REQUEST_MAX).expect("fits")];
        let bytes = frame::request(&request(&[&long]));
        std::thread::scope(|scope| {
            scope.spawn(|| (&one).write_all(&bytes).expect("all is read"));
            super::listen::first_of(&two, uid)
        })
    };
    let own = rustix::process::geteuid().as_raw();
    assert!(line(own).is_ok());
    let why = line(own + 1000).expect_err("too long");
    assert!(why.starts_with("a command line of ") && why.ends_with("at most 65536 are allowed"), "{why}");
    let words = vec![&b"tank"[..]; 1025];
    let bytes = frame::request(&request(&words));
    (&one).write_all(&bytes).expect("all is read");
    let why = super::listen::first_of(&two, own + 1000).expect_err("too many");
    assert_eq!(why, "a command line of 1025 arguments: at most 1024 are allowed");
}

#[test]
fn a_client_that_goes_away_cancels() {
    let fixture = Fixture::new();
    drop(fixture.waiting());
    assert_eq!(fixture.server.wait(std::time::Duration::from_secs(60)), 0);
}

#[test]
fn a_server_that_stops_cancels_what_runs_and_takes_no_more() {
    let fixture = Fixture::new();
    let waiting = fixture.waiting();
    fixture.server.stop();
    assert_eq!(waiting.reply().expect("an answer"), Reply::Exit(130));
    assert_eq!(fixture.server.wait(std::time::Duration::from_secs(60)), 0);
}

#[test]
fn who_is_there_and_who_may_end_it() {
    let fixture = Fixture::new();
    let Reply::Pong { version, pid, .. } = fixture.connect().ping().expect("an answer") else { panic!() };
    assert_eq!((version, pid), (VERSION, std::process::id()));
    let connection = fixture.connect();
    connection.say(&Message::Stop { version: VERSION }).expect("said");
    assert_eq!(connection.reply().expect("an answer"), Reply::Refused("not this one".to_owned()));
}

#[test]
fn any_bytes() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let (Some(header), Some(body)) = (bytes.first_chunk::<HEADER>(), bytes.get(HEADER..)) else { return };
        if let Ok((_, length)) = frame::announced(*header) {
            assert!(length <= WORD_MAX.max(DATA_MAX + 1));
        }
        for kind in [frame::Kind::Word, frame::Kind::Piece] {
            // A decoded message has the same meaning when it is encoded again.
            if let Ok(Came::Word(message)) = frame::decode(kind, body.to_vec()) {
                let again = word(&message);
                let said = frame::decode(frame::Kind::Word, again[HEADER..].to_vec());
                assert_eq!(said.expect("our own words"), Came::Word(message));
            }
            let _ = frame::decode_reply(kind, body.to_vec());
        }
        if let Ok(request) = frame::command_line(head(0), bytes) {
            assert_eq!(decoded(&frame::request(&request)).expect("our own words"), request);
        }
    });
}

/// Decodes a command line from its encoded form.
fn decoded(bytes: &[u8]) -> Result<Request, FrameError> {
    let (_, length) = frame::announced(*bytes.first_chunk().expect("a header"))?;
    let (head, line) = bytes[HEADER..].split_at(length);
    match frame::decode(frame::Kind::Word, head.to_vec())? {
        Came::Word(Message::Request(head)) => frame::command_line(head, line),
        other => panic!("{other:?}"),
    }
}

#[test]
fn any_request() {
    let words = bolero::generator::produce::<Vec<Vec<u8>>>();
    bolero::check!().with_generator(words).for_each(|args| {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let request = request(&args);
        // Words of a command line contain no zero bytes.
        if !args.iter().any(|arg| arg.contains(&0)) {
            assert_eq!(decoded(&frame::request(&request)).expect("our own words"), request);
        }
    });
}

#[test]
fn one_that_is_about_to_end_begins_nothing() {
    let fixture = Fixture::new();
    // Connected before the end, so that the socket itself does not refuse.
    let (late, waiting) = (fixture.connect(), fixture.waiting());
    fixture.server.stop();
    assert_eq!(waiting.reply().expect("an answer"), Reply::Exit(130));
    let said = late.request(&request(&[b"list"]));
    // The connection was accepted already, or never will be.
    let reply = said.map_err(CallError::from).and_then(|()| late.reply());
    match reply {
        Ok(reply) => assert_eq!(reply, Reply::Ending),
        Err(error) => assert!(error.is_gone(), "{error}"),
    }
}

/// Variable that makes a test of this name act as the daemon of the test that has started it.
const IS_DAEMON: &str = "CENOTE_TEST_IS_DAEMON";

/// A client outside of the daemon's container has no process id in there.
#[test]
fn a_client_of_another_namespace_is_known_without_its_process() {
    const NAME: &str = "control::tests::a_client_of_another_namespace_is_known_without_its_process";
    if std::env::var_os(IS_DAEMON).is_some() {
        let input = std::io::stdin().as_fd().try_clone_to_owned().expect("a socket");
        let (stream, _) = std::os::unix::net::UnixListener::from(input).accept().expect("somebody came");
        let peer = Peer::of(stream.as_fd()).expect("the kernel says");
        assert_eq!((peer.pid, peer.uid), (0, rustix::process::geteuid().as_raw()));
        return;
    }
    let (Some(unshare), true) = (testkit::need_tool("unshare"), testkit::need_root()) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&place).expect("a socket");
    let _client = UnixStream::connect(&place).expect("somebody listens");
    let mut daemon = std::process::Command::new(unshare);
    daemon.args(["--pid", "--fork"]).arg(std::env::current_exe().expect("this test"));
    daemon.args([NAME, "--exact", "--nocapture"]).env(IS_DAEMON, "1");
    let output = daemon.stdin(std::os::fd::OwnedFd::from(listener)).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if text.contains("unshare failed") {
        testkit::skip("no namespaces of processes");
        return;
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
