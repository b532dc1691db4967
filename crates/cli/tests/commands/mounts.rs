//! Mounts through a daemon as users see them: messages of the commands, and the mounted file systems. The
//! expected results are those of OpenZFS 2.3.2 in the same situation.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
// Tests use files as any program does.
#![allow(clippy::disallowed_types, missing_docs)]

use crate::daemon_support::{Ran, can_mount, cenote};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A folder with its own state folder, socket, image and alternate root. Its commands have their own daemon,
/// which the first command that needs it starts, and which is ended at the end.
pub(crate) struct World {
    folder: tempfile::TempDir,
}

impl World {
    /// A world with a pool `tank`, imported below `~/alt`. `None`: mounting is not possible here, which was
    /// reported.
    pub(crate) fn new() -> Option<World> {
        if !can_mount() {
            return None;
        }
        let world = World { folder: tempfile::tempdir().expect("a folder") };
        let file = fs::File::create(world.path("disk")).expect("made");
        file.set_len(256 << 20).expect("sparse");
        world.good("zpool create -R ~/alt tank ~/disk");
        Some(world)
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("there")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    pub(crate) fn command(&self, words: &str) -> Command {
        cenote(&self.folder(), "socket", words)
    }

    pub(crate) fn run(&self, words: &str) -> Ran {
        self.run_with(words, "")
    }

    /// Runs a command with this standard input.
    pub(crate) fn run_with(&self, words: &str, input: impl AsRef<[u8]>) -> Ran {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.current_dir("/").spawn().expect("it starts");
        // The command may end without reading it.
        let _ = child.stdin.take().expect("piped").write_all(input.as_ref());
        let Ran { out, err, code } = child.wait_with_output().expect("it ends").into();
        let folder = self.folder();
        let shown = |text: String| text.replace(folder.to_str().expect("text"), "~");
        Ran { out: shown(out), err: shown(err), code }
    }

    pub(crate) fn good(&self, words: &str) -> String {
        let ran = self.run(words);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{words}: {ran:?}");
        ran.out
    }

    pub(crate) fn bad(&self, words: &str, code: i32, message: &str) {
        let ran = self.run(words);
        assert_eq!((ran.code, ran.err.as_str()), (Some(code), message), "{words}");
    }

    /// The mounts of the pool, without fields that are the same for all.
    pub(crate) fn mounts(&self) -> Vec<String> {
        let list = self.good("zfs mount");
        let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ").replace("~/alt", "");
        list.lines().map(line).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.run("zpool destroy -f tank");
        let _ = self.run("daemon --stop");
    }
}

#[test]
fn file_systems_are_where_their_properties_say() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -p tank/a/b");
    world.good("zfs create -o canmount=noauto tank/c");
    assert_eq!(world.mounts(), ["tank /tank", "tank/a /tank/a", "tank/a/b /tank/a/b"]);
    fs::write(world.path("alt/tank/a/b/file"), "text").expect("written");
    world.good("zfs set mountpoint=/x/y tank/a");
    assert_eq!(world.mounts(), ["tank /tank", "tank/a /x/y", "tank/a/b /x/y/b"]);
    assert_eq!(fs::read_to_string(world.path("alt/x/y/b/file")).expect("read"), "text");
    // The folder was made for the mount, and is removed with it.
    assert!(!world.path("alt/tank/a").exists());
    world.good("zfs set -u mountpoint=/z tank/a");
    assert_eq!(world.mounts()[1], "tank/a /x/y");
    world.good("zfs unmount tank/a");
    assert_eq!(world.mounts(), ["tank /tank"]);
    world.good("zfs set mountpoint=/w tank/a");
    assert_eq!(world.mounts(), ["tank /tank", "tank/a /w", "tank/a/b /w/b"]);
    world.good("zfs set mountpoint=none tank/a");
    assert_eq!(world.mounts(), ["tank /tank"]);
    world.bad("zfs mount tank/a/b", 1, "cannot mount 'tank/a/b': no mountpoint set\n");
    world.good("zfs inherit mountpoint tank/a");
    world.good("zfs rename tank/a tank/r");
    assert_eq!(world.mounts(), ["tank /tank", "tank/r /tank/r", "tank/r/b /tank/r/b"]);
    world.good("zfs rename -u tank/r tank/s");
    assert_eq!(world.mounts(), ["tank /tank", "tank/s /tank/r", "tank/s/b /tank/r/b"]);
    world.good("zfs set canmount=off tank/s/b");
    world.good("zfs set canmount=on tank/s/b");
    assert_eq!(world.mounts(), ["tank /tank", "tank/s /tank/r"]);
    world.good("zfs mount -a");
    world.good("zfs mount tank/c");
    world.bad("zfs mount tank/c", 1, "cannot mount 'tank/c': filesystem already mounted\n");
    // `zfs unmount -a` leaves mounts alone that are never mounted automatically, and the mounts that contain
    // them.
    let ran = world.run("zfs unmount -a");
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("cannot unmount '~/alt/tank': pool or dataset is busy\n"), "{}", ran.err);
    assert_eq!(world.mounts(), ["tank /tank", "tank/c /tank/c"]);
    world.good("zfs mount -a");
    assert_eq!(world.good("zfs get -H -o value mounted tank/c tank/s/b"), "yes\nyes\n");
    world.good("zfs destroy -r tank/s");
    assert_eq!(world.mounts(), ["tank /tank", "tank/c /tank/c"]);
    world.good("zfs unmount tank");
    assert!(world.mounts().is_empty());
    world.bad("zfs unmount tank/c", 1, "cannot unmount 'tank/c': not currently mounted\n");
    world.good("zpool export tank");
    world.good("zpool import -d ~/disk -R ~/alt tank");
    assert_eq!(world.mounts(), ["tank /tank"]);
}

