//! Normalization of names before a ZAP hashes or compares them (docs/on-disk/21-zap.md, section 1.1).
//!
//! The rules are those of Unicode 5.0 as OpenZFS applies them, including its known deviations from the
//! standard; newer characters stay unchanged. Where OpenZFS may still differ (rare sequences of several
//! marks), [`super::Zap`] falls back to comparing all names.

use super::unicode5::{ASSIGNED, UPPER};
use format::zap::{NORM_CANONICAL, NORM_COMPATIBLE, NORM_COMPOSE, NORM_UPPER};
use std::borrow::Cow;
use std::cmp::Ordering;
use unicode_normalization::char::{
    canonical_combining_class, compose, decompose_canonical, decompose_compatible,
};

/// A code point being normalized, with its combining class.
type Marked = (char, u8);

/// The name as a ZAP with these normalization flags hashes it.
pub fn prepare(name: &[u8], flags: u64) -> Cow<'_, [u8]> {
    let upper = flags & NORM_UPPER != 0;
    if name.is_ascii() {
        return if upper && name.iter().any(u8::is_ascii_lowercase) {
            Cow::Owned(name.to_ascii_uppercase())
        } else {
            Cow::Borrowed(name)
        };
    }
    if flags & (NORM_UPPER | NORM_CANONICAL | NORM_COMPATIBLE) == 0 {
        return Cow::Borrowed(name);
    }
    let mut out = Vec::with_capacity(name.len() * 2);
    for chunk in name.utf8_chunks() {
        prepare_text(chunk.valid(), flags, &mut out);
        // Invalid UTF-8 is passed through.
        out.extend_from_slice(chunk.invalid());
    }
    Cow::Owned(out)
}

/// Whether OpenZFS may normalize this name differently. Only where it departs from the standard: for several
/// marks in a row, and for characters that decompose to several starters, when they are composed again.
pub(super) fn is_doubtful(name: &[u8], flags: u64) -> bool {
    if name.is_ascii() || flags & (NORM_CANONICAL | NORM_COMPATIBLE) == 0 {
        return false;
    }
    let compatible = flags & NORM_COMPATIBLE != 0;
    let mut parts = Vec::new();
    let mut marks_in_row = 0;
    for c in name.utf8_chunks().flat_map(|chunk| chunk.valid().chars()) {
        parts.clear();
        decompose(c, None, compatible, &mut parts);
        // Hangul syllables compose by rule.
        let is_hangul = matches!(c, '\u{AC00}'..='\u{D7A3}');
        let starters = parts.iter().filter(|(_, class)| *class == 0).count();
        if flags & NORM_COMPOSE != 0 && starters > 1 && !is_hangul {
            return true;
        }
        for (_, class) in &parts {
            marks_in_row = if *class == 0 { 0 } else { marks_in_row + 1 };
            if marks_in_row > 1 {
                return true;
            }
        }
    }
    false
}

fn prepare_text(text: &str, flags: u64, out: &mut Vec<u8>) {
    let upper = flags & NORM_UPPER != 0;
    let cased = text.chars().map(|c| {
        // U+0345 becomes a letter in upper case, but is ordered by its class as a mark.
        let class = if c == '\u{345}' { Some(240) } else { None };
        (if upper { simple_upper(c) } else { c }, class)
    });
    let mut marked = Vec::with_capacity(text.len());
    if flags & (NORM_CANONICAL | NORM_COMPATIBLE) == 0 {
        marked.extend(cased.map(|(c, _)| (c, 0)));
    } else {
        for (c, class) in cased {
            decompose(c, class, flags & NORM_COMPATIBLE != 0, &mut marked);
        }
        reorder(&mut marked);
        if flags & NORM_COMPOSE != 0 {
            marked = recompose(&marked);
        }
    }
    let mut buf = [0; 4];
    for (c, _) in marked {
        out.extend_from_slice(c.encode_utf8(&mut buf).as_bytes());
    }
}

