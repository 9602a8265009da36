//! An echo server and its clients on tokio: one task for each connection, and one
//! shared receive queue for all of them.
//!
//! Worth copying:
//! - One task, the router, waits for the descriptor of the event dispatcher, and
//!   passes each event on to the task of its endpoint, by the endpoint's context.
//!   It arms the descriptor, takes all events, and then waits: in this order no
//!   wake-up is lost.
//! - Back-pressure: a client waits for each answer before its next message. The
//!   server's task answers one message after the other, and posts a receive again only
//!   after the answer has been sent. So a slow task delays its own client only. The
//!   queue has [`RECEIVES`] for each connection, because the next message may arrive
//!   before the receive of the last one is posted again; no message finds it empty.
//! - A future that awaits a completion may be dropped: its request stays posted, and
//!   the task finds the event later by its cookie. An endpoint is kept until its last
//!   receive has come back.
//! - Connecting has a limit of its own, so that thousands of clients do not connect
//!   at the same moment.

mod common;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Parser;
use common::{Common, LINE, Outcome};
use dat_api::safe::{
    Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher, Memory, ProtectionZone,
    SharedReceiveQueue,
};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EvdFlags, Event, EventData, MemPrivileges,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet, LocalSet};

/// Echoes messages on tokio, with a task for each connection
///
/// Without HOST it is the server; it ends when all clients have connected and left.
/// With HOST it is the clients.
#[derive(Parser)]
#[command(after_help = common::STATUSES)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Number of connections; the same on both sides
    #[arg(short = 'c', long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=8192))]
    connections: u32,
    /// Messages of each client
    #[arg(short = 'n', long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// The server's host
    host: Option<String>,
}

/// Receives for each connection.
const RECEIVES: u32 = 2;
/// Clients that connect at a time.
const CONNECTING: usize = 32;
/// How long a client tries to connect.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Marks the cookie of a send; the other cookies are numbers of buffers.
const SEND: u64 = 1 << 63;
const NONE: CompletionFlags = CompletionFlags::empty();

fn main() -> ExitCode {
    common::main(run)
}

/// What all tasks of a side use. They share one thread.
struct Side {
    adapter: Adapter,
    zone: ProtectionZone,
    events: EventDispatcher,
    queue: SharedReceiveQueue,
    /// The buffers of the queue, then one for each connection.
    memory: Memory,
    buffers: u64,
    /// Where the router sends the events of each connection.
    inboxes: RefCell<Vec<UnboundedSender<Event>>>,
    messages: Cell<u64>,
}

/// A connection of either side.
struct Connection {
    side: Rc<Side>,
    number: u64,
    endpoint: Endpoint,
    inbox: UnboundedReceiver<Event>,
    up: bool,
    gone: bool,
    sending: bool,
    /// Buffers whose messages were not read yet.
    arrived: VecDeque<u64>,
}

