//! Encrypted and redacted datasets in pools that are open for writing: received by command, mounted and read; what is not
//! theirs is written as ever.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
// Tests use files as any program does.
#![allow(clippy::disallowed_types, missing_docs)]

use crate::mounts::World;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn passphrase() -> Vec<u8> {
    testkit::keys::material("passphrase").expect("a key")
}

fn receive(world: &World, words: &str, stream: &str) {
    let ran = world.run_with(&format!("zfs receive {words}"), testkit::stream(stream));
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{words}: {ran:?}");
}

/// Compares the regular files below a folder with what OpenZFS found in this dataset. Returns how many there are.
fn same_files(at: &Path, entries: impl Iterator<Item = testkit::Entry>) -> usize {
    let mut files = 0;
    for entry in entries {
        if let (Some(sum), false) = (&entry.sha256, entry.hashes_segments()) {
            let path = at.join(OsStr::from_bytes(&entry.path));
            assert_eq!(&testkit::sha256(&fs::read(&path).expect("readable")), sum, "{}", path.display());
            files += 1;
        }
    }
    files
}

fn received(dataset: &str) -> impl Iterator<Item = testkit::Entry> {
    let (_, entries) = testkit::received();
    entries.filter(move |entry| entry.ds == dataset)
}

/// The regular files of a folder, with their contents.
fn tree(at: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(at).expect("a folder").map(|entry| entry.expect("an entry").path());
    let files = entries.filter(|path| path.is_file());
    files
        .map(|path| (path.strip_prefix(at).expect("below").to_owned(), fs::read(&path).expect("readable")))
        .collect()
}

/// A backup of a raw stream: without its key it is kept, with it it is read, also while the next increment arrives.
#[test]
fn a_raw_backup_is_received_and_read() {
    let Some(world) = World::new() else { return };
    receive(&world, "tank/raw", "raw-full");
    // The pool can be imported, and written, without any key.
    world.good("zpool export tank");
    world.good("zpool import -d ~/disk -R ~/alt tank");
    fs::write(world.path("alt/tank/beside"), "written").expect("the rest of the pool is written");
    assert_eq!(
        world.good("zfs get -H -o value keystatus,encryptionroot tank/raw"),
        "unavailable\ntank/raw\n"
    );
    world.bad("zfs mount tank/raw", 1, "cannot mount 'tank/raw': encryption key not loaded\n");
    let ran = world.run_with("zfs mount -l tank/raw", passphrase());
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let at = world.path("alt/tank/raw");
    assert!(same_files(&at, received("dst/raw@1")) > 10);
    let refused = fs::write(at.join("new"), "x").expect_err("read only");
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    // Not even if a mount option asks for it.
    let _ = world.run("zfs mount -o remount,rw tank/raw");
    assert_eq!(fs::write(at.join("new"), "x").expect_err("read only").kind(), ErrorKind::ReadOnlyFilesystem);
    // The next increment arrives while the file system is mounted, and a file is open.
    let open = fs::File::open(at.join(".")).expect("the root can be opened");
    receive(&world, "tank/raw", "raw-incr");
    drop(open);
    assert!(same_files(&at, received("dst/raw@2")) > 10);
    assert!(same_files(&at.join(".zfs/snapshot/1"), received("dst/raw@1")) > 10);
    // A snapshot, a clone, a renamed and a destroyed dataset need no key.
    world.good("zfs snapshot tank/raw@own");
    world.good("zfs clone -o mountpoint=none tank/raw@own tank/clone");
    world.good("zfs destroy tank/clone");
    world.good("zfs rename tank/raw tank/moved");
    assert!(same_files(&world.path("alt/tank/moved"), received("dst/raw@2")) > 10);
    world.bad(
        "zfs create tank/moved/below",
        1,
        "cannot create 'tank/moved/below': an encrypted dataset cannot be made\n",
    );
    world.good("zfs create tank/plain");
    let ran = world.run_with("zfs receive -F tank/plain", testkit::stream("raw-full"));
    assert!(ran.code == Some(1) && ran.err.contains("-F cannot be used to destroy an encrypted"), "{ran:?}");
    let ran = world.run_with("zfs receive -F tank/moved", testkit::stream("raw-full"));
    assert!(ran.code == Some(1) && ran.err.contains("must destroy them to overwrite it"), "{ran:?}");
    let ran = world.run_with("zfs receive tank/beside", testkit::stream("raw-incr"));
    assert!(ran.code == Some(1) && ran.err.contains("does not exist"), "{ran:?}");
    let words = "zfs receive -o encryption=on tank/other";
    let ran = world.run_with(words, testkit::stream("raw-full"));
    let said = "encryption property 'encryption' cannot be set or excluded for raw streams.";
    assert!(ran.code != Some(0) && ran.err.contains(said), "{ran:?}");
    world.good("zfs destroy -r tank/moved");
    // A dataset that has the object number of the destroyed one does not have its key.
    receive(&world, "-u tank/raw", "raw-full");
    assert_eq!(world.good("zfs get -H -o value keystatus tank/raw"), "unavailable\n");
    // In a package, what has its key from above has it here, too.
    receive(&world, "-d tank/plain", "raw-replicate");
    let roots =
        world.good("zfs get -r -H -t filesystem,volume -o value encryptionroot,keylocation tank/plain/enc");
    assert_eq!(roots, "tank/plain/enc\nprompt\ntank/plain/enc\nnone\n");
    let ran = world.run_with("zfs mount -l tank/plain/enc", passphrase());
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(same_files(&world.path("alt/tank/plain/enc"), received("dst/rawtree@2")) > 10);
    assert_eq!(world.good("zfs get -H -o value keystatus tank/plain/enc/vol"), "available\n");
    world.good("zpool export tank");
    testkit::assert_zdb_clean(&world.folder(), "tank");
    world.good("zpool import -d ~/disk -R ~/alt tank");
}

