//! Checks names of pools (docs/on-disk/33-cli.md, section 1.3).

/// Maximum length of a dataset name in bytes, including the terminating zero.
const DATASET_NAME_SIZE: usize = 256;
/// Bytes needed for the hidden snapshot `$ORIGIN@$ORIGIN` and its separators.
const HIDDEN: usize = 2 + 2 * format::names::hidden::ORIGIN.len();

/// The rule that a pool's name breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// The name leaves no space for names of datasets.
    #[error("name is too long")]
    TooLong,
    /// A character that is not allowed in names of pools.
    #[error("invalid character '{0}' in pool name")]
    Character(char),
    /// The name does not begin with a letter.
    #[error("name must begin with a letter")]
    NoLetter,
    /// The name is, or begins with, a word of the vdev grammar.
    #[error("name is reserved")]
    Reserved,
}

/// Checks the name of a new pool, or the new name of an imported pool.
///
/// # Errors
/// [`NameProblem`]: the rule that the name breaks.
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
