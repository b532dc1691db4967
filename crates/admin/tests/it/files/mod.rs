//! Files and trees written into pools through the library, read back after the pool was closed.
#![allow(clippy::disallowed_types)] // Images and the host's files.

mod clones;
mod properties;
mod received;
mod reshape;
mod support;
mod twice;

use std::process::Command;

use cenote::copy::TarReader;
use cenote::copy::import::{HostSource, Options, import, unpack};
use cenote::files::{FilesystemWriter, NewAttrs, XattrHow};
use cenote_admin::served::ServedFilesystem;
use support::{Image, Told, describe, live, rich};

const SIZE: u64 = 512 << 20;

fn copy_in(fs: &FilesystemWriter, from: &std::path::Path, to: &[u8]) -> Vec<String> {
    let mut told = Told::default();
    let top = fs.resolve(to).unwrap();
    let source = HostSource::open(from, false).unwrap();
    let options = Options { threads: 3, ..Options::default() };
    import(fs, &options, &mut told, |importer| {
        let top = importer.top(top, to).unwrap();
        importer.copy_host(&source, &top, None, to);
    });
    told.0
}

#[test]
fn a_tree_goes_in_and_comes_out_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    rich(folder.path());
    let (image, writer) = Image::new(SIZE, &[("compression", 15), ("xattr", 2)]);
    let fs = FilesystemWriter::open(live(&writer), "p").unwrap();
    assert_eq!(copy_in(&fs, folder.path(), b"/"), [""; 0]);
    // Sparse files stay sparse.
    let sparse = fs.open_file(b"/sparse").unwrap();
    assert_eq!(sparse.len(), 40 << 20);
    assert!(sparse.next_data(0).unwrap().is_some_and(|at| at >= 8 << 20));
    drop((sparse, fs));
    writer.close().unwrap();
    let before = describe(folder.path());
    let after = image.contents();
    for (name, text) in &before {
        assert_eq!(after.get(name), Some(text), "{}", name.display());
    }
    assert_eq!(before.len(), after.len());
    image.judge();
}

#[test]
fn a_second_copy_replaces_the_first() {
    let folder = tempfile::tempdir().unwrap();
    rich(folder.path());
    let (image, writer) = Image::new(SIZE, &[("xattr", 2)]);
    let fs = FilesystemWriter::open(live(&writer), "p").unwrap();
    assert_eq!(copy_in(&fs, folder.path(), b"/"), [""; 0]);
    std::fs::write(folder.path().join("a/small"), b"changed").unwrap();
    assert_eq!(copy_in(&fs, folder.path(), b"/"), [""; 0]);
    drop(fs);
    writer.close().unwrap();
    let (before, after) = (describe(folder.path()), image.contents());
    for (name, text) in &before {
        assert_eq!(after.get(name), Some(text), "{}", name.display());
    }
    assert_eq!(before.len(), after.len());
    image.judge();
}

#[test]
fn archives_of_the_hosts_tar() {
    let folder = tempfile::tempdir().unwrap();
    rich(folder.path());
    for format in ["gnu", "pax"] {
        let (image, writer) = Image::new(SIZE, &[("xattr", 2)]);
        let fs = FilesystemWriter::open(live(&writer), "p").unwrap();
        let mut tar = Command::new("tar");
        tar.args(["-S", "-c", "-f", "-", &format!("--format={format}")]);
        if format == "pax" {
            tar.args(["--xattrs", "--acls"]);
        }
        let archive = tar.arg("-C").arg(folder.path()).arg(".").output().unwrap().stdout;
        let mut told = Told::default();
        let (result, summary) = import(&fs, &Options::default(), &mut told, |importer| {
            let top = importer.top(fs.fs().root(), b"").unwrap();
            unpack(importer, &top, b"", &mut TarReader::new(&archive[..]), &|_| true)
        });
        result.unwrap();
        assert_eq!((told.0.as_slice(), summary.failures), (&[][..] as &[String], 0));
        drop(fs);
        writer.close().unwrap();
        let (mut before, mut after) = (describe(folder.path()), image.contents());
        if format == "gnu" {
            // GNU's own format has times in whole seconds and no extended attributes.
            for text in before.values_mut().chain(after.values_mut()) {
                let (head, rest) = text.split_once('.').unwrap_or(("", ""));
                let rest = rest.split_once(' ').map_or("", |(_, rest)| rest);
                *text = format!("{head} {}", rest.split('[').next().unwrap());
            }
        }
        for (name, text) in &before {
            assert_eq!(after.get(name), Some(text), "{format}: {}", name.display());
        }
        image.judge();
    }
}