#[test]
fn what_is_in_use_stays() {
    let Some(world) = World::new() else { return };
    world.good("zfs create tank/a");
    world.good("zfs create tank/a/b");
    let at = world.path("alt/tank/a");
    let mut child = Command::new("sleep").arg("1000").current_dir(&at).spawn().expect("it starts");
    let busy = format!(
        "cannot unmount '~/alt/tank/a': pool or dataset is busy\nin use by: sleep ({})\n",
        child.id()
    );
    for (words, code) in [
        ("zfs unmount tank/a", 1),
        ("zfs set mountpoint=/w tank/a", 255),
        ("zfs rename tank/a tank/c", 1),
        ("zpool export tank", 1),
    ] {
        world.bad(words, code, &busy);
        assert_eq!(world.mounts().len(), 3, "{words}");
    }
    world.bad("zfs unmount -f tank/a", 1, &busy);
    child.kill().expect("it ends");
    child.wait().expect("it has ended");
    world.good("zfs unmount -f tank/a");
    assert_eq!(world.mounts(), ["tank /tank"]);
    world.good("zfs mount -a");
    let empty_dir = world.path("alt/tank/full/inner");
    fs::create_dir_all(empty_dir).expect("made");
    world.bad(
        "zfs create -o overlay=off tank/full",
        1,
        "cannot mount '~/alt/tank/full': directory is not empty\nfilesystem successfully created, but not mounted\n",
    );
    world.good("zfs mount -O tank/full");
    assert_eq!(fs::read_dir(world.path("alt/tank/full")).expect("listed").count(), 0);
}

#[test]
fn a_mount_is_told_things_that_hold_for_it_alone() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -u tank/a");
    assert_eq!(world.mounts(), ["tank /tank"]);
    world.bad("zfs mount -o foo tank/a", 1, "cannot mount 'tank/a': Invalid argument\n");
    world.good("zfs mount -o ro,noatime tank/a");
    let said = "on\ttemporary\noff\ttemporary\non\tdefault\n";
    assert_eq!(world.good("zfs get -H -o value,source readonly,atime,exec tank/a"), said);
    assert!(fs::write(world.path("alt/tank/a/file"), "").is_err());
    world.good("zfs mount -o remount,rw,noexec tank/a");
    fs::write(world.path("alt/tank/a/file"), "").expect("written");
    assert_eq!(
        world.good("zfs get -H -o value,source readonly,exec tank/a"),
        "off\tdefault\noff\ttemporary\n"
    );
    // A remount applies the changed property and keeps all other options.
    world.good("zfs set readonly=on tank");
    assert_eq!(world.good("zfs get -H -o value,source exec tank/a"), "off\ttemporary\n");
    assert!(fs::write(world.path("alt/tank/a/file"), "").is_err());
    world.good("zfs set exec=on tank");
    assert_eq!(world.good("zfs get -H -o value,source exec tank/a"), "on\tinherited from tank\n");
    let writes = || fs::write(world.path("alt/tank/a/file"), "").is_ok();
    world.good("zfs mount -o remount,rw tank/a");
    assert!(writes());
    world.good("zfs set readonly=on tank/a");
    assert!(!writes());
    world.good("zfs inherit readonly tank/a");
    world.good("zfs unmount tank/a");
    world.good("zfs mount -o rw tank/a");
    assert!(writes());
    world.good("zfs inherit readonly tank");
    fs::write(world.path("alt/tank/a/file"), "").expect("written");
}

/// The user that moves the folder may rename the folder above it, but has no rights to the file system.
#[test]
fn a_mount_whose_folder_was_moved_is_found_where_it_is() {
    let Some(world) = World::new() else { return };
    let folder = world.path("alt/tank/user");
    for verb in ["unmount", "rename", "destroy", "export"] {
        fs::create_dir_all(folder.join("one")).expect("made");
        world.good("zfs create -o mountpoint=/tank/user/one/data tank/data");
        fs::write(folder.join("one/data/file"), "text").expect("written");
        fs::rename(folder.join("one"), folder.join("two")).expect("moved");
        assert_eq!(world.mounts()[1], "tank/data /tank/user/two/data", "{verb}");
        match verb {
            "rename" => world.good("zfs rename tank/data tank/other"),
            "export" => {
                world.good("zpool export tank");
                world.good("zpool import -R ~/alt -d ~/disk tank")
            }
            _ => world.good(&format!("zfs {verb} tank/data")),
        };
        let is_left = fs::read_dir(folder.join("two/data")).is_ok_and(|list| list.count() > 0);
        assert!(!is_left, "{verb}");
        for left in ["tank/data", "tank/other"] {
            let _ = world.run(&format!("zfs destroy {left}"));
        }
        fs::remove_dir_all(&folder).expect("removed");
    }
}

