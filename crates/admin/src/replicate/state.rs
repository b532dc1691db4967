//! What is remembered of the runs of a policy, for `cenote replicate status` and the schedule: a JSON file for each
//! policy, and a lock.
//!
//! # What always holds
//! - Nothing here decides what is sent or destroyed: a lost file costs statistics.
//! - Runs of one policy exclude each other, in whichever process.

// The files are the user's, not devices.
#![allow(clippy::disallowed_types)]

use super::files::replace;
use super::schedule::Past;
use super::side::{Done, SideError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes of a state file.
const STATE_MAX: u64 = 64 << 20;

/// What is known of a policy. Times are in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Begin of the last run.
    pub begun: Option<u64>,
    /// End of the last run.
    pub ended: Option<u64>,
    /// End of the last run without failures.
    pub succeeded: Option<u64>,
    /// Why the last run has failed as a whole.
    pub error: Option<String>,
    /// Runs by now.
    pub runs: u64,
    /// Runs with failures.
    pub failures: u64,
    /// Bytes that the last run has sent.
    pub bytes: u64,
    /// Bytes that all runs have sent.
    pub bytes_total: u64,
    /// By the full name of the source.
    pub datasets: BTreeMap<String, DatasetState>,
}

/// What is known of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DatasetState {
    /// End of the last success.
    pub succeeded: Option<u64>,
    /// The newest snapshot that both sides have: the part after `@`.
    pub snapshot: Option<String>,
    /// Time at which it was taken.
    pub creation: Option<u64>,
    /// Bytes that all runs have sent.
    pub bytes_total: u64,
    /// Why the last run has failed.
    pub error: Option<String>,
}

impl State {
    /// Whether the last run has failed, or was cut off.
    pub fn has_failed(&self) -> bool {
        let is_cut = self.begun > self.ended;
        is_cut || self.error.is_some() || self.datasets.values().any(|dataset| dataset.error.is_some())
    }

    /// For the schedule.
    pub fn past(&self) -> Past {
        Past { begun: self.begun, has_failed: self.has_failed() }
    }

    /// Age of the data that is safe at the target: the oldest newest common snapshot; in seconds. `None`: a dataset
    /// was never replicated.
    pub fn lag(&self, now: u64) -> Option<u64> {
        let oldest = self.datasets.values().map(|dataset| dataset.creation).min()??;
        Some(now.saturating_sub(oldest))
    }
}

/// The folder of the states.
#[derive(Debug, Clone)]
pub struct States {
    folder: PathBuf,
}

/// The right to run a policy; ends with the value.
#[derive(Debug)]
pub struct RunLock(#[allow(dead_code, reason = "the lock ends with the file")] File);

impl States {
    /// The states in a folder, which is made when it is needed.
    pub fn new(folder: impl Into<PathBuf>) -> States {
        States { folder: folder.into() }
    }

    fn path(&self, policy: &str, kind: &str) -> PathBuf {
        self.folder.join(format!("{policy}.{kind}"))
    }

    /// What is known of a policy; nothing if that cannot be read.
    pub fn read(&self, policy: &str) -> State {
        let mut text = String::new();
        let read = File::open(self.path(policy, "json"))
            .and_then(|file| file.take(STATE_MAX).read_to_string(&mut text));
        read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Replaces what is known.
    ///
    /// # Errors
    /// [`SideError::Io`].
    pub fn write(&self, policy: &str, state: &State) -> Done {
        self.make()?;
        replace(&self.path(policy, "json"), &serde_json::to_vec_pretty(state).unwrap_or_default())
    }

    /// The right to run a policy; `None`: another process runs it.
    ///
    /// # Errors
    /// [`SideError::Io`].
    pub fn lock(&self, policy: &str) -> Done<Option<RunLock>> {
        self.make()?;
        let path = self.path(policy, "lock");
        let failed = io_error(&path);
        let file = File::create(&path).map_err(&failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(RunLock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Whether some process runs a policy.
    pub fn is_running(&self, policy: &str) -> bool {
        let file = File::open(self.path(policy, "lock"));
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    fn make(&self) -> Done {
        use std::os::unix::fs::DirBuilderExt;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(io_error(&self.folder))
    }
}

fn io_error(path: &Path) -> impl Fn(std::io::Error) -> SideError {
    let what = path.display().to_string();
    move |source| SideError::Io { what: what.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_policy_exclude_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let states = States::new(folder.path().join("deep/er"));
        assert!(!states.is_running("a"));
        let lock = states.lock("a").expect("a file").expect("free");
        assert!(states.lock("a").expect("a file").is_none() && states.is_running("a"));
        assert!(states.lock("b").expect("a file").is_some());
        drop(lock);
        assert!(!states.is_running("a") && states.lock("a").expect("a file").is_some());
    }

    #[test]
    fn a_state_is_kept_and_a_damaged_one_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let states = States::new(folder.path());
        assert_eq!(states.read("a"), State::default());
        let dataset = DatasetState { creation: Some(90), ..DatasetState::default() };
        let mut state = State { begun: Some(100), ended: Some(101), ..State::default() };
        state.datasets.insert("t/a".into(), dataset);
        states.write("a", &state).expect("written");
        assert_eq!(states.read("a"), state);
        assert_eq!((state.lag(100), state.has_failed()), (Some(10), false));
        state.begun = Some(200);
        assert!(state.has_failed());
        std::fs::write(folder.path().join("a.json"), "{").expect("written");
        assert_eq!(states.read("a"), State::default());
    }
}