/// A pool of OpenZFS's with encrypted datasets is written, and they are read.
#[test]
fn a_pool_with_encrypted_datasets_is_open_for_writing() {
    let Some(world) = World::new() else { return };
    let fixture = testkit::Fixture::open("rawrecv");
    let pool = fixture.scratch();
    let images = pool.dir().display().to_string();
    world.good(&format!("zpool import -f -N -R ~/alt -d {images} t_rawrecv"));
    world.good("zfs set mountpoint=/enc t_rawrecv/enc");
    world.good("zfs set mountpoint=/copy t_rawrecv/copy");
    for name in ["enc", "copy"] {
        let ran = world.run_with(&format!("zfs mount -l t_rawrecv/{name}"), passphrase());
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{name}");
    }
    // OpenZFS has received one from the other.
    let files = || {
        let (enc, copy) = (tree(&world.path("alt/enc")), tree(&world.path("alt/copy")));
        assert_eq!(enc, copy);
        enc.len()
    };
    assert!(files() > 0);
    world.good("zfs create -o mountpoint=/plain t_rawrecv/plain-new");
    fs::write(world.path("alt/plain/file"), vec![7; 1 << 20]).expect("written");
    world.good("zfs snapshot -r t_rawrecv@all");
    world.good("zfs set compression=off t_rawrecv/copy");
    let refused = fs::create_dir(world.path("alt/enc/new")).expect_err("read only");
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    world.good("zpool scrub -w t_rawrecv");
    assert!(world.good("zpool status t_rawrecv").contains("errors: No known data errors"));
    assert!(files() > 0);
    world.good("zfs destroy -r t_rawrecv/ccm");
    world.good("zpool export t_rawrecv");
    testkit::assert_zdb_clean(pool.dir(), "t_rawrecv");
}

/// What a redacted stream has made is mounted only by force, and increments on it arrive.
#[test]
fn redacted_datasets_are_received_and_mounted_by_force() {
    let Some(world) = World::new() else { return };
    receive(&world, "tank/red", "redacted");
    assert_eq!(world.mounts(), ["tank /tank"]);
    let said = "cannot mount 'tank/red': Dataset is not complete, was created by receiving a redacted zfs send stream.\n";
    world.bad("zfs mount tank/red", 1, said);
    world.good("zfs mount -a");
    assert_eq!(world.mounts(), ["tank /tank"]);
    world.good("zfs mount -f tank/red");
    let at = world.path("alt/tank/red");
    assert!(fs::read_dir(&at).expect("a folder").count() > 10);
    let refused = fs::write(at.join("new"), "x").expect_err("read only");
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    world.good("zfs clone tank/red@a tank/again");
    assert_eq!(world.mounts(), ["tank /tank", "tank/red /tank/red"], "a clone lacks the same data");
    world.good("zpool export tank");
    testkit::assert_zdb_clean(&world.folder(), "tank");
    world.good("zpool import -d ~/disk -R ~/alt tank");
    world.good("zfs destroy -r tank/again");
    // The increment from the redaction bookmark brings what was left out.
    receive(&world, "tank/red", "incr-from-redaction-bookmark");
    world.good("zfs mount tank/red");
    assert!(fs::read_dir(&at).expect("a folder").count() > 10);
    world.good("zfs destroy -r tank/red");
}

