//! Replication: policies that keep copies of datasets up to date, at another pool, another machine, or in a folder of
//! streams. Data and engine; `cenote replicate` is the command.
//!
//! A run happens in the process that was asked for it: the process of the command, never in a daemon on behalf of a
//! client, because it starts programs (ssh) with the rights of its user. Where a daemon has the pools, the process is a
//! client of it, as any `zfs` command ([`Commands`] with this program); in process it opens the pools ([`Here`]). A
//! daemon that keeps to a schedule starts such processes.
//!
//! # Order
//! [`policy`] (what is wanted; [`targets`]: what users may want) -> [`run`]: each [`side`] is listed -> [`plan`] (what has to be done: pure) -> the steps,
//! streams over a [`pipe`] -> [`state`] (what has happened) -> [`schedule`] (when to run again: pure).
//!
//! # What always holds
//! - A run can end at any instruction; the next one goes on from what both sides have.
//! - The newest common snapshot is bookmarked at the source and held at the target before earlier ones are destroyed,
//!   so an increment stays possible.
//! - Nothing is destroyed that the policy has not made, unless it says so.
//!
//! Tests: `simulated` (sides that fail at every step), the tables of each module,
//! `crates/cli/tests/commands/replicate.rs`.

mod calendar;
mod commands;
mod digest;
mod files;
mod here;
pub mod keep;
pub mod pipe;
pub mod place;
pub mod plan;
pub mod policy;
pub mod run;
pub mod schedule;
pub mod side;
#[cfg(test)]
mod simulated;
pub mod state;
pub mod targets;
pub mod tree;

pub use calendar::date;
pub use commands::Commands;
pub use files::{Files, ROOT as FILES_ROOT};
pub use here::Here;
pub use place::Place;
pub use policy::{Policy, PolicyFile};
pub use run::{Event, Outcome, Run};
pub use state::{State, States};
