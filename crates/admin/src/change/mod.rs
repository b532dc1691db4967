//! Verbs that change pools.
//!
//! What a command asks for is checked here as far as that goes without the pool, in the order and with the
//! words of the tools of OpenZFS; then the layers below are told what to do.
//!
//! # What always holds
//! - Nothing is written before everything that can be checked has been.

mod compat;
mod device_holder;
mod error;
mod healing;
mod in_use;
mod keep_open;
mod labelclear;
mod pool_create;
mod pool_devices;
mod pool_draid;
mod pool_import;
mod pool_layout;
mod pool_name;
mod pool_open;
mod pool_path;
mod pool_settings;
mod pool_verbs;
mod reguid;
mod replication;
mod signature;
mod state;

pub use ::pool::Offline;
pub use ::pool::VdevProp;
pub use compat::{CompatError, Compatibility};
pub use error::ChangeError;
pub use healing::{
    Activities, Scrub, activities, clear_pool, offline_vdev, online_vdev, reopen_pool, resilver_pool,
    scrub_pool,
};
pub use in_use::{InUse, Usage};
pub use keep_open::before_close;
pub use labelclear::{LabelClearError, clear_labels};
pub(crate) use pool_create::make_pool;
pub use pool_create::{NewPool, create_pool};
pub use pool_devices::{Allow, check_layout};
pub use pool_draid::DraidError;
pub use pool_import::{ImportRequest, Importable, importable};
pub use pool_layout::{DeviceUse, LayoutClass, LayoutError, LayoutKind, LayoutTop, PoolLayout};
pub use pool_name::{NameProblem, check_pool_name};
pub(crate) use pool_open::open_writer;
pub use pool_open::{check_admin, open_for_change};
pub use pool_path::{DeviceName, PathProblem, find_device, first_partition};
pub use pool_settings::{PoolSetting, SetWhen, check_pool_setting, parse_ashift};
pub use pool_verbs::{
    NewVdevs, add_vdevs, config_tree, destroy_pool, enable_features, export_pool, found_names,
    imported_names, set_cachefile, set_pool_props, set_vdev_prop, sync_pool,
};
pub use reguid::reguid_pool;
pub(crate) use state::prepare_folder;
pub use state::{cache_path, state_folder};

use crate::AdminError;
use ::pool::CacheFileError;

/// A cache file that could not be used.
pub(crate) fn cache_error(error: &CacheFileError) -> AdminError {
    AdminError::CacheFile { path: error.path.display().to_string(), why: error.why.to_string() }
}

/// An error of the system, in the words of the C library.
pub(crate) fn errno_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
