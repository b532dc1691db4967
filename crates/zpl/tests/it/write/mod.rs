//! Changes of file systems and volumes on a disk in memory: single operations, and many in random order
//! against a model; after a sync the result is read again from disk.
#![allow(missing_docs, unreachable_pub)]

mod acls;
mod faults;
mod model;
mod named;
mod order;
mod speed;
mod steps;
mod threads;
mod volume;
mod waits;
mod world;
