//! The file systems that are compared: each made anew on one image, mounted, and taken down again.
//!
//! # What always holds
//! - All that have a device have the same one: a loop device without a cache of its own, over a file that was filled
//!   before, so that the disk below has nothing to allocate.
//! - Whatever was mounted, attached or switched is as it was when its owner is dropped.

use super::tools::{Tools, run};
use crate::Failure;
use clap::ValueEnum;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const URING: &str = "/sys/module/fuse/parameters/enable_uring";
const POOL: &str = "cenotebench";
/// How long a mount may take to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum System {
    /// The kernel's usual one.
    Ext4,
    /// XFS.
    Xfs,
    /// The kernel's own with copies and checksums.
    Btrfs,
    /// ZFS through FUSE, of 2011 and later.
    ZfsFuse,
    /// Nothing, through /dev/fuse.
    Floor,
    /// Nothing, over io_uring.
    FloorUring,
    /// Ours, through /dev/fuse.
    Cenote,
    /// Ours, over io_uring.
    CenoteUring,
}

/// What a mount is for: where that can be chosen, records are as large as what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Files,
    Database,
}

impl System {
    pub(super) fn name(self) -> &'static str {
        match self {
            System::Ext4 => "ext4",
            System::Xfs => "xfs",
            System::Btrfs => "btrfs",
            System::ZfsFuse => "zfs-fuse",
            System::Floor => "floor",
            System::FloorUring => "floor-uring",
            System::Cenote => "cenote",
            System::CenoteUring => "cenote-uring",
        }
    }

    /// A kernel's own file system: its type, and how it is made.
    fn mkfs(self) -> Option<(&'static str, &'static [&'static str])> {
        Some(match self {
            System::Ext4 => ("ext4", &["mkfs.ext4", "-q", "-F", "-E", "nodiscard"]),
            System::Xfs => ("xfs", &["mkfs.xfs", "-q", "-f", "-K"]),
            System::Btrfs => ("btrfs", &["mkfs.btrfs", "-q", "-f", "-K"]),
            _ => return None,
        })
    }

    pub(super) fn is_floor(self) -> bool {
        matches!(self, System::Floor | System::FloorUring)
    }

    fn wants_uring(self) -> bool {
        matches!(self, System::FloorUring | System::CenoteUring)
    }
}

/// Where all measurements are made: a folder with the image, and the loop device over it.
pub(super) struct Ground {
    dir: tempfile::TempDir,
    device: PathBuf,
    /// The switch of FUSE over io_uring as it was.
    uring: Option<String>,
    pub(super) tools: Tools,
}

impl Ground {
    /// Makes an image of so many bytes in `dir`, every byte of it written.
    pub(super) fn new(dir: &Path, bytes: u64, tools: Tools) -> Result<Ground, Failure> {
        let dir = tempfile::Builder::new().prefix("bench-mount").tempdir_in(dir)?;
        let image = dir.path().join("image");
        let mut file = std::fs::File::create(&image)?;
        let zeros = vec![0; 4 << 20];
        for _ in 0..bytes / zeros.len() as u64 {
            file.write_all(&zeros)?;
        }
        file.sync_all()?;
        let text = run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&image))?;
        let device = PathBuf::from(text.trim());
        let uring = std::fs::read_to_string(URING).ok().map(|text| text.trim().to_owned());
        Ok(Ground { dir, device, uring, tools })
    }

    fn set_uring(&self, on: bool) -> Result<(), Failure> {
        if on && self.uring.is_none() {
            return Err("this kernel has no FUSE over io_uring".into());
        }
        if self.uring.is_some() {
            std::fs::write(URING, if on { "Y" } else { "N" })?;
        }
        Ok(())
    }

    /// Makes a file system and mounts it.
    pub(super) fn open(&self, kind: System) -> Result<Site<'_>, Failure> {
        let at = self.dir.path().join("mnt");
        std::fs::create_dir_all(&at)?;
        self.set_uring(kind.wants_uring())?;
        let mut site = Site { kind, ground: self, at, server: None, purpose: Purpose::Files };
        site.make()?;
        site.mount()?;
        Ok(site)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.device));
        if let Some(before) = &self.uring {
            let _ = std::fs::write(URING, before);
        }
    }
}

/// A mounted file system.
pub(super) struct Site<'g> {
    pub(super) kind: System,
    ground: &'g Ground,
    at: PathBuf,
    server: Option<Child>,
    purpose: Purpose,
}

