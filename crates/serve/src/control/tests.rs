use super::frame::{self, HEADER, REQUEST_MAX};
use super::*;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

fn request(args: &[&[u8]]) -> Request {
    Request {
        version: VERSION,
        program: "zpool".to_owned(),
        args: args.iter().map(|arg| Name::from(OsStr::from_bytes(arg))).collect(),
        env: vec![(Name::Text("TZ".to_owned()), Name::Text("UTC0".to_owned()))],
        umask: 0o022,
        terminal: false,
    }
}

/// Writes its arguments to the client's output; `wait` runs until it is cancelled.
struct Echo {
    running: Mutex<mpsc::Sender<()>>,
}

impl Handler for Echo {
    fn admit(&self, peer: &Peer) -> Result<(), String> {
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.pid, rustix::process::getpid().as_raw_nonzero().get());
        Ok(())
    }

    fn accepts(&self, request: &Request, _: &Peer) -> Result<bool, String> {
        Ok(request.program == "zpool")
    }

    fn run(&self, request: Request, call: Call) -> u8 {
        let args: Vec<OsString> = request.args.into_iter().map(OsString::from).collect();
        if args.first().is_some_and(|arg| arg == "wait") {
            let (tell, told) = mpsc::channel();
            call.cancelled.watch(move || {
                let _ = tell.send(());
            });
            self.running.lock().expect("whole").send(()).expect("a test listens");
            return if told.recv().is_ok() { 130 } else { 1 };
        }
        let text = args.join(OsStr::new(" "));
        rustix::io::write(&call.streams[1], text.as_bytes()).expect("somebody reads");
        7
    }

    fn stop(&self, _: &Peer) -> Result<(), String> {
        Err("not this one".to_owned())
    }

    fn version(&self) -> String {
        "1".to_owned()
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    server: Arc<Server>,
    running: mpsc::Receiver<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Fixture {
    fn new() -> Fixture {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = Listener::bind(&folder.path().join("socket"), 0o600).expect("a socket");
        let (tell, running) = mpsc::channel();
        let server = Server::new(Arc::new(Echo { running: Mutex::new(tell) })).expect("a server");
        let serving = Arc::clone(&server);
        let thread = std::thread::spawn(move || serving.serve(&listener).expect("served"));
        Fixture { folder, server, running, thread: Some(thread) }
    }

    fn connect(&self) -> Connection {
        Connection::open(&self.folder.path().join("socket")).expect("somebody listens")
    }

    fn raw(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("socket")).expect("somebody listens")
    }

    /// What the daemon says to these bytes, which are no message.
    fn refused(&self, bytes: &[u8]) -> String {
        let mut stream = self.raw();
        // It may hang up before it has read all of it.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        match said.get(HEADER..).map(frame::decode_reply) {
            Some(Ok(Reply::Refused(why))) => why,
            other => panic!("{other:?}"),
        }
    }

    fn run(&self, args: &[&[u8]]) -> (Reply, Vec<u8>) {
        let connection = self.connect();
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let null = std::io::pipe().expect("a pipe").0;
        let fds = [null.as_fd(), writer.as_fd(), writer.as_fd(), null.as_fd()];
        connection.say(&Message::Request(request(args)), &fds).expect("said");
        drop(writer);
        assert_eq!(connection.reply().expect("an answer"), Reply::Begins);
        let reply = connection.reply().expect("an answer");
        let mut out = Vec::new();
        reader.read_to_end(&mut out).expect("read");
        (reply, out)
    }

    /// A request that runs until it is cancelled.
    fn waiting(&self) -> Connection {
        let connection = self.connect();
        let null = std::io::pipe().expect("a pipe").0;
        connection.say(&Message::Request(request(&[b"wait"])), &[null.as_fd(); 4]).expect("said");
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
fn a_request_writes_to_the_descriptors_of_its_client() {
    let fixture = Fixture::new();
    let long = vec![b'x'; 1 << 20];
    // Long ones come in many pieces. The pipe takes 64 KiB, so the client must read: short ones do here.
    let (reply, out) = fixture.run(&[b"list", b"a\xffb"]);
    assert_eq!((reply, &out[..]), (Reply::Exit(7), &b"list a\xffb"[..]));
    let connection = fixture.connect();
    connection.say(&Message::Request(request(&[&long])), &[]).expect("said");
    let Reply::Refused(why) = connection.reply().expect("an answer") else { panic!("not refused") };
    assert_eq!(why, "4 descriptors belong to the request, 0 came");
}

#[test]
fn what_is_no_message_ends_its_connection_only() {
    let fixture = Fixture::new();
    let waiting = fixture.waiting();
    assert_eq!(fixture.refused(b"GET / HTTP/1.1\r\n\r\n"), "this is not Cenote's protocol");
    let too_long = [&b"CntC"[..], &u32::MAX.to_le_bytes()].concat();
    let why = fixture.refused(&too_long);
    assert_eq!(why, format!("a message of {} bytes: at most {REQUEST_MAX} are allowed", u32::MAX));
    assert!(fixture.refused(b"CntC\x02\0\0\0{}").starts_with("malformed message"));
    assert_eq!(fixture.refused(b"CntC\x40\0\0\0{"), "unexpected end of file");
    assert_eq!(fixture.refused(&frame::encode(&Message::Cancel)), "nothing runs");
    let other = Message::Request(Request { version: VERSION + 1, ..request(&[b"list"]) });
    let why = fixture.refused(&frame::encode(&other));
    let said =
        format!("version {} of the protocol is not spoken here: this is version {VERSION};", VERSION + 1);
    assert!(why.starts_with(&said), "{why}");
    assert!(fixture.refused(&frame::encode(&Message::Stop { version: VERSION + 1 })) == "not this one");
    let zero = Message::Request(request(&[b"a\0b"]));
    assert!(fixture.refused(&frame::encode(&zero)).contains("a zero byte"));
    // The other one has felt nothing.
    waiting.say(&Message::Cancel, &[]).expect("said");
    assert_eq!(waiting.reply().expect("an answer"), Reply::Exit(130));
}

#[test]
fn too_many_descriptors_are_refused() {
    let fixture = Fixture::new();
    let null = std::io::pipe().expect("a pipe").0;
    for count in [3, 5, 6, 100] {
        let stream = fixture.raw();
        let fds = vec![null.as_fd(); count];
        let mut space = vec![std::mem::MaybeUninit::uninit(); 4096];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
        let bytes = frame::encode(&Message::Request(request(&[b"list"])));
        let parts = [std::io::IoSlice::new(&bytes)];
        let flags = rustix::net::SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&stream, &parts, &mut control, flags).expect("sent");
        let mut said = Vec::new();
        // A connection that is closed with bytes unread is reset behind its last words.
        let _ = (&stream).read_to_end(&mut said);
        match said.get(HEADER..).map(frame::decode_reply) {
            Some(Ok(Reply::Refused(why))) => assert!(why.contains("descriptors"), "{why}"),
            other => panic!("{count}: {other:?}"),
        }
    }
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
    connection.say(&Message::Stop { version: VERSION }, &[]).expect("said");
    assert_eq!(connection.reply().expect("an answer"), Reply::Refused("not this one".to_owned()));
}

