//! Safe types: descriptors and streams of events, for programs with a reactor or an executor.

use std::future::poll_fn;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::{Pin, pin};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use dat_api::safe::{Adapter, Endpoint, EventDispatcher, EventStream, Memory};
use dat_api::types::{CompletionFlags, DtoStatus, EvdFlags, Event, EventData, MemPrivileges};
use dat_api::{DatReturn, ReturnType};
use futures_core::Stream;
use tokio::io::unix::AsyncFd;
use tokio::time;

use super::pair_in;
use crate::support::{Fixture, device};

const NONE: CompletionFlags = CompletionFlags::empty();

fn opened() -> (Fixture, Adapter) {
    let fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    (fixture, adapter)
}

fn software(adapter: &Adapter) -> EventDispatcher {
    let events = adapter.create_dispatcher(8, EvdFlags::SOFTWARE);
    events.expect("a dispatcher")
}

fn value(event: &Event) -> usize {
    match event.data {
        EventData::Software { pointer } => pointer,
        other => panic!("{other:?}"),
    }
}

fn is_readable(fd: RawFd, limit: Duration) -> bool {
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let limit = i32::try_from(limit.as_millis()).expect("short");
    // SAFETY: one entry.
    unsafe { libc::poll(&raw mut entry, 1, limit) == 1 }
}

/// Arms the descriptor of an empty dispatcher, until it is not readable.
fn rest(events: &EventDispatcher) {
    loop {
        events.arm().expect("armed");
        assert_eq!(events.dequeue(), Ok(None));
        if !is_readable(events.as_raw_fd(), Duration::ZERO) {
            return;
        }
    }
}

#[test]
fn the_descriptor_of_a_dispatcher_is_readable_by_each_event_after_it_was_armed() {
    let (fixture, adapter) = opened();
    let zone = adapter.create_zone().expect("a zone");
    let [(mut one, _ones), (mut other, others)] = pair_in(&adapter, &zone);
    let memory = zone.allocate(64, MemPrivileges::all()).expect("memory");
    let own = software(&adapter);
    for lap in 0..3 {
        rest(&own);
        own.post(lap).expect("room");
        assert!(is_readable(own.as_raw_fd(), super::SOON.expect("a limit")));
        assert_eq!(
            own.events()
                .map(|event| value(&event.expect("one")))
                .collect::<Vec<_>>(),
            [lap]
        );

        rest(&others);
        other
            .post_recv(&[memory.segment(0..8)], 1, NONE)
            .expect("posted");
        one.post_send(&[memory.segment(8..16)], 2, NONE)
            .expect("posted");
        fixture.run();
        assert!(
            is_readable(others.as_raw_fd(), super::SOON.expect("a limit")),
            "lap {lap}"
        );
        device::comes(|| others.dequeue().expect("not waited on")).expect("an event");
    }
}

#[test]
fn a_dispatcher_has_one_place_to_notify() {
    let (_fixture, adapter) = opened();
    let invalid = |result: dat_api::Result<()>| {
        let error = result.expect_err("another place");
        assert!(error.code().is(ReturnType::InvalidState), "{error}");
    };
    let (events, cno) = (software(&adapter), adapter.create_cno().expect("a CNO"));
    events.set_cno(Some(&cno)).expect("bound");
    invalid(events.arm());
    invalid(events.stream().map(drop));
    events.set_cno(None).expect("unbound");
    events.arm().expect("armed");
    invalid(events.set_cno(Some(&cno)));
    invalid(events.set_cno(None));
    // The one dispatcher of the adapter.
    let [one, other] = [(); 2].map(|()| adapter.async_events());
    one.arm().expect("armed");
    invalid(other.set_cno(Some(&cno)));
    invalid(other.set_cno(None));
    other.arm().expect("armed");
    drop(one);
    invalid(adapter.async_events().set_cno(None));
    invalid(adapter.close());
    drop(other);
    adapter.async_events().set_cno(Some(&cno)).expect("bound");
    assert_eq!(
        adapter
            .async_events()
            .set_cno(None)
            .map_err(|error| error.code()),
        Ok(())
    );
    let other = adapter.async_events();
    other.arm().expect("armed");
    assert_eq!(other.as_fd().as_raw_fd(), other.as_raw_fd());

    let first = software(&adapter);
    first.set_cno(Some(&cno)).expect("bound");
    cno.arm().expect("armed");
    first.post(1).expect("room");
    assert!(is_readable(cno.as_raw_fd(), super::SOON.expect("a limit")));
    assert_eq!(cno.trigger().expect("a trigger"), Some(first.handle()));
}

