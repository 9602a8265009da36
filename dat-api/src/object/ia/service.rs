//! The thread of an IA: it takes the device's asynchronous events, and looks for requests that do
//! not complete.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dat_engine::Device;
use dat_engine::thread::{Thread, leave_pinned_cpus};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use super::Ia;
use crate::error::{DatError, Result};
use crate::status::{ReturnType, Subtype};

/// The running thread.
pub(super) struct Service {
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Thread,
}

const DEVICE: Token = Token(0);
const WAKER: Token = Token(1);
/// How often the thread looks for requests that do not complete.
const CHECK: Duration = Duration::from_secs(10);

impl Service {
    /// Starts the thread. It blocks all signals, and does not run on CPUs that are isolated for the
    /// thread that opens the IA. It keeps the device open, not the IA.
    pub(super) fn start(ia: &Arc<Ia>) -> Result<Self> {
        let poll = Poll::new().map_err(refused)?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(refused)?;
        let device = ia.device.clone();
        poll.registry()
            .register(
                &mut SourceFd(&device.async_fd().as_raw_fd()),
                DEVICE,
                Interest::READABLE,
            )
            .map_err(refused)?;
        let stop = Arc::new(AtomicBool::new(false));
        let run = Run {
            poll,
            device,
            ia: Arc::downgrade(ia),
            checks: ia.rules.retries_for_ever && tracing::enabled!(tracing::Level::WARN),
            stop: Arc::clone(&stop),
        };
        let thread = Thread::start(c"dat-async", move || run.run()).map_err(refused)?;
        Ok(Self {
            stop,
            waker,
            thread,
        })
    }

    /// Ends the thread and waits for its end, unless it is the calling thread.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        if let Err(error) = self.waker.wake() {
            tracing::error!("the thread of an IA cannot be woken: {error}");
            return;
        }
        self.thread.join();
    }
}

struct Run {
    poll: Poll,
    device: Device,
    ia: Weak<Ia>,
    /// Whether to look for requests that do not complete.
    checks: bool,
    stop: Arc<AtomicBool>,
}

impl Run {
    fn run(mut self) {
        leave_pinned_cpus();
        let mut events = Events::with_capacity(2);
        let mut next = self.checks.then(|| Instant::now() + CHECK);
        // Readiness is edge-triggered: take events first, and then until there are none.
        while !self.stop.load(Ordering::Acquire) && self.take_events() {
            if next.is_some_and(|next| next <= Instant::now()) {
                next = Some(Instant::now() + CHECK);
                if let Some(ia) = self.ia.upgrade() {
                    ia.warn_of_stalled_requests();
                }
            }
            let timeout = next.map(|next| next.saturating_duration_since(Instant::now()));
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::error!("waiting for the device's events failed: {error}");
                    return;
                }
            }
        }
    }

    /// Takes the events that are there; returns `false` if no more will come.
    fn take_events(&self) -> bool {
        for event in self.device.async_events() {
            let Some(ia) = self.ia.upgrade() else {
                return false;
            };
            match event {
                Ok(event) => ia.device_event(event),
                Err(error) => {
                    tracing::error!("{error}");
                    ia.device_lost();
                    return false;
                }
            }
            if self.stop.load(Ordering::Acquire) {
                return false;
            }
        }
        true
    }
}

fn refused(error: io::Error) -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceDevice,
        format!(
            "the thread for the device's events cannot be started: {error}; see `ulimit -n -u`"
        ),
    )
}
