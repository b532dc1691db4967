//! Archives of GNU tar, of Cenote's own writer, and hostile ones.
#![allow(clippy::disallowed_types)] // it makes files

use std::io::Write;
use std::process::Command;

use super::pax::{parse_acl, parse_time};
use super::*;
use crate::copy::meta::Stamp;

fn read_all(archive: &[u8]) -> Result<Vec<(Member, Vec<u8>)>, TarError> {
    let mut reader = TarReader::new(archive);
    let mut all = Vec::new();
    while let Some(member) = reader.next()? {
        let mut data = Vec::new();
        let mut buf = [0; 700];
        loop {
            match reader.read_data(&mut buf)? {
                0 => break,
                n => data.extend_from_slice(&buf[..n]),
            }
        }
        all.push((member, data));
    }
    Ok(all)
}

/// A directory with every kind of file.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("d")).unwrap();
    std::fs::write(path("d/plain"), vec![7; 1000]).unwrap();
    std::fs::hard_link(path("d/plain"), path("d/same")).unwrap();
    std::os::unix::fs::symlink("t".repeat(150), path("link")).unwrap();
    std::fs::write(path(&"n".repeat(200)), b"long").unwrap();
    let holes = std::fs::File::create(path("holes")).unwrap();
    use std::os::unix::fs::FileExt;
    for i in 1..40 {
        holes.write_all_at(&[i as u8; 100], i * 65536).unwrap();
    }
    holes.set_len(41 * 65536).unwrap();
    dir
}

#[test]
fn archives_of_gnu_tar_in_all_formats() {
    let dir = folder();
    for format in [
        &["--format=gnu"][..],
        &["--format=pax"],
        &["--format=pax", "--sparse-version=0.0"],
        &["--format=pax", "--sparse-version=0.1"],
        &["--format=gnu", "--no-recursion"],
    ] {
        let mut tar = Command::new("tar");
        tar.args(format).args(["-S", "-c", "-f", "-", "-C"]).arg(dir.path()).arg(".");
        let out = tar.output().unwrap();
        assert!(out.status.success());
        let all = read_all(&out.stdout).unwrap();
        if format.contains(&"--no-recursion") {
            assert_eq!(all.len(), 1);
            continue;
        }
        let get = |name: &str| all.iter().find(|(member, _)| member.name == name.as_bytes()).unwrap();
        assert_eq!(all.len(), 7, "{format:?}");
        assert_eq!(get("./d/").0.meta.kind, Kind::Directory);
        let (names, linked): (Vec<_>, Vec<_>) = all
            .iter()
            .filter(|(m, _)| m.name.starts_with(b"./d/") && m.name.len() > 4)
            .partition(|(m, _)| m.entry == Entry::File);
        assert_eq!(names[0].1, vec![7; 1000]);
        assert_eq!(linked[0].0.entry, Entry::HardLink(names[0].0.name.clone()));
        assert_eq!(get("./link").0.entry, Entry::Symlink(vec![b't'; 150]));
        assert_eq!(get(&format!("./{}", "n".repeat(200))).1, b"long");
        let (holes, data) = get("./holes");
        assert_eq!(holes.meta.size, 41 * 65536);
        // The file system's block size determines how much of a range is data.
        assert!(holes.segments.len() == 39, "{format:?}: {:?}", holes.segments);
        let mut at = 0;
        for (i, segment) in (1u8..).zip(&holes.segments) {
            let bytes = &data[at..at + segment.len as usize];
            let from = (u64::from(i) * 65536 - segment.offset) as usize;
            assert!(bytes[from..from + 100].iter().all(|byte| *byte == i));
            at += segment.len as usize;
        }
    }
}