#[test]
fn snapshots_and_rollbacks_under_a_mount() {
    let Some(world) = World::new() else { return };
    world.good("zfs create tank/a");
    let at = world.path("alt/tank/a");
    fs::write(at.join("file"), "one").expect("written");
    world.good("zfs snapshot tank/a@1");
    fs::write(at.join("file"), "two").expect("written");
    fs::write(at.join("new"), "new").expect("written");
    assert_eq!(fs::read_to_string(at.join(".zfs/snapshot/1/file")).expect("read"), "one");
    let new = fs::File::open(at.join("new")).expect("opened");
    world.good("zfs rollback tank/a@1");
    assert_eq!(fs::read_to_string(at.join("file")).expect("read"), "one");
    assert!(!at.join("new").exists());
    assert!(std::io::read_to_string(new).is_err());
    world.good("zfs rename tank/a@1 tank/a@one");
    assert!(!at.join(".zfs/snapshot/1").exists());
    world.good("zfs clone tank/a@one tank/c");
    assert_eq!(fs::read_to_string(world.path("alt/tank/c/file")).expect("read"), "one");
    world.good("zfs promote tank/c");
    let names = |of: &str| -> Vec<_> {
        let entries = fs::read_dir(world.path(of)).expect("listed");
        entries.map(|entry| entry.expect("an entry").file_name()).collect()
    };
    assert!(names("alt/tank/a/.zfs/snapshot").is_empty());
    assert_eq!(names("alt/tank/c/.zfs/snapshot"), ["one"]);
    assert_eq!(world.good("zfs list -H -o name ~/alt/tank/c/file"), "tank/c\n");
    world.good("zfs set snapdir=visible tank/c");
    assert!(names("alt/tank/c").contains(&".zfs".into()));
}

#[test]
fn mount_by_hand() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -o mountpoint=legacy tank/a");
    world.bad(
        "zfs mount tank/a",
        1,
        "cannot mount 'tank/a': legacy mountpoint\nuse mount(8) to mount this filesystem\n",
    );
    fs::create_dir(world.path("at")).expect("made");
    // As mount.fuse3 calls it.
    world.good("tank/a ~/at -o rw,noexec,dev,suid");
    assert_eq!(world.good("zfs get -H -o value,source mounted,exec tank/a"), "yes\t-\noff\ttemporary\n");
    fs::write(world.path("at/file"), "text").expect("written");
    let advice = "cannot unmount 'tank/a': legacy mountpoint\nuse umount(8) to unmount this filesystem\n";
    world.bad("zfs unmount tank/a", 1, advice);
    let status = Command::new("umount").arg(world.path("at")).status().expect("it starts");
    assert!(status.success());
    world.good("tank/a ~/at -o ro");
    assert_eq!(fs::read_to_string(world.path("at/file")).expect("read"), "text");
    assert!(fs::write(world.path("at/file"), "").is_err());
    let ran = world.run("tank ~/at -o rw");
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("cannot mount 'tank': it cannot be mounted using 'mount'."), "{}", ran.err);
}

#[test]
fn what_the_kernel_hears_when_it_mounts_follows_properties() {
    use std::os::unix::fs::MetadataExt as _;
    let Some(world) = World::new() else { return };
    world.good("zfs create tank/a");
    let at = world.path("alt/tank/a");
    fs::create_dir(at.join("d")).expect("made");
    fs::write(at.join("file"), "text").expect("written");
    world.good("zfs set acltype=posix tank/a");
    // Owner all, group nothing, group 1 read and write, mask the same, others nothing.
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (4, 0, u32::MAX), (8, 6, 1), (0x10, 6, u32::MAX), (0x20, 0, u32::MAX)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(rights.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(at.join("d"), "system.posix_acl_access", &acl, flags).expect("set");
    assert_eq!(fs::metadata(at.join("d")).expect("there").mode() & 0o777, 0o760);
    world.good("zfs set atime=on tank/a");
    world.good("zfs set relatime=off tank/a");
    let accessed = || fs::metadata(at.join("file")).expect("there").accessed().expect("known");
    fs::read(at.join("file")).expect("read");
    let before = accessed();
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::read(at.join("file")).expect("read");
    assert!(accessed() > before);
}

#[test]
fn what_is_mounted_below_steps_aside() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -p tank/a/b");
    world.good("zfs set canmount=off tank/a");
    assert_eq!(world.mounts(), ["tank /tank", "tank/a/b /tank/a/b"]);
    // A dataset that is not mounted may get a mount point at which it cannot be mounted.
    fs::create_dir_all(world.path("alt/full/inner")).expect("made");
    world.good("zfs create -u -o overlay=off tank/n");
    world.good("zfs set mountpoint=/full tank/n");
    assert_eq!(world.mounts(), ["tank /tank", "tank/a/b /tank/a/b"]);
    world.bad("zfs mount tank/n", 1, "cannot mount '~/alt/full': directory is not empty\n");
}

#[test]
fn projects_of_files_by_their_paths() {
    let Some(world) = World::new() else { return };
    world.good("zfs create tank/a");
    let dir = world.path("alt/tank/a/d");
    fs::create_dir_all(dir.join("e")).expect("made");
    fs::write(dir.join("e/f"), "").expect("written");
    world.good("zfs project -s -r -p 7 ~/alt/tank/a/d");
    assert_eq!(world.good("zfs project -d ~/alt/tank/a/d"), "    7 P ~/alt/tank/a/d\n");
    assert_eq!(world.good("zfs project ~/alt/tank/a/d"), "    7 P ~/alt/tank/a/d/e\n");
    fs::write(dir.join("e/new"), "").expect("written");
    assert_eq!(world.good("zfs project ~/alt/tank/a/d/e/new"), "    7 - ~/alt/tank/a/d/e/new\n");
    let wrong = world.good("zfs project -c -p 8 ~/alt/tank/a/d/e/new");
    assert!(wrong.contains("~/alt/tank/a/d/e/new - project ID is not set properly (7/8)\n"), "{wrong}");
    world.bad(
        "zfs project -r ~/alt/tank/a/d/e/f",
        1,
        "'-r' is only valid on directories: ~/alt/tank/a/d/e/f\n",
    );
    world.bad("zfs project ~/nowhere", 1, "failed to stat ~/nowhere: No such file or directory\n");
}