/// What a customer's copy does not need is left out of it, and an increment to that copy's snapshot completes it.
#[test]
fn a_redacted_copy_is_made_and_completed() {
    let Some(world) = World::new() else { return };
    world.good("zfs create tank/src");
    let noise = |seed: usize, blocks: usize| -> Vec<u8> {
        (0..blocks << 17).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
    };
    let src = world.path("alt/tank/src");
    for (seed, name) in ["kept", "secret", "gone", "cut", "both"].into_iter().enumerate() {
        fs::write(src.join(name), noise(seed, 4)).expect("written");
    }
    world.good("zfs snapshot tank/src@s");
    for name in ["one", "two"] {
        world.good(&format!("zfs clone tank/src@s tank/{name}"));
        let at = world.path(&format!("alt/tank/{name}"));
        let file = fs::OpenOptions::new().write(true).open(at.join("secret")).expect("opened");
        file.write_all_at(&vec![b'x'; 1 << 17], if name == "one" { 1 << 17 } else { 2 << 17 })
            .expect("written");
        file.write_all_at(&vec![b'y'; 1 << 17], 3 << 17).expect("written");
        fs::remove_file(at.join("gone")).expect("removed");
        fs::File::options()
            .write(true)
            .open(at.join("cut"))
            .and_then(|file| file.set_len(1 << 17))
            .expect("cut");
        world.good(&format!("zfs snapshot tank/{name}@r"));
    }
    world.bad("zfs redact tank/src@s", 2, &too_few());
    world.bad(
        "zfs redact tank/src@s tank/src#x tank/one@r",
        22,
        "redaction bookmark name must not contain '#'\n",
    );
    let said = "redaction snapshot must be descendent of snapshot being redacted\n";
    world.bad("zfs redact tank/one@r x tank/src@s", 22, said);
    world.bad("zfs redact tank/src@s x tank/src@s", 22, said);
    let said =
        "cannot open 'tank/src@no': dataset does not exist\nprovided snapshot tank/src@no does not exist\n";
    world.bad("zfs redact tank/src@no x tank/one@r", 2, said);
    world.good("zfs redact tank/src@s book tank/one@r tank/two@r");
    let said = "specified redaction bookmark (book) provided already exists\n";
    world.bad("zfs redact tank/src@s book tank/one@r", 17, said);
    // More redaction snapshots than fit beside the list.
    let many = " tank/one@r tank/two@r".repeat(20);
    world.good(&format!("zfs redact tank/src@s many{many}"));
    assert_eq!(world.good("zfs list -H -o name -t bookmark"), "tank/src#book\ntank/src#many\n");
    let snaps = world.good("zfs get -H -o value redact_snaps tank/src#many");
    assert_eq!(snaps.split(',').count(), 40);

    let stream = world.path("stream");
    let send = |words: &str| {
        let target = fs::File::create(&stream).expect("made");
        let status = world.command(words).stdout(target).status().expect("it runs");
        assert!(status.success(), "{words}");
        fs::read(&stream).expect("read")
    };
    let redacted = send("zfs send --redact book tank/src@s");
    let ran = world.run_with("zfs receive tank/copy", redacted);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    world.good("zfs mount -f tank/copy");
    let copy = world.path("alt/tank/copy");
    for name in ["kept", "both"] {
        assert_eq!(
            fs::read(copy.join(name)).expect("whole"),
            fs::read(src.join(name)).expect("read"),
            "{name}"
        );
    }
    let part = |name: &str, block: u64| {
        let mut bytes = vec![0; 1 << 17];
        let file = fs::File::open(copy.join(name)).expect("the name is there");
        file.read_exact_at(&mut bytes, block << 17).ok().map(|()| bytes)
    };
    // Blocks 1 and 2 of `secret` are each needed by one of the two.
    let is_there = |name: &str| (0..4).map(|block| part(name, block).is_some()).collect::<Vec<_>>();
    assert_eq!(is_there("secret"), [true, true, true, false]);
    assert_eq!(is_there("gone"), [false; 4]);
    assert_eq!(is_there("cut"), [true, false, false, false]);
    // The increment to a redaction snapshot completes it.
    let rest = send("zfs send -i tank/src#book tank/one@r");
    world.good("zfs unmount tank/copy");
    let ran = world.run_with("zfs receive -o origin=tank/copy@s tank/whole", rest);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(tree(&world.path("alt/tank/whole")), tree(&world.path("alt/tank/one")));
    world.good("zfs destroy tank/src#many");
    world.good("zpool export tank");
    testkit::assert_zdb_clean(&world.folder(), "tank");
    world.good("zpool import -d ~/disk -R ~/alt tank");
    world.good("zfs destroy tank/src#book");
    assert_eq!(
        world.good("zpool get -H -o value feature@redaction_bookmarks,feature@redaction_list_spill tank"),
        "enabled\nenabled\n"
    );
}

/// What `zfs redact` says to a command line with too few words.
fn too_few() -> String {
    "too few arguments\nusage:\n\tredact <snapshot> <bookmark> <redaction_snapshot> ...\n\n\
     For the property list, run: zfs set|get\n\nFor the delegated permission list, run: zfs allow|unallow\n\n\
     For further help on a command or topic, run: zfs help [<topic>]\n"
        .to_owned()
}
