//! Policies that properties of datasets describe: now and then `cenote replicate check --json` lists them, in a process
//! of its own, a client of this daemon. So the daemon and `cenote replicate run` read properties by the same rule
//! ([`admin::replicate::targets`]), and values that users have chosen are not parsed here.
//!
//! # What always holds
//! - The thread of the schedule never waits for the list: a pool may hang.
//! - A list that cannot be had runs nothing.

use crate::cenote::replicate::{Checked, Scheduled};
use crate::out::visible;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Looks at the file between two lists of properties.
const LOOKS: u32 = 15;
/// Most bytes of a list.
const LIST_MAX: u64 = 64 << 20;

/// A list that is being made.
struct Listing {
    child: Child,
    /// What it has printed, when it has ended.
    text: Receiver<Vec<u8>>,
}

/// See the module.
pub(super) struct Finder {
    /// Time from one list to the next.
    every: Duration,
    /// The policy file has targets that properties may choose.
    has_targets: bool,
    /// When the last list was begun.
    begun: Option<Instant>,
    listing: Option<Listing>,
    known: Checked,
}

impl Finder {
    /// `every`: time between two looks at the policy file.
    pub(super) fn new(every: Duration) -> Finder {
        let known = Checked::default();
        Finder { every: every * LOOKS, has_targets: false, begun: None, listing: None, known }
    }

    /// The policies of the last list.
    pub(super) fn policies(&self) -> &BTreeMap<String, Scheduled> {
        &self.known.policies
    }

    /// Forgets what is known: the policy file has changed.
    pub(super) fn restart(&mut self, has_targets: bool) {
        self.stop();
        self.has_targets = has_targets;
        self.begun = None;
        if !has_targets {
            self.known = Checked::default();
        }
    }

    /// Takes a list that is ready, or begins one if it is time.
    pub(super) fn look(&mut self, file: &Path) {
        if !self.has_targets {
            return;
        }
        if let Some(listing) = &mut self.listing {
            if matches!(listing.child.try_wait(), Ok(None)) {
                return;
            }
            let listed = listing.text.recv_timeout(Duration::ZERO);
            if let (Err(mpsc::RecvTimeoutError::Timeout), Ok(Some(_))) = (&listed, listing.child.try_wait()) {
                // The reader has not seen the end yet.
                return;
            }
            self.listing = None;
            self.take(&listed.unwrap_or_default());
        }
        if self.begun.is_none_or(|begun| begun.elapsed() >= self.every) {
            self.begun = Some(Instant::now());
            match begin(file) {
                Ok(listing) => self.listing = Some(listing),
                Err(error) => tracing::error!(%error, "properties are not searched for policies"),
            }
        }
    }

    /// Takes the place of what is known, and tells what is new.
    fn take(&mut self, text: &[u8]) {
        let mut new = serde_json::from_slice::<Checked>(text).unwrap_or_else(|error| {
            tracing::error!(%error, "policies in properties are not known, and do not run");
            Checked::default()
        });
        new.policies.retain(|_, policy| policy.by_properties);
        for (name, policy) in &new.policies {
            if self.known.policies.get(name) != Some(policy) {
                let (from, to) = (visible(&policy.from), visible(&policy.to));
                tracing::info!(policy = name, %from, %to, "a policy in properties");
            }
        }
        for (name, policy) in &self.known.policies {
            if !new.policies.contains_key(name) {
                let from = visible(&policy.from);
                tracing::info!(policy = name, %from, "a policy in properties is gone");
            }
        }
        for (dataset, why) in &new.refused {
            if self.known.refused.get(dataset) != Some(why) {
                tracing::warn!(dataset = %visible(dataset), why = %visible(why), "no policy in properties");
            }
        }
        self.known = new;
    }

    fn stop(&mut self) {
        if let Some(mut listing) = self.listing.take() {
            let _ = listing.child.kill();
            // A process that was killed ends.
            let _ = listing.child.wait();
        }
    }

    /// Ends a list that is being made.
    pub(super) fn end(mut self) {
        self.stop();
    }
}

fn begin(file: &Path) -> std::io::Result<Listing> {
    let mut command = crate::this_program()?;
    command.args(["replicate", "check", "--json", "--policy-file"]).arg(file);
    super::replication::no_other_daemon(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let (to, text) = mpsc::channel();
    let read = |out: Option<ChildStdout>| {
        let mut bytes = Vec::new();
        if let Some(out) = out {
            // A list that is cut is no JSON.
            let _ = out.take(LIST_MAX).read_to_end(&mut bytes);
        }
        bytes
    };
    let out = child.stdout.take();
    // It ends with the process, and nobody may wait any more.
    let reader = std::thread::Builder::new().name("policies".to_owned());
    let started = reader.spawn(move || drop(to.send(read(out))));
    if let Err(error) = started {
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    Ok(Listing { child, text })
}
