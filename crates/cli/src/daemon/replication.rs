//! Replication on schedule: a thread that starts `cenote replicate run` for each policy that is due.
//!
//! A run is a process of its own, a client of this daemon: it starts programs, takes memory, and may hang, none of
//! which concerns the pools here. Policies in properties of datasets are found by such a process as well
//! ([`super::found_policies`]).
//!
//! # What always holds
//! - Only a policy file of this user or of root, which nobody else may write, is read.
//! - A policy runs once at a time: processes are remembered here, and runs lock their policy.
//! - A file that is wrong is reported once, and runs nothing until it changes.
//! - However many datasets have policies in properties, few of them run at a time.
//! - At the end of the daemon the runs are ended; the next ones go on where they stopped.
//!
//! Tests: `cli/tests/commands/replicate.rs`.

use super::found_policies::Finder;
use crate::cenote::replicate::{NextRuns, Scheduled, default_file, read_file, states};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which the file and the schedules are looked at.
const EVERY: Duration = Duration::from_secs(2);
/// Variable that says how often instead, in milliseconds.
const EVERY_NAME: &str = "CENOTE_REPLICATE_LOOK_MS";
/// Policies in properties that run at a time: who may set properties must not fill the machine with processes.
const OF_PROPERTIES_MAX: usize = 4;

/// The thread; ends when the value is dropped.
pub(super) struct Schedule {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Schedule {
    /// Starts the thread.
    pub(super) fn start() -> Schedule {
        let (stop, stopped) = mpsc::channel();
        let millis = std::env::var(EVERY_NAME).ok().and_then(|text| text.parse().ok());
        let every = millis.map_or(EVERY, Duration::from_millis);
        let work = move || {
            let mut runs = Runs {
                file: default_file(),
                seen: None,
                of_file: BTreeMap::new(),
                finder: Finder::new(every),
                children: BTreeMap::new(),
            };
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(every) {
                runs.look();
            }
            runs.end();
        };
        let thread = std::thread::Builder::new().name("replicate".to_owned()).spawn(work);
        if let Err(error) = &thread {
            tracing::error!(%error, "no thread for replication");
        }
        Schedule { stop: Some(stop), thread: thread.ok() }
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It waits for children that were killed.
            let _ = thread.join();
        }
    }
}

/// Device, inode, length and time of change of the policy file.
type Identity = (u64, u64, u64, i64, i64);

fn identity(path: &Path) -> Option<Identity> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec()))
}

/// Has a child, and what that starts, ask this daemon alone: when it has ended, none of them starts another one.
pub(super) fn no_other_daemon(command: &mut std::process::Command) {
    command.env_remove("CENOTE_DIRECT").env("CENOTE_NO_START", "1");
}

struct Runs {
    file: PathBuf,
    /// The file that was read last.
    seen: Option<Identity>,
    of_file: BTreeMap<String, Scheduled>,
    /// Policies in properties of datasets.
    finder: Finder,
    children: BTreeMap<String, Child>,
}

impl Runs {
    fn look(&mut self) {
        self.reload();
        self.finder.look(&self.file);
        self.reap();
        for name in self.due() {
            match self.start(&name) {
                Ok(child) => drop(self.children.insert(name, child)),
                Err(error) => tracing::error!(policy = name, %error, "a run does not start"),
            }
        }
    }

    /// Takes leave of the runs that have ended.
    fn reap(&mut self) {
        self.children.retain(|policy, child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) if status.success() => {
                tracing::info!(policy, "replicated");
                false
            }
            Ok(Some(status)) => {
                tracing::warn!(policy, %status, "not replicated; cenote replicate status says why");
                false
            }
            Err(error) => {
                tracing::error!(policy, %error, "a run is lost");
                false
            }
        });
    }

    /// The policies to start: those of properties that have waited longest, as many as may run.
    fn due(&self) -> Vec<String> {
        let of_properties = self.finder.policies();
        if self.of_file.is_empty() && of_properties.is_empty() {
            return Vec::new();
        }
        let (next, states) = (NextRuns::now(), states());
        let is_free = |name: &String| !self.children.contains_key(name) && !states.is_running(name);
        let due = |all: &BTreeMap<String, Scheduled>| -> Vec<(Option<u64>, String)> {
            let free = all.iter().filter(|(name, _)| is_free(name));
            let read = free.map(|(name, policy)| (name, policy, states.read(name)));
            let due = read.filter(|(_, policy, state)| next.is_due(policy, state));
            due.map(|(name, _, state)| (state.begun, name.clone())).collect()
        };
        let running = self.children.keys().filter(|name| of_properties.contains_key(*name)).count();
        let mut waiting = due(of_properties);
        waiting.sort();
        waiting.truncate(OF_PROPERTIES_MAX.saturating_sub(running));
        due(&self.of_file).into_iter().chain(waiting).map(|(_, name)| name).collect()
    }

    /// Reads the file if it has changed.
    fn reload(&mut self) {
        let found = identity(&self.file);
        if found == self.seen {
            return;
        }
        self.seen = found;
        let read = found.map(|_| read_file(&self.file));
        let has_targets = matches!(&read, Some(Ok(file)) if !file.target.is_empty());
        self.finder.restart(has_targets);
        self.of_file = match read {
            None => BTreeMap::new(),
            Some(Ok(file)) => {
                tracing::info!(
                    policies = file.policy.len(),
                    targets = file.target.len(),
                    "replication policies are read"
                );
                file.policy.iter().map(|(name, policy)| (name.clone(), Scheduled::of(policy))).collect()
            }
            Some(Err(error)) => {
                tracing::error!(%error, "no replication");
                BTreeMap::new()
            }
        };
    }

    fn start(&self, policy: &str) -> std::io::Result<Child> {
        let mut command = crate::this_program()?;
        command.args(["replicate", "run", "--quiet", "--policy-file"]).arg(&self.file).arg(policy);
        no_other_daemon(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn()
    }

    /// Ends the runs.
    fn end(self) {
        self.finder.end();
        for (policy, mut child) in self.children {
            tracing::info!(policy, "a replication is ended; the next one goes on there");
            let _ = child.kill();
            // A process that was killed ends.
            let _ = child.wait();
        }
    }
}
