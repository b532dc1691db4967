//! `cenote tar` on the golden pools: the archive has every file, attribute and byte of the manifest. The
//! reader in this file is small and implements only the POSIX and GNU formats.
#![allow(clippy::disallowed_types)] // The tests write and read files of the host.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::cenote_support::{by_dataset, cenote, good, is_as_stored, keys, plain, run, target};
use testkit::{Entry, EntryKind, Fixture, sha256};

/// One member of an archive.
#[derive(Debug, Default)]
struct Member {
    name: Vec<u8>,
    flag: u8,
    mode: u32,
    uid: u32,
    gid: u32,
    mtime_ns: i64,
    size: u64,
    link: Vec<u8>,
    device: (u32, u32),
    xattrs: BTreeMap<String, Vec<u8>>,
    /// Ranges with data, in order.
    segments: Vec<(u64, u64)>,
    data: Vec<u8>,
}

fn octal(field: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(field);
    u64::from_str_radix(text.trim_matches(['\0', ' ']), 8).expect("octal digits")
}

fn text(field: &[u8]) -> Vec<u8> {
    field.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}

fn nanoseconds(decimal: &str) -> i64 {
    let (secs, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    let sign = if secs.starts_with('-') { -1 } else { 1 };
    let secs: i64 = secs.parse().expect("seconds");
    let nanos: i64 = format!("{fraction:0<9}").parse().expect("nanoseconds");
    secs * 1_000_000_000 + sign * nanos
}

fn records(mut bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|&byte| byte == b' ').expect("a length");
        let len: usize = std::str::from_utf8(&bytes[..space]).expect("digits").parse().expect("a length");
        let line = &bytes[space + 1..len - 1];
        assert_eq!(bytes[len - 1], b'\n');
        let equals = line.iter().position(|&byte| byte == b'=').expect("a value");
        all.insert(String::from_utf8_lossy(&line[..equals]).into_owned(), line[equals + 1..].to_vec());
        bytes = &bytes[len..];
    }
    all
}

/// Splits an archive into members; checks checksums and padding.
fn members(mut archive: &[u8]) -> Vec<Member> {
    let mut all = Vec::new();
    let mut pax: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    while archive[..512].iter().any(|&byte| byte != 0) {
        let (header, rest) = archive.split_at(512);
        let sum: u64 = header
            .iter()
            .enumerate()
            .map(|(i, &b)| if (148..156).contains(&i) { 32 } else { u64::from(b) })
            .sum();
        assert_eq!(octal(&header[148..156]), sum);
        assert_eq!(&header[257..265], b"ustar\x0000");
        let number = |key: &str, field| match pax.get(key) {
            Some(text) => String::from_utf8_lossy(text).parse().expect("a number"),
            None => octal(field),
        };
        let stored: u64 = number("size", &header[124..136]);
        let stored = stored as usize;
        let (data, after) = rest.split_at(stored);
        let padding = stored.next_multiple_of(512) - stored;
        assert!(after[..padding].iter().all(|&byte| byte == 0));
        archive = &after[padding..];
        if header[156] == b'x' {
            pax = records(data);
            continue;
        }
        let own = std::mem::take(&mut pax);
        all.push(member(header, &own, data));
    }
    assert!(archive.iter().all(|&byte| byte == 0), "nothing but zeros behind the end");
    all
}

fn member(header: &[u8], pax: &BTreeMap<String, Vec<u8>>, data: &[u8]) -> Member {
    let get = |key: &str| pax.get(key).cloned();
    let number = |key: &str, field: &[u8]| match pax.get(key) {
        Some(text) => String::from_utf8_lossy(text).parse().expect("a number"),
        None => octal(field),
    };
    let prefix = text(&header[345..500]);
    let short = text(&header[..100]);
    let whole = if prefix.is_empty() { short } else { [prefix, b"/".to_vec(), short].concat() };
    let mtime = get("mtime").map(|text| nanoseconds(&String::from_utf8_lossy(&text)));
    let mut member = Member {
        name: get("GNU.sparse.name").or(get("path")).unwrap_or(whole),
        flag: header[156],
        mode: octal(&header[100..108]) as u32,
        uid: number("uid", &header[108..116]) as u32,
        gid: number("gid", &header[116..124]) as u32,
        mtime_ns: mtime.unwrap_or(octal(&header[136..148]) as i64 * 1_000_000_000),
        link: get("linkpath").unwrap_or(text(&header[157..257])),
        device: (octal(&header[329..337]) as u32, octal(&header[337..345]) as u32),
        size: data.len() as u64,
        ..Member::default()
    };
    for (key, value) in pax {
        if let Some(name) = key.strip_prefix("SCHILY.xattr.") {
            member.xattrs.insert(name.replace("%3D", "=").replace("%25", "%"), value.clone());
        }
    }
    if get("GNU.sparse.major").is_some() {
        member.size = number("GNU.sparse.realsize", b"");
        let mut lines = data.split(|&byte| byte == b'\n');
        let mut next =
            || -> u64 { String::from_utf8_lossy(lines.next().expect("a line")).parse().expect("a number") };
        let count = next();
        let map: Vec<(u64, u64)> = (0..count).map(|_| (next(), next())).collect();
        let text: usize = 1
            + count.to_string().len()
            + map.iter().map(|(a, b)| a.to_string().len() + b.to_string().len() + 2).sum::<usize>();
        member.data = data[text.next_multiple_of(512)..].to_vec();
        member.segments = map.into_iter().filter(|(_, len)| *len > 0).collect();
        assert_eq!(member.data.len() as u64, member.segments.iter().map(|(_, len)| len).sum::<u64>());
    } else {
        member.data = data.to_vec();
        member.segments = if data.is_empty() { Vec::new() } else { vec![(0, data.len() as u64)] };
    }
    member
}

