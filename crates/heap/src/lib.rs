//! The allocator of our programs: mimalloc, which keeps what was freed for some seconds.
//!
//! Objects and records come and go by the hundred thousand in a txg: with the system's allocator a third of the
//! time of writing small files went there. And what a txg frees the next one wants again: given back to the system in
//! between, as mimalloc does after a second, a quarter of the time of many small synchronous writes went to clearing
//! pages. The library leaves the choice to who embeds it.
#![deny(unsafe_code)]

/// mimalloc.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Milliseconds after which freed memory is given back: longer than a txg takes to come round.
const KEEP_MS: i16 = 10_000;

/// To be called first of all by a program.
pub fn init() {
    keep::freed_memory();
}

#[allow(unsafe_code)] // An option of the allocator, in C.
mod keep {
    use libmimalloc_sys::{mi_option_set, mi_option_t};

    /// `mi_option_purge_delay` of mimalloc 2 and 3, for which the bindings have no name.
    const PURGE_DELAY: mi_option_t = 15;

    pub(super) fn freed_memory() {
        // SAFETY: the option exists; it takes any number, and no other thread runs yet.
        unsafe { mi_option_set(PURGE_DELAY, super::KEEP_MS.into()) };
    }
}