/// The adapter is closed abruptly, as only C and unsafe code do.
#[test]
fn a_descriptor_whose_adapter_was_closed_cannot_be_armed_again() {
    let (_fixture, adapter) = opened();
    let (events, cno) = (software(&adapter), adapter.create_cno().expect("a CNO"));
    events.set_cno(Some(&cno)).expect("bound");
    cno.arm().expect("armed");
    let mut stream = adapter.async_events().stream().expect("a stream");
    let task = Arc::<Task>::default();
    assert!(poll_once(&mut stream, &task).is_pending());
    // SAFETY: nothing of it is posted to.
    unsafe { dat_api::object::ia::Ia::close(adapter.handle(), false) }.expect("closed");
    assert!(is_readable(cno.as_raw_fd(), super::SOON.expect("a limit")));
    let invalid = |code: DatReturn| assert!(code.is(ReturnType::InvalidHandle), "{code}");
    invalid(cno.arm().expect_err("over").code());
    // The end is told once, unless arming has taken it.
    invalid(cno.trigger().expect_err("over").code());
    // The task is woken, and the stream ends.
    loop {
        match poll_once(&mut stream, &task) {
            Poll::Pending => task.sleep(),
            Poll::Ready(end) => return assert!(end.is_none_or(|event| event.is_err())),
        }
    }
}

#[test]
fn a_dispatcher_whose_descriptor_was_closed_still_has_its_events() {
    let (_fixture, adapter) = opened();
    let events = software(&adapter);
    events.arm().expect("armed");
    // Replaced rather than closed, because other tests open descriptors.
    let null = std::fs::File::open("/dev/null").expect("a file");
    // SAFETY: only this test uses the descriptor.
    let replaced = unsafe { libc::dup2(null.as_raw_fd(), events.as_raw_fd()) };
    assert_eq!(replaced, events.as_raw_fd());
    for lap in 0..3 {
        events.post(lap).expect("room");
        assert_eq!(
            value(&events.dequeue().expect("not waited on").expect("one")),
            lap
        );
        let _ = events.arm();
    }
    assert_eq!(events.post(7), Ok(()));
    assert_eq!(value(&events.wait(super::SOON).expect("one")), 7);
}

/// Counts how often a task was woken.
#[derive(Default)]
struct Task {
    woken: Mutex<u32>,
    changed: Condvar,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().expect("no panic") += 1;
        self.changed.notify_all();
    }
}

impl Task {
    /// Waits until it is woken, and forgets that.
    fn sleep(&self) {
        let woken = self.woken.lock().expect("no panic");
        let limit = super::SOON.expect("a limit");
        let slept = self
            .changed
            .wait_timeout_while(woken, limit, |woken| *woken == 0);
        let (mut woken, slept) = slept.expect("no panic");
        assert!(!slept.timed_out(), "not woken");
        *woken = 0;
    }
}

fn poll_once(stream: &mut EventStream, task: &Arc<Task>) -> Poll<Option<Result<Event, DatReturn>>> {
    let waker = Waker::from(Arc::clone(task));
    Pin::new(stream).poll_next(&mut Context::from_waker(&waker))
}

fn poll(stream: &mut EventStream, task: &Arc<Task>) -> Poll<Option<Event>> {
    poll_once(stream, task).map(|event| event.map(|event| event.expect("no error")))
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let (task, mut future) = (Arc::new(Task::default()), pin!(future));
    let waker = Waker::from(Arc::clone(&task));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        task.sleep();
    }
}

async fn next(stream: &mut EventStream) -> Option<Result<Event, dat_api::DatReturn>> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

#[test]
fn a_stream_wakes_the_task_that_polled_it_last_and_loses_no_event() {
    let (_fixture, adapter) = opened();
    let events = software(&adapter);
    let mut stream = events.stream().expect("a stream");
    let tasks = [(); 2].map(|()| Arc::new(Task::default()));
    for lap in 0..20 {
        assert_eq!(poll(&mut stream, &tasks[0]), Poll::Pending);
        assert_eq!(poll(&mut stream, &tasks[1]), Poll::Pending);
        events.post(lap).expect("room");
        tasks[1].sleep();
        let Poll::Ready(Some(event)) = poll(&mut stream, &tasks[0]) else {
            panic!("woken without an event");
        };
        assert_eq!(value(&event), lap);
    }
    assert_eq!(*tasks[0].woken.lock().expect("no panic"), 0);
    // Events that nothing polls for stay.
    events.post(1).expect("room");
    events.post(2).expect("room");
    assert_eq!(
        value(&block_on(next(&mut stream)).expect("open").expect("one")),
        1
    );
    let error = events.stream().expect_err("there is one");
    assert!(error.code().is(ReturnType::InvalidState), "{error}");
    drop(stream);
    let mut stream = events.stream().expect("the first was dropped");
    assert_eq!(
        value(&block_on(next(&mut stream)).expect("open").expect("one")),
        2
    );
}

