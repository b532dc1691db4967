//! Runs the requests of clients as they would run in their own processes.

use super::policy;
use super::programs::Programs;
use crate::console::{Cancel, Console, Exit, Held};
use admin::{Caller, Namespace};
use cenote::interrupt::Interrupt;
use nix::sched::{CloneFlags, unshare};
use rustix::fs::Mode;
use serve::control::{Call, Ends, Handler, Peer, Request, Server};
use serve::panics;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

/// Exit code of a command that a panic has ended.
const BUG: u8 = 70;
/// Exit code of a command whose reader is gone: that of a process that SIGPIPE ended.
const NO_READER: u8 = 141;

/// Runs requests on the pools of a namespace.
pub(super) struct Requests {
    namespace: Arc<Namespace>,
    programs: Programs,
    server: OnceLock<Weak<Server>>,
}

impl Requests {
    pub(super) fn new(namespace: Arc<Namespace>, programs: Programs) -> Requests {
        Requests { namespace, programs, server: OnceLock::new() }
    }

    /// Lets clients with the right to it end `server`.
    pub(super) fn stops(&self, server: &Arc<Server>) {
        let _ = self.server.set(Arc::downgrade(server));
    }

    /// Makes the console of a client.
    fn console(
        &self,
        request: Request,
        call: Call,
        interrupt: &Arc<Interrupt>,
    ) -> (Arc<Console>, Vec<OsString>) {
        let env = request.env.into_iter().collect();
        let is_trusted = policy::is_trusted(&call.peer);
        let env: BTreeMap<OsString, OsString> = if is_trusted { env } else { policy::harmless(env) };
        let Peer { uid, gid, groups, .. } = call.peer;
        let cancel = Arc::new(Cancel::default());
        let (asked, interrupt) = (Arc::clone(&cancel), Arc::clone(interrupt));
        call.cancelled.watch(move |why| match why {
            Ends::Client => {
                interrupt.signal();
                asked.ask();
            }
            Ends::Daemon => asked.end(),
        });
        let console = Console {
            link: call.link,
            screen: request.screen,
            folder: request.folder,
            env,
            umask: request.umask,
            namespace: Arc::clone(&self.namespace),
            caller: Caller { uid, gid, groups },
            cancel,
            held: Held::new(is_trusted),
        };
        (Arc::new(console), request.args)
    }
}

impl Handler for Requests {
    fn admit(&self, peer: &Peer) -> Result<(), String> {
        policy::admit(peer)
    }

    fn accepts(&self, request: &Request, _: &Peer) -> Result<bool, String> {
        let args = &request.args;
        if request.program == "cenote" && args.first().is_some_and(|verb| verb == "mount") {
            return match (self.programs.pool_to_mount)(args) {
                Some(pool) if self.namespace.names().contains(&pool) => Err(format!(
                    "cenote: pool '{pool}' is imported: 'zfs mount' mounts its file systems, and there snapshots \
                     are in .zfs/snapshot"
                )),
                _ => Ok(false),
            };
        }
        let is_ours = is_about_all(args) || names_a_pool(args, &self.namespace.names());
        if request.program == "cenote" && !is_ours {
            return Ok(false);
        }
        Ok(true)
    }

