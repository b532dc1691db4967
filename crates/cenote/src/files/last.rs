//! Directories that something is done to when nobody below them needs them any more: a tree is filled or
//! emptied by many threads, and each directory is finished after all that is in it.

use std::sync::Arc;

/// A directory that is finished when the last reference to it goes.
pub(crate) trait Finish: Sized {
    /// Nobody refers to it any more, nor to anything below.
    fn finish(&self);

    /// Its reference to the directory above.
    fn into_above(self) -> Option<Last<Self>>;
}

/// A reference to a directory, and so to all above it.
pub(crate) struct Last<T: Finish>(Option<Arc<T>>);

impl<T: Finish> Last<T> {
    /// The first reference.
    pub(crate) fn new(dir: T) -> Last<T> {
        Last(Some(Arc::new(dir)))
    }
}

impl<T: Finish> Clone for Last<T> {
    fn clone(&self) -> Last<T> {
        Last(self.0.clone())
    }
}

impl<T: Finish> std::ops::Deref for Last<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("a reference is empty only while it is dropped")
    }
}

impl<T: Finish> Drop for Last<T> {
    fn drop(&mut self) {
        // A loop rather than drops in drops: trees may be deeper than stacks.
        let mut next = self.0.take();
        while let Some(dir) = next.and_then(Arc::into_inner) {
            dir.finish();
            next = dir.into_above().and_then(|mut above| above.0.take());
        }
    }
}
