//! Siege: two users without rights against root's daemon.
//!
//! Each runs every verb with all kinds of operands, sends frames that are cut, repeated, forged and come with
//! descriptors, leaves connections open, and places links where a file system of its own is going to be mounted. In
//! the first half of the time the daemon lives, and must then be as it was: memory, descriptors, threads. In the second
//! half it is killed now and then.
//!
//! # What always holds
//! - A user's threads have that user's rights alone: the kernel decides what they may, as for any program.
//! - It fails when the daemon does not answer root, when a user has seen what is root's, when what is root's has
//!   changed (files, datasets, properties, mounts), when the daemon has not let go of what it took for the users,
//!   and when the pool is not sound in the end.

use crate::judge::{verify, zdb};
use crate::world::{self, Done, Failure, World, wrong};
use crate::{Actors, Random};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serve::control::{Head, Message, Piece, Screen, VERSION, piece, word};
use std::io::{IoSlice, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Two users that no system has.
const USERS: [u32; 2] = [64_101, 64_102];
/// What only root may see.
const SECRET: &str = "what only root may see";
/// How long a user waits for a command.
const IMPATIENCE: &str = "5";
/// How long the daemon may take to let go of what it has for users that are gone.
const REST: Duration = Duration::from_secs(60);
/// Connections that a user leaves open.
const IDLE_MAX: usize = 40;
/// What may be there in addition after the first half, when caches are warm.
const MEMORY_SLACK: u64 = 96 << 20;
const DESCRIPTORS_SLACK: u64 = 16;
const THREADS_SLACK: u64 = 24;

/// Bytes of the daemon's log: in any case, and for each second.
const LOG_MAX: u64 = 256 << 10;
const LOG_A_SECOND: u64 = 8 << 10;

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides what the users do.
    pub seed: u64,
    /// How long.
    pub time: Duration,
    /// Mounted file systems of root's.
    pub mounts: u64,
    /// The program `cenote`.
    pub program: PathBuf,
    /// Where the folder is made: a place that every user gets to.
    pub folder: PathBuf,
}

/// Runs it.
///
/// # Errors
/// What went wrong, and where everything of it is.
pub fn run(plan: &Plan) -> Result<(), Failure> {
    let actors =
        Actors { writers: 0, administrators: 0, devices: false, kills: true, both_transports: false };
    std::fs::create_dir_all(&plan.folder)?;
    // One that the users can run, wherever the other is.
    let program = plan.folder.join("cenote");
    // By a process of its own: a descriptor of this one that writes a program would go to what other threads start
    // meanwhile, and a program that is written cannot be run.
    if !std::process::Command::new("cp").arg(&plan.program).arg(&program).status()?.success() {
        return wrong(format!("{} cannot be copied", plan.program.display()));
    }
    let of_world = crate::Plan {
        seed: plan.seed,
        time: plan.time,
        round: plan.time,
        only: None,
        program: program.canonicalize()?,
        folder: plan.folder.clone(),
        actors,
    };
    let random = Random::new(plan.seed);
    let world = World::make(&of_world, 0, &mut random.branch(1))?;
    let outcome = siege(plan, &world, &random);
    world.end(outcome)
}

fn siege(plan: &Plan, world: &World, random: &Random) -> Done {
    prepare(plan, world)?;
    let before = Roots::look(world)?;
    let half = plan.time / 2;
    // The first moments warm caches, start threads and fill tables.
    attack(world, random.branch(2), half / 4, false)?;
    let at_rest = Process::of_daemon(world)?;
    attack(world, random.branch(3), half, false)?;
    at_rest.must_come_back(world)?;
    before.must_be_the_same(world)?;
    attack(world, random.branch(4), half, true)?;
    before.must_be_the_same(world)?;
    at_rest.must_come_back(world)?;
    log_is_short(world, plan.time)?;
    world.good("root", &["zpool", "export", "-f", "tank"])?;
    zdb(world)?;
    verify(world, &world.store(), "all devices")
}

