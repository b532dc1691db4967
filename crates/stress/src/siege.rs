//! Siege: two unprivileged users attack the daemon of root.
//!
//! Each runs every verb with all kinds of operands; sends frames that are truncated, repeated, forged or
//! carry descriptors; leaves connections open; and places symbolic links at mount points of file systems that
//! the user may create. In the first half of the time the daemon runs undisturbed, and must release the
//! memory, descriptors and threads it took. In the second half it is killed now and then.
//!
//! # What always holds
//! - The threads of a user have that user's rights only: the kernel decides what they may do, as for any
//!   program.
//! - The siege fails when the daemon does not answer root, when a user sees data of root, when data of root
//!   has changed (files, datasets, properties, mounts), when the daemon does not release what it took for the
//!   users, and when the pool is not sound at the end.

use crate::judge::{verify, zdb};
use crate::world::{self, Failure, Outcome, World, fail};
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

/// User ids that no system assigns.
const USERS: [u32; 2] = [64_101, 64_102];
/// The contents of files that only root may read.
const SECRET: &str = "what only root may see";
/// Seconds until a user ends a command.
const USER_TIMEOUT_S: &str = "5";
/// How long the daemon may take to release the resources of users that are gone.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections that a user leaves open.
const IDLE_MAX: usize = 40;
/// Bytes of memory, descriptors and threads that the daemon may have gained after the first half, when caches
/// are warm.
const MEMORY_SLACK: u64 = 96 << 20;
const DESCRIPTORS_SLACK: u64 = 16;
const THREADS_SLACK: u64 = 24;

/// Most bytes of the daemon's log: a fixed part, and a part for each second.
const LOG_MAX: u64 = 256 << 10;
const LOG_A_SECOND: u64 = 8 << 10;

/// The parameters of a siege.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed of the users' choices.
    pub seed: u64,
    /// Duration of the siege; the daemon is killed in its second half.
    pub time: Duration,
    /// Number of mounted file systems of root.
    pub mounts: u64,
    /// Path of the `cenote` program.
    pub program: PathBuf,
    /// The directory in which the siege makes its own; every user must be able to enter it.
    pub folder: PathBuf,
}

/// Runs a siege.
///
/// # Errors
/// The first check that failed, and the directory of the siege.
pub fn run(plan: &Plan) -> Result<(), Failure> {
    let actors =
        Actors { writers: 0, administrators: 0, devices: false, kills: true, both_transports: false };
    std::fs::create_dir_all(&plan.folder)?;
    // The original program may be where the users cannot run it.
    let program = plan.folder.join("cenote");
    // A separate process copies it: a descriptor of this one that is open for writing would be inherited by
    // programs that other threads start meanwhile, and a program open for writing cannot be run.
    if !std::process::Command::new("cp").arg(&plan.program).arg(&program).status()?.success() {
        return fail(format!("{} cannot be copied", plan.program.display()));
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

fn siege(plan: &Plan, world: &World, random: &Random) -> Outcome {
    prepare(plan, world)?;
    let before = RootState::capture(world)?;
    let half = plan.time / 2;
    // The first attack warms caches, starts threads and fills tables.
    attack(world, random.branch(2), half / 4, false)?;
    let at_rest = Usage::of_daemon(world)?;
    attack(world, random.branch(3), half, false)?;
    at_rest.check_released(world)?;
    before.check_unchanged(world)?;
    attack(world, random.branch(4), half, true)?;
    before.check_unchanged(world)?;
    at_rest.check_released(world)?;
    check_log_size(world, plan.time)?;
    world.run_ok("root", &["zpool", "export", "-f", "tank"])?;
    zdb(world)?;
    verify(world, &world.store(), "all devices")
}

/// Checks the size of the daemon's log: users must not be able to fill the disk with it.
fn check_log_size(world: &World, time: Duration) -> Outcome {
    let size = std::fs::metadata(world.folder.join("state/cenoted.log"))?.len();
    match size <= LOG_MAX + LOG_A_SECOND * time.as_secs() {
        true => Ok(()),
        false => fail(format!("the daemon has written {size} bytes into its log")),
    }
}

/// Makes the datasets and files of root, and grants rights to the users.
fn prepare(plan: &Plan, world: &World) -> Outcome {
    world.run_ok("root", &["zfs", "create", "tank/m"])?;
    for number in 0..plan.mounts {
        world.run_ok("root", &["zfs", "create", &format!("tank/m/{number}")])?;
    }
    let secret = world.mount().join("m/secret");
    std::fs::write(&secret, SECRET)?;
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600))?;
    // Empty directories too: a symbolic link could lead root to remove one.
    std::fs::create_dir_all(victim(world).join("empty"))?;
    std::fs::write(victim(world).join("file"), SECRET)?;
    std::fs::set_permissions(victim(world).join("file"), std::fs::Permissions::from_mode(0o600))?;
    for user in USERS {
        let dataset = format!("tank/u{user}");
        world.run_ok("root", &["zfs", "create", &dataset])?;
        chown(world.mount().join(format!("u{user}")), Some(user), Some(user))?;
        let rights = "create,destroy,mount,snapshot,rename,rollback,clone,promote,mountpoint,canmount,hold,\
                      release,bookmark,diff,compression,userprop";
        world.run_ok("root", &["zfs", "allow", "-u", &user.to_string(), rights, &dataset])?;
    }
    world.run_ok("root", &["zpool", "sync", "tank"])?;
    check_users_are_answered(world)
}

