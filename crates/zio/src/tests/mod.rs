//! Tests of writing and reading back on vdevs in memory.

mod failures;
mod fake;
mod gangs;
mod log_blocks;
mod policies;
mod real_space;
mod removed;
mod round_trip;
mod sealed;
