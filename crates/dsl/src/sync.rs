//! Locks that outlive a panic of their holder, as in all layers ([`zio::sync`]).

pub use zio::sync::{lock, read, write};