#[test]
fn old_archives() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), b"abc").unwrap();
    for format in ["v7", "ustar", "oldgnu"] {
        let mut tar = Command::new("tar");
        tar.args([&format!("--format={format}"), "-c", "-f", "-", "-C"]).arg(dir.path()).arg("a");
        let all = read_all(&tar.output().unwrap().stdout).unwrap();
        assert_eq!((all[0].0.name.as_slice(), all[0].1.as_slice()), (&b"a"[..], &b"abc"[..]));
    }
}

#[test]
fn what_our_writer_wrote() {
    use crate::copy::meta::segments;
    use crate::copy::meta::tests::Bytes;
    use crate::copy::tar::{Body, TarWriter};
    let meta = Meta {
        kind: Kind::Regular,
        perm: 0o4751,
        uid: 12,
        gid: 4_000_000_000,
        size: 0,
        atime: Stamp { secs: -2, nanos: 800_000_000 },
        mtime: Stamp { secs: 1_700_000_000, nanos: 123_456_789 },
        ctime: Stamp { secs: 7, nanos: 0 },
        rdev: (5, 1),
        xattrs: vec![(b"user.a=b".to_vec(), vec![0, 10, 255])],
        aces: Vec::new(),
    };
    let mut data = vec![0; 100_000];
    data[5000] = 1;
    let content = Bytes::new(data);
    let map = segments(&content).unwrap();
    let mut tar = TarWriter::new(Vec::new(), true);
    tar.member(b"f", &meta, &Body::Data { content: &content, segments: &map }).unwrap();
    let device = Meta { kind: Kind::CharDevice, ..meta.clone() };
    tar.member(b"c", &device, &Body::None).unwrap();
    let all = read_all(&tar.finish().unwrap()).unwrap();
    assert_eq!(all[0].0.meta, Meta { size: 100_000, ..meta.clone() });
    assert_eq!(all[0].0.segments, map);
    assert_eq!((all[0].1.len(), all[0].1[5000 - map[0].offset as usize]), (512, 1));
    assert_eq!(all[1].0.meta, device);
}

#[test]
fn what_is_no_archive() {
    assert!(matches!(read_all(b""), Err(TarError::NotAnArchive)));
    assert!(matches!(read_all(b"hello"), Err(TarError::NotAnArchive)));
    assert!(matches!(read_all(&[b'x'; 2000]), Err(TarError::NotAnArchive)));
    let gz = [&[0x1F, 0x8B][..], &[0; 600]].concat();
    assert!(matches!(read_all(&gz), Err(TarError::Compressed("gzip"))));
    assert!(read_all(&[0; 1024]).unwrap().is_empty());
}

/// An archive with every kind of header, to be damaged.
fn rich() -> Vec<u8> {
    let dir = folder();
    let tar = |args: &[&str]| {
        Command::new("tar")
            .args(args)
            .args(["-S", "-c", "-f", "-", "-C"])
            .arg(dir.path())
            .arg(".")
            .output()
            .unwrap()
            .stdout
    };
    [tar(&["--format=gnu"]), tar(&["--format=pax"])].concat()
}

