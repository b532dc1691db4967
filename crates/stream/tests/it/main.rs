//! Streams of OpenZFS are read, written and changed; damaged and hostile ones are refused.
#![allow(missing_docs)]

mod change;
mod damage;
mod golden;
mod survey;

#[global_allocator]
static COUNTED: testkit::alloc::Counting = testkit::alloc::Counting;
