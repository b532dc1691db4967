//! Tests of the crate from outside, in one program: a program of tests links all that is below it.
//! What sets a parameter of the process is in `full`.

#[path = "../../../dsl/tests/it/world/check.rs"]
#[allow(unreachable_pub)]
mod check;
mod common;
mod datasets;
mod live;
mod long_destroy;
mod open;
mod properties;
mod shared_blocks;
mod sums;
mod support;
mod zap_judged;
mod zap_rewrite;

/// `check` looks for it beside itself.
pub(crate) use ::dsl;
