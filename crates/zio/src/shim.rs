//! Stand-ins with the signatures of parts that are being built beside this one.
#![allow(missing_docs, dead_code)]

use crate::AllocTx;
use format::{Dva, Psize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AllocClass {
    Normal,
    Log,
    Special,
    Dedup,
}

#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub class: AllocClass,
    pub psize: Psize,
    pub copies: u8,
    pub near: Option<Dva>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    #[error("no space")]
    NoSpace { asize: u64 },
    #[error("other")]
    Other,
}

pub struct Allocator {}

impl Allocator {
    pub fn allocate(&self, _: &Request, _: &dyn AllocTx) -> Result<Vec<Dva>, AllocError> {
        Err(AllocError::Other)
    }
    pub fn free(&self, _: &Dva, _: &dyn AllocTx) -> Result<(), AllocError> {
        Err(AllocError::Other)
    }
    pub fn claim(&self, _: &Dva, _: &dyn AllocTx) -> Result<(), AllocError> {
        Err(AllocError::Other)
    }
}