#[test]
fn a_pool_without_project_quotas_has_no_projects() {
    let Some(world) = World::new() else { return };
    world.good("zpool destroy tank");
    world.good("zpool create -o feature@project_quota=disabled -R ~/alt tank ~/disk");
    let state = || world.good("zpool get -H -o value feature@project_quota tank");
    assert_eq!(state(), "disabled\n");
    fs::write(world.path("alt/tank/file"), "text").expect("written");
    world.bad(
        "zfs project -p 7 ~/alt/tank/file",
        1,
        "failed to set attributes of ~/alt/tank/file: Operation not supported\n",
    );
    world.good("zpool export tank");
    world.good("zpool import -d ~/disk -R ~/alt tank");
    assert_eq!(state(), "disabled\n");
}

/// docs/on-disk/15-space.md, "`used` before and after an export".
#[test]
fn what_is_used_before_an_export_is_used_after_it_but_for_the_pools_own() {
    // A space map of a metaslab in three copies, for more metaslabs than this pool has.
    const OWN: u64 = 16 * (12 << 10);
    let Some(world) = World::new() else { return };
    world.good("zfs create -o compression=off tank/a");
    for n in 0..100_u32 {
        fs::write(world.path(&format!("alt/tank/a/{n}")), vec![1; 100_000]).expect("written");
    }
    for n in (0..100_u32).step_by(3) {
        fs::remove_file(world.path(&format!("alt/tank/a/{n}"))).expect("removed");
    }
    world.good("zpool sync tank");
    let used = || {
        let text = world.good("zfs get -Hp -o value used,referenced tank tank/a");
        text.lines().map(|line| line.parse::<u64>().expect("a number")).collect::<Vec<_>>()
    };
    let before = used();
    assert!(before[2] > 6 << 20, "{before:?}");
    world.good("zpool export tank");
    world.good("zpool import -N -d ~/disk -R ~/alt tank");
    let after = used();
    assert_eq!(before[1..], after[1..], "what file systems hold is the same");
    assert!(before[0].abs_diff(after[0]) <= OWN, "{before:?} {after:?}");
}

/// A read-only pool of OpenZFS: keys come from standard input or from files, as `keylocation` says.
#[test]
fn keys_are_loaded_for_what_is_to_be_mounted() {
    let Some(world) = World::new() else { return };
    let fixture = testkit::Fixture::open("encryption");
    let pool = fixture.scratch();
    let images = pool.dir().display().to_string();
    let import = format!("zpool import -o readonly=on -R ~/alt -d {images}");
    world.good(&format!("{import} -N t_encryption"));
    let locked = "cannot mount 't_encryption/aes-128-gcm': encryption key not loaded\n";
    world.bad("zfs mount t_encryption/aes-128-gcm", 1, locked);

    let ran = world.run_with("zfs mount -l t_encryption/aes-128-gcm", "abc\n");
    let short = "Key load error: Passphrase too short (min 8).\n";
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), short));
    let ran = world.run_with("zfs mount -l t_encryption/aes-128-gcm", "passwort1\n");
    let wrong = "Key load error: Incorrect key provided for 't_encryption/aes-128-gcm'.\n";
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), wrong));
    world.bad("zfs mount t_encryption/aes-128-gcm", 1, locked);

    let key = testkit::keys::material("passphrase").expect("a key");
    let ran = world.run_with("zfs mount -l t_encryption/aes-128-gcm", &key);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let at = world.path("alt/mnt/encryption/aes-128-gcm");
    let mut files = 0;
    for entry in fixture.entries().filter(|entry| entry.ds == "t_encryption/aes-128-gcm") {
        if let (Some(sum), false) = (&entry.sha256, entry.hashes_segments()) {
            let path = at.join(OsStr::from_bytes(&entry.path));
            assert_eq!(&testkit::sha256(&fs::read(&path).expect("readable")), sum, "{}", path.display());
            files += 1;
        }
    }
    assert!(files > 0, "nothing was compared");
    // The key stays loaded until the pool is exported.
    world.good("zfs unmount t_encryption/aes-128-gcm");
    world.good("zfs mount -l t_encryption/aes-128-gcm");
    fs::write(world.path("key"), &key).expect("written");
    let named = format!("t_encryption/aes-128-gcm={}", world.path("key").display());
    let ran: Ran =
        world.command("zfs list -H -o name").env("CENOTE_KEYS", named).output().expect("it runs").into();
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "a key that is loaded already");
    let ran = world.run("zfs mount -l t_encryption/raw");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.starts_with("Key load error: Failed to open key material file: /"), "{ran:?}");
    // Datasets without an available key are skipped; those whose key was not given are reported.
    world.good("zpool export t_encryption");
    assert_eq!(world.mounts(), ["tank /tank"]);
    let ran = world.run(&format!("{import} t_encryption"));
    assert!(ran.err.is_empty() && ran.code == Some(0), "{ran:?}");
    assert_eq!(world.mounts(), ["tank /tank", "t_encryption /mnt/encryption"]);
    let ran = world.run("zfs mount -a -l");
    assert!(
        ran.err.contains("Key load error: Passphrase too short (min 8).") && ran.code == Some(1),
        "{ran:?}"
    );
    world.good("zpool export t_encryption");
}

