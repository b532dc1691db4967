//! Tests of the counting allocator, in a program of its own that uses it.

use testkit::alloc::{Counting, process_peak, thread_peak};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_worst_moment_counts() {
    let (len, peak) = thread_peak(|| {
        let large = std::hint::black_box(vec![0u8; 100_000]);
        let len = large.len();
        drop(large);
        len + std::hint::black_box(vec![1u8; 10]).len()
    });
    assert_eq!(len, 100_010);
    assert!((100_000..101_000).contains(&peak), "{peak}");
}

#[test]
fn what_was_there_before_does_not_count() {
    let held = std::hint::black_box(vec![0u8; 1 << 20]);
    let ((), peak) = thread_peak(|| drop(std::hint::black_box(vec![0u8; 1000])));
    assert!((1000..2000).contains(&peak), "{peak}");
    // Memory that is freed inside allows as much again.
    let ((), peak) = thread_peak(|| {
        drop(held);
        drop(std::hint::black_box(vec![0u8; 1 << 20]));
    });
    assert!(peak < 1000, "{peak}");
}

#[test]
fn one_measurement_inside_of_another() {
    let (inner, outer) = thread_peak(|| {
        let _held = std::hint::black_box(vec![0u8; 5000]);
        thread_peak(|| drop(std::hint::black_box(vec![0u8; 3000]))).1
    });
    assert!((3000..4000).contains(&inner) && (8000..9000).contains(&outer), "{inner} {outer}");
}

#[test]
fn all_threads_of_the_process_count() {
    let ((), peak) = process_peak(|| {
        let large = || std::hint::black_box(vec![0u8; 1 << 20]);
        let both: Vec<_> = (0..2).map(|_| std::thread::spawn(large)).collect();
        let _held: Vec<_> = both.into_iter().map(|thread| thread.join().expect("ends")).collect();
    });
    assert!(peak >= 2 << 20, "{peak}");
}
