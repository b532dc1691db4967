//! Streams of pools whose trees are hostile, with valid checksums: they end, with an error or with records that make
//! sense. The mutator of blocks is global to the process, so the tests are in a program of their own.

use cenote::{OpenOptions, Pool};
use format::blkptr::BLKPTR_SIZE;
use format::{BlockPtr, Level, ObjType};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use stream::send::{Options, Sent, Source, estimate, send};
use stream::{StreamError, Survey, survey};
use testkit::Fixture;

static TURN: Mutex<()> = Mutex::new(());

/// Most bytes of a stream of the golden pool.
const BYTES_MAX: u64 = 256 << 20;

/// Sends all snapshots of a pool whose blocks `mutate` changes. Returns the results.
fn send_all(
    fixture: &str,
    mutate: impl Fn(&BlockPtr, &mut [u8]) + Send + Sync + 'static,
) -> Vec<Result<Sent, String>> {
    let fixture = Fixture::open(fixture);
    let options = fixture.images().iter().fold(OpenOptions::new(), OpenOptions::search);
    let pool = Pool::open(&fixture.manifest().pool, &options).expect("open");
    let sources: Vec<Source> = fixture
        .manifest()
        .datasets
        .iter()
        .filter(|dataset| dataset.is_snapshot())
        .map(|entry| {
            let dataset = pool.dataset(&entry.name).expect("there").dsl().clone();
            let set = dataset.open_objset().expect("open");
            Source { dataset, set, from: None, pool_features: vec!["embedded_data", "lz4_compress"] }
        })
        .collect();
    zio::testing::set_mutator(Some(Box::new(mutate)));
    let mut results = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        let options = Options {
            large_blocks: i % 2 == 0,
            embedded: true,
            to_name: "a@b".to_owned(),
            ..Options::default()
        };
        let mut bytes = Vec::new();
        let result = send(source, &options, &mut bytes, &mut |sent| {
            assert!(sent < BYTES_MAX, "endless");
            ControlFlow::Continue(())
        });
        if result.is_ok() {
            // Damaged dnodes may have sizes that a receiver refuses.
            let read = survey(&bytes[..], &mut Survey::default(), &mut |_| {}, |_| {});
            assert!(matches!(read, Ok(()) | Err(StreamError::Invalid { .. })), "{read:?}");
        }
        let _ = estimate(source, &options);
        results.push(result.map_err(|error| error.to_string()));
    }
    zio::testing::set_mutator(None);
    results
}

/// A sequence of numbers that looks random.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn blocks_that_lead_to_themselves_end_a_stream() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let results = send_all("recordsize", |bp, bytes| {
        if bp.level() == Level(0) {
            return;
        }
        let Some(first) = bytes.get(..BLKPTR_SIZE).map(<[u8]>::to_vec) else { return };
        bytes.chunks_exact_mut(BLKPTR_SIZE).for_each(|pointer| pointer.copy_from_slice(&first));
    });
    assert!(
        results.iter().any(|result| result.as_ref().is_err_and(|error| error.contains("repeats itself")))
    );
}

#[test]
fn spoilt_dnodes_and_pointers_are_survived() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for round in 1..=12u64 {
        let results = send_all("snapshots", move |bp, bytes| {
            let is_target =
                if round % 2 == 0 { bp.obj_type() == ObjType::DNODE } else { bp.level() > Level(0) };
            let mut seed = round ^ bp.words()[1] ^ 0x9e37_79b9_7f4a_7c15;
            if !is_target || bytes.is_empty() {
                return;
            }
            for _ in 0..4 {
                let at = next(&mut seed) as usize % bytes.len();
                bytes[at] ^= 1 << (next(&mut seed) % 8);
            }
        });
        assert!(!results.is_empty(), "{round}");
    }
}
