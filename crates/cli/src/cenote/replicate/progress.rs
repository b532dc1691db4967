//! The line of a run on a terminal: how much was sent, and how fast.

use crate::console;
use admin::replicate::pipe::Flow;
use format::nicenum::nicebytes;
use indicatif::{ProgressBar, ProgressDrawTarget};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(200);

/// The line; ends with [`Progress::end`].
pub(super) struct Progress {
    bar: ProgressBar,
    done: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Progress {
    /// Shows what passes the streams of a run.
    pub(super) fn start(policy: &str, flow: &Arc<Flow>, quiet: bool) -> Progress {
        let target = if quiet { ProgressDrawTarget::hidden() } else { console::progress_target() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = indicatif::ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        let done = Arc::new(AtomicBool::new(false));
        let (is_done, shown, flow, policy) =
            (Arc::clone(&done), bar.clone(), Arc::clone(flow), policy.to_owned());
        let show = move || {
            let start = Instant::now();
            while !is_done.load(Ordering::Relaxed) {
                let bytes = flow.bytes.load(Ordering::Relaxed);
                let millis = start.elapsed().as_millis().max(1);
                let rate = u64::try_from(u128::from(bytes) * 1000 / millis).unwrap_or(u64::MAX);
                shown.set_message(format!("{policy}: {} ({}/s)", nicebytes(bytes), nicebytes(rate)));
                std::thread::park_timeout(EVERY);
            }
        };
        let is_shown = !bar.is_hidden();
        // Without a thread there is no line.
        let thread = is_shown.then(|| std::thread::Builder::new().spawn(show).ok()).flatten();
        Progress { bar, done, thread: Mutex::new(thread) }
    }

    /// Prints something while the line is away.
    pub(super) fn above(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Removes the line.
    pub(super) fn end(self) {
        self.done.store(true, Ordering::Relaxed);
        let thread = self.thread.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(thread) = thread {
            thread.thread().unpark();
            // It only draws.
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}
