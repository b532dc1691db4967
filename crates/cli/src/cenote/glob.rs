//! Shell patterns on bytes: `*`, `?`, `[a-z]`, `[!a-z]`, and `\` before a literal character.

/// Whether the pattern matches the whole of `text`. Takes time in proportion to the product of both lengths.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Position to return to: after the last star, and the number of bytes that the star has matched so far.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
        } else if let Some((next, true)) = text.get(t).and_then(|&byte| one(pattern, p, byte)) {
            p = next;
            t += 1;
        } else if t == text.len() && p >= pattern.len() {
            return true;
        } else if let Some((behind, eaten)) = star.filter(|&(_, eaten)| eaten < text.len()) {
            star = Some((behind, eaten + 1));
            (p, t) = (behind, eaten + 1);
        } else {
            return false;
        }
    }
}

/// The position after the pattern's element at `p`, and whether that element matches the byte. `None`: the
/// pattern ends at `p`.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<(usize, bool)> {
    match *pattern.get(p)? {
        b'?' => Some((p + 1, true)),
        b'\\' => match pattern.get(p + 1) {
            Some(&literal) => Some((p + 2, literal == byte)),
            None => Some((p + 1, byte == b'\\')),
        },
        b'[' => Some(set(pattern, p, byte).unwrap_or((p + 1, byte == b'['))),
        literal => Some((p + 1, literal == byte)),
    }
}

/// [`one`] for a set in brackets; `None` if the bracket is not closed.
fn set(pattern: &[u8], p: usize, byte: u8) -> Option<(usize, bool)> {
    let mut at = p + 1;
    let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    at += usize::from(negated);
    let first = at;
    let mut found = false;
    loop {
        let low = *pattern.get(at)?;
        if low == b']' && at > first {
            return Some((at + 1, found != negated));
        }
        let is_range =
            pattern.get(at + 1) == Some(&b'-') && pattern.get(at + 2).is_some_and(|&high| high != b']');
        let high = if is_range { *pattern.get(at + 2)? } else { low };
        found |= (low..=high).contains(&byte);
        at += if is_range { 3 } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        let is = |p: &str, t: &str| matches(p.as_bytes(), t.as_bytes());
        for (pattern, yes, no) in [
            ("*.txt", &["a.txt", ".txt", "x.txt.txt"][..], &["a.txt2", "txt"][..]),
            ("a?c", &["abc", "a.c"], &["ac", "abbc"]),
            ("[a-c]*", &["b", "cat"], &["d", ""]),
            ("[!a-c]", &["d", "]"], &["a", ""]),
            ("[]x]", &["]", "x"], &["a"]),
            ("[a-]", &["a", "-"], &["b"]),
            ("[ab", &["[ab"], &["a"]),
            (r"\*", &["*"], &["a"]),
            ("*a*b*c", &["aabbc", "abc", "xaxbxc"], &["acb", "ab"]),
            ("", &[""], &["a"]),
            ("**", &["", "abc"], &[]),
        ] {
            for text in yes {
                assert!(is(pattern, text), "{pattern} {text}");
            }
            for text in no {
                assert!(!is(pattern, text), "{pattern} {text}");
            }
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = "a*".repeat(200);
        assert!(!matches(format!("{pattern}b").as_bytes(), "a".repeat(2000).as_bytes()));
    }
}
