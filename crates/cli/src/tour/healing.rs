//! The third part of the tour: a pool that heals after bytes were overwritten, and after a disk was away.

use super::RunsIn::Daemon;
use super::{Tour, Wrong, create, print, say};

/// Size of a disk in bytes.
const DISK: u64 = 256 << 20;

impl Tour {
    /// Runs the third part.
    pub(super) fn heal_a_pool(&self) -> Result<(), Wrong> {
        let names = ["red", "green", "blue"];
        for name in names {
            create(&self.at(name), DISK)?;
        }
        let disks = names.map(|name| self.word(name));

        say("Healing: a raidz1 of three, filled, and then 16 MiB of one disk are overwritten with noise:")?;
        let mut line = vec!["zpool", "create", "-m", "none", "safe", "raidz1"];
        line.extend(disks.iter().map(String::as_str));
        self.show(Daemon, &line)?;
        let file = self.word("noise");
        self.show(
            Daemon,
            &["dd", "if=/dev/urandom", &format!("of={file}"), "bs=1M", "count=64", "status=none"],
        )?;
        self.show(Daemon, &["cenote", "cp", &file, "safe:/"])?;
        self.show(Daemon, &["zpool", "sync", "safe"])?;
        let disk = &disks[1];
        let to = format!("of={disk}");
        self.show(
            Daemon,
            &["dd", "if=/dev/urandom", &to, "bs=1M", "seek=8", "count=16", "conv=notrunc", "status=none"],
        )?;
        say("A scrub reads every copy of every block, and writes anew what is wrong:")?;
        self.show(Daemon, &["zpool", "scrub", "-w", "safe"])?;
        let status = self.run(Daemon, &["zpool", "status", "safe"])?;
        print(&status)?;
        if !status.contains("with 0 errors") {
            return Err(Wrong::Step("the scrub has not healed everything".to_owned()));
        }
        self.show(Daemon, &["zpool", "clear", "safe"])?;
        say("A disk is taken away. Reading and writing go on; when it returns, it gets what it missed:")?;
        self.show(Daemon, &["zpool", "offline", "safe", disk])?;
        self.show(Daemon, &["cenote", "cp", &self.word("whole.tar"), "safe:/"])?;
        let back = self.word("noise.back");
        self.show(Daemon, &["cenote", "cp", "safe:/noise", &back])?;
        self.show(Daemon, &["cmp", &file, &back])?;
        self.show(Daemon, &["zpool", "status", "safe"])?;
        self.show(Daemon, &["zpool", "online", "safe", disk])?;
        self.show(Daemon, &["zpool", "wait", "-t", "resilver", "safe"])?;
        self.show(Daemon, &["zpool", "status", "-v", "safe"])?;
        self.show(Daemon, &["zpool", "export", "safe"])?;
        say("What is in these files now is a pool like any other: OpenZFS imports it.")
    }
}