impl Member {
    /// Checksum in the form of the manifest: of the data segments for huge files, else of the whole file.
    fn sha256(&self, of_segments: bool) -> String {
        if of_segments {
            return sha256(&self.data);
        }
        let mut whole = vec![0u8; self.size as usize];
        let mut at = 0;
        for &(offset, len) in &self.segments {
            whole[offset as usize..(offset + len) as usize]
                .copy_from_slice(&self.data[at..at + len as usize]);
            at += len as usize;
        }
        sha256(&whole)
    }
}

fn compare(found: &Member, wanted: &Entry, firsts: &BTreeMap<Vec<u8>, &Member>) {
    let what = format!("{} {}", wanted.ds, wanted.path_lossy());
    assert_eq!((found.mode, found.uid, found.gid), (wanted.mode, wanted.uid, wanted.gid), "{what}");
    assert_eq!(found.mtime_ns, wanted.mtime_ns, "{what}");
    let content = if found.flag == b'1' { firsts[&found.link] } else { found };
    assert_eq!(content.xattrs, wanted.xattr, "{what}");
    let flag = match wanted.kind {
        EntryKind::File => b'0',
        EntryKind::Directory => b'5',
        EntryKind::Link => b'2',
        EntryKind::Char => b'3',
        EntryKind::Block => b'4',
        EntryKind::Pipe | EntryKind::Socket => b'6',
    };
    assert_eq!(content.flag, flag, "{what}");
    match wanted.kind {
        EntryKind::File => {
            assert_eq!(content.size, wanted.size, "{what}");
            if let Some(segs) = &wanted.segs {
                assert_eq!(&content.segments, segs, "{what}");
            }
            if let Some(hash) = &wanted.sha256 {
                assert_eq!(&content.sha256(wanted.hashes_segments()), hash, "{what}");
            }
        }
        EntryKind::Link => assert_eq!(Some(&content.link), wanted.target.as_ref(), "{what}"),
        EntryKind::Char | EntryKind::Block => assert_eq!(Some(content.device), wanted.rdev, "{what}"),
        EntryKind::Directory | EntryKind::Pipe | EntryKind::Socket => {}
    }
}

/// Archives every file system and snapshot of a fixture and compares all of it.
fn check(name: &str) {
    let fixture = Fixture::open(name);
    assert!(is_as_stored(&fixture));
    let (_folder, keys) = keys(&fixture);
    for (dataset, entries) in by_dataset(&fixture) {
        let (code, archive, err) = run(cenote(fixture.dir(), "tar").args(&keys).arg(target(&dataset, b".")));
        let unreadable = entries.iter().filter(|entry| entry.read_errno.is_some()).count();
        assert_eq!(code, i32::from(unreadable > 0), "{dataset}: {err}");
        let only_sockets = err.lines().all(|line| line.contains("a socket"));
        assert!(unreadable > 0 || only_sockets, "{err}");
        let found = members(&archive);
        let by_name: BTreeMap<Vec<u8>, &Member> =
            found.iter().map(|member| (plain(&member.name), member)).collect();
        assert_eq!(by_name.len(), found.len(), "{dataset}: no name twice");
        let mut wanted = 0;
        for entry in &entries {
            if entry.kind == EntryKind::Socket || entry.read_errno.is_some() {
                assert!(!by_name.contains_key(&entry.path));
                continue;
            }
            wanted += 1;
            let found =
                by_name.get(&entry.path).unwrap_or_else(|| panic!("{dataset}: {}", entry.path_lossy()));
            compare(found, entry, &by_name);
        }
        assert_eq!(found.len(), wanted, "{dataset}: nothing else");
        assert_linked(&entries, &by_name);
    }
}

