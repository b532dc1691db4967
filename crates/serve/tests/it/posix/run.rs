//! A small language of system calls. A line is a call with its operands; its outcome is a text: `ok`, the
//! name of an error, or the result. So the same lines can be compared in two folders.

use super::control;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec,
    Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

type Done = Result<String, Errno>;

/// Runs lines in a folder, and keeps the descriptors that lines opened and the values that they noted.
pub(crate) struct Runner {
    root: PathBuf,
    open: BTreeMap<String, OwnedFd>,
    times: BTreeMap<String, [(i64, u64); 3]>,
}

/// A user that makes calls: user id, group id, supplementary groups.
#[derive(Clone, Copy)]
struct User(u32, u32, &'static [u32]);

/// The user for the letter that begins a line; root for lines without one.
fn user(letter: &str) -> Option<User> {
    Some(match letter {
        "a:" => User(65_501, 65_501, &[65_510]),
        "b:" => User(65_502, 65_502, &[65_510]),
        "c:" => User(65_503, 65_503, &[]),
        _ => return None,
    })
}

/// Makes the calling thread run as a user for the rest of its life.
fn become_user(User(uid, gid, groups): User) {
    let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    rustix::thread::set_thread_groups(&groups).unwrap();
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
    rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
}

fn octal(word: &str) -> Mode {
    Mode::from_raw_mode(u32::from_str_radix(word, 8).unwrap())
}

fn number(word: &str) -> u64 {
    word.parse().unwrap()
}

fn id(word: &str) -> Option<u32> {
    (word != "-").then(|| word.parse().unwrap())
}

fn name_of(error: Errno) -> String {
    format!("{error:?}").split(['(', ' ']).next().unwrap_or("").to_owned()
        + &format!(" {}", error.raw_os_error())
}

fn stamp(word: &str) -> Timespec {
    let nanos = match word {
        "now" => rustix::fs::UTIME_NOW,
        "omit" => rustix::fs::UTIME_OMIT,
        _ => 5,
    };
    Timespec { tv_sec: word.parse().unwrap_or(0), tv_nsec: nanos }
}

fn flags_of(word: &str) -> OFlags {
    word.split('+').fold(OFlags::CLOEXEC, |flags, part| {
        flags
            | match part {
                "r" => OFlags::RDONLY,
                "w" => OFlags::WRONLY,
                "rw" => OFlags::RDWR,
                "creat" => OFlags::CREATE,
                "excl" => OFlags::EXCL,
                "trunc" => OFlags::TRUNC,
                "append" => OFlags::APPEND,
                "dir" => OFlags::DIRECTORY,
                "nofollow" => OFlags::NOFOLLOW,
                "tmp" => OFlags::TMPFILE,
                "dsync" => OFlags::DSYNC,
                "sync" => OFlags::SYNC,
                "direct" => OFlags::DIRECT,
                "noatime" => OFlags::NOATIME,
                "nonblock" => OFlags::NONBLOCK,
                "path" => OFlags::PATH,
                other => panic!("{other}"),
            }
    })
}

impl Runner {
    pub(crate) fn new(root: &Path) -> Runner {
        Runner { root: root.to_owned(), open: BTreeMap::new(), times: BTreeMap::new() }
    }

    /// Runs a line as the user that it names.
    pub(crate) fn run(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (who, words) = match words.split_first() {
            Some((first, rest)) if user(first).is_some() => (user(first), rest),
            _ => (None, &words[..]),
        };
        let done = std::thread::scope(|scope| {
            let run = || {
                who.into_iter().for_each(become_user);
                self.call(words)
            };
            scope.spawn(run).join().unwrap()
        });
        match done {
            Ok(text) => text,
            Err(error) => name_of(error),
        }
    }

    /// A path: `@N` in it is a name of N bytes.
    fn at(&self, word: &str) -> PathBuf {
        let parts: Vec<String> = word
            .split('/')
            .map(|part| match part.strip_prefix('@') {
                Some(len) => "n".repeat(len.parse().unwrap()),
                None => part.to_owned(),
            })
            .collect();
        PathBuf::from(format!("{}/{}", self.root.display(), parts.join("/")))
    }

    fn fd(&self, word: &str) -> Result<&OwnedFd, Errno> {
        self.open.get(word).ok_or(Errno::BADF)
    }

    fn stat(&self, word: &str, follow: bool) -> Result<Stat, Errno> {
        match self.open.get(word) {
            Some(fd) => rustix::fs::fstat(fd),
            None if follow => rustix::fs::stat(self.at(word)),
            None => rustix::fs::lstat(self.at(word)),
        }
    }

    fn call(&mut self, words: &[&str]) -> Done {
        let ok = |(): ()| "ok".to_owned();
        let arg = |at: usize| words.get(at).copied().unwrap_or("");
        let path = |at: usize| self.at(arg(at));
        match arg(0) {
            "mkdir" => rustix::fs::mkdir(path(1), octal(arg(2))).map(ok),
            "rmdir" => rustix::fs::rmdir(path(1)).map(ok),
            "unlink" => rustix::fs::unlink(path(1)).map(ok),
            "make" => rustix::fs::open(path(1), flags_of("w+creat+excl"), octal(arg(2))).map(|_| "ok".into()),
            "fifo" => rustix::fs::mknodat(CWD, path(1), FileType::Fifo, octal(arg(2)), 0).map(ok),
            "sock" => rustix::fs::mknodat(CWD, path(1), FileType::Socket, octal(arg(2)), 0).map(ok),
            "node" => rustix::fs::mknodat(CWD, path(1), FileType::RegularFile, octal(arg(2)), 0).map(ok),
            "chr" => {
                rustix::fs::mknodat(CWD, path(1), FileType::CharacterDevice, octal(arg(2)), 0x103).map(ok)
            }
            "blk" => rustix::fs::mknodat(CWD, path(1), FileType::BlockDevice, octal(arg(2)), 0x702).map(ok),
            "symlink" => {
                let target = arg(1).strip_prefix('@').map(|len| "t".repeat(len.parse().unwrap()));
                rustix::fs::symlink(target.as_deref().unwrap_or(arg(1)), path(2)).map(ok)
            }
            "link" => rustix::fs::linkat(CWD, path(1), CWD, path(2), AtFlags::empty()).map(ok),
            "linkfd" => {
                let fd = std::os::fd::AsRawFd::as_raw_fd(self.fd(arg(1))?);
                let from = format!("/proc/self/fd/{fd}");
                rustix::fs::linkat(CWD, from, CWD, path(2), AtFlags::SYMLINK_FOLLOW).map(ok)
            }
            "rename" => {
                let flags = match arg(3) {
                    "noreplace" => RenameFlags::NOREPLACE,
                    "exchange" => RenameFlags::EXCHANGE,
                    "whiteout" => RenameFlags::WHITEOUT,
                    "both" => RenameFlags::NOREPLACE | RenameFlags::EXCHANGE,
                    "whiteout+noreplace" => RenameFlags::NOREPLACE | RenameFlags::WHITEOUT,
                    _ => RenameFlags::empty(),
                };
                rustix::fs::renameat_with(CWD, path(1), CWD, path(2), flags).map(ok)
            }
            "chmod" => rustix::fs::chmod(path(1), octal(arg(2))).map(ok),
            "fchmod" => rustix::fs::fchmod(self.fd(arg(1))?, octal(arg(2))).map(ok),
            "chown" | "lchown" => {
                let how = if arg(0) == "chown" { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                let (uid, gid) = (id(arg(2)).map(Uid::from_raw), id(arg(3)).map(Gid::from_raw));
                rustix::fs::chownat(CWD, path(1), uid, gid, how).map(ok)
            }
            "access" => {
                let access = arg(2).chars().fold(Access::empty(), |access, letter| match letter {
                    'r' => access | Access::READ_OK,
                    'w' => access | Access::WRITE_OK,
                    'x' => access | Access::EXEC_OK,
                    _ => access,
                });
                rustix::fs::access(path(1), access).map(ok)
            }
            "utimes" => {
                let times = Timestamps { last_access: stamp(arg(2)), last_modification: stamp(arg(3)) };
                rustix::fs::utimensat(CWD, path(1), &times, AtFlags::empty()).map(ok)
            }
            "truncate" => {
                let fd = rustix::fs::open(path(1), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
                rustix::fs::ftruncate(fd, number(arg(2))).map(ok)
            }
            "readlink" => Ok(rustix::fs::readlink(path(1), Vec::new())?.to_string_lossy().into_owned()),
            "stat" | "lstat" => Ok(shown(&self.stat(arg(1), arg(0) == "stat")?)),
            "atime" => Ok(self.stat(arg(1), true)?.st_atime.to_string()),
            "list" => self.list(&path(1)),
            _ => self.call_more(words),
        }
    }

    /// Calls about content, open files, extended attributes and times.
    fn call_more(&mut self, words: &[&str]) -> Done {
        let ok = |(): ()| "ok".to_owned();
        let arg = |at: usize| words.get(at).copied().unwrap_or("");
        let path = self.at(arg(1));
        match arg(0) {
            // open NAME PATH FLAGS MODE
            "open" => {
                let mode = if arg(4).is_empty() { Mode::empty() } else { octal(arg(4)) };
                let fd = rustix::fs::open(self.at(arg(2)), flags_of(arg(3)), mode)?;
                self.open.insert(arg(1).to_owned(), fd);
                Ok("ok".to_owned())
            }
            "close" => Ok(self.open.remove(arg(1)).map_or("none", |_| "ok").to_owned()),
            "pwrite" => {
                let bytes = arg(3).repeat(arg(4).parse().unwrap_or(1));
                Ok(rustix::io::pwrite(self.fd(arg(1))?, bytes.as_bytes(), number(arg(2)))?.to_string())
            }
            "write" => Ok(rustix::io::write(self.fd(arg(1))?, arg(2).as_bytes())?.to_string()),
            "pread" => {
                let mut buf = vec![0; number(arg(3)) as usize];
                let read = rustix::io::pread(self.fd(arg(1))?, &mut buf, number(arg(2)))?;
                Ok(format!("{read} {}", buf[..read.min(200)].escape_ascii()))
            }
            "ftruncate" => rustix::fs::ftruncate(self.fd(arg(1))?, number(arg(2))).map(ok),
            "fsync" => rustix::fs::fsync(self.fd(arg(1))?).map(ok),
            "seek" => {
                let at = number(arg(3));
                let to = match arg(2) {
                    "data" => rustix::fs::SeekFrom::Data(at),
                    "hole" => rustix::fs::SeekFrom::Hole(at),
                    _ => rustix::fs::SeekFrom::End(at.cast_signed()),
                };
                Ok(rustix::fs::seek(self.fd(arg(1))?, to)?.to_string())
            }
            "fallocate" => {
                let mode = arg(2).split('+').fold(FallocateFlags::empty(), |mode, part| match part {
                    "keep" => mode | FallocateFlags::KEEP_SIZE,
                    "punch" => mode | FallocateFlags::PUNCH_HOLE,
                    "zero" => mode | FallocateFlags::ZERO_RANGE,
                    "insert" => mode | FallocateFlags::INSERT_RANGE,
                    _ => mode,
                });
                rustix::fs::fallocate(self.fd(arg(1))?, mode, number(arg(3)), number(arg(4))).map(ok)
            }
            // copy FROM AT TO AT LEN
            "copy" => {
                let (mut from, mut to) = (number(arg(2)), number(arg(4)));
                let (source, target) = (self.fd(arg(1))?, self.fd(arg(3))?);
                let len = number(arg(5)) as usize;
                Ok(rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), len)?
                    .to_string())
            }
            "setx" => {
                let flags = match arg(4) {
                    "create" => XattrFlags::CREATE,
                    "replace" => XattrFlags::REPLACE,
                    "both" => XattrFlags::CREATE | XattrFlags::REPLACE,
                    _ => XattrFlags::empty(),
                };
                let value = arg(3).strip_prefix('@').map(|len| "v".repeat(len.parse().unwrap()));
                rustix::fs::lsetxattr(path, arg(2), value.as_deref().unwrap_or(arg(3)).as_bytes(), flags)
                    .map(ok)
            }
            "getx" => {
                let mut buf = vec![0; 70_000];
                let len = rustix::fs::lgetxattr(path, arg(2), &mut buf[..])?;
                Ok(format!("{len} {}", buf[..len.min(100)].escape_ascii()))
            }
            "delx" => rustix::fs::lremovexattr(path, arg(2)).map(ok),
            "listx" => {
                let mut buf = vec![0; 70_000];
                let len = rustix::fs::llistxattr(path, &mut buf[..])?;
                let text = String::from_utf8_lossy(&buf[..len]).into_owned();
                let mut names: Vec<&str> = text.split('\0').filter(|name| !name.is_empty()).collect();
                names.sort_unstable();
                Ok(names.join(" "))
            }
            // acl PATH access|default ENTRY,ENTRY…
            "acl" => {
                let name = format!("system.posix_acl_{}", arg(2));
                rustix::fs::setxattr(path, name, &acl(arg(3)), XattrFlags::empty()).map(ok)
            }
            "getacl" => {
                let mut buf = vec![0; 4096];
                let len = rustix::fs::getxattr(path, format!("system.posix_acl_{}", arg(2)), &mut buf[..])?;
                Ok(buf[..len].iter().map(|byte| format!("{byte:02x}")).collect())
            }
            // control FD NUMBER: the input words
            "control" => {
                let number = u32::from_str_radix(arg(2), 16).unwrap();
                let mut given = [0; 28];
                for (to, word) in given.chunks_exact_mut(4).zip(words.iter().skip(3)) {
                    to.copy_from_slice(&u32::from_str_radix(word, 16).unwrap().to_ne_bytes());
                }
                let got = control::call(self.fd(arg(1))?, number, given)?;
                let words: Vec<String> = got
                    .chunks_exact(4)
                    .filter_map(|word| Some(format!("{:x}", u32::from_ne_bytes(word.try_into().ok()?))))
                    .collect();
                Ok(words.join(" "))
            }
            "mark" => {
                let now = times(&self.stat(arg(1), false)?);
                self.times.insert(arg(1).to_owned(), now);
                std::thread::sleep(std::time::Duration::from_millis(12));
                Ok("ok".to_owned())
            }
            // The times that differ from the marked ones.
            "changed" => {
                let now = times(&self.stat(arg(1), false)?);
                let then = self.times.get(arg(1)).copied().unwrap_or(now);
                // Access times depend on the mount options.
                let names = ["atime", "mtime", "ctime"];
                let changed =
                    names.iter().zip(now.iter().zip(then)).skip(1).filter(|(_, (now, then))| *now != then);
                Ok(changed.map(|(name, _)| *name).collect::<Vec<_>>().join(" "))
            }
            other => panic!("no such call: {other}"),
        }
    }

    fn list(&self, path: &Path) -> Done {
        let fd = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(fd)? {
            let entry = entry?;
            names.push(format!("{}:{:?}", entry.file_name().to_string_lossy(), entry.file_type()));
        }
        names.sort();
        Ok(names.join(" "))
    }
}

/// An ACL in the kernel's form, from `u:7,u65501:6,g:5,g65510:4,m:7,o:0`.
fn acl(text: &str) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        let (who, perm) = entry.split_once(':').unwrap();
        let (kind, id) = who.split_at(1);
        let tag: u16 = match (kind, id.is_empty()) {
            ("u", true) => 1,
            ("u", false) => 2,
            ("g", true) => 4,
            ("g", false) => 8,
            ("m", _) => 16,
            _ => 32,
        };
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.parse::<u16>().unwrap().to_le_bytes());
        bytes.extend(id.parse().unwrap_or(u32::MAX).to_le_bytes());
    }
    bytes
}

fn times(stat: &Stat) -> [(i64, u64); 3] {
    [
        (stat.st_atime, stat.st_atime_nsec),
        (stat.st_mtime, stat.st_mtime_nsec),
        (stat.st_ctime, stat.st_ctime_nsec),
    ]
}

/// The attributes of a file that are the same on all file systems.
fn shown(stat: &Stat) -> String {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let size = if kind == FileType::Directory { 0 } else { stat.st_size };
    // Access times depend on the mount options.
    let old = |secs: i64| if secs < 1_000_000 { secs.to_string() } else { "new".to_owned() };
    format!(
        "{kind:?} {:o} links {} owner {}:{} size {size} device {:x} mtime {}",
        stat.st_mode & 0o7777,
        stat.st_nlink,
        stat.st_uid,
        stat.st_gid,
        stat.st_rdev,
        old(stat.st_mtime)
    )
}
