//! `cenote replicate`: runs policies, tells how they stand, and checks them.
//!
//! Runs in the process that was started, with the rights of its user, because it starts programs (ssh): a daemon runs
//! none for its clients. Datasets of this machine are reached by `zfs` of this program, as a client of the daemon; with
//! `CENOTE_DIRECT=1` the pools are opened in this process, and both sides share them.
//!
//! Tests: `cli/tests/commands/replicate.rs`; of the engine: `admin::replicate`.

mod args;
mod policies;
mod progress;
mod status;

pub(super) use args::Args;
pub(crate) use policies::{Checked, NextRuns, Scheduled, default_file, read_file, states};

use super::{Failure, Outcome, complain};
use crate::console::{self, Stream};
use crate::rights;
use admin::replicate::run::{Event, flow_of};
use admin::replicate::side::Side;
use admin::replicate::{Commands, Files, Here, Place, Policy, Run};
use args::{RunArgs, Verb};
use format::nicenum::nicebytes;
use progress::Progress;
use std::sync::Arc;

/// Exit code of a wrong command line and of a policy that makes no sense.
const USAGE: u8 = 2;

pub(super) fn run(args: &Args) -> Outcome {
    if console::current().is_some() {
        // The program of the client runs it; a request over the socket must not start programs here.
        complain(format_args!("replicate: only runs in a process of its own{}", rights_hint()));
        return Ok(1);
    }
    match &args.verb {
        None => run_policies(&args.run),
        Some(Verb::Run(args)) => run_policies(args),
        Some(Verb::Status(args)) => status::run(args),
        Some(Verb::Check(args)) => status::check(args),
    }
}

fn rights_hint() -> &'static str {
    if rights::is_administrator() { "" } else { ": permission denied" }
}

fn run_policies(args: &RunArgs) -> Outcome {
    let sides = Sides::new()?;
    let known = match policies::chosen(args, &sides) {
        Ok(known) => known,
        Err(message) => {
            message.lines().for_each(complain);
            return Ok(USAGE);
        }
    };
    for (dataset, why) in &known.refused {
        say(&format!("{dataset}: {why}"));
    }
    let mut code = u8::from(!known.refused.is_empty());
    for (name, policy) in &known.policies {
        code = code.max(run_one(args, name, policy, &sides)?);
    }
    sides.close()?;
    Ok(code)
}

/// Runs a policy; its exit code.
fn run_one(args: &RunArgs, name: &str, policy: &Policy, sides: &Sides) -> Outcome {
    let states = states();
    let now = policies::now();
    if let Some(window) = policy.window.filter(|_| !args.force_window)
        && !window.contains(now, crate::time::utc_offset(now))
    {
        complain(format_args!("{name}: not now, its window is {window} (--force-window runs it)"));
        return Ok(0);
    }
    let lock = states.lock(name)?;
    let Some(_lock) = lock else {
        complain(format_args!("{name}: runs already"));
        return Ok(1);
    };
    let mut state = states.read(name);
    if !args.dry_run {
        state.begun = Some(now);
        states.write(name, &state)?;
    }
    let flow = Arc::new(flow_of(policy));
    let progress = Progress::start(name, &flow, args.quiet);
    let on = |event: Event| tell(args, &progress, &event);
    let (source, target) = (sides.source(policy), sides.target(policy));
    let outcome = Run {
        name,
        policy,
        source: &*source,
        target: &*target,
        dry_run: args.dry_run,
        verify: args.verify,
        now,
        flow: &flow,
        on: &on,
    }
    .run();
    progress.end();
    if !args.dry_run {
        let bytes = flow.bytes.load(std::sync::atomic::Ordering::Relaxed);
        outcome.add_to(&mut state, policies::now(), bytes);
        states.write(name, &state)?;
    }
    if let Some(error) = &outcome.error {
        say(&format!("{name}: {}", ::cenote::error::chain(error)));
    }
    for (dataset, result) in &outcome.datasets {
        if let Err(error) = result {
            say(&format!("{name}: {dataset}: {}", ::cenote::error::chain(error)));
        }
    }
    Ok(u8::from(!outcome.is_good()))
}

/// Complains, in as many lines as the text has.
fn say(text: &str) {
    text.lines().for_each(|line| complain(crate::out::visible(line)));
}

/// Prints what happens.
fn tell(args: &RunArgs, progress: &Progress, event: &Event) {
    let line = match event {
        Event::Step { dataset, text } if args.verbose || args.dry_run => format!("{dataset}: {text}"),
        Event::Sent { dataset, snapshot, bytes } if !args.quiet => {
            format!("{dataset}@{snapshot}: {} sent", nicebytes(*bytes))
        }
        Event::Verified { dataset, snapshot } if !args.quiet => {
            format!("{dataset}@{snapshot}: the contents of both sides are the same")
        }
        Event::Orphan { target } if !args.quiet => {
            format!("{target}: kept, its source is gone")
        }
        _ => return,
    };
    progress.above(|| {
        // A reader that is gone does not end a replication.
        let _ = console::write(Stream::Out, format!("{}\n", crate::out::visible(&line)).as_bytes());
    });
}

/// Makes the sides of policies.
struct Sides {
    /// With `CENOTE_DIRECT=1`: the pools, open in this process.
    here: Option<Arc<Here>>,
    /// `zfs` as a client of the daemon.
    client: Commands,
}

impl Sides {
    fn new() -> Result<Sides, Failure> {
        let is_direct = console::env("CENOTE_DIRECT").is_some_and(|value| value == "1");
        let here = is_direct.then(|| Arc::new(Here::new(crate::search::from_env())));
        let program = crate::this_program()?.get_program().to_string_lossy().into_owned();
        let client = Commands::new("this machine", vec![program], vec!["zfs".to_owned()]);
        Ok(Sides { here, client })
    }

    fn local(&self) -> Arc<dyn Side> {
        match &self.here {
            Some(here) => Arc::clone(here) as Arc<dyn Side>,
            None => Arc::new(self.client.clone()),
        }
    }

    fn source(&self, policy: &Policy) -> Arc<dyn Side> {
        match &policy.from {
            Place::Files { folder } => Arc::new(Files::source(folder)),
            place => self.other(place, policy),
        }
    }

    fn target(&self, policy: &Policy) -> Arc<dyn Side> {
        match &policy.to {
            Place::Files { folder } => Arc::new(Files::target(folder)),
            place => self.other(place, policy),
        }
    }

    fn other(&self, place: &Place, policy: &Policy) -> Arc<dyn Side> {
        match Commands::of(place, policy) {
            Some(commands) => Arc::new(commands),
            None => self.local(),
        }
    }

    fn close(self) -> Result<(), Failure> {
        if let Some(here) = self.here.and_then(Arc::into_inner) {
            here.close()?;
        }
        Ok(())
    }
}