#[test]
fn a_project_that_is_set_shows_in_the_times_of_the_file_at_once() {
    use std::os::unix::fs::MetadataExt;
    let Some(world) = World::new() else { return };
    world.good("zfs create tank/a");
    let at = world.path("alt/tank/a/folder");
    fs::create_dir(&at).expect("made");
    let changed = || fs::metadata(&at).map(|found| (found.ctime(), found.ctime_nsec())).expect("there");
    let before = changed();
    world.good(&format!("zfs project -p 7 -s {}", at.display()));
    assert!(changed() > before);
    let before = changed();
    world.good(&format!("zfs project -C {}", at.display()));
    assert!(changed() > before);
}

#[test]
fn what_somebody_else_unmounted_is_mounted_again_at_once() {
    let Some(world) = World::new() else { return };
    world.good("zfs create tank/a");
    let at = world.path("alt/tank/a");
    fs::write(at.join("file"), "text").expect("written");
    let umount = |how: &[&str]| {
        let done = Command::new("umount").args(how).arg(&at).status().expect("it starts");
        assert!(done.success());
    };
    for _ in 0..10 {
        umount(&[]);
        assert_eq!(world.good("zfs get -H -o value mounted tank/a"), "no\n");
        world.good("zfs mount tank/a");
        umount(&[]);
        world.good("zfs mount tank/a");
    }
    // A program continues to use a hidden mount.
    let open = fs::OpenOptions::new().read(true).write(true).open(at.join("file")).expect("opened");
    umount(&["-l"]);
    assert_eq!(world.mounts(), ["tank /tank"]);
    world.good("zfs mount tank/a");
    assert_eq!(fs::read_to_string(at.join("file")).expect("read"), "text");
    open.write_all_at(b"TEXT more", 0).expect("written");
    open.sync_all().expect("durable");
    drop(open);
    world.good("zfs unmount tank/a");
    world.good("zfs mount tank/a");
    assert_eq!(fs::read_to_string(at.join("file")).expect("read"), "TEXT more");
    world.good("zpool export tank");
    world.good("zpool import -d ~/disk -R ~/alt tank");
    assert_eq!(fs::read_to_string(at.join("file")).expect("read"), "TEXT more");
}

#[test]
fn what_is_below_goes_too_wherever_it_is_mounted() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -p tank/a/b/c");
    world.good("zfs create -o mountpoint=/elsewhere tank/a/b/c/own");
    world.good("zfs create -o mountpoint=legacy tank/a/b/c/legacy");
    fs::create_dir(world.path("at")).expect("made");
    world.good("tank/a/b/c/legacy ~/at -o rw");
    world.good("zfs unmount tank/a/b");
    let mounts = world.mounts();
    assert_eq!(mounts[..2], ["tank /tank", "tank/a /tank/a"], "{mounts:?}");
    assert!(mounts[2].starts_with("tank/a/b/c/legacy ") && mounts.len() == 3, "{mounts:?}");
}

/// A child that was mounted before its parent would be hidden by it.
#[test]
fn what_is_mounted_before_its_parent_is_not_hidden_by_it() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -p tank/a/n");
    world.good("zfs unmount tank/a");
    world.good("zfs mount tank/a/n");
    fs::write(world.path("alt/tank/a/n/file"), "text").expect("written");
    world.good("zfs mount tank/a");
    assert_eq!(fs::read_to_string(world.path("alt/tank/a/n/file")).expect("it is seen"), "text");
    world.good("zfs unmount tank/a/n");
    world.good("zfs mount tank/a/n");
    // A mount in use is not moved aside.
    world.good("zfs unmount tank/a");
    world.good("zfs mount tank/a/n");
    let open = fs::File::open(world.path("alt/tank/a/n/file")).expect("opened");
    let ran = world.run("zfs mount tank/a");
    let said = "cannot mount 'tank/a': 'tank/a/n' is mounted below: pool or dataset is busy\nin use by: ";
    assert!(ran.code == Some(1) && ran.err.starts_with(said), "{ran:?}");
    drop(open);
    world.good("zfs mount tank/a");
    world.good("zfs rename tank/a tank/b");
    assert_eq!(world.mounts(), ["tank /tank", "tank/b /tank/b", "tank/b/n /tank/b/n"]);
    // Another program can still hide it: the error names the upper mount, and the newest mount is unmounted
    // first.
    let at = world.path("alt/tank/b");
    let mount = |words: &[&str]| {
        assert!(Command::new(words[0]).args(&words[1..]).arg(&at).status().expect("runs").success())
    };
    mount(&["mount", "-t", "tmpfs", "tmpfs"]);
    world.bad(
        "zfs unmount tank/b/n",
        1,
        "cannot unmount '~/alt/tank/b/n': it is hidden by what is mounted on ~/alt/tank/b\n",
    );
    mount(&["umount"]);
    world.good("zpool export tank");
}

#[test]
fn a_pool_with_a_child_that_was_mounted_before_its_parent_is_exported_by_force() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -p tank/a/n");
    let file = world.path("alt/tank/a/n/file");
    fs::write(&file, "text").expect("written");
    for round in ["out of order", "hidden by another hand"] {
        world.good("zfs unmount tank/a");
        world.good("zfs mount tank/a/n");
        if round == "out of order" {
            world.good("zfs mount tank/a");
        } else {
            let at = world.path("alt/tank/a");
            let mut command = Command::new("mount");
            assert!(command.args(["-t", "tmpfs", "tmpfs"]).arg(&at).status().expect("it starts").success());
            let ran = world.run("zpool export -f tank");
            let mut command = Command::new("umount");
            assert!(command.arg(&at).status().expect("it starts").success());
            let said = "cannot unmount '~/alt/tank/a/n': it is hidden by what is mounted on ~/alt/tank/a\n";
            assert_eq!((ran.code, ran.err.as_str()), (Some(1), said));
        }
        world.good("zpool export -f tank");
        let mounts = fs::read_to_string("/proc/self/mounts").expect("read");
        assert!(!mounts.contains(world.folder().to_str().expect("text")), "{round}: {mounts}");
        world.good("zpool import -d ~/disk -R ~/alt tank");
        assert_eq!(world.mounts(), ["tank /tank", "tank/a /tank/a", "tank/a/n /tank/a/n"], "{round}");
        assert_eq!(fs::read_to_string(&file).expect("read"), "text", "{round}");
    }
}

