//! A daemon of root's, and a user who wants to stop it: forged, cut and repeated frames, descriptors of every kind,
//! connections that say nothing, any verb with any words, and output that nobody takes. Seeded by `CENOTE_SEED`; it goes on
//! for `CENOTE_SECONDS`, which `cargo xtask siege` sets, else for some rounds.
// A test is no command that runs for a client.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
// Tests make and break files as they like.
#![allow(clippy::disallowed_types, missing_docs)]

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serve::control::{Head, Message, Piece, Screen, VERSION, piece, word};
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where the attacker finds the socket: set in its process.
const SOCKET: &str = "CENOTE_HOSTILE_SOCKET";
/// Rounds of the attacker, unless a time is given.
const ROUNDS: u32 = 600;
/// Connections that it keeps.
const KEPT: usize = 40;
/// How long everything may take to be as it was: requests have ten seconds to arrive.
const SETTLED: Duration = Duration::from_secs(60);

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).expect("fits") % sides
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.roll(most)).map(|_| u8::try_from(self.roll(256)).expect("fits")).collect()
    }
}

fn request(program: &str, args: &[&str]) -> Vec<u8> {
    let mut line = b"/\0".to_vec();
    args.iter().for_each(|arg| line.extend_from_slice(&[arg.as_bytes(), b"\0"].concat()));
    let head = Head {
        version: VERSION,
        program: program.to_owned(),
        args: u32::try_from(args.len()).expect("few"),
        bytes: u32::try_from(line.len()).expect("short"),
        umask: 0o22,
        screen: Screen::default(),
    };
    [word(&Message::Request(head)), line].concat()
}

/// What a request may be made of.
const VERBS: [(&str, &[&str]); 4] = [
    (
        "zpool",
        &[
            "add",
            "checkpoint",
            "clear",
            "create",
            "destroy",
            "events",
            "export",
            "get",
            "history",
            "import",
            "iostat",
            "labelclear",
            "list",
            "offline",
            "online",
            "reguid",
            "reopen",
            "scrub",
            "set",
            "status",
            "sync",
            "upgrade",
            "version",
            "wait",
            "nosuch",
        ],
    ),
    (
        "zfs",
        &[
            "allow",
            "bookmark",
            "clone",
            "create",
            "destroy",
            "diff",
            "get",
            "hold",
            "holds",
            "inherit",
            "list",
            "load-key",
            "mount",
            "project",
            "promote",
            "release",
            "rename",
            "rollback",
            "set",
            "snapshot",
            "unallow",
            "unmount",
            "upgrade",
            "userspace",
            "wait",
        ],
    ),
    (
        "cenote",
        &["cat", "chmod", "cp", "find", "kstat", "ls", "metrics", "rm", "tar", "verify", "daemon", "mount"],
    ),
    ("fsstat", &["-F", "-a", "/", "zfs"]),
];
const WORDS: [&str; 22] = [
    "tank",
    "tank/a",
    "tank/a@s",
    "tank@%",
    "-a",
    "-r",
    "-f",
    "-c",
    "-R",
    "-d",
    "-o",
    "--on",
    "all",
    "1",
    "/",
    "/etc/shadow",
    "../../x",
    "tank:/",
    "mountpoint=/etc",
    "keylocation=file:///etc/shadow",
    "",
    "\u{1b}[2J",
];

/// Some request that is well made.
fn some_request(dice: &mut Dice) -> Vec<u8> {
    let (program, verbs) = VERBS[dice.roll(VERBS.len())];
    let mut args = vec![verbs[dice.roll(verbs.len())]];
    args.extend((0..dice.roll(5)).map(|_| WORDS[dice.roll(WORDS.len())]));
    request(program, &args)
}

fn send_descriptors(stream: &UnixStream, dice: &mut Dice, bytes: &[u8]) {
    let open = |path: &str| std::fs::File::open(path).ok().map(OwnedFd::from);
    let kinds = [
        open("/dev/null"),
        open("/"),
        open("/proc/self/mem"),
        std::io::pipe().ok().map(|(reader, _)| reader.into()),
        UnixStream::pair().ok().map(|(one, _)| one.into()),
        std::net::TcpListener::bind("127.0.0.1:0").ok().map(OwnedFd::from),
    ];
    let kinds: Vec<OwnedFd> = kinds.into_iter().flatten().collect();
    let fds: Vec<_> = (0..=dice.roll(200)).map(|n| kinds[n % kinds.len()].as_fd()).collect();
    let mut space = vec![MaybeUninit::uninit(); 4096];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if control.push(SendAncillaryMessage::ScmRights(&fds)) {
        let _ = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    }
}

/// One thing that no client of ours does.
fn attack(mut stream: &UnixStream, dice: &mut Dice) {
    let whole = some_request(dice);
    let bytes = match dice.roll(9) {
        // It says nothing.
        0 => return,
        1 => dice.bytes(4096),
        2 => [&b"CntC"[..], &dice.bytes(70_000)].concat(),
        3 => [&b"CntC\xff\xff\0\0"[..], &b"[".repeat(dice.roll(65_536))].concat(),
        4 => whole[..dice.roll(whole.len())].to_vec(),
        5 => whole.repeat(1 + dice.roll(4)),
        6 => {
            let mut forged = whole;
            let at = dice.roll(forged.len());
            forged[at] ^= u8::try_from(1 + dice.roll(255)).expect("fits");
            forged
        }
        7 => {
            let more = [piece(Piece::Input, &dice.bytes(60_000)), word(&Message::Cancel)].concat();
            [whole, more.repeat(dice.roll(3))].concat()
        }
        _ => return send_descriptors(stream, dice, &whole),
    };
    let _ = stream.write_all(&bytes);
}

