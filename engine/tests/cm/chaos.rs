//! Random operations at any time: the documented guarantees hold.

use super::support::{EventQueue, local, own, parameters, start, target};
use dat_engine::cm::{
    Connection, ConnectionEvent, ConnectionSink, ListenSink, Listener, Manager, Request,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Records violations: an event after a terminal event or after an abort returned,
/// and two events at once.
#[derive(Default)]
struct Checker {
    ended: AtomicUsize,
    aborted: AtomicBool,
    inside: AtomicBool,
    refuses: bool,
    faults: Arc<EventQueue<String>>,
}

impl ConnectionSink for Checker {
    fn event(&self, event: ConnectionEvent) -> Result<(), ()> {
        let refused = self.refuses && matches!(event, ConnectionEvent::Accepted { .. });
        if self.inside.swap(true, Ordering::SeqCst) {
            self.faults.put(format!("{event:?} during another event"));
        }
        if self.aborted.load(Ordering::SeqCst) {
            self.faults.put(format!("{event:?} after abort"));
        }
        if self.ended.load(Ordering::SeqCst) > 0 {
            self.faults.put(format!("{event:?} after the end"));
        }
        if event.is_terminal() || refused {
            self.ended.fetch_add(1, Ordering::SeqCst);
        }
        self.inside.store(false, Ordering::SeqCst);
        if refused { Err(()) } else { Ok(()) }
    }
}

/// Pseudorandom numbers (xorshift), the same in every run.
struct Random(u64);

impl Random {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

#[derive(Default)]
struct Queue(EventQueue<Request>);

impl ListenSink for Queue {
    fn request(&self, request: Request) {
        self.0.put(request);
    }
}

struct Application {
    manager: Manager,
    other: u64,
    queue: Arc<Queue>,
    random: Random,
    faults: Arc<EventQueue<String>>,
    open: Vec<(Connection, Arc<Checker>)>,
    all: Vec<Arc<Checker>>,
}

impl Application {
    fn sink(&mut self) -> Arc<Checker> {
        let sink = Arc::new(Checker {
            refuses: self.random.roll(8) == 0,
            faults: Arc::clone(&self.faults),
            ..Checker::default()
        });
        self.all.push(Arc::clone(&sink));
        sink
    }

    fn play(&mut self) {
        match self.random.roll(8) {
            0..3 => {
                let sink = self.sink();
                let time = [None, Some(Duration::from_millis(self.random.roll(30)))];
                let time = time[self.random.roll(2) as usize];
                let made = self.manager.connect(
                    &local(),
                    target(own(), self.other, time),
                    parameters(1),
                    &vec![0; self.manager.max_private_data(local().transport) / 2],
                    sink.clone(),
                );
                self.open.push((made.unwrap(), sink));
            }
            3..5 => {
                if let Some(request) = self.queue.0.within(Duration::from_micros(100)) {
                    match self.random.roll(6) {
                        0 => request.reject(&[]).expect("short private data"),
                        1 => drop(request),
                        _ => {
                            let sink = self.sink();
                            let made = request.accept(
                                parameters(2),
                                &vec![1; self.manager.max_private_data(local().transport)],
                                sink.clone(),
                            );
                            self.open.push((made.unwrap(), sink));
                        }
                    }
                }
            }
            5..7 if !self.open.is_empty() => {
                let index = self.random.roll(self.open.len() as u64) as usize;
                self.open[index].0.disconnect();
            }
            7 if !self.open.is_empty() => {
                let index = self.random.roll(self.open.len() as u64) as usize;
                let (connection, sink) = self.open.swap_remove(index);
                connection.abort();
                sink.aborted.store(true, Ordering::SeqCst);
            }
            _ => (),
        }
    }

    /// Ends everything, and checks that every connection ends.
    fn finish(&mut self) {
        while let Some(request) = self.queue.0.within(Duration::from_millis(100)) {
            drop(request);
        }
        self.open
            .iter()
            .for_each(|(connection, _)| connection.disconnect());
        let end = Instant::now() + Duration::from_secs(10);
        for sink in &self.all {
            while sink.ended.load(Ordering::SeqCst) == 0 && !sink.aborted.load(Ordering::SeqCst) {
                assert!(Instant::now() < end, "a connection never ended");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

#[test]
fn every_connection_ends_exactly_once() {
    super::load::raise_descriptors(8000);
    let faults = Arc::new(EventQueue::default());
    let hosts: Vec<(Manager, Arc<Queue>, Listener, u64)> = (0..2)
        .map(|_| {
            let (manager, queue) = (start(), Arc::new(Queue::default()));
            let (listener, qualifier) = manager.listen_any(&local(), queue.clone()).unwrap();
            (manager, queue, listener, qualifier)
        })
        .collect();
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (own, other) = (&hosts[number % 2], &hosts[(number / 2 + number) % 2]);
            let mut application = Application {
                manager: own.0.clone(),
                other: other.3,
                queue: Arc::clone(&own.1),
                random: Random(0x9e37_79b9_7f4a_7c15 + number as u64),
                faults: Arc::clone(&faults),
                open: Vec::new(),
                all: Vec::new(),
            };
            let done = &done;
            scope.spawn(move || {
                (0..1500).for_each(|_| application.play());
                application.finish();
                done.lock().unwrap().push(application);
            });
        }
    });
    assert_eq!(done.lock().unwrap().len(), 4);
    assert_eq!(faults.within(Duration::from_millis(50)), None);
    let seen = done
        .lock()
        .unwrap()
        .iter()
        .map(|application| application.all.len())
        .sum::<usize>();
    assert!(seen > 2000, "only {seen} connections");
}
