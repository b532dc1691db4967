//! A folder with a daemon of its own, and commands that run there.

use super::{Ran, cenote};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder with a state folder and a socket of its own.
pub(crate) trait Folder {
    /// Path of the folder.
    fn folder(&self) -> &Path;

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    fn command(&self, words: &str) -> Command {
        let mut command = cenote(self.folder(), "run/socket", words);
        command.current_dir(self.folder()).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &str) -> Ran {
        self.command(words).output().expect("it starts").into()
    }

    /// Output of a command that must succeed.
    fn good(&self, words: &str) -> String {
        let ran = self.run(words);
        assert!(ran.code == Some(0), "{words}: {ran:?}\n{}", self.log());
        ran.out
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("state/cenoted.log")).unwrap_or_default()
    }
}