/// With `keep_existing` a file is kept even if the archive has a directory of that name.
#[test]
fn what_is_kept_is_kept_from_directories() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("name/below")).unwrap();
    let archive = Command::new("tar").args(["-c", "-C"]).arg(folder.path()).arg("name").output().unwrap();
    let (_image, writer) = Image::new(SIZE, &[]);
    let fs = FilesystemWriter::open(live(&writer), "p").unwrap();
    fs.write(b"/name", b"precious").unwrap();
    for (keep_existing, is_kept) in [(true, true), (false, false)] {
        let options = Options { keep_existing, ..Options::default() };
        let mut told = Told::default();
        let (result, _) = import(&fs, &options, &mut told, |importer| {
            let top = importer.top(fs.fs().root(), b"").unwrap();
            unpack(importer, &top, b"", &mut TarReader::new(&archive.stdout[..]), &|_| true)
        });
        result.unwrap();
        assert_eq!(fs.read(b"/name").is_ok_and(|content| content == b"precious"), is_kept);
        assert_eq!(told.0.is_empty(), !is_kept, "{:?}", told.0);
    }
    assert!(fs.resolve(b"/name/below").is_ok());
}

#[test]
fn hostile_archives_stay_below() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("in")).unwrap();
    std::fs::write(path("in/f"), b"evil").unwrap();
    let tar = |args: &[&str]| {
        Command::new("tar").args(args).arg("-C").arg(path("in")).arg("f").output().unwrap().stdout
    };
    let (image, writer) = Image::new(SIZE, &[]);
    let fs = FilesystemWriter::open(live(&writer), "p").unwrap();
    fs.create_dir(b"/target", 0o755).unwrap();
    fs.create_dir(b"/outside", 0o755).unwrap();
    fs.symlink(b"/outside", b"/target/way").unwrap();
    fs.write(b"/outside/g", b"good").unwrap();
    for (name, wanted) in [
        ("../outside/f", "contains '..'"),
        ("x/../../outside/f", "contains '..'"),
        ("way/f", "symbolic link 'way'"),
    ] {
        let archive = tar(&["-c", "-P", "-f", "-", &format!("--transform=s,f,{name},")]);
        let mut told = Told::default();
        let top = fs.resolve(b"/target").unwrap();
        let (result, summary) = import(&fs, &Options::default(), &mut told, |importer| {
            let top = importer.top(top, b"").unwrap();
            unpack(importer, &top, b"", &mut TarReader::new(&archive[..]), &|_| true)
        });
        result.unwrap();
        assert!(summary.failures == 1 && told.0[0].contains(wanted), "{name}: {told:?}", told = told.0);
    }
    // An absolute name is unpacked below the target; a symbolic link in the place of a file is replaced, not
    // followed.
    fs.symlink(b"/outside/g", b"/target/f").unwrap();
    let archive = tar(&["-c", "-P", "-f", "-", "--transform=s,^,/,"]);
    let top = fs.resolve(b"/target").unwrap();
    let mut told = Told::default();
    import(&fs, &Options::default(), &mut told, |importer| {
        let top = importer.top(top, b"").unwrap();
        unpack(importer, &top, b"", &mut TarReader::new(&archive[..]), &|_| true).unwrap();
    });
    assert_eq!(fs.read(b"/outside/g").unwrap(), b"good");
    assert_eq!(fs.read(b"/target/f").unwrap(), b"evil");
    assert_eq!(fs.node(fs.resolve(b"/outside").unwrap()).unwrap().entry_count().unwrap(), 1);
    drop(fs);
    writer.close().unwrap();
    image.judge();
}

#[test]
fn by_path() {
    let (image, writer) = Image::new(SIZE, &[("xattr", 2), ("acltype", 1)]);
    let fs = FilesystemWriter::open(live(&writer), "p").unwrap();
    fs.create_dir_all(b"/a/b/c", 0o755).unwrap();
    fs.create_dir_all(b"/a/b/c", 0o755).unwrap();
    fs.symlink(b"../a/b", b"/a/way").unwrap();
    fs.write(b"/a/way/f", b"one").unwrap();
    let file = fs.open_file(b"/a/b/f").unwrap();
    assert_eq!(file.append(b" two").unwrap(), 3);
    file.write_at(300_000, b"three").unwrap();
    file.sync().unwrap();
    assert_eq!(file.len(), 300_005);
    fs.hard_link(b"/a/b/f", b"/g").unwrap();
    fs.rename(b"/g", b"/h").unwrap();
    assert!(matches!(fs.create_new(b"/h"), Err(cenote::Error::Path { .. })));
    assert!(fs.remove_dir(b"/a").is_err());
    assert!(fs.write(b"/nowhere/x", b"").is_err());
    fs.set_xattr(b"/h", b"user.k", b"v", XattrHow::Create).unwrap();
    assert_eq!(fs.xattr(b"/a/b/f", b"user.k").unwrap().as_deref(), Some(&b"v"[..]));
    fs.set_attrs(b"/h", &NewAttrs { mode: Some(0o640), uid: Some(7), ..NewAttrs::default() }).unwrap();
    fs.sync().unwrap();
    fs.clone_file(&fs, b"/h", b"/copy").unwrap();
    assert_eq!(fs.read(b"/copy").unwrap(), fs.read(b"/h").unwrap());
    assert!(matches!(fs.remove_all(b"/", &mut Told::default()), Err(cenote::Error::Path { .. })));
    drop((file, fs));
    writer.close().unwrap();
    let files = image.read().dataset("p").unwrap().filesystem().unwrap();
    let mut head = [0; 7];
    files.open(b"/copy").unwrap().read_at(0, &mut head).unwrap();
    assert_eq!(&head, b"one two");
    image.judge();
}