/// Checks that further names of a file are links to its first name.
fn assert_linked(entries: &[Entry], members: &BTreeMap<Vec<u8>, &Member>) {
    let inode: BTreeMap<&[u8], u64> =
        entries.iter().filter_map(|entry| Some((entry.path.as_slice(), entry.ino?))).collect();
    let mut contents: BTreeMap<u64, usize> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.kind != EntryKind::Directory) {
        let (Some(ino), Some(member)) = (entry.ino, members.get(&entry.path)) else { continue };
        if member.flag == b'1' {
            assert_eq!(inode.get(member.link.as_slice()), Some(&ino), "{}", entry.path_lossy());
        } else {
            *contents.entry(ino).or_default() += 1;
        }
    }
    assert!(contents.values().all(|&times| times == 1), "each file is stored once");
}

macro_rules! archives {
    ($($test:ident = $fixture:literal;)*) => { $(#[test] fn $test() { check($fixture); })* };
}

archives! {
    one_disk = "single";
    snapshots_and_clones = "snapshots";
    sparse_files = "holes";
    access_control_lists = "posixacl";
    attributes_of_all_sizes = "dnodes";
    names_that_are_no_text = "names";
    names_of_1023_bytes = "longname";
    a_deep_tree = "deeptree";
    encrypted_with_keys = "encryption";
    a_lost_block = "lost-block";
    two_disks_missing = "missing-disk";
    old_pools = "version1";
}

/// Pipes an archive into the host's tar.
fn host_tar(args: &[&str], archive: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut tar =
        Command::new("tar").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("tar");
    let mut input = tar.stdin.take().expect("a pipe");
    let archive = archive.to_vec();
    let feed = std::thread::spawn(move || input.write_all(&archive));
    let output = tar.wait_with_output().expect("tar ends");
    let _ = feed.join();
    assert!(output.status.success());
    output.stdout
}

#[test]
fn the_hosts_tar_lists_and_extracts_it() {
    let fixture = Fixture::open("single");
    let archive = good(cenote(fixture.dir(), "tar").arg("t_single/fs:/holes").arg("t_single/fs:/README.txt"));
    let listing = String::from_utf8(host_tar(&["-tf", "-"], &archive)).expect("text");
    let mut names: Vec<&str> = listing.lines().collect();
    names.sort_unstable();
    let mut wanted: Vec<String> = fixture
        .entries()
        .filter(|entry| entry.ds == "t_single/fs")
        .map(|entry| entry.path_lossy())
        .filter(|path| path.starts_with("holes/") || path == "README.txt")
        .collect();
    wanted.push("holes/".to_owned());
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    let entry =
        fixture.entries().find(|e| e.ds == "t_single/fs" && e.path == b"holes/comb").expect("the comb");
    assert_eq!(Some(sha256(&host_tar(&["-xOf", "-", "holes/comb"], &archive))), entry.sha256);
    let plain = good(cenote(fixture.dir(), "tar").args(["--no-sparse", "t_single/fs:/holes/comb"]));
    let zeros = members(&plain);
    assert_eq!(zeros[0].segments, [(0, entry.size)]);
    assert_eq!(Some(zeros[0].sha256(false)), entry.sha256);
}

#[test]
fn what_is_lost_is_left_out_or_zeros() {
    let fixture = Fixture::open("lost-block");
    let (code, archive, err) = run(cenote(fixture.dir(), "tar").arg("t_lost_block/marked:/victim"));
    assert_eq!(code, 1);
    assert!(
        err.contains(
            "t_lost_block/marked:/victim: 131072 bytes cannot be read (bytes 131072-262143), left out"
        ),
        "{err}"
    );
    assert!(members(&archive).is_empty());
    let (code, archive, err) =
        run(cenote(fixture.dir(), "tar").args(["--partial", "t_lost_block/marked:/victim"]));
    assert_eq!(code, 1);
    assert!(err.contains("zeros in their place"), "{err}");
    let victim = &members(&archive)[0];
    assert_eq!(victim.size, 307_200);
    assert!(victim.data[131_072..262_144].iter().all(|&byte| byte == 0));
    assert!(victim.data[..131_072].iter().any(|&byte| byte != 0));
}

#[test]
fn child_file_systems_when_asked_for() {
    let fixture = Fixture::open("snapshots");
    let (code, archive, err) = run(cenote(fixture.dir(), "tar").args(["--children", "t_snapshots"]));
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("t_snapshots:/fs/sock: a socket"), "{err}");
    let names: Vec<Vec<u8>> = members(&archive).iter().map(|member| plain(&member.name)).collect();
    let all = by_dataset(&fixture);
    for entry in all
        .get("t_snapshots/fs")
        .into_iter()
        .flatten()
        .filter(|e| e.path != b"." && e.kind != EntryKind::Socket)
    {
        let path = [b"fs/", entry.path.as_slice()].concat();
        assert!(names.contains(&path), "{}", entry.path_lossy());
    }
}