/// In OpenZFS, the first mount is hidden, and appears again when the other is unmounted.
#[test]
fn what_was_mounted_over_is_there_again_after_unmounting() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -o mountpoint=/x/low tank/low");
    world.good("zfs create -o mountpoint=/x tank/high");
    fs::write(world.path("alt/x/low/file"), "text").expect("written");
    let [high, low, root] = ["tank/high /x", "tank/low /x/low", "tank /tank"];
    let is_there = |mounts: &[&str]| {
        assert_eq!(world.mounts(), mounts);
        assert_eq!(fs::read_to_string(world.path("alt/x/low/file")).expect("it is seen"), "text");
    };
    is_there(&[root, high, low]);
    for verb in ["unmount", "unmount -f"] {
        world.good(&format!("zfs {verb} tank/high"));
        is_there(&[root, low]);
        world.good("zfs mount tank/high");
        is_there(&[root, high, low]);
    }
    // A mount in use is not moved aside, and the table does not change.
    let open = fs::File::open(world.path("alt/x/low/file")).expect("opened");
    let ran = world.run("zfs unmount -f tank/high");
    let said = "cannot unmount '~/alt/x': 'tank/low' is mounted below: pool or dataset is busy\nin use by: ";
    assert!(ran.code == Some(1) && ran.err.starts_with(said), "{ran:?}");
    drop(open);
    is_there(&[root, high, low]);
    // Nor is it moved aside if the file system above cannot be unmounted because it is itself in use.
    let open = fs::File::create(world.path("alt/x/own")).expect("made");
    let ran = world.run("zfs unmount tank/high");
    assert!(
        ran.code == Some(1) && ran.err.starts_with("cannot unmount '~/alt/x': pool or dataset is busy\n")
    );
    drop(open);
    is_there(&[root, high, low]);
    world.good("zfs rename -u tank/high tank/upper");
    world.good("zfs destroy tank/upper");
    is_there(&[root, low]);
    // A file system that a user mounts in another one on purpose keeps that one busy.
    world.good("zfs create -o mountpoint=/x tank/high");
    world.good("zfs unmount tank/low");
    world.good("zfs mount tank/low");
    for verb in ["unmount", "unmount -f"] {
        world.bad(&format!("zfs {verb} tank/high"), 1, "cannot unmount '~/alt/x': pool or dataset is busy\n");
    }
    is_there(&[root, high, low]);
}

#[test]
fn a_file_system_is_mounted_in_one_that_has_reached_its_quota() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -o compression=off -o quota=4M tank/a");
    world.good("zfs create -u tank/a/b");
    let mut file = fs::File::create(world.path("alt/tank/a/file")).expect("made");
    while file.write_all(&[1; 1 << 16]).and_then(|()| file.sync_all()).is_ok() {}
    drop(file);
    world.good("zpool sync tank");
    assert!(fs::create_dir(world.path("alt/tank/a/dir")).is_err(), "else there is nothing to see");
    world.good("zpool export tank");
    world.good("zpool import -d ~/disk -R ~/alt tank");
    assert_eq!(world.mounts(), ["tank /tank", "tank/a /tank/a", "tank/a/b /tank/a/b"]);
    assert!(fs::create_dir(world.path("alt/tank/a/dir")).is_err());
}

/// As in OpenZFS, both places show one file system; the next daemon mounts it in both again.
#[test]
fn a_file_system_in_a_second_place() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -p tank/a/b");
    for name in ["second", "third"] {
        fs::create_dir(world.path(name)).expect("made");
    }
    let list = || {
        let list = world.good("zfs mount");
        list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let usual = ["tank ~/alt/tank", "tank/a ~/alt/tank/a", "tank/a/b ~/alt/tank/a/b"];
    let with = |place: &'static str| [&usual[..], &[place]].concat();
    world.good("zfs mount --on ~/second -o zfsutil,noexec tank/a");
    world.bad(
        "zfs mount --on ~/second -o zfsutil tank/a",
        1,
        "cannot mount 'tank/a': filesystem already mounted\n",
    );
    world.bad(
        "zfs mount --on ~/third -o zfsutil,ro tank/a",
        1,
        "cannot mount 'tank/a': mountpoint or dataset is busy\n",
    );
    world.bad("zfs mount tank/a", 1, "cannot mount 'tank/a': filesystem already mounted\n");
    assert_eq!(list(), with("tank/a ~/second"));
    fs::write(world.path("second/file"), "text").expect("written");
    assert_eq!(fs::read_to_string(world.path("alt/tank/a/file")).expect("read"), "text");
    let is_noexec = || {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("read");
        let at = world.path("second").display().to_string();
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(&at)).expect("mounted");
        line.split(' ').nth(3).expect("options").split(',').any(|word| word == "noexec")
    };
    assert!(is_noexec());
    // With an end in order, and with a kill.
    world.good("daemon --stop");
    assert_eq!(list(), with("tank/a ~/second"));
    assert!(is_noexec());
    let status = world.good("daemon --status");
    let pid = status.split("process ").nth(1).and_then(|rest| rest.split(',').next()).expect("told");
    assert!(Command::new("kill").args(["-9", pid]).status().expect("it runs").success());
    assert_eq!(list(), with("tank/a ~/second"));
    assert_eq!(fs::read_to_string(world.path("second/file")).expect("read"), "text");
    // One place is unmounted alone, by its path; after a rename of the dataset, the other place stays.
    world.good("zfs mount --on ~/third -o zfsutil tank/a");
    world.good("zfs unmount ~/second");
    assert_eq!(list(), with("tank/a ~/third"));
    world.good("zfs rename tank/a tank/r");
    let renamed = ["tank ~/alt/tank", "tank/r ~/alt/tank/r", "tank/r ~/third", "tank/r/b ~/alt/tank/r/b"];
    assert_eq!(list(), renamed);
    world.good("zfs unmount tank/r");
    assert_eq!(list(), ["tank ~/alt/tank"]);
    world.good("zfs mount -a");
    world.good("zfs mount --on ~/third -o zfsutil tank/r");
    world.good("zpool export tank");
    assert!(fs::read_dir(world.path("third")).expect("read").next().is_none());
    world.good("zpool import -d ~/disk -R ~/alt tank");
    assert_eq!(list().len(), 3, "what was exported is where its properties say");
}

