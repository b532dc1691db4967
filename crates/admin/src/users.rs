//! Counts the users of a pool of a namespace, which exports the pool only when there are none.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vdev::sync::lock;

/// The number of users of a pool. Cloning gives another handle of the same count.
#[derive(Debug, Clone, Default)]
pub(crate) struct PoolUsers(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    users: Mutex<usize>,
    none_left: Condvar,
}

impl PoolUsers {
    /// Counts one more user until the returned value is dropped.
    pub(crate) fn enter(&self) -> PoolUse {
        *self.0.users() += 1;
        PoolUse(Arc::clone(&self.0))
    }

    /// True if the pool has no users.
    pub(crate) fn is_empty(&self) -> bool {
        *self.0.users() == 0
    }

    /// Waits until there are no users, for at most `timeout`. Returns false if there still are some.
    pub(crate) fn wait_gone(&self, timeout: Duration) -> bool {
        let waited = self.0.none_left.wait_timeout_while(self.0.users(), timeout, |users| *users > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }
}

impl Count {
    fn users(&self) -> MutexGuard<'_, usize> {
        lock(&self.users)
    }
}

/// One use of a pool; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct PoolUse(Arc<Count>);

impl Drop for PoolUse {
    fn drop(&mut self) {
        let mut users = self.0.users();
        *users -= 1;
        if *users == 0 {
            self.0.none_left.notify_all();
        }
    }
}