#[test]
fn a_stream_moves_between_threads_and_ends_with_its_adapter() {
    let (_fixture, adapter) = opened();
    let events = software(&adapter);
    let mut stream = events.stream().expect("a stream");
    assert_eq!(poll(&mut stream, &Arc::default()), Poll::Pending);
    let (taken, took) = mpsc::channel();
    let other = thread::spawn(move || {
        let first = block_on(next(&mut stream)).expect("open").expect("one");
        taken.send(value(&first)).expect("received");
        [block_on(next(&mut stream)), block_on(next(&mut stream))]
    });
    events.post(5).expect("room");
    assert_eq!(took.recv(), Ok(5));
    // SAFETY: there is no endpoint.
    unsafe { dat_api::object::ia::Ia::close(adapter.handle(), false) }.expect("closed");
    let [error, end] = other.join().expect("no panic");
    assert!(error.expect("an item").is_err(), "the adapter was closed");
    assert!(end.is_none());
}

/// Receives one message: posts, and takes events until the completion is there.
async fn receive(
    endpoint: &mut Endpoint,
    stream: &mut EventStream,
    memory: &Memory,
    cookie: u64,
) -> [u8; 8] {
    endpoint
        .post_recv(&[memory.segment(0..8)], cookie, NONE)
        .expect("posted");
    loop {
        let event = next(stream).await.expect("open").expect("no error");
        let EventData::Dto {
            cookie: of, status, ..
        } = event.data
        else {
            panic!("{event:?}");
        };
        assert_eq!(status, DtoStatus::Success);
        if of == cookie {
            return memory.read_value(0);
        }
    }
}

#[test]
fn a_future_that_is_dropped_leaves_its_request_posted_and_the_event_to_others() {
    let (fixture, adapter) = opened();
    let zone = adapter.create_zone().expect("a zone");
    let [(mut one, _ones), (mut other, others)] = pair_in(&adapter, &zone);
    let memory = |byte: u8| {
        let memory = zone.allocate(8, MemPrivileges::all()).expect("memory");
        memory.write_value(0, [byte; 8]);
        memory
    };
    let (dropped, kept, sent) = (memory(0), memory(0), [memory(1), memory(2)]);
    let mut stream = others.stream().expect("a stream");
    {
        let mut future = pin!(receive(&mut other, &mut stream, &dropped, 1));
        let waker = Waker::noop();
        let polled = future.as_mut().poll(&mut Context::from_waker(waker));
        assert!(polled.is_pending());
    }
    // The receive is still the first one: the second future must not get its message.
    let dropped = dropped.into_inner().expect_err("posted").value;
    let done = {
        let mut future = pin!(receive(&mut other, &mut stream, &kept, 2));
        let task = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&task));
        let mut poll = || future.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        for (number, memory) in sent.iter().enumerate() {
            one.post_send(&[memory.segment(0..8)], number as u64, NONE)
                .expect("posted");
        }
        fixture.run();
        loop {
            task.sleep();
            if let Poll::Ready(done) = poll() {
                break done;
            }
        }
    };
    assert_eq!(done, [2; 8]);
    assert_eq!(dropped.read_value::<[u8; 8]>(0), [1; 8]);
    // The memory of a dropped future outlives its program's handle, too.
    drop(dropped);
    other.release_memory().expect("idle");
}

#[test]
fn two_runtimes_have_dispatchers_of_their_own() {
    let (_fixture, adapter) = opened();
    let dispatchers = [(); 2].map(|()| software(&adapter));
    const LAPS: usize = 200;
    thread::scope(|scope| {
        for (here, there) in [(0, 1), (1, 0)] {
            let dispatchers = &dispatchers;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime");
                runtime.block_on(async {
                    let events = &dispatchers[here];
                    // SAFETY: a dispatcher has the same descriptor as long as it lives.
                    let readable =
                        unsafe { AsyncFd::register(events.clone()) }.expect("registered");
                    if here == 0 {
                        dispatchers[there].post(0).expect("room");
                    }
                    let mut last = 0;
                    loop {
                        events.arm().expect("armed");
                        for event in events {
                            last = value(&event.expect("not waited on")) + 1;
                            dispatchers[there].post(last).expect("room");
                        }
                        if last + 2 >= LAPS {
                            break;
                        }
                        let ready =
                            time::timeout(super::SOON.expect("a limit"), readable.readable());
                        ready.await.expect("woken").expect("open").clear_ready();
                    }
                });
            });
        }
    });
}