#[test]
fn whole_trees_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    rich(folder.path());
    let (image, writer) = Image::new(SIZE, &[("xattr", 2)]);
    let fs = FilesystemWriter::open(live(&writer), "p").unwrap();
    fs.create_dir(b"/keep", 0o755).unwrap();
    fs.create_dir(b"/go", 0o755).unwrap();
    assert_eq!(copy_in(&fs, folder.path(), b"/go"), [""; 0]);
    let mut deep = b"/go/deep".to_vec();
    for _ in 0..3000 {
        deep.extend_from_slice(b"/d");
    }
    fs.create_dir_all(&deep, 0o755).unwrap();
    fs.symlink(b"/keep", b"/go/link").unwrap();
    let mut told = Told::default();
    let removed = fs.remove_all(b"/go", &mut told).unwrap();
    assert_eq!((told.0.as_slice(), removed.failures), (&[][..] as &[String], 0));
    assert!(removed.dirs > 3000 && removed.files > 500);
    assert!(fs.attrs(b"/keep").is_ok() && fs.attrs(b"/go").is_err());
    drop(fs);
    writer.close().unwrap();
    assert_eq!(image.contents().len(), 2);
    image.judge();
}

#[test]
fn copies_do_not_inherit() {
    use format::acl::{PosixEntry, PosixWho};
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    std::fs::write(folder.path().join("d/f"), b"x").unwrap();
    support::set_mode(&folder.path().join("d/f"), 0o604);
    let (image, writer) = Image::new(SIZE, &[("acltype", 1), ("xattr", 2)]);
    let fs = writer.filesystem("p").unwrap();
    // All handles of a file system share one instance.
    assert!(std::sync::Arc::ptr_eq(fs.fs(), writer.filesystem("p").unwrap().fs()));
    let entry = |who, perm| PosixEntry { who, perm };
    let acl = [
        entry(PosixWho::UserObj, 7),
        entry(PosixWho::User(1000), 7),
        entry(PosixWho::GroupObj, 5),
        entry(PosixWho::Mask, 7),
        entry(PosixWho::Other, 0),
    ];
    fs.create_dir(b"/to", 0o755).unwrap();
    fs.set_acl(b"/to", &acl, true).unwrap();
    fs.set_attrs(b"/to", &NewAttrs { mode: Some(0o2755), gid: Some(77), ..NewAttrs::default() }).unwrap();
    fs.write(b"/to/own", b"").unwrap();
    assert!(fs.xattr(b"/to/own", b"system.posix_acl_access").unwrap().is_some());
    let source = HostSource::open(&folder.path().join("d"), false).unwrap();
    let mut told = Told::default();
    let to = fs.resolve(b"/to").unwrap();
    import(&fs, &Options::default(), &mut told, |importer| {
        let top = importer.top(to, b"").unwrap();
        importer.copy_host(&source, &top, Some(b"d"), b"d");
    });
    assert_eq!(told.0, [""; 0]);
    for (path, mode) in [(&b"/to/d"[..], 0o40755), (b"/to/d/f", 0o100_604)] {
        let attrs = fs.attrs(path).unwrap();
        assert_eq!((attrs.mode, attrs.gid), (mode, u64::from(rustix::process::getegid().as_raw())));
        for list in ["access", "default"] {
            let name = format!("system.posix_acl_{list}");
            assert_eq!(fs.xattr(path, name.as_bytes()).unwrap(), None, "{list}");
        }
    }
    drop(fs);
    writer.close().unwrap();
    image.judge();
}

#[test]
fn read_only_datasets_are_not_opened_for_writing() {
    let (_image, writer) = Image::new(SIZE, &[("readonly", 1)]);
    assert!(writer.filesystem("p").is_err());
    writer.close().unwrap();
}

