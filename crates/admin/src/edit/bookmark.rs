//! Creates bookmarks.

use super::operation::{self, Operation};
use super::{EditError, permit, run};
use cenote::PoolWriter;
use dsl::DslError;
use dsl::bookmark::Bookmark;

/// Creates a bookmark of a snapshot or of another bookmark.
///
/// # Errors
/// The source does not exist, the name is not valid or exists, or the caller lacks the permission.
pub fn bookmark(pool: &PoolWriter, source: &str, name: &str) -> Result<(), EditError> {
    permit::ask(pool, name, &["bookmark"])?;
    let (operation, input) = (Operation::begin("bookmark"), operation::pair(name, source));
    let (source, name) = (source.to_owned(), name.to_owned());
    run(pool, move |ctx| {
        dsl::name::check_new(&name)?;
        let dsl = ctx.dsl()?;
        let missing = || DslError::NotFound { name: name.clone() };
        let (dataset, mark) = name.split_once('#').ok_or_else(missing)?;
        let head = dsl.dir(dataset)?.head()?.ok_or_else(missing)?;
        if let Some((of, old)) = source.split_once('#') {
            let of = dsl.dir(of)?.head()?.ok_or_else(|| DslError::NotFound { name: source.clone() })?;
            Bookmark::create_from_bookmark(ctx.m(), head.id(), (of.id(), old), mark)?;
            let text = format!("name={mark} source={source}");
            ctx.note("bookmark", Some((dataset, head.id())), text);
        } else {
            let snapshot = dsl.dataset(&source)?;
            Bookmark::create_from_snapshot(ctx.m(), head.id(), snapshot.id(), mark)?;
            let (txg, id) = (snapshot.phys().creation_txg, snapshot.id());
            let text = format!("name={mark} creation_txg={txg} target_snap={id} redact_obj=0");
            ctx.note("bookmark", Some((dataset, head.id())), text);
        }
        Ok(())
    })?;
    operation.done(pool, input)
}
