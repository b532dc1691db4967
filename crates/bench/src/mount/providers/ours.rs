//! A pool of Cenote on the device, with a `cenoted` of its own.

use super::{POOL, Provider, Purpose, Server, check_transport, let_go};
use crate::Failure;
use crate::mount::loop_image::LoopImage;
use crate::mount::tools::{limited, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of the file systems of the pool, by purpose.
const FILES: &str = "files";
const DATABASE: &str = "database";

/// A pool of Cenote on the device, with its daemon.
pub(in crate::mount) struct Ours<'g> {
    image: &'g LoopImage,
    over_uring: bool,
    server: Server,
}

impl<'g> Ours<'g> {
    /// Starts a daemon and makes a pool.
    pub(in crate::mount) fn make(image: &'g LoopImage, over_uring: bool) -> Result<Ours<'g>, Failure> {
        let state = image.dir().join("state");
        if state.exists() {
            std::fs::remove_dir_all(&state)?;
        }
        std::fs::create_dir_all(&state)?;
        let mut daemon = here(image, Command::new(&image.tools().cenote));
        let mut server = Server::start(daemon.arg("daemon"), &image.dir().join("cenoted.log"))?;
        server.wait_until(|_| run(asking(image).args(["daemon", "--status"])).is_ok())?;
        let ours = Ours { image, over_uring, server };
        let mut create = ours.command(&["zpool", "create", "-f", "-O", "canmount=off", "-O", "atime=off"]);
        create.args(["-O", "compression=lz4", "-O", "xattr=sa", "-O", "acltype=posix"]);
        create.arg("-m").arg(image.mount_point()).arg(POOL).arg(image.device());
        ours.mounting(&mut create)?;
        ours.mounting(&mut ours.command(&["zfs", "create", &format!("{POOL}/{FILES}")]))?;
        let database = format!("{POOL}/{DATABASE}");
        ours.mounting(&mut ours.command(&["zfs", "create", "-o", "recordsize=8k", &database]))?;
        check_transport(ours.server.pid(), over_uring)?;
        Ok(ours)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = asking(self.image);
        command.args(words);
        command
    }

    /// Runs a command that mounts a file system.
    fn mounting(&self, command: &mut Command) -> Result<(), Failure> {
        self.image.with_uring(self.over_uring, || run(command).map(drop))
    }
}

/// Our program, for what asks the daemon.
pub(in crate::mount) fn asking(image: &LoopImage) -> Command {
    here(image, limited(&image.tools().cenote))
}

/// The daemon of this run has a state of its own and sees this device only; no command starts another.
fn here(image: &LoopImage, mut command: Command) -> Command {
    let state = image.dir().join("state");
    command.env("CENOTE_SOCKET", state.join("socket")).env("CENOTE_STATE", state);
    command.env("CENOTE_DEVICES", image.device()).env("CENOTE_NO_START", "1").env_remove("CENOTE_DIRECT");
    command
}

impl Provider for Ours<'_> {
    fn mount(&mut self) -> Result<(), Failure> {
        let is_imported = run(&mut self.command(&["zpool", "list", POOL])).is_ok();
        if !is_imported {
            self.mounting(&mut self.command(&["zpool", "import", POOL]))?;
            check_transport(self.server.pid(), self.over_uring)?;
        }
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Failure> {
        run(&mut self.command(&["zpool", "export", POOL]))?;
        Ok(())
    }

    fn folder(&self, purpose: Purpose) -> PathBuf {
        self.image.mount_point().join(match purpose {
            Purpose::Files => FILES,
            Purpose::Database => DATABASE,
        })
    }

    /// The kernel does not forward `syncfs` to a FUSE server.
    fn sync(&self, dir: &Path) -> Result<(), Failure> {
        rustix::fs::syncfs(std::fs::File::open(dir)?)?;
        run(&mut self.command(&["zpool", "sync", POOL]))?;
        Ok(())
    }

    fn server(&self) -> Option<u32> {
        Some(self.server.pid())
    }
}

impl Drop for Ours<'_> {
    fn drop(&mut self) {
        let ended = self.unmount().and_then(|()| run(&mut self.command(&["daemon", "--stop"])).map(drop));
        if ended.and_then(|()| self.server.wait_for_end()).is_err() {
            let _ = self.server.0.kill();
            [FILES, DATABASE].iter().for_each(|name| let_go(&self.image.mount_point().join(name)));
        }
    }
}