/// Runs in a process of its own, as another user.
#[test]
fn attacker() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    assert!(!rustix::process::geteuid().is_root(), "another user");
    let mut dice = Dice(number("CENOTE_SEED", 1) | 1);
    let mut kept = Vec::new();
    let until = number("CENOTE_SECONDS", 0);
    let until = (until > 0).then(|| Instant::now() + Duration::from_secs(until));
    for round in 0.. {
        if until.map_or(round >= ROUNDS, |until| Instant::now() >= until) {
            break;
        }
        let Ok(stream) = UnixStream::connect(&socket) else { continue };
        let _ = stream.set_write_timeout(Some(Duration::from_millis(50)));
        let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
        attack(&stream, &mut dice);
        match dice.roll(4) {
            0 => drop(stream),
            1 => drop((&stream).read(&mut [0; 100])),
            _ => kept.push(stream),
        }
        while kept.len() > KEPT {
            kept.swap_remove(dice.roll(KEPT));
        }
    }
}

struct Daemon {
    folder: tempfile::TempDir,
}

impl Daemon {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(words.split_whitespace()).env_clear().current_dir(self.folder.path());
        command.env("CENOTE_SOCKET", self.path("run/socket")).env("CENOTE_STATE", self.path("state"));
        command.stdin(Stdio::null());
        command
    }

    fn good(&self, words: &str) -> String {
        let output = self.command(words).output().expect("it starts");
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Descriptors, threads and kilobytes of memory.
    fn size(&self, pid: &str) -> (usize, usize, u64) {
        let count = |name: &str| std::fs::read_dir(format!("/proc/{pid}/{name}")).expect("alive").count();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("there");
        (count("fd"), count("task"), resident.trim().trim_end_matches(" kB").parse().expect("a number"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.command("daemon --stop").output();
    }
}

#[test]
fn a_hostile_user_stops_nobody_and_leaves_nothing_behind() {
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/setpriv").exists() {
        return testkit::skip("to be two users takes root and setpriv");
    }
    let daemon = Daemon { folder: tempfile::tempdir().expect("a folder") };
    std::fs::set_permissions(daemon.folder.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    let image = std::fs::File::create(daemon.path("a")).expect("made");
    image.set_len(256 << 20).expect("sparse");
    daemon.good(&format!("zpool create -O mountpoint=none tank {}", daemon.path("a").display()));
    daemon.good("zfs create tank/a");
    daemon.good("zfs snapshot tank/a@s");
    let listed =
        daemon.good("zfs get -rHp -t all -o name,property,value name,mountpoint,canmount,createtxg tank");
    let pid = std::fs::read_to_string(daemon.path("state/cenoted.lock")).expect("a process");
    let before = daemon.size(pid.trim());
    // By a process of its own: see `copy_program` of the daemon's tests.
    let program = daemon.path("attacker");
    let own = std::env::current_exe().expect("known");
    assert!(Command::new("cp").arg(own).arg(&program).status().expect("cp starts").success());
    let mut attackers: Vec<_> = (0..2)
        .map(|n| {
            let mut command = Command::new("/usr/bin/setpriv");
            command.args([&format!("--reuid={}", 65534 - n), "--regid=65534", "--clear-groups", "--"]);
            command.arg(&program).args(["--exact", "attacker"]).stdout(Stdio::null());
            command
                .env(SOCKET, daemon.path("run/socket"))
                .env("CENOTE_SECONDS", number("CENOTE_SECONDS", 0).to_string());
            command.env("CENOTE_SEED", (number("CENOTE_SEED", 20_261_123) + n).to_string());
            command.spawn().expect("it starts")
        })
        .collect();
    let mut asked = 0;
    while attackers.iter_mut().any(|attacker| attacker.try_wait().expect("a child").is_none()) {
        assert_eq!(daemon.good("zpool list -H -o name,health"), "tank\tONLINE\n");
        asked += 1;
    }
    assert!(attackers.iter_mut().all(|attacker| attacker.wait().expect("ended").success()));
    assert!(asked > 0);
    let began = Instant::now();
    loop {
        let after = daemon.size(pid.trim());
        if after.0 <= before.0 && after.1 <= before.1 + 2 {
            assert!(after.2 < before.2 + (128 << 10), "{before:?} {after:?}");
            break;
        }
        assert!(began.elapsed() < SETTLED, "{before:?} {after:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let log = std::fs::read_to_string(daemon.path("state/cenoted.log")).expect("there");
    assert!(log.len() < 256 << 10 && !log.contains("panicked"), "{log}");
    let after =
        daemon.good("zfs get -rHp -t all -o name,property,value name,mountpoint,canmount,createtxg tank");
    assert_eq!(after, listed);
}
