//! Changes of packed name-value lists.

use super::next;
use format::{NvList, NvValue};

/// Changes up to two values of a packed list, and stores each change that does not make the list longer.
pub(crate) fn mutate_packed(bytes: &mut [u8], state: &mut u64) {
    let Ok(list) = NvList::decode(bytes) else { return };
    for _ in 0..=next(state) % 2 {
        let mut left = next(state) as usize % count(&list).max(1);
        let packed = mutate_value(&list, state, &mut left).encode_xdr();
        if packed.len() <= bytes.len() {
            bytes[..packed.len()].copy_from_slice(&packed);
        }
    }
}

/// Returns the list with one value changed. `left` counts the values to skip, lists inside of lists included.
pub fn mutate_value(list: &NvList, state: &mut u64, left: &mut usize) -> NvList {
    let mut changed = NvList::new();
    for (name, value) in list.iter_bytes() {
        let mut value = value.clone();
        match &mut value {
            NvValue::List(inner) => *inner = mutate_value(inner, state, left),
            NvValue::ListArray(all) => {
                for inner in all.iter_mut() {
                    *inner = mutate_value(inner, state, left);
                }
                if is_reached(left) {
                    let copy = all.first().cloned().unwrap_or_default();
                    all.resize(next(state) as usize % 300, copy);
                }
            }
            leaf if is_reached(left) => *leaf = corrupt(leaf, state),
            _ => {}
        }
        changed.push(name, value);
    }
    changed
}

/// Counts down `left`; true at the value to change.
fn is_reached(left: &mut usize) -> bool {
    let now = *left == 0;
    *left = left.wrapping_sub(1);
    now
}

fn corrupt(value: &NvValue, state: &mut u64) -> NvValue {
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

/// Counts the values of a list, those of lists inside it included.
pub fn count(list: &NvList) -> usize {
    let one = |value: &NvValue| match value {
        NvValue::List(inner) => count(inner),
        NvValue::ListArray(all) => 1 + all.iter().map(count).sum::<usize>(),
        _ => 1,
    };
    list.iter_bytes().map(|(_, value)| one(value)).sum()
}
