//! Modes in the notations of `chmod`: `750`, `u+x,go-w`, `a=rX`.

/// A change of permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ModeChange {
    /// Sets all permissions. A directory keeps set-id bits, unless five digits are given.
    Octal { bits: u32, clears_set_ids: bool },
    /// Clauses, applied in order.
    Symbolic(Vec<Clause>),
}

/// A clause: `WHO` and one `OP PERMISSIONS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Clause {
    /// Masks of the classes: 0o4700, 0o2070, 0o1007; 0 for all bits that the umask allows.
    who: u32,
    op: char,
    /// Permission bits for all three classes, to be masked by `who`.
    bits: u32,
    /// `X`: execute, if the file is a directory or has execute permission for some class.
    conditional: bool,
    /// `u`, `g` or `o`: copies the permissions of that class.
    copy: Option<u32>,
}

const SET_IDS: u32 = 0o6000;

/// Parses a mode; `None` if it is malformed.
pub(super) fn parse(text: &str) -> Option<ModeChange> {
    let is_octal = !text.is_empty() && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    if is_octal {
        let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777)?;
        return Some(ModeChange::Octal { bits, clears_set_ids: text.len() > 4 });
    }
    let mut clauses = Vec::new();
    for clause in text.split(',') {
        let ops = clause.find(['+', '-', '='])?;
        let (classes, mut rest) = clause.split_at(ops);
        let mut who = 0;
        for class in classes.chars() {
            who |= match class {
                'u' => 0o4700,
                'g' => 0o2070,
                'o' => 0o1007,
                'a' => 0o7777,
                _ => return None,
            };
        }
        while let Some(op) = rest.chars().next() {
            let tail = rest.get(1..)?;
            let end = tail.find(['+', '-', '=']).unwrap_or(tail.len());
            let (perms, next) = tail.split_at(end);
            clauses.push(permissions(who, op, perms)?);
            rest = next;
        }
    }
    Some(ModeChange::Symbolic(clauses))
}

fn permissions(who: u32, op: char, text: &str) -> Option<Clause> {
    let mut clause = Clause { who, op, bits: 0, conditional: false, copy: None };
    if let "u" | "g" | "o" = text {
        clause.copy = Some(match text {
            "u" => 6,
            "g" => 3,
            _ => 0,
        });
        return Some(clause);
    }
    for c in text.chars() {
        match c {
            'r' => clause.bits |= 0o444,
            'w' => clause.bits |= 0o222,
            'x' => clause.bits |= 0o111,
            'X' => clause.conditional = true,
            's' => clause.bits |= SET_IDS,
            't' => clause.bits |= 0o1000,
            _ => return None,
        }
    }
    Some(clause)
}

impl ModeChange {
    /// The permissions of a file after the change.
    pub(super) fn apply(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        match self {
            ModeChange::Octal { bits, clears_set_ids } => {
                let kept = if is_dir && !clears_set_ids { mode & SET_IDS } else { 0 };
                bits | kept
            }
            ModeChange::Symbolic(clauses) => {
                clauses.iter().fold(mode & 0o7777, |mode, clause| clause.apply(mode, is_dir, umask))
            }
        }
    }
}

impl Clause {
    fn apply(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        let mut bits = self.bits;
        if self.conditional && (is_dir || mode & 0o111 != 0) {
            bits |= 0o111;
        }
        if let Some(shift) = self.copy {
            let from = mode >> shift & 7;
            bits = from << 6 | from << 3 | from;
        }
        let (who, allowed) = if self.who == 0 { (0o7777, 0o7777 & !umask) } else { (self.who, self.who) };
        // `s` counts for the named classes only; `t` counts for others or all.
        let bits = bits & allowed;
        match self.op {
            '+' => mode | bits,
            '-' => mode & !bits,
            _ => {
                let kept = if is_dir { SET_IDS & !(self.bits & SET_IDS) } else { 0 };
                mode & !(who & !kept) | bits
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn apply(text: &str, mode: u32) -> u32 {
        parse(text).unwrap().apply(mode, false, 0o022)
    }

    #[test]
    fn as_chmod_does() {
        for (text, before, after) in [
            ("750", 0o644, 0o750),
            ("0", 0o6777, 0),
            ("u+x,go-w", 0o666, 0o744),
            ("a=rX", 0o640, 0o444),
            ("a=rX", 0o740, 0o555),
            ("+w", 0o444, 0o644),
            ("+x", 0o644, 0o755),
            ("-x", 0o755, 0o644),
            ("o=g", 0o750, 0o755),
            ("g+s,u+s,+t", 0o755, 0o7755),
            ("u=rwx,g=,o=", 0o4644, 0o700),
            ("ug=rw", 0o777, 0o667),
            ("u+r-w", 0o300, 0o500),
            ("=r", 0o777, 0o444),
        ] {
            assert_eq!(apply(text, before), after, "{text} of {before:o}");
        }
        assert_eq!(parse("755").unwrap().apply(0o2700, true, 0), 0o2755);
        assert_eq!(parse("00755").unwrap().apply(0o2700, true, 0), 0o755);
        assert_eq!(parse("a=rx").unwrap().apply(0o2700, true, 0), 0o2555);
        assert_eq!(parse("g-s").unwrap().apply(0o2700, true, 0), 0o700);
        for bad in ["", "8", "10000", "rw", "u+q", "z=r", "u"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