/// Users cannot fill the disk with what is said of them.
fn log_is_short(world: &World, time: Duration) -> Done {
    let size = std::fs::metadata(world.folder.join("state/cenoted.log"))?.len();
    match size <= LOG_MAX + LOG_A_SECOND * time.as_secs() {
        true => Ok(()),
        false => wrong(format!("the daemon has written {size} bytes into its log")),
    }
}

/// What is root's, and what the users may.
fn prepare(plan: &Plan, world: &World) -> Done {
    world.good("root", &["zfs", "create", "tank/m"])?;
    for number in 0..plan.mounts {
        world.good("root", &["zfs", "create", &format!("tank/m/{number}")])?;
    }
    let secret = world.mount().join("m/secret");
    std::fs::write(&secret, SECRET)?;
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600))?;
    // Empty folders too: removing one is what a link could lead root to.
    std::fs::create_dir_all(victim(world).join("empty"))?;
    std::fs::write(victim(world).join("file"), SECRET)?;
    std::fs::set_permissions(victim(world).join("file"), std::fs::Permissions::from_mode(0o600))?;
    for user in USERS {
        let dataset = format!("tank/u{user}");
        world.good("root", &["zfs", "create", &dataset])?;
        chown(world.mount().join(format!("u{user}")), Some(user), Some(user))?;
        let rights = "create,destroy,mount,snapshot,rename,rollback,clone,promote,mountpoint,canmount,hold,\
                      release,bookmark,diff,compression,userprop";
        world.good("root", &["zfs", "allow", "-u", &user.to_string(), rights, &dataset])?;
    }
    world.good("root", &["zpool", "sync", "tank"])?;
    users_are_answered(world)
}

/// Otherwise they could do nothing wrong.
fn users_are_answered(world: &World) -> Done {
    for user in USERS {
        let mut command = std::process::Command::new(world.program());
        command.args(["zpool", "list", "-H", "-o", "name"]).uid(user).gid(user).current_dir("/");
        command.env_clear().env("CENOTE_SOCKET", world.folder.join("socket")).env("CENOTE_NO_START", "1");
        let output = command.stdin(Stdio::null()).output()?;
        if output.stdout != b"tank\n" {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return wrong(format!("user {user} does not get to the daemon: {}\n{text}", output.status));
        }
    }
    Ok(())
}

fn victim(world: &World) -> PathBuf {
    world.folder.join("roots")
}

