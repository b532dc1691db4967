//! Random work on a file system, as lines for a shell: operations of `tools.sh`.

use super::Random;
use std::fmt::Write;

/// Lengths of writes, around the sizes of sectors, blocks and embedded data.
const LENGTHS: [u64; 14] =
    [1, 20, 100, 112, 511, 512, 3000, 4096, 40_000, 131_071, 131_072, 131_073, 300_000, 1_500_000];
/// Lengths of values of extended attributes.
const VALUES: [u64; 7] = [0, 1, 30, 200, 900, 5000, 30_000];
/// Entries of access control lists.
const ACL_ENTRIES: [&str; 4] = ["u:1001:rw", "g:1002:r-x", "u:1003:---", "m::rwx"];

/// Lines that do `count` operations in the present directory.
pub(super) fn files(random: &mut Random, count: u64) -> String {
    let mut lines = String::new();
    for _ in 0..count {
        let _ = writeln!(lines, "op {}", operation(random));
    }
    lines
}

/// One operation on files.
fn operation(random: &mut Random) -> String {
    let r = random;
    let (k, l, name) = (r.below(1000), r.below(1000), r.below(60));
    let length = r.of(&LENGTHS);
    let from = r.below(16 << 20);
    let kind = if r.one_in(4) { "d" } else { "f" };
    match r.below(40) {
        0..=6 => format!("create {k} f{name} {length} {from}"),
        7 => format!("create {k} 'a name of a good length, with ümlaut {name}' {length} {from}"),
        8 => format!("sparse {k} s{name} {} {from}", r.below(1 << 24)),
        9..=11 => format!("patch {k} {} {length} {from}", r.below(400_000)),
        12 => format!("patch {k} {} {length} {from}", r.below(8) * 131_072),
        13 => format!("append {k} {length} {from}"),
        14 => format!("zeros {k} {} {}", r.below(100), 1 + r.below(80)),
        15 => format!("punch {k} {} {}", r.below(300_000), 1 + r.below(400_000)),
        16 | 17 => {
            let size = if r.one_in(3) { 0 } else { r.below(600_000) };
            format!("cut_at {k} {size}")
        }
        18 | 19 => format!("make_dir {k} d{}/e{}", name % 12, r.below(4)),
        20 | 21 => format!("move {k} {l} f{name}"),
        22 => format!("over {k} {l}"),
        23 => format!("move_dir {k} {l} d{name}"),
        24 | 25 => format!("drop f {k}"),
        26 if r.one_in(3) => format!("drop d {k}"),
        26 => format!("drop l {k}"),
        27 | 28 => format!("hard {k} {l} h{name}"),
        29 => format!("soft {k} l{name} {}", r.of(&[5, 60, 150, 200, 1000, 4000])),
        30 => format!("special {k} p{name} '{}'", r.of(&["p", "c 1 3", "b 7 200"])),
        31..=33 => format!("attr {kind} {k} a{} {} {from}", r.below(5), r.of(&VALUES)),
        34 => format!("no_attr {kind} {k} a{}", r.below(5)),
        35 if kind == "d" && r.one_in(2) => format!("acl d {k} d:{}", r.of(&ACL_ENTRIES)),
        35 => format!("acl {kind} {k} {}", r.of(&ACL_ENTRIES)),
        36 => format!("mode {kind} {k} {:o}", r.of(&[0o644, 0o755, 0o4711, 0o1777, 0o2750, 0o400])),
        37 => format!("owner {kind} {k} {}:{}", 1000 + r.below(5), 1000 + r.below(3)),
        38 if r.one_in(2) => format!("project {kind} {k} {}", r.of(&[0, 7, 70_000])),
        38 => format!("times {kind} {k} {}.{:09}", r.below(1 << 34), r.below(1_000_000_000)),
        _ if r.one_in(2) => format!("many {k} n{} {}", r.below(3), 10 + r.below(90)),
        _ => format!("few {k} n{} {}", r.below(3), r.of(&["0-4", "3-9", "0-9"])),
    }
}

/// Properties of a new dataset, as options of `zfs create`; `is_volume`: those that a volume has.
pub(super) fn settings(random: &mut Random, is_volume: bool) -> String {
    let r = random;
    let mut options = format!(
        "-o compression={} -o checksum={} -o copies={}",
        r.of(&["off", "on", "lz4", "lzjb", "zle", "gzip-6", "zstd"]),
        r.of(&["on", "fletcher2", "sha512", "edonr", "skein"]),
        r.of(&["1", "1", "2"]),
    );
    if is_volume {
        return options;
    }
    let _ = write!(
        options,
        " -o acltype=posix -o atime=off -o dnodesize={} -o xattr={}",
        r.of(&["legacy", "auto", "1k", "8k"]),
        r.of(&["sa", "dir"]),
    );
    for name in ["normalization=formD", "casesensitivity=insensitive", "utf8only=on"] {
        if r.one_in(4) {
            let _ = write!(options, " -o {name}");
        }
    }
    options
}

/// A change of a property that decides how files are written.
pub(super) fn property(random: &mut Random, is_large: bool) -> String {
    let r = random;
    match r.below(9) {
        0 | 1 => {
            let small = ["512", "1k", "4k", "8k", "32k", "128k"];
            let size = if is_large { r.of(&["4k", "128k", "256k", "1m"]) } else { r.of(&small) };
            format!("recordsize={size}")
        }
        2 | 3 => {
            let kinds =
                ["off", "on", "lz4", "lzjb", "zle", "gzip-1", "gzip-9", "zstd", "zstd-19", "zstd-fast-10"];
            format!("compression={}", r.of(&kinds))
        }
        4 | 5 => format!("dnodesize={}", r.of(&["legacy", "auto", "1k", "2k", "4k", "16k"])),
        6 => format!("xattr={}", r.of(&["sa", "dir"])),
        7 => format!("checksum={}", r.of(&["on", "fletcher2", "sha256", "sha512", "skein", "blake3"])),
        _ => {
            let whose = r.of(&["userquota", "groupquota", "userobjquota", "projectquota"]);
            format!("{whose}@{}={}", 1000 + r.below(5), r.of(&["none", "700m", "900m"]))
        }
    }
}

/// Flags of `zfs send` that change how blocks travel.
pub(super) fn block_flags(random: &mut Random, is_large: bool) -> &'static str {
    match is_large {
        true => random.of(&["-L", "-Lec", "-Lc", "-Le", "-w"]),
        false => random.of(&["", "-L", "-e", "-c", "-Lec", "-ec", "-w"]),
    }
}