/// Whether the code point was assigned in Unicode 5.0.
fn is_old(c: char) -> bool {
    let c = u32::from(c);
    let compare = |&(first, last): &(u32, u32)| {
        if last < c {
            Ordering::Less
        } else if first > c {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    };
    ASSIGNED.binary_search_by(compare).is_ok()
}

/// The simple upper-case mapping of Unicode 5.0.
fn simple_upper(c: char) -> char {
    let code = u32::from(c);
    let after = UPPER.partition_point(|run| run.0 <= code);
    let Some(&(first, last, step, distance)) = after.checked_sub(1).and_then(|i| UPPER.get(i)) else {
        return c;
    };
    if code > last || !(code - first).is_multiple_of(step) {
        return c;
    }
    code.checked_add_signed(distance).and_then(char::from_u32).unwrap_or(c)
}

fn decompose(c: char, class: Option<u8>, compatible: bool, out: &mut Vec<Marked>) {
    if !is_old(c) {
        out.push((c, 0));
        return;
    }
    let emit = |part| out.push((part, class.unwrap_or_else(|| canonical_combining_class(part))));
    if compatible { decompose_compatible(c, emit) } else { decompose_canonical(c, emit) }
}

/// Sorts each run of marks by class, keeping the order within a class.
fn reorder(text: &mut [Marked]) {
    for run in text.chunk_by_mut(|a, b| (a.1 == 0) == (b.1 == 0)) {
        if run.first().is_some_and(|first| first.1 != 0) {
            run.sort_by_key(|mark| mark.1);
        }
    }
}

/// Composes characters. Differs from the standard: after a mark was merged into a starter, every further mark
/// is tried, blocked or not.
fn recompose(text: &[Marked]) -> Vec<Marked> {
    let mut out: Vec<Marked> = Vec::with_capacity(text.len());
    let mut starter: Option<usize> = None;
    let mut merged = false;
    for &(c, class) in text {
        let last_class = match starter {
            Some(at) if at + 1 < out.len() => out.last().map_or(0, |last| last.1),
            _ => 0,
        };
        let adjacent = starter.is_some_and(|at| at + 1 == out.len());
        let free = adjacent || (class != 0 && (merged || last_class < class));
        let slot = starter.filter(|_| free).and_then(|at| out.get_mut(at));
        if let Some(slot) = slot
            && let Some(whole) = compose(slot.0, c).filter(|whole| is_old(*whole) && is_old(c))
        {
            slot.0 = whole;
            merged = class != 0;
            continue;
        }
        if class == 0 {
            starter = Some(out.len());
            merged = false;
        }
        out.push((c, class));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NFD: u64 = NORM_CANONICAL;
    const NFC: u64 = NORM_CANONICAL | NORM_COMPOSE;
    const NFKD: u64 = NORM_COMPATIBLE;
    const NFKC: u64 = NORM_COMPATIBLE | NORM_COMPOSE;

    fn text(name: &str, flags: u64) -> String {
        String::from_utf8(prepare(name.as_bytes(), flags).into_owned()).unwrap()
    }

    #[test]
    fn upper_case_is_simple_and_old() {
        for (from, to) in [
            ("straße", "STRAßE"),
            ("\u{149}\u{1F50}ﬁ", "\u{149}\u{1F50}ﬁ"),
            ("\u{1F80}", "\u{1F88}"),
            ("\u{131}", "I"),
            ("\u{17F}", "S"),
            ("\u{B5}", "\u{39C}"),
            ("\u{345}", "\u{399}"),
            ("\u{1C5}", "\u{1C4}"),
            ("\u{3C2}", "\u{3A3}"),
            ("\u{24D0}", "\u{24B6}"),
            // Its upper case was added after 5.0.
            (
                "\u{10D0}\u{250}\u{23F}\u{3F3}\u{13F8}\u{1EFB}\u{A641}",
                "\u{10D0}\u{250}\u{23F}\u{3F3}\u{13F8}\u{1EFB}\u{A641}",
            ),
            ("ĳŋÿž", "ĲŊŸŽ"),
        ] {
            assert_eq!(text(from, NORM_UPPER), to);
        }
        assert_eq!(text("ReadMe", NORM_UPPER), "README");
    }

    #[test]
    fn forms() {
        assert_eq!(text("Å\u{212B}", NFD), "A\u{30A}A\u{30A}");
        assert_eq!(text("A\u{30A}\u{212B}", NFC), "ÅÅ");
        assert_eq!(text("ﬁK", NFC), "ﬁK");
        assert_eq!(text("ﬁ\u{212A}", NFKC), "fiK");
        assert_eq!(text("ﬁ", NFKD), "fi");
        assert_eq!(text("한글", NFD), "\u{1112}\u{1161}\u{11AB}\u{1100}\u{1173}\u{11AF}");
        assert_eq!(text("\u{1112}\u{1161}\u{11AB}", NFC), "한");
        assert_eq!(text("a\u{301}\u{327}", NFD), "a\u{327}\u{301}");
        assert_eq!(text("é", NFD | NORM_UPPER), "E\u{301}");
    }

    #[test]
    fn the_first_merged_mark_lifts_the_block() {
        assert_eq!(text("\u{CA}\u{304}\u{300}", NFC), "\u{1EC0}\u{304}");
        assert_eq!(text("a\u{331}\u{304}\u{301}", NFC), "\u{101}\u{331}\u{301}");
    }

    #[test]
    fn newer_characters_are_left_alone() {
        // U+1D15E decomposes since 3.1, U+1F14A (5.2) and U+A7F2 (14) do so only in newer tables.
        assert_ne!(text("\u{1D15E}", NFD), "\u{1D15E}");
        assert_eq!(text("\u{1F14A}\u{A7F2}", NFKD), "\u{1F14A}\u{A7F2}");
    }

    #[test]
    fn only_rare_names_are_doubtful() {
        for name in ["plain", "Caf\u{e9}", "e\u{301}", "한글", "\u{df}", "日本語"] {
            assert!(!is_doubtful(name.as_bytes(), NFC), "{name}");
            assert!(!is_doubtful(name.as_bytes(), NFD | NORM_UPPER), "{name}");
        }
        for name in ["a\u{331}\u{304}", "\u{1EC0}", "\u{F73}"] {
            assert!(is_doubtful(name.as_bytes(), NFC), "{name}");
            assert!(!is_doubtful(name.as_bytes(), NORM_UPPER), "{name}");
        }
        assert!(is_doubtful("\u{2106}".as_bytes(), NFKC) && !is_doubtful("\u{2106}".as_bytes(), NFKD));
    }

    #[test]
    fn what_is_not_text_passes_through() {
        let name = b"a\xFF\xC3\xA9\xC3";
        assert_eq!(prepare(name, NFD | NORM_UPPER).as_ref(), b"A\xFFE\xCC\x81\xC3");
        assert_eq!(prepare(name, 0).as_ref(), name);
    }
}
