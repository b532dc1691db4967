//! Packed lists: values that a reader may choke on.

use super::next;
use format::{NvList, NvValue};

/// Changes a value of a packed list, and packs it again if it is not longer then.
pub fn change_packed(bytes: &mut [u8], state: &mut u64) {
    let Ok(list) = NvList::decode(bytes) else { return };
    for _ in 0..=next(state) % 2 {
        let mut left = next(state) as usize % count(&list).max(1);
        let packed = change(&list, state, &mut left).encode_xdr();
        if packed.len() <= bytes.len() {
            bytes[..packed.len()].copy_from_slice(&packed);
        }
    }
}

/// Values that a list is made of, one of which is changed.
pub fn change(list: &NvList, state: &mut u64, left: &mut usize) -> NvList {
    let mut changed = NvList::new();
    for (name, value) in list.iter_bytes() {
        let mut value = value.clone();
        match &mut value {
            NvValue::List(inner) => *inner = change(inner, state, left),
            NvValue::ListArray(all) => {
                for inner in all.iter_mut() {
                    *inner = change(inner, state, left);
                }
                if hit(left) {
                    let copy = all.first().cloned().unwrap_or_default();
                    all.resize(next(state) as usize % 300, copy);
                }
            }
            leaf if hit(left) => *leaf = hurt(leaf, state),
            _ => {}
        }
        changed.push(name, value);
    }
    changed
}

/// Counts values; true at the one to change.
fn hit(left: &mut usize) -> bool {
    let now = *left == 0;
    *left = left.wrapping_sub(1);
    now
}

fn hurt(value: &NvValue, state: &mut u64) -> NvValue {
    const NUMBERS: [u64; 10] = [0, 1, 2, 3, 9, 63, 255, 1 << 20, 1 << 40, u64::MAX];
    const WORDS: [&str; 9] = ["", "raidz", "mirror", "disk", "draid", "indirect", "hole", "root", "../x"];
    let pick = next(state) as usize;
    match value {
        NvValue::Uint64(old) => NvValue::Uint64(match pick % 3 {
            0 => NUMBERS[pick / 3 % NUMBERS.len()],
            1 => old.wrapping_add(pick as u64 / 3 % 5).wrapping_sub(2),
            _ => old ^ 1 << (pick / 3 % 64),
        }),
        NvValue::String(_) => NvValue::String(WORDS[pick % WORDS.len()].into()),
        _ => NvValue::Uint64Array(vec![u64::MAX; pick % 40]),
    }
}

/// How many values there are.
pub fn count(list: &NvList) -> usize {
    let one = |value: &NvValue| match value {
        NvValue::List(inner) => count(inner),
        NvValue::ListArray(all) => 1 + all.iter().map(count).sum::<usize>(),
        _ => 1,
    };
    list.iter_bytes().map(|(_, value)| one(value)).sum()
}
