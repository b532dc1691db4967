//! Aborts a FUSE connection whose server hangs, so that waiting processes get errors and the run continues with the
//! next system.

use rustix::fs::{minor, stat};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// A watchdog, which ends when it is dropped.
pub(super) struct Watchdog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Aborts the FUSE connections of mounted directories after `patience`.
    pub(super) fn over(folders: &[PathBuf], patience: Duration) -> Watchdog {
        let connection = |at: &PathBuf| {
            let number = minor(stat(at).ok()?.st_dev);
            Some(PathBuf::from(format!("/sys/fs/fuse/connections/{number}/abort")))
        };
        let connections: Vec<PathBuf> = folders.iter().filter_map(connection).collect();
        Watchdog::after(patience, move || {
            println!("it takes too long: the connection of the mount is ended");
            for connection in connections {
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