#[test]
fn attributes_of_whole_trees() {
    let folder = tempfile::tempdir().unwrap();
    rich(folder.path());
    let (image, writer) = Image::new(SIZE, &[("xattr", 2)]);
    let fs = writer.filesystem("p").unwrap();
    assert_eq!(copy_in(&fs, folder.path(), b"/"), [""; 0]);
    let mut told = Told::default();
    let new = |attrs: &cenote::files::Attrs| {
        (attrs.mode >> 12 != 0o12).then(|| NewAttrs {
            uid: Some(5),
            mode: Some(0o700),
            ..NewAttrs::default()
        })
    };
    let changed = fs.change_all(b"/a", true, &new, &mut told).unwrap();
    assert_eq!((changed.failures, told.0.len()), (0, 0));
    // Directories, files and the symbolic link below /a, and one file with two names.
    assert_eq!(changed.seen, 1 + 2 + 3 + 2 + 500);
    for path in [&b"/a"[..], b"/a/b/c/f499", b"/a/large"] {
        assert_eq!((fs.attrs(path).unwrap().uid, fs.attrs(path).unwrap().mode & 0o7777), (5, 0o700));
    }
    assert_eq!(fs.attrs(b"/empty").unwrap().uid, 0);
    drop(fs);
    writer.close().unwrap();
    image.judge();
}

/// Blocks far smaller than a sector, in several copies: accepted writes must fit, or the pool would stop.
#[test]
fn a_full_pool_of_large_sectors_goes_on() {
    let disk = [("disk", pool::space::Class::Normal)];
    for (ashift, recordsize, copies, step) in
        [(13, 512, 3, 1), (13, 4096, 1, 1), (14, 512, 2, 64), (16, 131_072, 3, 1)]
    {
        let props = [("compression", 2), ("recordsize", recordsize), ("copies", copies)];
        let (image, writer) = Image::on_sectors(Some(format::Ashift(ashift)), &disk, 256 << 20, &props);
        let fs = FilesystemWriter::open(live(&writer), "p").unwrap();
        let file = fs.create(b"/f").unwrap();
        let block = [0x5a; 8 << 10];
        let write = |n: u64| file.write_at(n * step * block.len() as u64, &block);
        let (count, error) = (0..).find_map(|n| write(n).err().map(|error| (n, error))).unwrap();
        let text = format!("{error}: {:?}", std::error::Error::source(&error));
        assert!(text.contains("NoSpace"), "{ashift} {recordsize}: {text}");
        assert!(count > 100, "{count}");
        fs.sync().unwrap();
        drop(file);
        fs.remove(b"/f").unwrap();
        drop(fs);
        writer.close().unwrap();
        image.judge();
    }
}

/// Rewritten parts of large records dirty whole records, and logging them needs space too: both must fit into the
/// txg.
#[test]
fn parts_of_large_records_that_are_written_again_fit_into_their_txg() {
    const RECORD: u64 = 1 << 20;
    for is_durable in [false, true] {
        let (image, writer) = Image::new(128 << 20, &[("compression", 2), ("recordsize", RECORD)]);
        let fs = FilesystemWriter::open(live(&writer), "p").unwrap();
        let file = fs.create(b"/f").unwrap();
        let whole = vec![7; RECORD as usize];
        let records = (0..24).take_while(|n| file.write_at(n * RECORD, &whole).is_ok()).count() as u64;
        assert!(records > 8, "{records}");
        fs.sync().unwrap();
        let mut refused = 0;
        for round in 0..40_u64 {
            let part = vec![round as u8; 256 << 10];
            for record in 0..records {
                let at = record * RECORD + (round % 4) * part.len() as u64;
                match file.write_at(at, &part) {
                    Ok(()) if is_durable => file.sync().unwrap(),
                    Ok(()) => {}
                    Err(error) => {
                        let text = format!("{error}: {:?}", std::error::Error::source(&error));
                        assert!(text.contains("NoSpace"), "{text}");
                        refused += 1;
                    }
                }
            }
        }
        assert!(refused < records * 40, "nothing could be written");
        fs.sync().unwrap();
        drop((file, fs));
        writer.close().unwrap();
        image.judge();
    }
}

/// A writer waits for freed space before the pool is reported as full.
#[test]
fn what_was_removed_from_a_full_pool_can_be_used() {
    let (image, writer) = Image::new(64 << 20, &[("compression", 2)]);
    let fs = FilesystemWriter::open(live(&writer), "p").unwrap();
    let content = vec![7; 256 << 10];
    let name = |n: u32| format!("/old{n}").into_bytes();
    (0..8).for_each(|n| fs.write(&name(n), &content).unwrap());
    let rest = fs.create(b"/rest").unwrap();
    while rest.append(&content[..64 << 10]).is_ok() {}
    for n in 0..8 {
        fs.remove(&name(n)).unwrap();
        fs.write(format!("/new{n}").as_bytes(), &content[..128 << 10]).unwrap();
        assert!(fs.has_room(0).unwrap());
    }
    drop((rest, fs));
    writer.close().unwrap();
    image.judge();
}
