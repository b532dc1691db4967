//! The second part of the tour, a pool in use: `testpool`, its projects, a further disk, snapshots and
//! clones, statistics.

use super::RunsIn::Daemon;
use super::{Tour, Wrong, create, mounted_at, say};

/// Size of a disk in bytes.
const DISK: u64 = 256 << 20;

impl Tour {
    /// Runs the second part.
    pub(super) fn use_a_pool(&self) -> Result<(), Wrong> {
        let (one, two) = (self.word("c0t3d0"), self.word("c0t4d0"));
        let (mountpoint, export) = (self.word("mnt/testpool"), self.word("mnt/export/myprojects"));
        for disk in ["c0t3d0", "c0t4d0"] {
            create(&self.at(disk), DISK)?;
        }
        std::fs::create_dir(self.at("mnt"))?;
        say(&format!(
            "And now a pool in use. The first command starts a daemon, which keeps the pool open and mounts its file\n\
             systems; here it is one of the tour's own:\n\n    export CENOTE_SOCKET={} CENOTE_STATE={}",
            self.word("socket"),
            self.word("state")
        ))?;
        self.show(Daemon, &["zpool", "create", "-m", &mountpoint, "testpool", &one])?;
        self.show(Daemon, &["zpool", "list"])?;
        say("A container, and projects in it that inherit where it is mounted:")?;
        self.show(Daemon, &["zfs", "create", "testpool/myprojects"])?;
        self.show(Daemon, &["zfs", "set", &format!("mountpoint={export}"), "testpool/myprojects"])?;
        self.show(Daemon, &["zfs", "create", "testpool/myprojects/project1"])?;
        self.show(Daemon, &["zfs", "create", "testpool/myprojects/project2"])?;
        let is_mounted = mounted_at(|place| place == self.at("mnt/export/myprojects/project1"));
        if is_mounted {
            self.show(Daemon, &["zfs", "mount"])?;
            self.show(Daemon, &["df", "-h", &format!("{export}/project1"), &format!("{export}/project2")])?;
        } else {
            say("(File systems cannot be mounted here, so files are put in and taken out without a mount.)")?;
        }
        self.put("whole.tar", is_mounted, &export, "project1")?;
        self.put("hard0", is_mounted, &export, "project2")?;
        say("It gets another disk:")?;
        self.show(Daemon, &["zpool", "add", "testpool", &two])?;
        self.show(Daemon, &["zpool", "status", "testpool"])?;
        self.snapshots(is_mounted, &export)?;
        self.backup(is_mounted, &mountpoint)?;
        self.counters(is_mounted, &export)?;
        self.show(Daemon, &["zfs", "destroy", "testpool/myprojects/project1@snap"])?;
        self.show(Daemon, &["zpool", "history", "testpool"])?;
        self.show(Daemon, &["zpool", "destroy", "testpool"])?;
        self.show(Daemon, &["zpool", "list", "-H"])
    }

    /// Copies a file into a project.
    fn put(&self, name: &str, is_mounted: bool, export: &str, project: &str) -> Result<(), Wrong> {
        let file = self.word(name);
        if is_mounted {
            self.show(Daemon, &["cp", &file, &format!("{export}/{project}")])?;
            self.show(Daemon, &["ls", "-l", &format!("{export}/{project}")])
        } else {
            self.show(Daemon, &["cenote", "cp", &file, &format!("testpool/myprojects/{project}:/")])
        }
    }

    /// Takes a snapshot, shows the changes since, makes a clone, and destroys both.
    fn snapshots(&self, is_mounted: bool, export: &str) -> Result<(), Wrong> {
        let snapshot = "testpool/myprojects/project1@snap";
        say("A snapshot keeps what is then thrown away, and a clone goes on from there:")?;
        self.show(Daemon, &["zfs", "snapshot", snapshot])?;
        self.show(Daemon, &["zfs", "clone", snapshot, "testpool/myprojects/clone_p1"])?;
        if is_mounted {
            self.show(Daemon, &["rm", &format!("{export}/project1/whole.tar")])?;
            self.show(Daemon, &["mkdir", &format!("{export}/project1/new")])?;
            let (inside, copy) =
                (format!("{export}/project1/.zfs/snapshot/snap"), format!("{export}/clone_p1"));
            self.show(Daemon, &["ls", "-l", &inside, &copy])?;
            self.same(&format!("{inside}/whole.tar"))?;
        } else {
            self.show(Daemon, &["cenote", "rm", "testpool/myprojects/project1:/whole.tar"])?;
            self.show(Daemon, &["cenote", "mkdir", "testpool/myprojects/project1:/new"])?;
            let back = self.word("back.tar");
            self.show(Daemon, &["cenote", "cp", &format!("{snapshot}:/whole.tar"), &back])?;
            self.same(&back)?;
        }
        self.show(Daemon, &["zfs", "diff", snapshot])?;
        self.show(
            Daemon,
            &["zfs", "list", "-t", "all", "-o", "name,used,avail,refer,origin", "-r", "testpool"],
        )?;
        say("What a clone needs cannot be destroyed; then the clone goes:")?;
        self.refused(&["zfs", "destroy", snapshot])?;
        self.show(Daemon, &["zfs", "destroy", "testpool/myprojects/clone_p1"])
    }

    /// Sends a snapshot into another file system, and takes a file out of that.
    fn backup(&self, is_mounted: bool, mountpoint: &str) -> Result<(), Wrong> {
        say("A copy of the snapshot, through a pipe that may as well lead to another machine:")?;
        let snapshot = "testpool/myprojects/project1@snap";
        self.piped(&["zfs", "send", snapshot], &["zfs", "receive", "testpool/backup"])?;
        self.show(Daemon, &["zfs", "list", "-t", "all", "-r", "testpool/backup"])?;
        if is_mounted {
            self.same(&format!("{mountpoint}/backup/whole.tar"))?;
        } else {
            let copy = self.word("copy.tar");
            self.show(Daemon, &["cenote", "cp", "testpool/backup:/whole.tar", &copy])?;
            self.same(&copy)?;
        }
        self.show(Daemon, &["zfs", "destroy", "-r", "testpool/backup"])
    }

    /// Checks that an archive has the contents that went into this file.
    fn same(&self, path: &str) -> Result<(), Wrong> {
        match std::fs::read(path)? == std::fs::read(self.at("whole.tar"))? {
            true => Ok(()),
            false => Err(Wrong::Step(format!("{path} is not what it was"))),
        }
    }

    /// Shows the statistics of the pool and of its file systems.
    fn counters(&self, is_mounted: bool, export: &str) -> Result<(), Wrong> {
        say("What it does:")?;
        self.show(Daemon, &["zpool", "iostat", "-v", "testpool"])?;
        if is_mounted {
            self.show(Daemon, &["fsstat", &format!("{export}/project1"), &format!("{export}/project2")])?;
        }
        Ok(())
    }
}