impl Site<'_> {
    /// The folder to work in.
    pub(super) fn dir(&self) -> PathBuf {
        match (self.kind, self.purpose) {
            (System::ZfsFuse, Purpose::Database) => self.at.join("database"),
            _ => self.at.clone(),
        }
    }

    pub(super) fn server_pid(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    pub(super) fn has_device(&self) -> bool {
        !self.kind.is_floor()
    }

    pub(super) fn device_stat(&self) -> Option<String> {
        let name = self.ground.device.file_name()?.to_str()?;
        std::fs::read_to_string(format!("/sys/block/{name}/stat")).ok()
    }

    pub(super) fn tools(&self) -> &Tools {
        &self.ground.tools
    }

    /// Our program, in process, on this device only.
    fn cenote(&self) -> Command {
        let mut command = Command::new(&self.tools().cenote);
        let state = self.ground.dir.path().join("state");
        command.env("CENOTE_DIRECT", "1").env("CENOTE_STATE", state);
        command.env("CENOTE_DEVICES", &self.ground.device);
        command
    }

    fn make(&mut self) -> Result<(), Failure> {
        let device = &self.ground.device;
        // What one left must not be found by the next.
        run(Command::new("wipefs").args(["--all", "--quiet"]).arg(device))?;
        if let Some((_, words)) = self.kind.mkfs() {
            let (program, words) = words.split_first().ok_or("no mkfs")?;
            run(Command::new(program).args(words).arg(device))?;
        }
        match self.kind {
            System::ZfsFuse => self.make_zfs_fuse(),
            System::Cenote | System::CenoteUring => {
                std::fs::create_dir_all(self.ground.dir.path().join("state"))?;
                let options =
                    ["-O", "compression=lz4", "-O", "xattr=sa", "-O", "acltype=posix", "-O", "atime=off"];
                run(self.cenote().args(["zpool", "create", "-f"]).args(options).arg(POOL).arg(device))?;
                run(self.cenote().args(["zfs", "create", &format!("{POOL}/files")]))?;
                let database = format!("{POOL}/database");
                run(self.cenote().args(["zfs", "create", "-o", "recordsize=8k", &database]))?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn make_zfs_fuse(&mut self) -> Result<(), Failure> {
        let tools = self
            .tools()
            .zfs_fuse
            .clone()
            .ok_or("zfs-fuse is not here (cargo xtask bench mount unpacks it)")?;
        let server = tools
            .command("zfs-fuse")
            .arg("--no-daemon")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.server = Some(server);
        std::thread::sleep(Duration::from_secs(2));
        let at = self.at.to_string_lossy().into_owned();
        let mut create = tools.command("zpool");
        create.args([
            "create",
            "-f",
            "-o",
            "cachefile=none",
            "-O",
            "atime=off",
            "-O",
            "compression=on",
            "-m",
            &at,
        ]);
        run(create.arg(POOL).arg(&self.ground.device))?;
        run(tools.command("zfs").args(["create", "-o", "recordsize=8k", &format!("{POOL}/database")]))?;
        Ok(())
    }

    fn mount(&mut self) -> Result<(), Failure> {
        if let Some((kind, _)) = self.kind.mkfs() {
            run(Command::new("mount")
                .args(["-t", kind, "-o", "noatime"])
                .arg(&self.ground.device)
                .arg(&self.at))?;
            return Ok(());
        }
        let mut server = match self.kind {
            // Mounts by itself when the pool is made.
            System::ZfsFuse => return Ok(()),
            System::Floor | System::FloorUring => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("null-mount");
                command
            }
            _ => {
                let dataset = match self.purpose {
                    Purpose::Files => "files",
                    Purpose::Database => "database",
                };
                let mut command = self.cenote();
                command.args(["mount", "--read-write", &format!("{POOL}/{dataset}")]);
                command
            }
        };
        self.server = Some(server.arg(&self.at).stdin(Stdio::null()).spawn()?);
        let start = Instant::now();
        while !is_mount_point(&self.at) {
            let ended = self.server.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() || start.elapsed() > PATIENCE {
                return Err(format!("{} did not mount", self.kind.name()).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Failure> {
        if self.kind == System::ZfsFuse {
            return Ok(());
        }
        if is_mount_point(&self.at) {
            run(Command::new("umount").arg(&self.at))?;
        }
        if let Some(mut server) = self.server.take() {
            server.wait()?;
        }
        Ok(())
    }

    /// The folder is for this from now on.
    pub(super) fn prepare(&mut self, purpose: Purpose) -> Result<(), Failure> {
        let is_other = self.purpose != purpose;
        self.purpose = purpose;
        if is_other && matches!(self.kind, System::Cenote | System::CenoteUring) {
            self.unmount()?;
            self.mount()?;
        }
        Ok(())
    }

    /// Everything is on disk, and nothing in memory: neither here nor in the kernel. What has no disk stays.
    pub(super) fn cool(&mut self) -> Result<(), Failure> {
        rustix::fs::sync();
        match self.kind {
            System::ZfsFuse => {
                let tools = self.tools().zfs_fuse.clone().ok_or("zfs-fuse is not here")?;
                run(tools.command("zpool").args(["export", POOL]))?;
                let dev = self.ground.device.parent().unwrap_or(Path::new("/dev"));
                run(tools
                    .command("zpool")
                    .args(["import", "-o", "cachefile=none", "-d"])
                    .arg(dev)
                    .arg(POOL))?;
            }
            kind if !kind.is_floor() => {
                self.unmount()?;
                self.mount()?;
            }
            _ => {}
        }
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
        Ok(())
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        if self.kind == System::ZfsFuse {
            if let Some(tools) = self.tools().zfs_fuse.clone() {
                let _ = run(tools.command("zpool").args(["destroy", "-f", POOL]));
            }
        } else if is_mount_point(&self.at) && run(Command::new("umount").arg(&self.at)).is_err() {
            let _ = run(Command::new("umount").arg("--lazy").arg(&self.at));
        }
        if let Some(mut server) = self.server.take() {
            let start = Instant::now();
            while self.kind != System::ZfsFuse
                && start.elapsed() < PATIENCE
                && server.try_wait().is_ok_and(|ended| ended.is_none())
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Whether something is mounted on a directory.
fn is_mount_point(at: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    at.parent().is_some_and(|above| device(at).is_some() && device(at) != device(above))
}
