//! x
pub(crate) mod kernels {}
