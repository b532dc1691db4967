//! The verbs that change files of a pool: their effects, their messages, and the state after a kill.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![allow(clippy::disallowed_types)] // it makes files

use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cenote_support::run;

/// A pool `p` with a volume `p/v` of 8 MiB, in a folder of its own.
struct Pool {
    dir: tempfile::TempDir,
}

impl Pool {
    fn new() -> Pool {
        let pool = Pool { dir: tempfile::tempdir().expect("a folder") };
        let disk = pool.path("images/disk");
        std::fs::create_dir(pool.path("images")).expect("a folder");
        std::fs::File::create(&disk).and_then(|file| file.set_len(256 << 20)).expect("a file");
        let zpool = pool.command(&["zpool", "create", "p", disk.to_str().expect("plain")]).status();
        assert!(zpool.expect("it runs").success());
        assert!(pool.command(&["zfs", "create", "-V", "8M", "p/v"]).status().expect("it runs").success());
        pool
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(args).stdin(Stdio::null()).current_dir(self.dir.path());
        command.env("CENOTE_DEVICES", self.path("images")).env("CENOTE_STATE", self.path("state"));
        command.env("CENOTE_DIRECT", "1").env_remove("ZPOOL_IMPORT_PATH");
        command
    }

    /// Runs a verb that must succeed without messages; returns its output.
    fn good(&self, args: &[&str]) -> String {
        let (code, out, err) = run(&mut self.command(args));
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        String::from_utf8(out).expect("text")
    }

    /// Runs a verb that must fail; returns its message.
    fn bad(&self, args: &[&str]) -> String {
        let (code, _, err) = run(&mut self.command(args));
        assert_eq!(code, 1, "{args:?}: {err}");
        err.trim_end().strip_prefix("cenote: ").expect("its name").to_owned()
    }

    fn judge(&self) {
        testkit::assert_zdb_clean(&self.path("images"), "p");
    }
}

#[test]
fn names() {
    let pool = Pool::new();
    pool.good(&["mkdir", "-p", "-m", "2750", "p:/a/b/c"]);
    pool.good(&["mkdir", "-p", "p:/a/b/c"]);
    assert_eq!(pool.bad(&["mkdir", "p:/a"]), "cannot create directory 'p:/a': File exists");
    assert_eq!(pool.bad(&["mkdir", "p:/x/y"]), "cannot create directory 'p:/x/y': No such file or directory");
    assert_eq!(pool.bad(&["mkdir", "-m", "u+q", "p:/x"]), "invalid mode 'u+q'");
    pool.good(&["touch", "p:/a/f", "p:/a/g"]);
    pool.good(&["touch", "-c", "p:/a/none"]);
    pool.good(&["truncate", "-s", "1M", "p:/a/f"]);
    pool.good(&["truncate", "-s", "+5", "p:/a/f"]);
    pool.good(&["ln", "-s", "some/where", "p:/a/l"]);
    pool.good(&["ln", "p:/a/f", "p:/a/b"]);
    assert_eq!(pool.bad(&["ln", "p:/a/f", "p:/a/g"]), "failed to create hard link 'p:/a/g': File exists");
    pool.good(&["ln", "-f", "p:/a/f", "p:/a/g"]);
    assert!(pool.bad(&["ln", "p:/none", "p:/a/h"]).ends_with("No such file or directory"));
    pool.good(&["chmod", "-R", "g=u,o-rwx", "p:/a"]);
    pool.good(&["chown", "-R", "7:8", "p:/a"]);
    let list = pool.good(&["ls", "-lR", "p:/a"]);
    assert!(list.contains("drwxrws---    2        7        8            2"), "{list}");
    assert!(list.contains("-rw-rw----    3        7        8      1048581"), "{list}");
    assert!(list.contains("lrwxrwxrwx    1        7        8           10"), "{list}");
    pool.good(&["mv", "p:/a/g", "p:/a/b/c"]);
    pool.good(&["mv", "-n", "p:/a/f", "p:/a/b/c/g"]);
    assert_eq!(
        pool.bad(&["mv", "p:/a", "p:/a/b"]),
        "cannot move 'p:/a' to a subdirectory of itself, 'p:/a/b/a'"
    );
    assert_eq!(pool.bad(&["mv", "p:/none", "p:/a"]), "cannot stat 'p:/none': No such file or directory");
    assert_eq!(pool.bad(&["rm", "p:/a"]), "cannot remove 'p:/a': Is a directory");
    assert_eq!(pool.bad(&["rm", "p:/none"]), "cannot remove 'p:/none': No such file or directory");
    assert!(pool.bad(&["rm", "-r", "p:/"]).contains("root of the file system"));
    assert!(pool.bad(&["rm", "-r", "p:/a/.."]).starts_with("refusing to remove '.' or '..' directory"));
    pool.good(&["rm", "-f", "p:/none"]);
    // Other targets are processed although one fails.
    assert!(pool.bad(&["rm", "-r", "p:/none", "p:/a/b"]).contains("p:/none"));
    assert_eq!(pool.good(&["ls", "p:/a"]), "f\nl\n");
    pool.good(&["rm", "-r", "p:/a"]);
    assert_eq!(pool.good(&["ls", "p:/"]), "");
    pool.judge();
}

