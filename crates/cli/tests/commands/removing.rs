//! `zpool remove`: its words, and a vdev that leaves a pool of a daemon and a pool without one.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
// Tests use `std` to make images and files.
#![allow(clippy::disallowed_types, missing_docs)]

use std::path::PathBuf;
use std::process::{Command, Stdio};

const SIZE: u64 = 256 << 20;
const USAGE: &str = "usage:\n\tremove [-npsw] <pool> <device> ...\n";

/// A folder with images, and a daemon of its own.
struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new(images: &[&str]) -> World {
        let world = World { folder: tempfile::tempdir().expect("a folder") };
        for image in images {
            let file = std::fs::File::create(world.path(image));
            file.and_then(|file| file.set_len(SIZE)).expect("sized");
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command: its exit code, and what it prints. `~` is the folder.
    fn run(&self, words: &str) -> (i32, String) {
        let folder = self.folder.path().to_str().expect("text");
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        let words = words.replace('~', folder);
        command.args(words.split_whitespace()).env_clear().env("TZ", "UTC0").env("PATH", "/usr/bin:/bin");
        command.env("CENOTE_SOCKET", self.path("run/socket")).env("CENOTE_STATE", self.path("state"));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        let output = command.output().expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(folder, "~");
        (output.status.code().unwrap_or(-1), text(&output.stderr) + &text(&output.stdout))
    }

    fn good(&self, words: &str) -> String {
        let (code, text) = self.run(words);
        assert_eq!(code, 0, "{words}: {text}");
        text
    }

    fn refused(&self, words: &str, code: i32, text: &str) {
        assert_eq!(self.run(words), (code, text.to_owned()), "{words}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.run("daemon --stop");
    }
}

#[test]
fn devices_of_all_kinds_leave() {
    let world = World::new(&["a", "b", "c", "d", "e", "f", "g"]);
    world.good("zpool create -f -O mountpoint=none tank ~/a ~/b ~/c log mirror ~/d ~/e cache ~/f spare ~/g");
    std::fs::write(world.path("data"), vec![7; 3 << 20]).expect("written");
    world.good("zfs set compression=off tank");
    world.good("cp ~/data tank:/data");
    world.refused("zpool remove tank", 2, &format!("missing device\n{USAGE}"));
    world.refused("zpool remove -s tank ~/a", 2, &format!("too many arguments\n{USAGE}"));
    world.refused("zpool remove nosuch ~/a", 1, "cannot open 'nosuch': no such pool\n");
    world.refused("zpool remove tank nosuch", 1, "cannot remove nosuch: no such device in pool\n");
    let unknown = "cannot determine indirect size of nosuch: no such device in pool\n";
    world.refused("zpool remove -n tank nosuch", 1, unknown);
    world.refused("zpool remove -s tank", 1, "cannot cancel removal: operation is not in progress\n");
    world.refused("zpool remove -np tank ~/g", 0, "~/g 0\n");
    let told = world.good("zpool remove -n tank ~/a");
    assert!(told.starts_with("Memory that will be used after removing ~/a: "), "{told}");
    for device in ["~/g", "~/f", "mirror-3"] {
        world.refused(&format!("zpool remove tank {device}"), 0, "");
    }
    world.refused("zpool remove -w tank ~/a", 0, "");
    let status = world.good("zpool status tank");
    assert!(
        status.contains("remove: Removal of vdev 0 copied ") && status.contains(" completed on "),
        "{status}"
    );
    assert!(status.contains(" memory used for removed device mappings\n"), "{status}");
    for gone in ["~/a", "mirror-3", "cache", "spares"] {
        assert!(!status.contains(&format!("{gone}\n")) && !status.contains(&format!("{gone} ")), "{status}");
    }
    world.refused("zpool remove tank ~/b ~/nosuch", 1, "cannot remove ~/nosuch: no such device in pool\n");
    world.good("zpool wait -t remove tank");
    world.refused("zpool remove tank ~/c", 1, "cannot remove ~/c: out of space\n");
    let history = world.good("zpool history -i tank");
    for line in [
        "vdev remove started tank vdev 0 ~/a",
        "vdev remove completed tank vdev 1",
        "vdev remove tank vdev (spare) ~/g",
    ] {
        assert!(history.contains(line), "{line}: {history}");
    }
    world.good("cp tank:/data ~/back");
    assert!(std::fs::read(world.path("back")).expect("read") == vec![7; 3 << 20]);
    world.good("zpool export tank");
    testkit::assert_zdb_clean(world.folder.path(), "tank");
}
