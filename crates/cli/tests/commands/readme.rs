//! Runs the commands of README.md in their order, on a machine with the folders that README.md assumes.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![allow(missing_docs)]

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// The blocks of commands: lines that begin with four spaces, except `cargo` commands, which build and
/// measure.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    let mut blocks: Vec<Vec<&str>> = vec![Vec::new()];
    let mut is_fenced = false;
    for line in text.lines() {
        is_fenced ^= line.starts_with("```");
        match line.strip_prefix("    ").filter(|_| !is_fenced) {
            Some(command) => blocks.last_mut().expect("one").push(command),
            None => blocks.push(Vec::new()),
        }
    }
    blocks.retain(|block| block.first().is_some_and(|first| !first.starts_with("cargo ")));
    blocks
}

/// Script that makes its own root folder in memory, with the system's folders and those that README.md
/// assumes, and runs the commands there. All files and processes are gone when the first process of its
/// namespace has ended.
const ROOM: &str = r#"
root=$1 program=$2 script=$3
mount -t tmpfs none "$root"
for path in /*; do
    case $path in
    /proc | /tmp | /images | /mnt | /srv | /media | /tank | /program) continue ;;
    esac
    if [ -L "$path" ]; then
        cp -P "$path" "$root$path"
    elif [ -d "$path" ]; then
        mkdir "$root$path"
        mount --rbind "$path" "$root$path"
    fi
done
mkdir -p "$root"/proc "$root"/tmp "$root"/images "$root"/mnt/tank "$root"/mnt/home "$root"/program
mkdir -p "$root"/srv/photos/2025 "$root"/srv/camera
mount -t proc proc "$root"/proc
echo 'beach.jpg' >"$root"/srv/photos/list.txt
head -c 300000 /dev/urandom >"$root"/srv/photos/2025/beach.jpg
cp "$root"/srv/photos/2025/beach.jpg "$root"/srv/camera/new.jpg
touch "$root"/program/cenote
mount --bind "$program" "$root"/program/cenote
for name in zpool zfs zdb fsstat; do ln -s cenote "$root"/program/$name; done
cp "$script" "$root"/script
exec chroot "$root" /usr/bin/env -i HOME=/tmp PATH=/program:/usr/sbin:/usr/bin:/sbin:/bin \
    CENOTE_STATE=/tmp/state CENOTE_SOCKET=/tmp/socket bash -euo pipefail -x /script
"#;

/// Waits for mounts that serve themselves in the background: they end some moments after `umount`.
const UNTIL_ENDED: &str = "while pgrep -f 'cenote mount' >/dev/null; do sleep 0.05; done\n";

fn script() -> String {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md"));
    let readme = readme.expect("README.md");
    let mut script = "cd /tmp\n".to_owned();
    for block in blocks(&readme) {
        for line in block {
            writeln!(script, "{line}").expect("memory");
            if line.contains("umount") {
                script.push_str(UNTIL_ENDED);
            }
        }
    }
    script
        .push_str("cmp /srv/photos/2025/beach.jpg /mnt/rescue/photos/2025/beach.jpg\necho done, all of it\n");
    script
}

#[test]
fn the_commands_of_the_readme_work() {
    if !testkit::need_root() || !testkit::need_file("/dev/fuse") || testkit::need_tool("zstd").is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let [root, room, commands] = ["root", "room", "commands"].map(|name| folder.path().join(name));
    std::fs::create_dir(&root).expect("made");
    std::fs::write(&room, ROOM).expect("written");
    std::fs::write(&commands, script()).expect("written");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-eu"]);
    command.arg(&room).arg(&root).arg(env!("CARGO_BIN_EXE_cenote")).arg(&commands);
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let messages = String::from_utf8_lossy(&output.stderr);
    if messages.contains("unshare failed: Operation not permitted") {
        return testkit::skip("no namespaces here");
    }
    assert!(output.status.success() && said.ends_with("done, all of it\n"), "{messages}\n{said}");
}
