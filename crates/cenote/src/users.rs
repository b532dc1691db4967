//! Counting the users of a pool that stays open: a namespace exports it only when there are none.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vdev::sync::lock;

/// The number of users of a pool. Cloning gives another handle of the same count.
#[derive(Debug, Clone, Default)]
pub struct PoolUsers(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    users: Mutex<usize>,
    none_left: Condvar,
}

impl PoolUsers {
    /// Counts one more user until what is returned, and every clone of it, is dropped.
    pub fn enter(&self) -> PoolUse {
        *self.0.users() += 1;
        PoolUse(Arc::clone(&self.0))
    }

    /// True if nothing uses the pool.
    pub fn is_empty(&self) -> bool {
        *self.0.users() == 0
    }

    /// Waits until there are no users, at most for `patience`. False if there still are some.
    pub fn wait_gone(&self, patience: Duration) -> bool {
        let waited = self.0.none_left.wait_timeout_while(self.0.users(), patience, |users| *users > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }
}

impl Count {
    fn users(&self) -> MutexGuard<'_, usize> {
        // The count is whole between any two statements.
        lock(&self.users)
    }
}

/// One use of a pool; ends when it is dropped.
#[derive(Debug)]
pub struct PoolUse(Arc<Count>);

impl Clone for PoolUse {
    fn clone(&self) -> PoolUse {
        PoolUsers(Arc::clone(&self.0)).enter()
    }
}

impl Drop for PoolUse {
    fn drop(&mut self) {
        let mut users = self.0.users();
        *users -= 1;
        if *users == 0 {
            self.0.none_left.notify_all();
        }
    }
}
