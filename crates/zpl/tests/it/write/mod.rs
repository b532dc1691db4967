//! File systems and volumes that are changed, on a disk in memory: operations one by one, and many in
//! random order against a model; read again as somebody else reads them after a sync.
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