fn run(options: Options) -> Outcome<()> {
    allow_descriptors();
    let adapter = Adapter::open(&options.common.adapter)?;
    let zone = adapter.create_zone()?;
    let connections = options.connections;
    let receives = RECEIVES * connections;
    let side = Rc::new(Side {
        events: adapter.create_dispatcher(
            4 * connections + 16,
            EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR,
        )?,
        queue: zone.create_shared_receive_queue(receives, 1)?,
        memory: zone.allocate(
            (receives + connections) as usize * LINE,
            MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE,
        )?,
        buffers: u64::from(receives),
        inboxes: RefCell::default(),
        messages: Cell::default(),
        zone,
        adapter,
    });
    for buffer in 0..side.buffers {
        side.post(buffer)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let begun = Instant::now();
    runtime.block_on(LocalSet::new().run_until(async {
        let (asks, asked) = unbounded_channel();
        tokio::select! {
            routed = route(&side, &asks) => match routed? {},
            done = async {
                match &options.host {
                    None => serve(&side, &options, asked).await,
                    Some(host) => ask(&side, &options, host).await,
                }
            } => done,
        }
    }))?;
    let (messages, seconds) = (side.messages.get(), begun.elapsed().as_secs_f64());
    println!("{connections} connections, {messages} messages, {seconds:.2} s");
    Ok(())
}

/// Passes events on: requests to `asks`, all others to the task of their endpoint.
async fn route(side: &Side, asks: &UnboundedSender<ConnectionRequest>) -> Outcome<Infallible> {
    // SAFETY: a dispatcher has the same descriptor as long as it lives.
    let readable = unsafe { AsyncFd::register(side.events.clone()) }?;
    loop {
        side.events.arm()?;
        for event in &side.events {
            let event = event?;
            if let Some(request) = ConnectionRequest::from_event(&event) {
                // Nothing receives requests in a client, where none arrive.
                let _ = asks.send(request);
                continue;
            }
            let (EventData::Dto { ep, .. } | EventData::Connection { ep, .. }) = event.data else {
                return Err(format!("unexpected: {event:?}").into());
            };
            let number = ep.context().unwrap_or(u64::MAX) as usize;
            if let Some(inbox) = side.inboxes.borrow().get(number) {
                // A task that has ended needs no more events.
                let _ = inbox.send(event);
            }
        }
        readable.readable().await?.clear_ready();
    }
}

/// The server: a task for each request.
async fn serve(
    side: &Rc<Side>,
    options: &Options,
    mut asked: UnboundedReceiver<ConnectionRequest>,
) -> Outcome<()> {
    let _listening = side.adapter.listen(options.common.port, &side.events)?;
    println!("listening on {}", options.common.port);
    let mut tasks = JoinSet::new();
    for _ in 0..options.connections {
        let request = asked.recv().await.ok_or("the router has ended")?;
        let mut connection = Connection::new(side)?;
        request.accept(&mut connection.endpoint, &[])?;
        tasks
            .spawn_local(async move { connection.echo().await.map_err(|error| error.to_string()) });
    }
    all(tasks).await
}

/// The clients: a task for each.
async fn ask(side: &Rc<Side>, options: &Options, host: &str) -> Outcome<()> {
    let address = common::address_of(host)?;
    let connecting = Rc::new(Semaphore::new(CONNECTING));
    let mut tasks = JoinSet::new();
    for _ in 0..options.connections {
        let mut connection = Connection::new(side)?;
        let connecting = Rc::clone(&connecting);
        let (port, count, host) = (options.common.port, options.count, host.to_owned());
        tasks.spawn_local(async move {
            let work = async {
                let permit = connecting.acquire().await?;
                connection
                    .endpoint
                    .connect(address, port, Some(TIMEOUT), &[])?;
                connection.establish(&host, port).await?;
                drop(permit);
                connection.ask(count).await
            };
            work.await
                .map_err(|error: Box<dyn std::error::Error>| error.to_string())
        });
    }
    all(tasks).await
}

/// Waits for all tasks.
async fn all(mut tasks: JoinSet<Result<(), String>>) -> Outcome<()> {
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

impl Side {
    /// Posts a receive into a buffer.
    fn post(&self, buffer: u64) -> Outcome<()> {
        let at = buffer as usize * LINE;
        Ok(self
            .queue
            .post_recv(&[self.memory.segment(at..at + LINE)], buffer)?)
    }
}

impl Connection {
    fn new(side: &Rc<Side>) -> Outcome<Self> {
        let mut attributes = side.adapter.endpoint_attributes(0, 2);
        // No limits of its own to the receives that it takes from the queue.
        (attributes.max_recv_dtos, attributes.srq_soft_hw) = (-1, -1);
        let options = EndpointOptions::new(&side.events)
            .shared(&side.queue)
            .attributes(attributes);
        let endpoint = side.zone.create_endpoint(&options)?;
        let (inbox, events) = unbounded_channel();
        let mut inboxes = side.inboxes.borrow_mut();
        let number = inboxes.len() as u64;
        endpoint.set_context(number);
        inboxes.push(inbox);
        drop(inboxes);
        Ok(Self {
            side: Rc::clone(side),
            number,
            endpoint,
            inbox: events,
            up: false,
            gone: false,
            sending: false,
            arrived: VecDeque::new(),
        })
    }

    /// Waits for the next event of this connection.
    async fn event(&mut self) -> Outcome<ConnectionKind> {
        let event = self.inbox.recv().await.ok_or("the router has ended")?;
        match event.data {
            EventData::Connection { kind, .. } => {
                self.up |= kind == ConnectionKind::Established;
                self.gone = kind != ConnectionKind::Established;
                return Ok(kind);
            }
            // A failed send is followed by the end of the connection.
            EventData::Dto { cookie, .. } if cookie & SEND != 0 => self.sending = false,
            EventData::Dto {
                cookie,
                status: DtoStatus::Success,
                ..
            } => self.arrived.push_back(cookie),
            EventData::Dto { cookie, .. } => self.side.post(cookie)?,
            other => return Err(format!("unexpected: {other:?}").into()),
        }
        Ok(ConnectionKind::Established)
    }

    async fn establish(&mut self, host: &str, port: u64) -> Outcome<()> {
        while !self.up {
            let kind = self.event().await?;
            if self.gone {
                return Err(common::refused(kind, host, port).into());
            }
        }
        Ok(())
    }

    /// Waits for a message, and returns its buffer; `None` after the last.
    async fn receive(&mut self) -> Outcome<Option<u64>> {
        loop {
            if let Some(buffer) = self.arrived.pop_front() {
                return Ok(Some(buffer));
            }
            if self.gone {
                return Ok(None);
            }
            self.event().await?;
        }
    }

    /// Sends a buffer, and waits until the device has read it.
    async fn send(&mut self, buffer: u64) -> Outcome<()> {
        let at = buffer as usize * LINE;
        let message = [self.side.memory.segment(at..at + LINE)];
        self.endpoint.post_send(&message, SEND | buffer, NONE)?;
        self.sending = true;
        while self.sending {
            self.event().await?;
        }
        Ok(())
    }

    /// Answers each message with itself.
    async fn echo(mut self) -> Outcome<()> {
        // A message may arrive before the connection is up.
        while !self.up && !self.gone {
            self.event().await?;
        }
        while let Some(buffer) = self.receive().await? {
            if !self.gone {
                self.send(buffer).await?;
                self.side.messages.set(self.side.messages.get() + 1);
            }
            self.side.post(buffer)?;
        }
        while self.endpoint.recv_query().allocated > 0 {
            self.event().await?;
        }
        Ok(())
    }

    /// Sends messages, and compares what comes back.
    async fn ask(mut self, count: u32) -> Outcome<()> {
        let own = self.side.buffers + self.number;
        for message in 0..count {
            let expected = [self.number, u64::from(message)];
            self.side.memory.write_value(own as usize * LINE, expected);
            self.send(own).await?;
            let buffer = self.receive().await?.ok_or("the server has left")?;
            let answer: [u64; 2] = self.side.memory.read_value(buffer as usize * LINE);
            if answer != expected {
                return Err(format!("{expected:?} came back as {answer:?}").into());
            }
            self.side.post(buffer)?;
            self.side.messages.set(self.side.messages.get() + 1);
        }
        self.endpoint.disconnect()?;
        while !self.gone {
            self.event().await?;
        }
        Ok(())
    }
}

/// Raises the soft limit on descriptors to the hard one: connections over TCP have one each.
fn allow_descriptors() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls use the value, which is our own, during the call only.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            // With the lower limit, fewer connections are possible.
            let _ = libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