#[test]
fn what_could_not_be_mounted_is_in_the_status() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -o overlay=off tank/a");
    world.good("zfs unmount tank/a");
    assert_eq!(world.good("zpool status -x"), "all pools are healthy\n", "that is somebody's will");
    fs::write(world.path("alt/tank/a/in the way"), "").expect("written");
    assert_eq!(world.run("zfs mount -a").code, Some(1));
    let status = world.good("zpool status -x");
    let said = "mounts: The following file systems could not be mounted:\n\n        tank/a: directory is not empty\n";
    assert!(status.contains("  pool: tank\n") && status.ends_with(said), "{status}");
    let json: serde_json::Value = serde_json::from_str(&world.good("zpool status -x -j")).expect("JSON");
    let not_mounted = &json["pools"]["tank"]["not_mounted"];
    assert_eq!(*not_mounted, serde_json::json!({"tank/a": "directory is not empty"}));
    fs::remove_file(world.path("alt/tank/a/in the way")).expect("removed");
    world.good("zfs mount -a");
    assert_eq!(world.good("zpool status -x"), "all pools are healthy\n");
}

/// Root removes and mounts nothing at the target of a user's link.
#[test]
fn links_of_users_lead_root_nowhere() {
    let Some(world) = World::new() else { return };
    world.good("zfs create tank/u");
    world.good("zfs create -u tank/u/c");
    world.good("zfs create -u tank/u/c/d");
    fs::create_dir_all(world.path("victim/d")).expect("made");
    let link = world.path("alt/tank/u/c");
    std::os::unix::fs::symlink(world.path("victim"), &link).expect("linked");
    std::os::unix::fs::lchown(&link, Some(65_534), Some(65_534)).expect("given away");
    let said = "failed to create mountpoint: ~/alt/tank/u/c is a symbolic link of user 65534\n";
    world.bad("zfs mount tank/u/c", 1, &format!("cannot mount '~/alt/tank/u/c': {said}"));
    world.bad("zfs mount tank/u/c/d", 1, &format!("cannot mount '~/alt/tank/u/c/d': {said}"));
    // A dataset that is not mounted is renamed, and its folder would be removed.
    world.good("zfs rename tank/u/c tank/u/e");
    assert!(world.path("victim/d").is_dir(), "an empty folder that somebody else had");
    // A folder that was not made for a mount is not removed.
    fs::create_dir(world.path("alt/tank/u/own")).expect("made");
    world.good("zfs create tank/u/own");
    world.good("zfs destroy tank/u/own");
    assert!(world.path("alt/tank/u/own").is_dir());
    world.good("zfs create tank/u/made");
    world.good("zfs destroy tank/u/made");
    assert!(!world.path("alt/tank/u/made").exists());
    // A link of root's is followed.
    fs::create_dir(world.path("elsewhere")).expect("made");
    std::os::unix::fs::symlink(world.path("elsewhere"), world.path("alt/tank/u/e")).expect("linked");
    world.good("zfs mount tank/u/e/d");
    assert!(fs::read_to_string("/proc/self/mounts").expect("read").contains("/elsewhere/d "));
    world.good("zpool export tank");
}

#[test]
fn snapshots_by_hand_and_in_use() {
    let Some(world) = World::new() else { return };
    world.good("zfs create tank/a");
    let file = world.path("alt/tank/a/file");
    fs::write(&file, "one").expect("written");
    world.good("zfs snapshot tank/a@s");
    fs::write(&file, "two").expect("written");
    let at = world.path("at");
    fs::create_dir(&at).expect("made");
    world.good("tank/a@s ~/at -o rw");
    world.good("zpool sync");
    assert_eq!(fs::read_to_string(at.join("file")).expect("read"), "one");
    let written = fs::write(at.join("file"), "three").map_err(|error| error.kind());
    assert_eq!(written, Err(std::io::ErrorKind::ReadOnlyFilesystem));
    world.bad("tank/a@nothing ~/at", 1, "cannot open 'tank/a@nothing': dataset does not exist\n");
    let busy = "cannot destroy snapshot tank/a@s: dataset is busy\n";
    world.bad("zfs destroy tank/a@s", 1, busy);
    world.bad("zfs destroy -r tank/a", 1, busy);
    world.good("zpool export tank");
    assert_eq!(fs::read_dir(&at).expect("listed").count(), 0);
    world.good("zpool import -d ~/disk -R ~/alt tank");
    // A process with its working directory there.
    let inside = world.path("alt/tank/a/.zfs/snapshot/s");
    let mut child = Command::new("sleep").arg("1000").current_dir(&inside).spawn().expect("it starts");
    world.good("zfs snapshot tank/a@t");
    world.good("zfs destroy tank/a@t");
    world.bad("zfs destroy tank/a@s", 1, busy);
    child.kill().expect("it ends");
    child.wait().expect("it has ended");
    // A process that reads a file there.
    let open = fs::File::open(inside.join("file")).expect("opened");
    world.bad("zfs destroy tank/a@s", 1, busy);
    drop(open);
    world.good("zfs destroy tank/a@s");
}

