//! Integration tests in one program, because each test program links all crates below. Tests that set a
//! parameter of the process are in `full`.

#[path = "../../../dsl/tests/it/world/check.rs"]
#[allow(unreachable_pub)]
mod check;
mod common;
mod datasets;
mod live;
mod long_destroy;
mod open;
mod properties;
mod removal;
mod shared_blocks;
mod sums;
mod support;
mod zap_judged;
mod zap_rewrite;

/// `check` looks for it beside itself.
pub(crate) use ::dsl;
