//! Fuzz target of the index of a chain of streams: its head and its pages of extents are arbitrary bytes, with right
//! checksums, which whoever makes an index can make. It is refused, or every read of its device ends with bytes or an
//! error. The modules are included from the library, where they are private.
//!
//! The input is the length of the head in two bytes, the head, and the bodies of pages.
#![allow(clippy::disallowed_types)] // Indexes are files.

#[allow(dead_code, unreachable_pub)]
#[path = "../../src/chain/device.rs"]
mod device;
#[allow(dead_code, unreachable_pub)]
#[path = "../../src/chain/extents.rs"]
mod extents;
#[allow(dead_code, unreachable_pub)]
#[path = "../../src/chain/store.rs"]
mod store;

use device::Indexed;
use format::DeviceOffset;
use std::fs::File;
use std::os::unix::fs::FileExt;
use testkit::fuzz::Target;
use vdev::Device;

/// Bytes of a page without its checksum, and of the reads of the device.
const BODY: usize = 4096 - 32;
const READ: usize = 64 << 10;
/// Start of the footer: magic number and version.
const FOOTER: [u64; 2] = [u64::from_le_bytes(*b"cenoteIX"), 1];

/// The file of an index with this input.
fn write(file: &File, input: &[u8]) {
    let (len, rest) = input.split_at(input.len().min(2));
    let len = len.iter().rev().fold(0, |len, byte| len << 8 | usize::from(*byte));
    let (head, bodies) = rest.split_at(len.min(rest.len()));
    let mut bytes = Vec::new();
    let sum = |bytes: &mut Vec<u8>, of: &[u8]| {
        store::sum(of).iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    };
    for body in bodies.chunks(BODY) {
        let mut page = body.to_vec();
        page.resize(BODY, 0);
        bytes.extend(&page);
        sum(&mut bytes, &page);
    }
    let at = bytes.len() as u64;
    bytes.extend(head);
    for word in FOOTER.into_iter().chain([at, head.len() as u64]) {
        bytes.extend(word.to_le_bytes());
    }
    sum(&mut bytes, head);
    file.set_len(0).and_then(|()| file.write_all_at(&bytes, 0)).expect("written");
}

#[test]
fn indexes() {
    let file = tempfile::tempfile().expect("a file");
    let target = Target::new(env!("CARGO_MANIFEST_DIR"), "indexes");
    // Two buffers for reads, and a page that is shorter in the input than in the file.
    let target = target.bound(2 * READ + (64 << 10), 16);
    bolero::check!(name = "indexes").for_each(target.checked(|input| {
        write(&file, input);
        let Ok(head) = store::read_head(&file) else { return false };
        let starts = head.pages.clone();
        let files = head.files.iter().map(|_| None).collect();
        let device = Indexed::new(file.try_clone().expect("a handle"), files, head);
        let mut buffer = vec![0; READ];
        for at in [0, device.size().saturating_sub(READ as u64)].into_iter().chain(starts) {
            // An error is an answer.
            let _ = device.read_at(&mut buffer, DeviceOffset(at));
        }
        true
    }));
}