/// What must not change.
#[derive(PartialEq, Eq)]
struct Roots {
    properties: String,
    mounts: Vec<String>,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Roots {
    fn look(world: &World) -> Done<Roots> {
        let words = ["zfs", "get", "-H", "-r", "-o", "name,property,value", "-s", "local", "all", "tank/m"];
        let properties = world.good("root", &words)?.out;
        let mounts = world.good("root", &["zfs", "mount"])?.out;
        let of_root = |line: &&str| !USERS.iter().any(|user| line.contains(&format!("tank/u{user}")));
        let mut mounts: Vec<String> = mounts.lines().filter(of_root).map(str::to_owned).collect();
        mounts.sort();
        let mut files = Vec::new();
        for folder in [victim(world), world.mount().join("m")] {
            read_all(&folder, &mut files)?;
        }
        files.sort();
        Ok(Roots { properties, mounts, files })
    }

    fn must_be_the_same(&self, world: &World) -> Done {
        let begun = Instant::now();
        loop {
            // Mounts of a daemon that was killed come back with the next one.
            let now = Roots::look(world);
            match now {
                Ok(now) if now == *self => return Ok(()),
                Ok(now) if begun.elapsed() > REST => {
                    let mounts =
                        self.mounts.len() - self.mounts.iter().filter(|m| now.mounts.contains(m)).count();
                    return wrong(format!(
                        "what is root's has changed: {mounts} mounts of {} are missing; files {}; properties {}",
                        self.mounts.len(),
                        if now.files == self.files { "as before" } else { "not" },
                        if now.properties == self.properties { "as before" } else { "not" },
                    ));
                }
                Err(failure) if begun.elapsed() > REST => return Err(failure),
                _ => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }
}

fn read_all(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) -> Done {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.symlink_metadata()?.is_dir() {
            files.push((path.clone(), Vec::new()));
            read_all(&path, files)?;
        } else {
            let bytes = std::fs::read(&path)?;
            files.push((path, bytes));
        }
    }
    Ok(())
}

/// What the daemon has of the system, without what has a bound of its own: its cache of blocks, and the rings of mounts that
/// were busy, which the kernel takes back only with the mount.
#[derive(Debug)]
struct Process {
    memory: u64,
    descriptors: u64,
    threads: u64,
    rings: u64,
}

/// Most rings of a daemon, of all mounts together.
const RINGS_MAX: u64 = 1024;
/// What a ring has in memory: the longest request, and its entries.
const RING_MEMORY: u64 = (1 << 20) + (256 << 10);

impl Process {
    fn of_daemon(world: &World) -> Done<Process> {
        let Some(pid) = world.daemon() else { return wrong("no daemon answers") };
        let folder = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
        let status = std::fs::read_to_string(folder.join("status"))?;
        let number = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        let links =
            std::fs::read_dir(folder.join("fd"))?.flatten().map(|entry| std::fs::read_link(entry.path()));
        let links: Vec<PathBuf> = links.map(Result::unwrap_or_default).collect();
        let rings = links.iter().filter(|link| link.ends_with("anon_inode:[io_uring]")).count() as u64;
        let descriptors = links.len() as u64 - rings;
        let counters = world.good("root", &["kstat"])?.out;
        let cache = counters.lines().skip_while(|line| !line.ends_with("arcstats"));
        let cache = cache.filter_map(|line| line.strip_prefix("size ")).next();
        let cache = cache.and_then(|words| words.split_whitespace().last()?.parse().ok());
        let memory = (number("RssAnon:") << 10).saturating_sub(cache.unwrap_or(0) + rings * RING_MEMORY);
        // One thread each.
        let threads = number("Threads:").saturating_sub(rings);
        Ok(Process { memory, descriptors, threads, rings })
    }

    /// Once the users are gone for a while, nothing is left of what they took.
    fn must_come_back(&self, world: &World) -> Done {
        let begun = Instant::now();
        loop {
            let now = Process::of_daemon(world)?;
            let is_back = now.memory <= self.memory + MEMORY_SLACK
                && now.descriptors <= self.descriptors + DESCRIPTORS_SLACK
                && now.threads <= self.threads + THREADS_SLACK
                && now.rings <= RINGS_MAX;
            if is_back {
                world.note(&format!("at rest: {self:?}, after the users: {now:?}"));
                return Ok(());
            }
            if begun.elapsed() > REST {
                return wrong(format!(
                    "the daemon had {self:?}, and has {now:?} long after the users have gone"
                ));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Both users for so long; root looks all the time whether it is answered.
fn attack(world: &World, random: Random, time: Duration, kills: bool) -> Done {
    let end = Instant::now() + time;
    let outcome = std::thread::scope(|scope| {
        let users: Vec<_> = USERS
            .iter()
            .zip(0..)
            .map(|(user, number)| {
                let random = random.branch(number);
                scope.spawn(move || User::new(world, *user, random)?.work(end))
            })
            .collect();
        let root = scope.spawn(move || look_after(world, random.branch(9), end, kills));
        let joined =
            users.into_iter().map(|user| user.join().unwrap_or_else(|_| wrong("a user's thread panicked")));
        let users: Done = joined.collect();
        users.and(root.join().unwrap_or_else(|_| wrong("root's thread panicked")))
    });
    outcome.and_then(|()| world.outcome())
}

fn look_after(world: &World, mut random: Random, end: Instant, kills: bool) -> Done {
    while Instant::now() < end {
        world.good("root", &["zpool", "list", "-H", "tank"])?;
        std::thread::sleep(Duration::from_millis(200 + random.below(800)));
        if kills && random.one_in(2) {
            world::kill_daemon(world);
        }
    }
    let health = world.good("root", &["zpool", "list", "-H", "-o", "health", "tank"])?.out;
    if health.trim() == "ONLINE" { Ok(()) } else { wrong(format!("the pool is {}", health.trim())) }
}

/// A user at work, in a thread with that user's rights.
struct User<'w> {
    world: &'w World,
    uid: u32,
    at: PathBuf,
    random: Random,
    idle: Vec<UnixStream>,
}

impl User<'_> {
    fn new(world: &World, uid: u32, random: Random) -> Done<User<'_>> {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        let at = world.mount().join(format!("u{uid}"));
        Ok(User { world, uid, at, random, idle: Vec::new() })
    }

    fn work(mut self, end: Instant) -> Done {
        while Instant::now() < end {
            match self.random.below(10) {
                0..4 => self.verb()?,
                4..8 => self.frame(),
                _ => self.link()?,
            }
        }
        Ok(())
    }

    fn run(&mut self, words: &[&str]) -> Done {
        let mut command = std::process::Command::new("timeout");
        command.args(["-s", "KILL", IMPATIENCE]).arg(self.world.program()).args(words);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &self.at);
        command.env("CENOTE_SOCKET", self.world.folder.join("socket"));
        command.env("CENOTE_STATE", self.at.join("state")).env("CENOTE_NO_START", "1");
        command.current_dir("/").stdin(Stdio::null());
        if self.random.one_in(4) {
            // A reader that never reads: the client hangs, and is ended.
            let (_reader, writer) = std::io::pipe()?;
            let _ = command.stdout(writer).stderr(Stdio::null()).status()?;
            return Ok(());
        }
        let output = command.output()?;
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        let text = String::from_utf8_lossy(&text);
        self.world.note(&format!("u{}: {} = {:?}", self.uid, words.join(" "), output.status.code()));
        if text.contains(SECRET) {
            return wrong(format!("'{}' shows user {} what is root's:\n{text}", words.join(" "), self.uid));
        }
        match output.status.code() {
            Some(134 | 139) => {
                wrong(format!("'{}' as user {}: {}\n{text}", words.join(" "), self.uid, output.status))
            }
            _ if text.contains("panicked") => wrong(format!("'{}': {text}", words.join(" "))),
            _ => Ok(()),
        }
    }

    /// Any verb with any words.
    fn line(&mut self) -> Vec<String> {
        const VERBS: &str = "zpool:create,add,destroy,labelclear,list,status,iostat,events,import,export,scrub,resilver,\
             clear,online,offline,reopen,wait,reguid,upgrade,history,get,set,sync,attach,split,checkpoint,version,nosuch \
             zfs:create,destroy,snapshot,rollback,clone,promote,rename,bookmark,list,get,set,inherit,mount,unmount,\
             diff,upgrade,userspace,groupspace,project,hold,holds,release,allow,unallow,wait,send,receive,share,load-key \
             cenote:ls,stat,cat,cp,tar,find,verify,mkdir,rm,mv,ln,chmod,chown,truncate,touch,kstat,metrics,daemon,mount \
             fsstat:-F,-a,/,zfs";
        let tools: Vec<&str> = VERBS.split_whitespace().collect();
        let (tool, verbs) = self.random.of(&tools).split_once(':').unwrap_or_default();
        let verbs: Vec<&str> = verbs.split(',').map(str::trim).collect();
        let mut words = vec![tool.to_owned(), (*self.random.of(&verbs)).to_owned()];
        for _ in 0..self.random.below(4) {
            words.push(self.operand());
        }
        words
    }

    fn verb(&mut self) -> Done {
        let mut words = self.line();
        if words[0] == "cenote" {
            // So is the program itself called.
            words.remove(0);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.run(&words)
    }

    fn operand(&mut self) -> String {
        let other = USERS.iter().find(|user| **user != self.uid).copied().unwrap_or_default();
        let (own, victim) = (format!("tank/u{}", self.uid), victim(self.world).display().to_string());
        let long = "x".repeat(self.random.below(5000) as usize);
        let all = [
            "tank".to_owned(),
            "tank/m".to_owned(),
            "tank/m@1".to_owned(),
            "tank/m:/secret".to_owned(),
            format!("{own}/x"),
            format!("{own}@1"),
            format!("{own}/x@1"),
            format!("{own}:/l/file"),
            format!("tank/u{other}"),
            format!("tank/u{other}@1"),
            own,
            format!("{victim}/file"),
            self.at.join("l").display().to_string(),
            self.world.devices[0].display().to_string(),
            "/dev/null".to_owned(),
            format!("mountpoint={victim}/empty"),
            format!("mountpoint={}", self.at.join("l/empty").display()),
            "mountpoint=/etc".to_owned(),
            "canmount=on".to_owned(),
            "quota=1".to_owned(),
            "user:x=y".to_owned(),
            format!("user:y={long}"),
            long,
            "-r".to_owned(),
            "-R".to_owned(),
            "-f".to_owned(),
            "-a".to_owned(),
            "-c".to_owned(),
            "-o".to_owned(),
            "-d".to_owned(),
            "all".to_owned(),
            "1".to_owned(),
            String::new(),
            "\u{1b}[2J\n".to_owned(),
        ];
        self.random.of(&all).clone()
    }

    /// Something on the socket. Whatever becomes of it: root must be answered, and the daemon as before.
    fn frame(&mut self) {
        let Ok(stream) = UnixStream::connect(self.world.folder.join("socket")) else { return };
        // Full buffers end a call: the daemon need not read what it has refused.
        let _ = stream.set_write_timeout(Some(Duration::from_millis(50)));
        let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
        let bytes = self.forged();
        let _ = if self.random.one_in(3) {
            self.with_descriptors(&stream, &bytes)
        } else {
            write(&stream, &bytes)
        };
        if self.random.one_in(2) {
            let mut answer = [0; 512];
            let _ = (&stream).read(&mut answer);
        }
        if self.random.one_in(3) {
            self.idle.push(stream);
            if self.idle.len() > IDLE_MAX {
                self.idle.clear();
            }
        }
    }

    /// A request that is well made.
    fn request(&mut self) -> Vec<u8> {
        let words = self.line();
        let mut line = b"/\0".to_vec();
        words[1..].iter().for_each(|word| line.extend([word.as_bytes(), b"\0"].concat()));
        let head = Head {
            version: VERSION,
            program: words[0].clone(),
            args: words.len() as u32 - 1,
            bytes: line.len() as u32,
            umask: 0o22,
            screen: Screen::default(),
        };
        [word(&Message::Request(head)), line].concat()
    }

    fn forged(&mut self) -> Vec<u8> {
        let head = Head {
            version: VERSION,
            program: (*self.random.of(&["zpool", "zfs", "cenote", "zdb", "../x", ""])).to_owned(),
            args: self.random.below(5) as u32,
            bytes: *self.random.of(&[11, 0, 1, 200_000, u32::MAX]),
            umask: 0o22,
            screen: Screen::default(),
        };
        let mut bytes = match self.random.below(9) {
            0..4 => self.request(),
            4 => [word(&Message::Request(head)), b"zpool\0list\0".to_vec()].concat(),
            5 => word(&Message::Ping { version: self.random.below(5) as u32 }),
            6 => word(&Message::Stop { version: VERSION }),
            7 => word(&Message::Cancel),
            _ => piece(Piece::Input, &self.random.bytes(60_000)),
        };
        let count = self.random.below(70_000);
        match self.random.below(9) {
            0 => bytes.truncate(self.random.below(bytes.len() as u64 + 1) as usize),
            1 => bytes = bytes.repeat(1 + self.random.below(50) as usize),
            2 => {
                let at = self.random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.random.below(8);
            }
            3 => bytes[4..8].copy_from_slice(&self.random.of(&[0_u32, 1, 65_537, u32::MAX]).to_le_bytes()),
            4 => {
                // Deep and wide JSON.
                let text = self.random.of(&["[", "{\"request\":", "\"\\u0000", "9"]).repeat(20_000);
                bytes.truncate(4);
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text.into_bytes());
            }
            5 => bytes = self.random.bytes(count),
            6 => bytes = [&bytes[..4], &self.random.bytes(count)].concat(),
            _ => {
                // Input that nobody wants, and the end of what has hardly begun.
                bytes.extend(piece(Piece::Input, &self.random.bytes(count)));
                bytes.extend(word(&Message::Cancel));
            }
        }
        bytes
    }

    /// Descriptors of every kind with the first bytes, more of them than are ever wanted.
    fn with_descriptors(&mut self, stream: &UnixStream, bytes: &[u8]) -> std::io::Result<()> {
        let open = |path: &str| std::fs::File::open(path).ok().map(OwnedFd::from);
        let (reader, writer) = std::io::pipe()?;
        let own = std::fs::File::open(&self.at).ok().map(OwnedFd::from);
        let kinds = [
            Some(reader.into()),
            Some(writer.into()),
            open("/"),
            open("/dev/null"),
            open("/proc/self/mem"),
            own,
            stream.try_clone().ok().map(OwnedFd::from),
            std::net::TcpListener::bind("127.0.0.1:0").ok().map(OwnedFd::from),
        ];
        let kinds: Vec<OwnedFd> = kinds.into_iter().flatten().collect();
        let most = *self.random.of(&[6, 6, 6, 200]);
        let count = 1 + self.random.below(most) as usize;
        let some: Vec<_> = kinds.iter().cycle().take(count).map(|fd| fd.as_fd()).collect();
        let mut space = vec![std::mem::MaybeUninit::uninit(); 4096];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&some));
        sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// A link to what is root's where a file system of the user's is going to be mounted, or was.
    fn link(&mut self) -> Done {
        let at = self.at.clone();
        let victim = victim(self.world);
        let place = at.join(self.random.of(&["l", "x", "y", "z"]));
        let target =
            self.random.of(&[victim.clone(), victim.join("empty"), "/etc".into(), "x".into()]).clone();
        // What is there is replaced if it can be; and the daemon may be away.
        let _ = std::fs::remove_file(&place).or_else(|_| std::fs::remove_dir(&place));
        let _ = symlink(target, &place);
        let own = format!("tank/u{}", self.uid);
        let (from, to) = (
            format!("{own}/{}", self.random.of(&["x", "y"])),
            format!("{own}/{}", self.random.of(&["y", "z"])),
        );
        let via = format!("mountpoint={}", place.join("empty").display());
        match self.random.below(7) {
            0 | 1 => self.run(&["zfs", "create", &from]),
            2 => self.run(&["zfs", "rename", &from, &to]),
            3 => self.run(&["zfs", "destroy", "-r", &from]),
            4 => self.run(&["zfs", "set", &via, &from]),
            5 => self.run(&["zfs", "mount", &from]),
            _ => self.run(&["zfs", "unmount", &from]),
        }
    }
}

fn write(stream: &UnixStream, bytes: &[u8]) -> std::io::Result<()> {
    rustix::net::send(stream, bytes, SendFlags::NOSIGNAL)?;
    Ok(())
}
