//! The active side: sends messages, which must come back; connects again after a break.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use clap::Args;
use dat_api::safe::{EventDispatcher, ProtectionZone, RemoteSegment};
use dat_api::types::{ConnectionKind, EventData};

use crate::flow::{Done, Flow, TICK, WINDOW};
use crate::{Common, Outcome, next, open};

#[derive(Args)]
pub(crate) struct Drive {
    /// Address of the server
    host: IpAddr,
    /// Send for this many seconds
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Send nothing; only stay connected for that time
    #[arg(long)]
    idle: bool,
    /// After a break, reconnect until a connection lasts for two seconds of
    /// sending; give up after this many seconds
    #[arg(long)]
    again: Option<u64>,
}

#[derive(Args)]
pub(crate) struct Knock {
    /// Address of the server
    host: IpAddr,
    /// Timeout of the connect, in seconds
    #[arg(long, default_value_t = 10)]
    timeout: u64,
    /// Then connect until a connection lasts for two seconds of sending; give up
    /// after this many seconds
    #[arg(long)]
    again: Option<u64>,
}

/// Timeout of an attempt to connect, if more attempts follow.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Allowed delay of the event beyond the timeout, on a busy machine.
const LATE: Duration = Duration::from_secs(10);

impl Drive {
    pub(crate) fn run(&self, common: &Common) -> Outcome<()> {
        let (adapter, events) = open(common)?;
        let zone = adapter.create_zone()?;
        let side = Side {
            common,
            zone: &zone,
            events: &events,
            address: SocketAddr::new(self.host, 0),
        };
        let time = Duration::from_secs(self.seconds);
        // The server may still be booting.
        let begin = Instant::now();
        let (flow, region) = side.connect_within(Duration::from_secs(60))?;
        let Some(again) = self.again else {
            return match side.exchange_messages(flow, region, time, self.idle)? {
                End::Done => Ok(()),
                End::Broken(_) => Err("the connection broke".into()),
            };
        };
        let mut end = side.exchange_messages(flow, region, time, self.idle)?;
        // A connection that breaks this early is not the one that a test has
        // broken.
        while let End::Broken(messages) = end
            && messages < 100
            && begin.elapsed().as_secs() < again
        {
            let (flow, region) = side.connect_within(Duration::from_secs(again))?;
            end = side.exchange_messages(flow, region, time, self.idle)?;
        }
        if let End::Broken(_) = end {
            side.again(again)?;
        }
        Ok(())
    }
}

impl Knock {
    pub(crate) fn run(&self, common: &Common) -> Outcome<()> {
        let (adapter, events) = open(common)?;
        let zone = adapter.create_zone()?;
        let side = Side {
            common,
            zone: &zone,
            events: &events,
            address: SocketAddr::new(self.host, 0),
        };
        let (begin, timeout) = (Instant::now(), Duration::from_secs(self.timeout));
        match side.connect(timeout)? {
            Ok(_) => return Err("connected to a host that does not answer".into()),
            Err(kind) => println!("{kind:?} after {:.1} s", begin.elapsed().as_secs_f32()),
        }
        match self.again {
            Some(again) => side.again(again),
            None => Ok(()),
        }
    }
}

/// How a connection ended.
enum End {
    /// This side disconnected it after all messages were sent and had come back.
    Done,
    /// The connection broke after this many messages.
    Broken(u64),
}

/// Shared by all connections of this side.
struct Side<'a> {
    common: &'a Common,
    zone: &'a ProtectionZone,
    events: &'a EventDispatcher,
    address: SocketAddr,
}