#[test]
fn an_archive_makes_the_folder_that_it_goes_to() {
    let pool = Pool::new();
    std::fs::create_dir(pool.path("from")).expect("a folder");
    std::fs::write(pool.path("from/f"), "text").expect("a file");
    let tar =
        Command::new("tar").args(["-cf", "f.tar", "-C", "from", "f"]).current_dir(pool.path("")).status();
    assert!(tar.expect("tar runs").success());
    pool.good(&["tar", "-x", "-f", "f.tar", "p:/new/"]);
    assert_eq!(pool.good(&["cat", "p:/new/f"]), "text");
    let refused = pool.bad(&["tar", "-x", "-f", "f.tar", "p:/none/new"]);
    assert_eq!(refused, "cannot extract into 'p:/none/new': No such file or directory");
}

#[test]
fn what_cannot_be_changed() {
    let pool = Pool::new();
    pool.good(&["zfs", "snapshot", "p@s"]);
    assert!(pool.bad(&["mkdir", "p@s:/x"]).contains("a snapshot cannot be changed"));
    assert!(pool.bad(&["mkdir", "--txg", "5", "p:/x"]).contains("--txg is for reading"));
    assert!(pool.bad(&["mkdir", "q:/x"]).contains("cannot open pool 'q'"));
    assert!(pool.bad(&["mkdir", "p/none:/x"]).contains("p/none"));
    assert!(pool.bad(&["rm", "p/v"]).contains("is a volume"));
    let (code, _, _) = run(&mut pool.command(&["mkdir"]));
    assert_eq!(code, 2);
}

/// Makes a small tree with a file of every kind.
fn tree(folder: &Path) {
    std::fs::create_dir_all(folder.join("d/e")).expect("folders");
    std::fs::write(folder.join("d/f"), vec![7; 200_000]).expect("a file");
    std::fs::hard_link(folder.join("d/f"), folder.join("d/e/same")).expect("a link");
    std::os::unix::fs::symlink("../d", folder.join("d/l")).expect("a link");
    let sparse = std::fs::File::create(folder.join("holes")).expect("a file");
    sparse.write_all_at(b"x", 5 << 20).expect("room");
    std::fs::set_permissions(folder.join("d/e"), PermissionsExt::from_mode(0o2711)).expect("ours");
    for i in 0..300 {
        std::fs::write(folder.join(format!("d/e/{i}")), vec![i as u8; i]).expect("a file");
    }
}

