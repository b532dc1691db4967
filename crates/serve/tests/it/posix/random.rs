//! Random lines of calls from a seed, for cases that the tables do not have.

/// A reproducible generator of random numbers.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn of<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len() as u64) as usize]
    }
}

const NAMES: [&str; 16] = [
    "a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/f", "g", "g/a", "g/d", "l", "l/a", "a/x", "g/d/b",
];
const MODES: [&str; 10] = ["644", "755", "777", "1777", "2775", "700", "0", "6755", "4711", "555"];

/// A random line; the names in it may exist or not.
pub(crate) fn line(chance: &mut Chance) -> String {
    let who = chance.of(&["", "", "a: ", "b: ", "c: "]);
    let (one, two, mode) = (chance.of(&NAMES), chance.of(&NAMES), chance.of(&MODES));
    let id = chance.of(&["-", "0", "65501", "65502", "65510"]);
    let gid = chance.of(&["-", "0", "65501", "65502", "65510"]);
    let open = chance.of(&["x", "y", "z"]);
    let at = chance.of(&["0", "1", "500", "4095", "5000", "131072"]);
    let len = chance.of(&["0", "1", "100", "4096", "9000"]);
    let flags = chance.of(&[
        "r",
        "w",
        "rw",
        "w+trunc",
        "w+append",
        "rw+creat",
        "w+creat+excl",
        "r+dir",
        "rw+nofollow",
    ]);
    let call = match chance.below(27) {
        0 | 1 => format!("mkdir {one} {mode}"),
        2 => format!("rmdir {one}"),
        3 => format!("make {one} {mode}"),
        4 | 5 => format!("unlink {one}"),
        6 | 7 => format!("rename {one} {two}"),
        8 => format!("rename {one} {two} {}", chance.of(&["noreplace", "exchange"])),
        9 => format!("link {one} {two}"),
        10 => format!("symlink {} {two}", chance.of(&["a", "d", "../a", "d/e", "none", "l"])),
        11 => format!("chmod {one} {mode}"),
        12 => format!("chown {one} {id} {gid}"),
        13 => format!("lchown {one} {id} {gid}"),
        14 => format!("truncate {one} {len}"),
        15 | 16 => format!("open {open} {one} {flags}+nonblock {mode}"),
        17 => format!("pwrite {open} {at} abc {}", chance.of(&["1", "50", "3000"])),
        18 => format!("pread {open} {at} 200"),
        19 => format!("close {open}"),
        20 => {
            format!("utimes {one} {} {}", chance.of(&["3", "now", "omit"]), chance.of(&["4", "now", "omit"]))
        }
        21 => format!("access {one} {}", chance.of(&["r", "w", "x", "rw", "rwx"])),
        22 => {
            format!("setx {one} user.{} v{}", chance.of(&["a", "b"]), chance.of(&["", " create", " replace"]))
        }
        23 => format!("delx {one} user.{}", chance.of(&["a", "b"])),
        24 => format!("fifo {one} {mode}"),
        25 => format!(
            "acl {one} {} u:7,u65501:{},g:{},m:7,o:{}",
            chance.of(&["access", "default"]),
            chance.below(8),
            chance.below(8),
            chance.below(8)
        ),
        _ => format!("list {one}"),
    };
    format!("{who}{call}")
}

/// Lines that show the state of all names.
pub(crate) fn state() -> Vec<String> {
    NAMES
        .iter()
        .flat_map(|name| [format!("lstat {name}"), format!("listx {name}"), format!("getacl {name} access")])
        .collect()
}
