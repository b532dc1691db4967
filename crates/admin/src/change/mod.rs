//! The steps of the verbs that change pools ([`crate::verbs::zpool`]).
//!
//! Requests are checked here as far as that is possible without the pool, in the order and with the messages of
//! OpenZFS. The changes are made by the layers below.
//!
//! # What always holds
//! - All checks are made before the first write.

mod attach;
mod checkpoint;
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
mod removal;
mod replication;
mod signature;
mod state;

pub(crate) use ::pool::VdevProp;
pub(crate) use ::pool::{Offline, Purpose};
pub(crate) use attach::{NewDevice, attach_device, detach_device};
pub(crate) use checkpoint::checkpoint_pool;
pub use compat::{CompatError, Compatibility};
pub use device_holder::Holder;
pub use error::ChangeError;
pub use healing::{Activities, Scrub};
pub(crate) use healing::{
    activities, clear_pool, offline_vdev, online_vdev, reopen_pool, resilver_pool, scrub_pool,
};
pub use in_use::{InUse, Usage};
pub(crate) use keep_open::before_close;
pub(crate) use labelclear::clear_labels;
pub use labelclear::{LabelClearError, LetGo, Role};
pub use pool_create::NewPool;
pub(crate) use pool_create::{create_pool, make_pool};
pub use pool_devices::Allow;
pub(crate) use pool_devices::check_layout;
pub use pool_draid::DraidError;
pub use pool_import::{ImportRequest, Importable, importable};
pub use pool_layout::{DeviceUse, LayoutClass, LayoutError, LayoutKind, LayoutTop, PoolLayout};
pub use pool_name::NameProblem;
pub(crate) use pool_name::check_pool_name;
pub(crate) use pool_open::{check_admin, open_for_change, open_writer};
pub(crate) use pool_path::find_device;
pub use pool_path::{DeviceName, PathProblem};
pub use pool_settings::parse_ashift;
pub(crate) use pool_settings::{PoolSetting, SetWhen, check_pool_setting};
pub(crate) use pool_verbs::{
    NewVdevs, add_vdevs, config_tree, destroy_pool, enable_features, export_pool, found_names,
    imported_names, set_cachefile, set_pool_props, set_vdev_prop, sync_pool,
};
pub(crate) use reguid::reguid_pool;
pub(crate) use removal::{Removed, indirect_size, remove_vdev};
pub(crate) use state::cache_path;
pub(crate) use state::prepare_folder;
pub use state::state_folder;

pub(crate) use cenote::error::errno_text;