#[test]
fn a_visible_entrance_is_a_link_more() {
    use std::os::unix::fs::MetadataExt;
    let Some(world) = World::new() else { return };
    let links = || fs::metadata(world.path("alt/tank")).expect("there").nlink();
    assert_eq!(links(), 2);
    world.good("zfs set snapdir=visible tank");
    assert_eq!(links(), 3);
    fs::create_dir(world.path("alt/tank/d")).expect("made");
    assert_eq!(links(), 4);
    world.good("zfs set snapdir=hidden tank");
    assert_eq!(links(), 3);
}

#[test]
fn without_attributes_of_programs() {
    let Some(world) = World::new() else { return };
    let file = world.path("alt/tank/file");
    fs::write(&file, "").expect("written");
    let set = |name: &str| rustix::fs::setxattr(&file, name, b"v", rustix::fs::XattrFlags::empty());
    set("user.a").expect("set");
    world.good("zfs unmount tank");
    world.good("zfs mount -o noxattr tank");
    assert_eq!(world.good("zfs get -H -o value,source xattr tank"), "off\ttemporary\n");
    let mut room = [0; 16];
    let mut get = |name: &str| rustix::fs::getxattr(&file, name, &mut room[..]);
    assert_eq!(get("user.a"), Err(rustix::io::Errno::OPNOTSUPP));
    assert_eq!(set("user.b"), Err(rustix::io::Errno::OPNOTSUPP));
    assert_eq!(rustix::fs::listxattr(&file, &mut [0_u8; 64][..]), Ok(0));
    world.good("zfs unmount tank");
    world.good("zfs mount tank");
    assert_eq!(get("user.a"), Ok(1));
}

/// The lists are those of OpenZFS 2.3.2 after the same commands.
#[test]
fn damage_is_told_of_every_dataset_that_has_the_block() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -o compression=off tank/f");
    let marker = "the only block with these words ".repeat(4096);
    fs::write(world.path("alt/tank/f/x"), &marker).expect("written");
    for words in
        ["snapshot tank/f@s1", "clone tank/f@s1 tank/c1", "snapshot tank/c1@s2", "clone tank/c1@s2 tank/c2"]
    {
        world.good(&format!("zfs {words}"));
    }
    world.good("zpool export tank");
    let disk = world.path("disk");
    let image = fs::read(&disk).expect("read");
    let mut sectors = (0..image.len()).step_by(512);
    let at = sectors.find(|at| image[*at..].starts_with(&marker.as_bytes()[..64])).expect("it is there");
    let file = fs::OpenOptions::new().write(true).open(&disk).expect("opened");
    file.write_all_at(&[0xa5; 512], at as u64).expect("written");
    drop(file);
    world.good("zpool import -d ~/disk -R ~/alt tank");
    world.good("zpool scrub -w tank");
    let damaged = || -> Vec<String> {
        let text = world.good("zpool status -v tank");
        let Some((_, list)) = text.split_once("in the following files:\n\n") else {
            assert!(text.contains("errors: No known data errors"), "{text}");
            return Vec::new();
        };
        list.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let [f, c1, c2] = ["f", "c1", "c2"].map(|name| format!("~/alt/tank/{name}/x"));
    let all = [&f, "tank/f@s1:/x", &c1, "tank/c1@s2:/x", &c2];
    assert_eq!(damaged(), all);
    fs::remove_file(world.path("alt/tank/f/x")).expect("removed");
    fs::remove_file(world.path("alt/tank/c2/x")).expect("removed");
    world.good("zpool sync");
    assert_eq!(damaged(), all[1..4]);
    world.good("zfs promote tank/c1");
    assert_eq!(damaged(), [&c1, "tank/c1@s1:/x", "tank/c1@s2:/x"]);
    fs::remove_file(world.path("alt/tank/c1/x")).expect("removed");
    world.good("zfs destroy -R tank/c1@s2");
    world.good("zpool sync");
    assert_eq!(damaged(), ["tank/c1@s1:/x"]);
    world.good("zfs destroy -R tank/c1@s1");
    world.good("zpool sync");
    assert_eq!(damaged(), [""; 0]);
}

#[test]
fn waiting_until_removed_files_are_freed() {
    let Some(world) = World::new() else { return };
    world.good("zfs create tank/a");
    world.good("zfs wait tank/a");
    world.bad("zfs wait tank/nosuch", 1, "cannot open 'tank/nosuch': dataset does not exist\n");
    let path = world.path("alt/tank/a/file");
    fs::write(&path, "text").expect("written");
    let open = fs::File::open(&path).expect("opened");
    fs::remove_file(&path).expect("removed");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| world.good("zfs wait -t deleteq tank/a"));
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(!waiting.is_finished(), "somebody has it open");
        drop(open);
        waiting.join().expect("it ends");
    });
    world.good("zfs unmount tank/a");
    world.good("zfs wait tank/a");
}
