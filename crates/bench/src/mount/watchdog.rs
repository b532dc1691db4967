//! Ends waiting for a FUSE server that hangs: all who wait get errors, and the next system has its turn.

use rustix::fs::{minor, stat};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Watches until it is dropped.
pub(super) struct Watchdog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Aborts the FUSE connection of a mounted directory after some time.
    pub(super) fn over(at: &Path, patience: Duration) -> Watchdog {
        let connection = stat(at)
            .ok()
            .map(|stat| PathBuf::from(format!("/sys/fs/fuse/connections/{}/abort", minor(stat.st_dev))));
        Watchdog::after(patience, move || {
            if let Some(connection) = connection {
                println!("it takes too long: the connection of the mount is ended");
                let _ = std::fs::write(connection, "1");
            }
        })
    }

    fn after(patience: Duration, bite: impl FnOnce() + Send + 'static) -> Watchdog {
        let (stop, stopped) = mpsc::channel();
        let watch = move || {
            if stopped.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                bite();
            }
        };
        Watchdog { stop: Some(stop), thread: Some(std::thread::spawn(watch)) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_bites_after_its_time_and_not_when_all_went_well() {
        let (tell, told) = mpsc::channel();
        let again = tell.clone();
        let calm = Watchdog::after(Duration::from_secs(3600), move || tell.send(()).unwrap_or(()));
        drop(calm);
        assert!(told.try_recv().is_err());
        let _watchdog = Watchdog::after(Duration::ZERO, move || again.send(()).unwrap_or(()));
        assert_eq!(told.recv(), Ok(()));
    }
}
