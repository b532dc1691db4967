//! Lists the descendants of a dataset.

use super::EditError;
use cenote::Pool;

/// Names of a dataset and its descendants, parents first.
///
/// # Errors
/// [`EditError::NoDataset`] if the dataset does not exist.
pub fn with_descendants(pool: &Pool, name: &str) -> Result<Vec<String>, EditError> {
    let mut names = Vec::new();
    let mut stack = vec![pool.dsl().dir(name)?];
    while let Some(dir) = stack.pop() {
        let mut children = dir.children()?;
        children.reverse();
        stack.extend(children);
        if dir.head()?.is_some() {
            names.push(dir.name().to_owned());
        }
    }
    Ok(names)
}
