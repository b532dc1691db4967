//! The way of a stream from one side to the other: a pipe, with a limit of the rate, a counter and an end on request.

use super::side::{Done, Side, SideError, Stream, Style, Target};
use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vdev::sync::lock;

/// Longest sleep of a writer that waits for the rate, so that it sees a request to end.
const NAP: Duration = Duration::from_millis(100);
/// Bytes that are asked for at a time.
const PART: usize = 64 << 10;

/// A token bucket that several streams share. It holds a tenth of a second.
#[derive(Debug)]
pub struct Rate {
    per_second: u64,
    /// Time until which the bytes that were given out take.
    until: Mutex<Option<Instant>>,
}

impl Rate {
    /// A rate in bytes a second; at least one.
    pub fn new(per_second: u64) -> Rate {
        Rate { per_second: per_second.max(1), until: Mutex::default() }
    }

    /// Takes so many bytes, at this time; how long their taker must wait.
    fn take(&self, bytes: usize, now: Instant) -> Duration {
        let cost = Duration::from_secs_f64(bytes as f64 / self.per_second as f64);
        let mut until = lock(&self.until);
        let earliest = now.checked_sub(Duration::from_millis(100)).unwrap_or(now);
        let end = until.map_or(earliest, |until| until.max(earliest)) + cost;
        *until = Some(end);
        end.saturating_duration_since(now)
    }
}

/// What all streams of a run share.
#[derive(Debug, Default)]
pub struct Flow {
    /// The limit.
    pub rate: Option<Rate>,
    /// Bytes that were sent by now.
    pub bytes: AtomicU64,
    /// Streams end early.
    pub is_cancelled: AtomicBool,
}

impl Flow {
    /// True if the run is to end.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

struct Metered<'f, W> {
    to: W,
    flow: &'f Flow,
    own: &'f AtomicU64,
}

impl<W: Write> Metered<'_, W> {
    fn wait(&self, bytes: usize) -> io::Result<()> {
        let mut left =
            self.flow.rate.as_ref().map_or(Duration::ZERO, |rate| rate.take(bytes, Instant::now()));
        loop {
            if self.flow.is_cancelled() {
                return Err(io::Error::other(SideError::Cancelled));
            }
            if left.is_zero() {
                return Ok(());
            }
            let nap = left.min(NAP);
            std::thread::sleep(nap);
            left -= nap;
        }
    }
}

impl<W: Write> Write for Metered<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = bytes.get(..bytes.len().min(PART)).unwrap_or_default();
        self.wait(part.len())?;
        let count = self.to.write(part)?;
        self.flow.bytes.fetch_add(count as u64, Ordering::Relaxed);
        self.own.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Why a stream did not arrive: what each side says.
#[derive(Debug)]
pub struct NotSent {
    /// The error of the sender, unless the receiver ended the stream.
    pub sender: Option<SideError>,
    /// The error of the receiver.
    pub receiver: Option<SideError>,
}

impl NotSent {
    /// The error behind it: of a sender that fails, the receiver says only that the stream is incomplete.
    pub fn cause(self) -> SideError {
        self.sender.or(self.receiver).unwrap_or(SideError::Cancelled)
    }
}

/// Sends a stream from one side to the other; the number of its bytes.
///
/// # Errors
/// [`NotSent`].
pub fn transfer(
    from: &dyn Side,
    stream: &Stream,
    style: Style,
    to: &dyn Side,
    target: &Target,
    flow: &Flow,
) -> Result<u64, NotSent> {
    let piped =
        |source| NotSent { sender: Some(SideError::Io { what: "pipe".to_owned(), source }), receiver: None };
    let (reader, writer) = io::pipe().map_err(piped)?;
    let own = AtomicU64::new(0);
    let (sent, received) = std::thread::scope(|scope| {
        let counter = &own;
        let sending = scope.spawn(move || -> Done {
            let mut out = Metered { to: writer, flow, own: counter };
            from.send(stream, style, &mut out)
        });
        let received = to.receive(target, reader);
        let sent = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sent, received)
    });
    let bytes = own.load(Ordering::Relaxed);
    match (sent, received) {
        (Ok(()), Ok(())) => Ok(bytes),
        // A receiver that needs no more has the snapshot already, or has read to the end of the stream.
        (Err(error), Ok(())) => Err(NotSent { sender: Some(error), receiver: None }),
        (Ok(()), Err(error)) => Err(NotSent { sender: None, receiver: Some(error) }),
        (Err(sender), Err(receiver)) => {
            let is_echo = ends_by_reader(&sender);
            Err(NotSent { sender: (!is_echo).then_some(sender), receiver: Some(receiver) })
        }
    }
}

/// Whether a sender has failed because nobody reads its stream.
fn ends_by_reader(error: &SideError) -> bool {
    match error {
        SideError::Io { source, .. } => source.kind() == io::ErrorKind::BrokenPipe,
        SideError::Refused { message, .. } => message.contains("roken pipe") || message.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_gives_out_so_many_bytes_a_second() {
        let rate = Rate::new(1000);
        let start = Instant::now();
        // The bucket is full at first: a tenth of a second.
        assert_eq!(rate.take(100, start), Duration::ZERO);
        assert_eq!(rate.take(500, start), Duration::from_millis(500));
        assert_eq!(rate.take(500, start + Duration::from_millis(500)), Duration::from_millis(500));
        // What was not used by then does not add up.
        assert_eq!(rate.take(1100, start + Duration::from_secs(60)), Duration::from_secs(1));
    }
}
