//! What a pool may be called (docs/on-disk/33-cli.md, section 1.3).

/// Longest name of a dataset, with the zero behind it.
const DATASET_NAME_SIZE: usize = 256;
/// Room that must be left for the hidden snapshot `$ORIGIN@$ORIGIN`, with its separators.
const HIDDEN: usize = 2 + 2 * format::names::hidden::ORIGIN.len();

/// What is wrong with a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// No room would be left for names in the pool.
    #[error("name is too long")]
    TooLong,
    /// A character that names do not have.
    #[error("invalid character '{0}' in pool name")]
    Character(char),
    /// It does not begin with a letter.
    #[error("name must begin with a letter")]
    NoLetter,
    /// Words of the vdev grammar.
    #[error("name is reserved")]
    Reserved,
}

/// Whether a new pool, or a pool that is imported under a new name, may be called so.
pub(crate) fn check_pool_name(name: &str) -> Result<(), NameProblem> {
    if name.len() >= DATASET_NAME_SIZE - HIDDEN {
        return Err(NameProblem::TooLong);
    }
    let may_stand = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c);
    if let Some(c) = name.chars().find(|c| !may_stand(*c)) {
        return Err(NameProblem::Character(c));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(NameProblem::NoLetter);
    }
    let is_word = ["mirror", "raidz", "draid", "spare"].iter().any(|word| name.starts_with(word));
    if is_word || name == "log" { Err(NameProblem::Reserved) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_real_tool_takes_and_refuses() {
        for name in ["tank", "new x", "new ", "logx", "c0t0d0", "a.b:c-d_e"] {
            assert_eq!(check_pool_name(name), Ok(()), "{name}");
        }
        let refused = [
            ("1new", NameProblem::NoLetter),
            ("", NameProblem::NoLetter),
            ("new@x", NameProblem::Character('@')),
            ("bad%name", NameProblem::Character('%')),
            ("ünew", NameProblem::Character('ü')),
            ("mirrorx", NameProblem::Reserved),
            ("raidzz", NameProblem::Reserved),
            ("draidq", NameProblem::Reserved),
            ("spareq", NameProblem::Reserved),
            ("log", NameProblem::Reserved),
        ];
        for (name, problem) in refused {
            assert_eq!(check_pool_name(name), Err(problem), "{name}");
        }
        assert_eq!(check_pool_name(&"a".repeat(239)), Ok(()));
        assert_eq!(check_pool_name(&"a".repeat(240)), Err(NameProblem::TooLong));
    }
}