/// A header with type `flag`, followed by these bytes.
fn header(flag: u8, name: &[u8], data: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name);
    for (at, text) in [(100, "0000644\0"), (108, "0000000\0"), (116, "0000000\0"), (136, "00000000000\0")] {
        block[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    block[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    block[156] = flag;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend_from_slice(data);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

/// All extended headers together may have 64 MiB of records, as one header may.
#[test]
fn many_extended_headers_take_no_more_memory_than_one() {
    let records = |from: usize| -> Vec<u8> {
        (from..from + 20_000).flat_map(|i| format!("15 k{i:08}=v\n").into_bytes()).collect()
    };
    for flag in [b'x', b'g'] {
        let few: Vec<u8> = (0..3).flat_map(|i| header(flag, b"h", &records(i * 20_000))).collect();
        let few = [few, header(b'0', b"f", b"")].concat();
        assert_eq!(read_all(&few).unwrap().len(), 1);
        let many: Vec<u8> = (0..4).flat_map(|i| header(flag, b"h", &records(i * 20_000))).collect();
        assert!(matches!(read_all(&many), Err(TarError::Header { .. })));
    }
    // A repeated record counts once.
    let same: Vec<u8> = (0..9).flat_map(|_| header(b'g', b"h", &records(0))).collect();
    assert_eq!(read_all(&[same, header(b'0', b"f", b"")].concat()).unwrap().len(), 1);
}

/// GNU tar writes names of users into ACL records; the extended attribute has their ids.
#[test]
fn an_acl_in_names_is_no_loss_beside_the_attribute() {
    let text = b"42 SCHILY.acl.access=user::rw-,user:lp:r\n";
    assert_eq!(text.len(), 41);
    let text = [&b"41"[..], &text[2..]].concat();
    let member = header(b'0', b"f", b"");
    let alone = [header(b'x', b"h", &text), member.clone()].concat();
    assert_eq!(read_all(&alone).unwrap()[0].0.ignored, ["SCHILY.acl.access"]);
    let attribute = b"45 SCHILY.xattr.system.posix_acl_access=\x02\0\0\0\n";
    assert_eq!(attribute.len(), 45);
    let both = [header(b'x', b"h", &[&text[..], attribute].concat()), member].concat();
    assert!(read_all(&both).unwrap()[0].0.ignored.is_empty());
}

#[test]
fn truncated_anywhere_it_ends_with_an_error_or_early() {
    let archive = rich();
    for cut in (0..archive.len()).step_by(97) {
        let _ = read_all(&archive[..cut]);
    }
    assert!(matches!(read_all(&archive[..1700]), Err(TarError::Truncated { .. })));
}

#[test]
fn damaged_headers_are_errors() {
    let archive = rich();
    let mut random = vdev::env::Random::from_seed(5);
    for _ in 0..400 {
        let mut bad = archive.clone();
        for _ in 0..4 {
            let block = random.below(bad.len() as u64 / 512) as usize * 512;
            let at = block + random.below(512) as usize;
            bad[at] = random.next() as u8;
            // The checksum is corrected, so that the fields are decoded.
            bad[block + 148..block + 156].fill(b' ');
            let sum: u32 = bad[block..block + 512].iter().map(|byte| u32::from(*byte)).sum();
            let mut text = Vec::new();
            write!(text, "{sum:06o}\0 ").unwrap();
            bad[block + 148..block + 156].copy_from_slice(&text);
        }
        let _ = read_all(&bad);
    }
}

#[test]
fn times_and_lists() {
    let time = |secs, nanos| Some(Stamp { secs, nanos });
    assert_eq!(parse_time("1.5"), time(1, 500_000_000));
    assert_eq!(parse_time("-1.2"), time(-2, 800_000_000));
    assert_eq!(parse_time("-0.000000001"), time(-1, 999_999_999));
    assert_eq!(parse_time("7.1234567891"), time(7, 123_456_789));
    assert_eq!(parse_time("--7"), None);
    assert_eq!(parse_time("1e5"), None);
    let acl = parse_acl("user::rwx,group::r-x,user:joe:rw-:1000,mask::rwx,group:7:--x,other::---").unwrap();
    assert_eq!(acl[1].who, format::acl::PosixWho::User(1000));
    assert_eq!(acl[3].who, format::acl::PosixWho::Group(7));
    assert_eq!(parse_acl("user:joe:rwx"), None);
    assert_eq!(parse_acl("nonsense"), None);
}

#[test]
fn names_stay_below() {
    assert_eq!(clean_name(b"./a//b/./c/"), Some(vec![&b"a"[..], b"b", b"c"]));
    assert_eq!(clean_name(b"/etc/passwd"), Some(vec![&b"etc"[..], b"passwd"]));
    assert_eq!(clean_name(b"a/../../b"), None);
    assert_eq!(clean_name(b"./"), Some(vec![]));
}