/// Checks that the daemon answers the users; otherwise the siege tests little.
fn check_users_are_answered(world: &World) -> Outcome {
    for user in USERS {
        let mut command = std::process::Command::new(world.program());
        command.args(["zpool", "list", "-H", "-o", "name"]).uid(user).gid(user).current_dir("/");
        command.env_clear().env("CENOTE_SOCKET", world.folder.join("socket")).env("CENOTE_NO_START", "1");
        let output = command.stdin(Stdio::null()).output()?;
        if output.stdout != b"tank\n" {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return fail(format!("user {user} does not get to the daemon: {}\n{text}", output.status));
        }
    }
    Ok(())
}

fn victim(world: &World) -> PathBuf {
    world.folder.join("roots")
}

/// The state of root's objects, which must not change.
#[derive(PartialEq, Eq)]
struct RootState {
    properties: String,
    mounts: Vec<String>,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl RootState {
    fn capture(world: &World) -> Outcome<RootState> {
        let words = ["zfs", "get", "-H", "-r", "-o", "name,property,value", "-s", "local", "all", "tank/m"];
        let properties = world.run_ok("root", &words)?.out;
        let mounts = world.run_ok("root", &["zfs", "mount"])?.out;
        let of_root = |line: &&str| !USERS.iter().any(|user| line.contains(&format!("tank/u{user}")));
        let mut mounts: Vec<String> = mounts.lines().filter(of_root).map(str::to_owned).collect();
        mounts.sort();
        let mut files = Vec::new();
        for folder in [victim(world), world.mount().join("m")] {
            read_all(&folder, &mut files)?;
        }
        files.sort();
        Ok(RootState { properties, mounts, files })
    }

    fn check_unchanged(&self, world: &World) -> Outcome {
        let begun = Instant::now();
        loop {
            // The next daemon restores the mounts of one that was killed.
            let now = RootState::capture(world);
            match now {
                Ok(now) if now == *self => return Ok(()),
                Ok(now) if begun.elapsed() > RELEASE_TIMEOUT => {
                    let mounts =
                        self.mounts.len() - self.mounts.iter().filter(|m| now.mounts.contains(m)).count();
                    return fail(format!(
                        "what is root's has changed: {mounts} mounts of {} are missing; files {}; properties {}",
                        self.mounts.len(),
                        if now.files == self.files { "as before" } else { "not" },
                        if now.properties == self.properties { "as before" } else { "not" },
                    ));
                }
                Err(failure) if begun.elapsed() > RELEASE_TIMEOUT => return Err(failure),
                _ => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }
}

fn read_all(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) -> Outcome {
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

/// Resources of the daemon. Not counted: the block cache, which has its own limit, and the rings of mounts
/// that were busy, which the kernel frees only with the mount.
#[derive(Debug)]
struct Usage {
    memory: u64,
    descriptors: u64,
    threads: u64,
    rings: u64,
}

/// Most io_uring rings of a daemon, of all mounts together.
const RINGS_MAX: u64 = 1024;
/// Bytes of memory for each ring: the longest request, and its entries.
const RING_MEMORY: u64 = (1 << 20) + (256 << 10);

impl Usage {
    fn of_daemon(world: &World) -> Outcome<Usage> {
        let Some(pid) = world.daemon() else { return fail("no daemon answers") };
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
        let counters = world.run_ok("root", &["kstat"])?.out;
        let cache = counters.lines().skip_while(|line| !line.ends_with("arcstats"));
        let cache = cache.filter_map(|line| line.strip_prefix("size ")).next();
        let cache = cache.and_then(|words| words.split_whitespace().last()?.parse().ok());
        let memory = (number("RssAnon:") << 10).saturating_sub(cache.unwrap_or(0) + rings * RING_MEMORY);
        // Each ring has one thread.
        let threads = number("Threads:").saturating_sub(rings);
        Ok(Usage { memory, descriptors, threads, rings })
    }

    /// Checks that the daemon releases what it took for the users, once they are gone for a while.
    fn check_released(&self, world: &World) -> Outcome {
        let begun = Instant::now();
        loop {
            let now = Usage::of_daemon(world)?;
            let is_back = now.memory <= self.memory + MEMORY_SLACK
                && now.descriptors <= self.descriptors + DESCRIPTORS_SLACK
                && now.threads <= self.threads + THREADS_SLACK
                && now.rings <= RINGS_MAX;
            if is_back {
                world.note(&format!("at rest: {self:?}, after the users: {now:?}"));
                return Ok(());
            }
            if begun.elapsed() > RELEASE_TIMEOUT {
                return fail(format!(
                    "the daemon had {self:?}, and has {now:?} long after the users have gone"
                ));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Runs both users for this long, while root checks that the daemon answers.
fn attack(world: &World, random: Random, time: Duration, kills: bool) -> Outcome {
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
        let root = scope.spawn(move || watch_daemon(world, random.branch(9), end, kills));
        let joined =
            users.into_iter().map(|user| user.join().unwrap_or_else(|_| fail("a user's thread panicked")));
        let users: Outcome = joined.collect();
        users.and(root.join().unwrap_or_else(|_| fail("root's thread panicked")))
    });
    outcome.and_then(|()| world.outcome())
}

fn watch_daemon(world: &World, mut random: Random, end: Instant, kills: bool) -> Outcome {
    while Instant::now() < end {
        world.run_ok("root", &["zpool", "list", "-H", "tank"])?;
        std::thread::sleep(Duration::from_millis(200 + random.below(800)));
        if kills && random.one_in(2) {
            world::kill_daemon(world);
        }
    }
    let health = world.run_ok("root", &["zpool", "list", "-H", "-o", "health", "tank"])?.out;
    if health.trim() == "ONLINE" { Ok(()) } else { fail(format!("the pool is {}", health.trim())) }
}

/// An attacking user, in a thread with that user's rights.
struct User<'w> {
    world: &'w World,
    uid: u32,
    at: PathBuf,
    random: Random,
    idle: Vec<UnixStream>,
}

impl User<'_> {
    fn new(world: &World, uid: u32, random: Random) -> Outcome<User<'_>> {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        let at = world.mount().join(format!("u{uid}"));
        Ok(User { world, uid, at, random, idle: Vec::new() })
    }

    fn work(mut self, end: Instant) -> Outcome {
        while Instant::now() < end {
            match self.random.below(10) {
                0..4 => self.verb()?,
                4..8 => self.frame(),
                _ => self.link()?,
            }
        }
        Ok(())
    }

    fn run(&mut self, words: &[&str]) -> Outcome {
        let mut command = std::process::Command::new("timeout");
        command.args(["-s", "KILL", USER_TIMEOUT_S]).arg(self.world.program()).args(words);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &self.at);
        command.env("CENOTE_SOCKET", self.world.folder.join("socket"));
        command.env("CENOTE_STATE", self.at.join("state")).env("CENOTE_NO_START", "1");
        command.current_dir("/").stdin(Stdio::null());
        if self.random.one_in(4) {
            // Nothing is read from this pipe: the client blocks until the timeout ends it.
            let (_reader, writer) = std::io::pipe()?;
            let _ = command.stdout(writer).stderr(Stdio::null()).status()?;
            return Ok(());
        }
        let output = command.output()?;
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        let text = String::from_utf8_lossy(&text);
        self.world.note(&format!("u{}: {} = {:?}", self.uid, words.join(" "), output.status.code()));
        if text.contains(SECRET) {
            return fail(format!("'{}' shows user {} what is root's:\n{text}", words.join(" "), self.uid));
        }
        match output.status.code() {
            Some(134 | 139) => {
                fail(format!("'{}' as user {}: {}\n{text}", words.join(" "), self.uid, output.status))
            }
            _ if text.contains("panicked") => fail(format!("'{}': {text}", words.join(" "))),
            _ => Ok(()),
        }
    }

    /// A random command line: any verb with any words.
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

    fn verb(&mut self) -> Outcome {
        let mut words = self.line();
        if words[0] == "cenote" {
            // `cenote` is the name of the program itself.
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

    /// Sends a frame to the socket. Only the checks of root and of the daemon's resources count, not the
    /// reply.
    fn frame(&mut self) {
        let Ok(stream) = UnixStream::connect(self.world.folder.join("socket")) else { return };
        // A full buffer ends a call: the daemon need not read after a refusal.
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

    /// A well-formed request.
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
                // Input that was not asked for, and the cancellation of a request just begun.
                bytes.extend(piece(Piece::Input, &self.random.bytes(count)));
                bytes.extend(word(&Message::Cancel));
            }
        }
        bytes
    }

    /// Sends descriptors of every kind with the first bytes, more of them than any request needs.
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

    /// Places a symbolic link to a directory of root at a mount point of the user's file systems.
    fn link(&mut self) -> Outcome {
        let at = self.at.clone();
        let victim = victim(self.world);
        let place = at.join(self.random.of(&["l", "x", "y", "z"]));
        let target =
            self.random.of(&[victim.clone(), victim.join("empty"), "/etc".into(), "x".into()]).clone();
        // Removal and creation may fail, and the daemon may be down.
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