#[test]
fn any_bytes() {
    bolero::check!().for_each(|bytes: &[u8]| {
        if let Some(header) = bytes.first_chunk::<HEADER>() {
            let length = frame::length(*header, REQUEST_MAX);
            assert!(length.is_err() || length.is_ok_and(|length| length <= REQUEST_MAX));
        }
        // Whatever is understood is said again with the same meaning.
        if let Ok(message) = frame::decode(bytes) {
            let again = frame::encode(&message);
            assert_eq!(frame::decode(&again[HEADER..]).expect("our own words"), message);
        }
        let _ = frame::decode_reply(bytes);
    });
}

#[test]
fn any_request() {
    let words = bolero::generator::produce::<Vec<Vec<u8>>>();
    bolero::check!().with_generator(words).for_each(|args| {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let message = Message::Request(request(&args));
        let bytes = frame::encode(&message);
        let has_zero = args.iter().any(|arg| arg.contains(&0));
        match frame::decode(&bytes[HEADER..]) {
            Ok(again) => assert!(again == message && !has_zero),
            Err(error) => assert!(has_zero, "{error}"),
        }
    });
}

#[test]
fn one_that_is_about_to_end_begins_nothing() {
    let fixture = Fixture::new();
    // Connected before, so that it is not the socket that refuses.
    let (late, waiting) = (fixture.connect(), fixture.waiting());
    fixture.server.stop();
    assert_eq!(waiting.reply().expect("an answer"), Reply::Exit(130));
    let null = std::io::pipe().expect("a pipe").0;
    let said = late.say(&Message::Request(request(&[b"list"])), &[null.as_fd(); 4]);
    // It was taken already, or it never will be.
    let reply = said.map_err(CallError::from).and_then(|()| late.reply());
    match reply {
        Ok(reply) => assert_eq!(reply, Reply::Ending),
        Err(error) => assert!(error.is_gone(), "{error}"),
    }
}
