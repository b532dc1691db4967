//! What clients ask for, run as it would be in their own process.

use super::policy;
use crate::console::{Cancel, Console, Exit};
use cenote::admin::{Caller, Namespace};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::Mode;
use serve::control::{Call, Handler, Peer, Request, Server};
use serve::mounts::TableSettings;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};

/// The name of threads that run requests.
pub(super) const THREAD: &str = "request";
/// Exit code of a command that is ended by a bug of ours.
const BUG: u8 = 70;

/// Runs requests on the pools of a namespace.
pub(super) struct Requests {
    namespace: Arc<Namespace>,
    server: OnceLock<Weak<Server>>,
}

/// How file systems are served.
pub(super) fn table_settings() -> TableSettings {
    TableSettings::default()
}

impl Requests {
    pub(super) fn new(namespace: Arc<Namespace>) -> Requests {
        Requests { namespace, server: OnceLock::new() }
    }

    /// A client that may ends this server.
    pub(super) fn stops(&self, server: &Arc<Server>) {
        let _ = self.server.set(Arc::downgrade(server));
    }

    /// The client's console.
    fn console(&self, request: Request, call: Call) -> (Arc<Console>, Vec<OsString>) {
        let env = request.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let is_trusted = policy::is_trusted(&call.peer);
        let env: BTreeMap<OsString, OsString> = if is_trusted { env } else { policy::harmless(env) };
        let Peer { uid, gid, groups, .. } = call.peer;
        let cancel = Arc::new(Cancel::default());
        let asked = Arc::clone(&cancel);
        call.cancelled.watch(move || asked.ask());
        let console = Console {
            streams: call.streams,
            env,
            terminal: call.terminal,
            umask: request.umask,
            namespace: Arc::clone(&self.namespace),
            caller: Caller { uid, gid, groups },
            cancel,
        };
        (Arc::new(console), request.args.into_iter().map(OsString::from).collect())
    }
}

impl Handler for Requests {
    fn admit(&self, peer: &Peer) -> Result<(), String> {
        policy::admit(peer)
    }

    fn accepts(&self, request: &Request, peer: &Peer) -> Result<bool, String> {
        let args: Vec<OsString> = request.args.iter().cloned().map(OsString::from).collect();
        let is_ours = is_about_all(&args) || names_a_pool(&args, &self.namespace.names());
        if request.program == "cenote" && !is_ours {
            return Ok(false);
        }
        if !policy::is_trusted(peer) {
            policy::check(&request.program, &args)?;
        }
        Ok(true)
    }

    fn run(&self, request: Request, call: Call) -> u8 {
        let (uid, pid, program) = (call.peer.uid, call.peer.pid, request.program.clone());
        tracing::debug!(uid, pid, program, args = ?request.args, "request");
        let place = Place::enter(&call.folder, request.umask);
        let (console, args) = self.console(request, call);
        if let Err(error) = &place {
            console.enter(|| say_error_line!("cenoted: cannot enter the working folder: {error}"));
            return 1;
        }
        let ran = catch_unwind(AssertUnwindSafe(|| console.enter(|| crate::run_program(&program, args))));
        let code = ran.unwrap_or_else(|why| match why.downcast_ref::<Exit>() {
            Some(Exit(code)) => *code,
            None => {
                // The log has it from the hook.
                console.enter(|| say_error_line!("{program}: internal error; the log of cenoted has more"));
                BUG
            }
        });
        tracing::debug!(uid, pid, program, code, "done");
        code
    }

    fn stop(&self, peer: &Peer) -> Result<(), String> {
        if !policy::is_trusted(peer) {
            return Err("permission denied".to_owned());
        }
        tracing::info!(uid = peer.uid, pid = peer.pid, "asked to end");
        if let Some(server) = self.server.get().and_then(Weak::upgrade) {
            server.stop();
        }
        Ok(())
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }
}

/// The working folder and umask of a request. Threads that it starts have these too, and some stay, with the pool
/// that it opens: at the end all leave the folder, which could not be unmounted otherwise.
struct Place;

impl Place {
    fn enter(folder: &std::os::fd::OwnedFd, umask: u32) -> io::Result<Place> {
        // Of this thread alone, from now on.
        unshare(CloneFlags::CLONE_FS)?;
        let place = Place;
        rustix::process::fchdir(folder)?;
        rustix::process::umask(Mode::from_raw_mode(umask));
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The root is always there.
        let _ = rustix::process::chdir("/");
        rustix::process::umask(Mode::from_raw_mode(0o022));
    }
}

/// Whether a `cenote` verb is about all pools that are imported.
fn is_about_all(args: &[OsString]) -> bool {
    args.first().is_some_and(|verb| verb == "kstat" || verb == "metrics")
}

/// Whether a `cenote` verb is about one of these pools, and not about devices that it names itself.
fn names_a_pool(args: &[OsString], pools: &[String]) -> bool {
    let is_device_option =
        |text: &str| text == "-d" || text.starts_with("-d/") || text.starts_with("--device");
    let texts = || args.iter().skip(1).filter_map(|arg| arg.to_str());
    if texts().any(is_device_option) {
        return false;
    }
    let pool_of = |text: &str| text.split(['/', '@', ':', '#']).next().unwrap_or_default().to_owned();
    texts().any(|text| pools.contains(&pool_of(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_about_files_of_imported_pools_run_here() {
        let named = |line: &str| {
            let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            names_a_pool(&args, &["tank".to_owned()])
        };
        assert!(named("ls tank/a@b:/x") && named("cp -r /x tank:/y") && named("verify tank"));
        assert!(!named("ls other:/x") && !named("ls -d /images tank:/") && !named("tank") && !named("mkdir"));
    }
}
