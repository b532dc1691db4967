//! Reference-counted directories that are finished when the last reference to them and their entries is
//! dropped. Several threads fill or empty a tree, and each directory is finished after everything in it.

use std::sync::Arc;

/// A directory that is finished when its last reference is dropped.
pub(crate) trait Finish: Sized {
    /// Called when no reference to the directory, or to anything below it, is left.
    fn finish(&self);

    /// The reference of the directory to its parent.
    fn into_above(self) -> Option<Last<Self>>;
}

/// A reference to a directory, and through it to all directories above.
pub(crate) struct Last<T: Finish>(Option<Arc<T>>);

impl<T: Finish> Last<T> {
    /// The first reference to a directory.
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
        // A loop, because nested drops would overflow the stack in a deep tree.
        let mut next = self.0.take();
        while let Some(dir) = next.and_then(Arc::into_inner) {
            dir.finish();
            next = dir.into_above().and_then(|mut above| above.0.take());
        }
    }
}