impl Side<'_> {
    /// Connects once. Returns the connection and the server's region, or the
    /// event that came instead.
    fn connect(&self, timeout: Duration) -> Outcome<Result<(Flow, RemoteSegment), ConnectionKind>> {
        let mut flow = Flow::new(self.zone, self.events, self.common.length())?;
        flow.endpoint
            .connect(self.address, self.common.port, Some(timeout), &[])?;
        let begin = Instant::now();
        let mut ended = None;
        loop {
            let waited = begin.elapsed();
            let Some(left) = (timeout + LATE).checked_sub(waited) else {
                return Err(format!(
                    "no event {waited:?} after a connect with a timeout of {timeout:?}"
                )
                .into());
            };
            let Some(event) = next(self.events, left)? else {
                continue;
            };
            match event.data {
                EventData::Connection {
                    kind: ConnectionKind::Established,
                    ..
                } => {
                    let region = Flow::region_of(&flow.endpoint.private_data())
                        .ok_or("the server's private data describe no region")?;
                    return Ok(Ok((flow, region)));
                }
                EventData::Connection { kind, .. } => ended = Some(kind),
                EventData::Dto {
                    cookie,
                    status,
                    length,
                    ..
                } => {
                    flow.complete(cookie, status, length)?;
                }
                other => return Err(format!("unexpected: {other:?}").into()),
            }
            // When an attempt fails, the receives stay posted and are freed with
            // the endpoint.
            if let Some(kind) = ended {
                return Ok(Err(kind));
            }
        }
    }

    /// Tries to connect for this long.
    fn connect_within(&self, time: Duration) -> Outcome<(Flow, RemoteSegment)> {
        let begin = Instant::now();
        for attempt in 1.. {
            match self.connect(ATTEMPT)? {
                Ok(connected) => {
                    let seconds = begin.elapsed().as_secs_f32();
                    println!("connected at attempt {attempt}, after {seconds:.1} s");
                    return Ok(connected);
                }
                Err(kind) if begin.elapsed() > time => {
                    return Err(format!("not connected after {time:?}: {kind:?}").into());
                }
                // A refusal comes at once.
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
        unreachable!("attempts have no end")
    }

    /// For this many seconds, connects until a connection lasts for two seconds
    /// of sending. A connection may break on a machine so busy that a host stops
    /// for longer than the transport waits for it: half a second on RoCE.
    fn again(&self, within: u64) -> Outcome<()> {
        let begin = Instant::now();
        for attempt in 1.. {
            let (flow, region) = self.connect_within(Duration::from_secs(within))?;
            if let End::Done =
                self.exchange_messages(flow, region, Duration::from_secs(2), false)?
            {
                println!("new connection {attempt} sent for two seconds");
                break;
            }
            if begin.elapsed().as_secs() > within {
                return Err(format!("all {attempt} new connections broke").into());
            }
        }
        Ok(())
    }

    /// Sends for this long, receives the answers, and disconnects.
    fn exchange_messages(
        &self,
        mut flow: Flow,
        region: RemoteSegment,
        time: Duration,
        idle: bool,
    ) -> Outcome<End> {
        let (begin, limit) = (Instant::now(), self.common.limit());
        let (mut sent, mut over) = (0, false);
        let mut ended: Option<(ConnectionKind, Instant)> = None;
        loop {
            let sending = begin.elapsed() < time && !idle;
            while sending
                && ended.is_none()
                && sent - flow.received < WINDOW as u64
                && flow.can_send()
            {
                if sent % 10 == 9 {
                    flow.write_and_read(region)?;
                }
                flow.send()?;
                sent += 1;
            }
            let is_done = begin.elapsed() >= time && flow.received == sent;
            if is_done && !over && ended.is_none() && flow.send_last()? {
                over = true;
                flow.endpoint.disconnect()?;
            }
            if let Some((kind, when)) = ended {
                if flow.is_accounted() {
                    println!("ended: {}", flow.account());
                    // The server never disconnects.
                    return Ok(if over && kind == ConnectionKind::Disconnected {
                        End::Done
                    } else {
                        End::Broken(flow.received)
                    });
                }
                if when.elapsed() > limit {
                    return Err(format!("transfers without completion: {}", flow.account()).into());
                }
            }
            let silent = flow.alive.elapsed();
            // The peer's device may have acknowledged every message before its
            // host lost power. Then nothing is outstanding but receives, and only a
            // new request makes the transport look for the peer.
            if !idle && !over && ended.is_none() && silent > TICK {
                flow.probe()?;
            }
            if silent > limit + if idle { time } else { Duration::ZERO } {
                return Err(format!("no event for {silent:?}: {}", flow.account()).into());
            }
            match next(self.events, Duration::from_millis(200))?.map(|event| event.data) {
                None => {}
                Some(EventData::Connection { kind, .. }) => {
                    if let Some((before, _)) = ended {
                        return Err(format!(
                            "a second end of the same connection: first {before:?}, now {kind:?}"
                        )
                        .into());
                    }
                    println!(
                        "{kind:?}, {:.1} s after the last progress, {} messages",
                        silent.as_secs_f32(),
                        flow.received
                    );
                    ended = Some((kind, Instant::now()));
                }
                Some(EventData::Dto {
                    cookie,
                    status,
                    length,
                    ..
                }) => {
                    let done = flow.complete(cookie, status, length)?;
                    if done == Done::Message(99) {
                        println!("100 messages");
                    }
                }
                Some(other) => return Err(format!("unexpected: {other:?}").into()),
            }
        }
    }
}