/// Differences between two trees: in contents, and in the lines of long listings.
fn differences(one: &Path, two: &Path) -> String {
    let script = "diff -rq \"$1\" \"$2\" | head; for d in \"$1\" \"$2\"; do (cd \"$d\" && find . -printf '%p %m %u %g %s %T@ %y\\n' | sort > \"$d.list\"); done; diff \"$1.list\" \"$2.list\" | head -20";
    let output = Command::new("sh").args(["-c", script, "sh"]).arg(one).arg(two).output().expect("sh runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn archive(folder: &Path) -> Vec<u8> {
    archive_without(folder, &[])
}

/// An archive without the files of these names.
fn archive_without(folder: &Path, names: &[&str]) -> Vec<u8> {
    let mut tar = Command::new("tar");
    tar.args(names.iter().map(|name| format!("--exclude={name}")));
    tar.args([
        "--sort=name",
        "--format=pax",
        "--pax-option=delete=atime,delete=ctime,exthdr.name=%d/PaxHeaders/%f",
        "--xattrs",
        "-c",
    ]);
    let output = tar.arg("-C").arg(folder).arg(".").output().expect("tar runs");
    assert!(output.status.success());
    output.stdout
}

#[test]
fn in_and_out_again() {
    let pool = Pool::new();
    let (from, to) = (pool.path("from"), pool.path("to"));
    std::fs::create_dir_all(&from).expect("a folder");
    tree(&from);
    pool.good(&["cp", "-r", "from", "p:/one"]);
    pool.good(&["cp", "-a", "p:/one", "p:/two"]);
    pool.good(&["mkdir", "p:/three"]);
    let mut tar = pool.command(&["tar", "-x", "p:/three"]);
    let input =
        std::fs::File::create(pool.path("t.tar")).and_then(|file| file.write_all_at(&archive(&from), 0));
    input.expect("room");
    assert!(
        tar.stdin(std::fs::File::open(pool.path("t.tar")).expect("there")).status().expect("runs").success()
    );
    // A second time, over the existing copy.
    pool.good(&["cp", "-r", "from/.", "p:/one"]);
    let wanted = archive(&from);
    for name in ["one", "two", "three"] {
        let _ = std::fs::remove_dir_all(&to);
        std::fs::create_dir(&to).expect("a folder");
        pool.good(&["cp", "-r", &format!("p:/{name}"), "to"]);
        assert!(archive(&to.join(name)) == wanted, "{name}");
    }
    assert!(std::fs::metadata(to.join("three/holes")).expect("there").blocks() < 1000);
    assert!(pool.bad(&["cp", "-r", "p:/one", "p:/one/d"]).contains("into itself"));
    assert!(pool.bad(&["cp", "from", "p:/four"]).contains("-r not given"));
    assert!(pool.bad(&["cp", "p:/one/d/f", "p:/one/d/f"]).contains("the same file"));
    assert!(pool.bad(&["cp", "from/none", "./no-such", "p:/"]).contains("No such file or directory"));
    assert!(pool.bad(&["cp", "-r", "from/d", "p:/one/holes"]).contains("in the way"));
    pool.good(&["zfs", "create", "p/other"]);
    pool.good(&["mv", "p:/one", "p/other:/"]);
    assert_eq!(pool.good(&["ls", "p/other:/one"]), "d\nholes\n");
    assert_eq!(pool.good(&["ls", "p:/"]), "three\ntwo\n");
    pool.judge();
}

#[test]
fn members_of_archives() {
    let pool = Pool::new();
    std::fs::create_dir_all(pool.path("from")).expect("a folder");
    tree(&pool.path("from"));
    std::fs::write(pool.path("t.tar"), archive(&pool.path("from"))).expect("room");
    pool.good(&["tar", "-x", "-f", "t.tar", "p:/", "./d/e"]);
    assert_eq!(pool.good(&["ls", "p:/d"]), "e\n");
    assert!(
        pool.bad(&["tar", "-x", "-f", "t.tar", "p:/", "nothing"]).contains("nothing: Not found in archive")
    );
    std::fs::write(pool.path("bad.tar"), b"no archive").expect("room");
    assert!(pool.bad(&["tar", "-xf", "bad.tar", "p:/"]).contains("does not look like a tar archive"));
    let cut = &archive(&pool.path("from"))[..100_000];
    std::fs::write(pool.path("cut.tar"), cut).expect("room");
    assert!(pool.bad(&["tar", "-xf", "cut.tar", "p:/"]).contains("unexpected end"));
    assert!(pool.bad(&["tar", "-xf", "t.tar", "p:/none/deep"]).contains("No such file or directory"));
}

#[test]
fn images_into_volumes() {
    let pool = Pool::new();
    let image: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    std::fs::write(pool.path("image"), &image).expect("room");
    pool.good(&["cp", "image", "p/v"]);
    let read = run(&mut pool.command(&["cat", "p/v"])).1;
    assert!(read.len() == 8 << 20 && read.starts_with(&image) && read[image.len()..].iter().all(|b| *b == 0));
    pool.good(&["cp", "p/v", "p:/file"]);
    std::fs::write(pool.path("zero"), vec![0; 8 << 20]).expect("room");
    pool.good(&["cp", "zero", "p/v:"]);
    assert!(run(&mut pool.command(&["cat", "p/v"])).1.iter().all(|byte| *byte == 0));
    pool.good(&["cp", "p:/file", "p/v:"]);
    assert!(run(&mut pool.command(&["cat", "p/v"])).1.starts_with(&image));
    std::fs::write(pool.path("large"), vec![1; 9 << 20]).expect("room");
    assert!(pool.bad(&["cp", "large", "p/v"]).contains("the image has 9437184 bytes, the volume 8388608"));
    pool.judge();
}

/// Results are those of coreutils with the same arguments.
#[test]
fn slashes_dots_and_links_at_the_end() {
    let pool = Pool::new();
    std::fs::write(pool.path("f"), "one").expect("a file");
    pool.good(&["mkdir", "p:/d", "p:/e"]);
    pool.good(&["touch", "p:/f", "p:/g"]);
    pool.good(&["ln", "-s", "gone", "p:/dangling"]);
    pool.good(&["ln", "-s", "d", "p:/link"]);
    let not_a_directory = |args: &[&str]| assert!(pool.bad(args).ends_with("Not a directory"), "{args:?}");
    not_a_directory(&["cp", "f", "p:/f/"]);
    not_a_directory(&["cp", "f", "p:/new/"]);
    not_a_directory(&["rm", "p:/f/"]);
    not_a_directory(&["rm", "-r", "p:/link/"]);
    not_a_directory(&["mv", "p:/f", "p:/new/"]);
    assert!(pool.bad(&["mkdir", "p:/new/."]).ends_with("No such file or directory"));
    assert!(pool.bad(&["mv", "p:/d/.", "p:/new"]).ends_with("Device or resource busy"));
    assert!(
        pool.bad(&["mv", "p:/f", "p:/g", "p:/new"]).ends_with("target 'p:/new': No such file or directory")
    );
    assert_eq!(pool.bad(&["cp", "f", "p:/dangling"]), "not writing through dangling symlink 'p:/dangling'");
    assert_eq!(pool.bad(&["mv", "p:/f", "p:/f"]), "'p:/f' and 'p:/f' are the same file");
    assert_eq!(pool.good(&["ls", "p:/"]), "d\ndangling\ne\nf\ng\nlink\n");
    // Two names of one file: the old name is removed.
    pool.good(&["ln", "p:/f", "p:/d/same"]);
    pool.good(&["mv", "p:/f", "p:/d/same"]);
    assert_eq!(pool.good(&["ls", "p:/d"]), "same\n");
    pool.good(&["mkdir", "-m", "u=rwx,g=s", "p:/group"]);
    assert!(pool.good(&["stat", "p:/group"]).contains("2707"));
}

/// A verb that a signal ends closes the pool, and leaves no partial file.
#[test]
fn ended_in_the_middle() {
    let pool = Pool::new();
    let from = pool.path("from");
    std::fs::create_dir(&from).expect("a folder");
    std::fs::write(pool.path("big"), vec![7; 60 << 20]).expect("a file");
    for i in 0..3000 {
        std::fs::write(from.join(i.to_string()), vec![7; 5000]).expect("a file");
    }
    let end = |args: &[&str], pause| {
        let mut command = pool.command(args);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        // Closing its standard input would end it.
        let _input = child.stdin.take();
        let mut said = child.stderr.take().expect("its messages");
        if args.contains(&"-v") {
            // It is at work once it names the first file.
            said.read_exact(&mut [0]).expect("a name");
        }
        std::thread::sleep(std::time::Duration::from_millis(pause));
        let pid = child.id().to_string();
        let _ = Command::new("kill").arg(pid).stderr(Stdio::null()).status().expect("it runs");
        said.read_to_end(&mut Vec::new()).expect("messages");
        child.wait().expect("it ends").code()
    };
    // The signal may come before or after the end.
    let code = end(&["cp", "-r", "-v", "from", "p:/"], 10);
    assert!(matches!(code, Some(0 | 130)), "{code:?}");
    let code = end(&["cp", "-v", "big", "p:/"], 10);
    assert!(matches!(code, Some(0 | 130)), "{code:?}");
    end(&["rm", "-rf", "p:/from"], 50);
    end(&["tar", "-x", "p:/"], 100);
    for line in pool.good(&["ls", "-lR", "p:/"]).lines().filter(|line| line.starts_with('-')) {
        let size = line.split_whitespace().nth(4).expect("a size");
        assert!(size == "5000" || size == "62914560", "{line}");
    }
    pool.judge();
}

#[test]
fn killed_in_the_middle() {
    let pool = Pool::new();
    let from = pool.path("from");
    for i in 0..60 {
        let folder = from.join(i.to_string());
        std::fs::create_dir_all(&folder).expect("a folder");
        for j in 0..100 {
            std::fs::write(folder.join(j.to_string()), vec![j as u8; 3000]).expect("a file");
        }
    }
    pool.good(&["mkdir", "p:/keep"]);
    for pause in [0, 50, 150, 400] {
        let mut child = pool.command(&["cp", "-r", "from", "p:/"]).spawn().expect("it runs");
        std::thread::sleep(std::time::Duration::from_millis(pause));
        // It may have ended already.
        let _ = child.kill();
        let _ = child.wait();
        assert!(pool.good(&["ls", "p:/"]).contains("keep"));
    }
    pool.good(&["cp", "-r", "from", "p:/"]);
    pool.judge();
    std::fs::create_dir(pool.path("to")).expect("a folder");
    pool.good(&["cp", "-r", "p:/from", "to"]);
    let back = pool.path("to/from");
    // A killed copy may leave the file that it was writing, under a temporary name.
    let left = [".cenote.*"];
    assert!(archive(&from) == archive_without(&back, &left), "{}", differences(&from, &back));
    pool.good(&["rm", "-r", "p:/from"]);
    assert_eq!(pool.good(&["ls", "p:/"]), "keep\n");
    pool.judge();
}