    fn run(&self, request: Request, call: Call) -> u8 {
        let (uid, pid, program) = (call.peer.uid, call.peer.pid, request.program.clone());
        tracing::debug!(uid, pid, program, args = ?request.args, "request");
        // Other users name no paths: no file is opened for them.
        let is_trusted = policy::is_trusted(&call.peer);
        let (folder, umask) =
            if is_trusted { (Path::new(&request.folder), request.umask) } else { (Path::new("/"), 0o022) };
        let working_folder = WorkingFolder::enter(folder, umask);
        let interrupt = Interrupt::of_command();
        let (console, args) = self.console(request, call, &interrupt);
        let (working_folder, args) = match working_folder
            .and_then(|working_folder| Ok((working_folder.whole_paths(&program, args)?, working_folder)))
        {
            Ok((args, working_folder)) => (working_folder, args),
            Err(error) => {
                console.enter(|| say_error_line!("cenoted: cannot enter the working folder: {error}"));
                return 1;
            }
        };
        let provoke = |arg: &OsString| panics::provoke(arg.as_bytes(), panics::TEST_NAMES[0]);
        let work = || {
            args.iter().for_each(provoke);
            interrupt.during(|| console.enter(|| (self.programs.run)(&program, args)))
        };
        let ran = panics::survive(work);
        let code = ran.unwrap_or_else(|why| match why.downcast_ref::<Exit>() {
            Some(Exit(code)) => *code,
            None => {
                // The panic hook has logged it.
                console.enter(|| say_error_line!("{program}: internal error; the log of cenoted has more"));
                BUG
            }
        });
        // Whatever it used is free again; its reader may take as long as it likes.
        drop(working_folder);
        let code = match console.cancel.is_cut() {
            true => {
                console.enter(|| say_error_line!("cenoted ends: the command was not waited for"));
                if code == 0 { 1 } else { code }
            }
            false => code,
        };
        let code = match console.send_all() {
            Err(_) if code == 0 => NO_READER,
            _ => code,
        };
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

/// The working folder and umask of a request.
enum WorkingFolder {
    /// This thread has them. Threads that it starts have these too, and some stay, with the pool that it opens: at
    /// the end all leave the folder, which could not be unmounted otherwise.
    Own,
    /// The thread cannot have the client's folder: the system lets no thread have one of its own (containers
    /// in which `unshare` is forbidden), or root cannot enter this one. Holds the client's folder and the
    /// reason.
    Elsewhere(PathBuf, String),
}

impl WorkingFolder {
    fn enter(folder: &Path, umask: u32) -> io::Result<WorkingFolder> {
        use nix::errno::Errno;
        match unshare(CloneFlags::CLONE_FS) {
            Ok(()) => {}
            Err(Errno::EPERM | Errno::EACCES | Errno::ENOSYS | Errno::EINVAL) => {
                return Ok(WorkingFolder::Elsewhere(
                    folder.to_owned(),
                    "unshare is forbidden to it".to_owned(),
                ));
            }
            Err(error) => return Err(error.into()),
        }
        // Of this thread alone, from now on.
        let working_folder = WorkingFolder::Own;
        if let Err(error) = rustix::process::chdir(folder) {
            // Most commands have no use for it.
            return Ok(WorkingFolder::Elsewhere(folder.to_owned(), io::Error::from(error).to_string()));
        }
        rustix::process::umask(Mode::from_raw_mode(umask));
        Ok(working_folder)
    }

    /// The arguments of a command that does not run in the client's folder, with absolute paths.
    fn whole_paths(&self, program: &str, args: Vec<OsString>) -> io::Result<Vec<OsString>> {
        let WorkingFolder::Elsewhere(folder, why) = self else { return Ok(args) };
        let is_copy = program == "cenote"
            && args.first().is_some_and(|verb| ["cp", "tar"].iter().any(|known| verb == known));
        // For other programs a word without a slash is a name in a pool.
        let is_unclear = |arg: &OsString| {
            let bytes = arg.as_bytes();
            is_copy && !bytes.starts_with(b"-") && !bytes.starts_with(b"/") && !bytes.contains(&b':')
        };
        let whole = |(index, arg): (usize, OsString)| {
            if names_here(&arg) {
                return Ok(folder.join(arg).into_os_string());
            }
            if index > 0 && is_unclear(&arg) {
                let why = format!("{why}; name files by their whole paths");
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            Ok(arg)
        };
        args.into_iter().enumerate().map(whole).collect()
    }
}

/// Whether an argument can only be a path that is relative to the working folder.
fn names_here(arg: &OsStr) -> bool {
    let bytes = arg.as_bytes();
    matches!(bytes, b"." | b"..") || bytes.starts_with(b"./") || bytes.starts_with(b"../")
}

impl Drop for WorkingFolder {
    fn drop(&mut self) {
        if let WorkingFolder::Own = self {
            // The root is always there.
            let _ = rustix::process::chdir("/");
            rustix::process::umask(Mode::from_raw_mode(0o022));
        }
    }
}

/// Whether a `cenote` verb is about all pools that are imported, or may be about any of them.
fn is_about_all(args: &[OsString]) -> bool {
    args.first().is_some_and(|verb| ["kstat", "metrics", "verb"].iter().any(|known| verb == known))
}

/// Whether a `cenote` verb concerns one of these pools, and names no devices itself.
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
    fn where_threads_share_a_folder_paths_are_made_whole() {
        let working_folder = WorkingFolder::Elsewhere("/home/a".into(), "forbidden".to_owned());
        let whole = |program: &str, line: &str| {
            let args = line.split_whitespace().map(OsString::from).collect();
            let joined = |args: Vec<OsString>| args.join(OsStr::new(" ")).into_string().expect("text");
            working_folder.whole_paths(program, args).map(joined).ok()
        };
        let said = whole("zpool", "import -d . -d ../x tank").expect("clear");
        assert_eq!(said, "import -d /home/a/. -d /home/a/../x tank");
        assert_eq!(whole("zfs", "list tank").as_deref(), Some("list tank"));
        assert_eq!(whole("cenote", "cp ./x /y tank:/").as_deref(), Some("cp /home/a/./x /y tank:/"));
        assert_eq!(whole("cenote", "cp tank:/x y"), None);
        assert_eq!(
            WorkingFolder::Own.whole_paths("cenote", vec!["cp".into(), "y".into()]).expect("as it is").len(),
            2
        );
    }

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
