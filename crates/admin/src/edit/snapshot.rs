//! Taking snapshots.

use super::operation::{self, Operation};
use super::{EditError, permit, run};
use cenote::{Pool, PoolWriter};
use dsl::prop::PropValue;
use dsl::snapshot as task;

/// Takes snapshots of datasets of one pool, all in one transaction group or none. `props` are user
/// properties of each. They have what programs have written to mounts, through maps of pages too.
///
/// # Errors
/// Why they cannot be taken; none is then.
pub fn snapshot(pool: &PoolWriter, names: &[String], props: &[(String, String)]) -> Result<(), EditError> {
    if let Some(permit) = permit::of(pool)? {
        let needed: &[&str] = if props.is_empty() { &["snapshot"] } else { &["snapshot", "userprop"] };
        names.iter().try_for_each(|name| permit.ask(name, needed))?;
    }
    let datasets = names.iter().filter_map(|name| Some(name.split_once('@')?.0));
    pool.live().hand_over(datasets).map_err(|why| EditError::NotHandedOver { why })?;
    let names = names.to_vec();
    let props: Vec<(String, PropValue)> =
        props.iter().map(|(name, text)| (name.clone(), PropValue::String(text.clone()))).collect();
    let mut input = operation::pair("snaps", operation::names(&names));
    input.push("props", operation::properties(&props));
    let operation = Operation::begin("snapshot");
    run(pool, move |ctx| task::snapshot(ctx, &names, &props).map(|_| ()))?;
    operation.done(pool, input)
}

/// Names of a dataset and of all below it, parents first.
///
/// # Errors
/// [`EditError::NoDataset`].
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
