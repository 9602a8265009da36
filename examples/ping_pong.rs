//! Ping-pong: the client sends a message, the server sends it back, and the
//! client measures the round trips. `examples/c/ping_pong.c` is the same program
//! in C.
//!
//! Worth copying:
//! - A receive is posted before the peer can send: before connecting, and before
//!   the message that the peer answers. A ping-pong needs no other flow control.
//! - The memory of a send belongs to the device until the send completes. The
//!   answer proves only that the peer has the message, so the program waits for
//!   both events.
//! - Each buffer has its own cache lines.
//! - Nothing is allocated between the first ping and the last.

mod common;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use common::{Common, LINE, Outcome, connect, expect, wait};
use dat_api::safe::{
    Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher, Memory,
};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EvdFlags, EventData, MemPrivileges,
};

/// Sends a message back and forth, and measures the round trips
///
/// Without HOST it is the server of one client; with HOST it is the client. With
/// `DAT_WAIT=poll` both sides busy-poll, which uses a processor each and gives
/// the lowest latency.
#[derive(Parser)]
#[command(after_help = common::STATUSES)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Round trips
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Message size in bytes, at least 8; the same on both sides
    #[arg(short = 's', long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    size: u32,
    /// The server's host
    host: Option<String>,
}

fn main() -> ExitCode {
    common::main(run)
}

const RECEIVE: u64 = 0;
const SEND: u64 = 1;

/// State of one side.
struct Side {
    endpoint: Endpoint,
    transfers: EventDispatcher,
    /// The received message, then the message to send.
    memory: Memory,
    size: usize,
    /// Offset of the message to send.
    out: usize,
    /// A send has not completed yet.
    sending: bool,
}

/// Result of waiting for a message.
#[derive(PartialEq)]
enum Message {
    Here,
    /// The peer has left.
    Over,
}

fn run(options: Options) -> Outcome<()> {
    let adapter = Adapter::open(&options.common.adapter)?;
    let zone = adapter.create_zone()?;
    let size = options.size as usize;
    let out = size.next_multiple_of(LINE);
    let memory = zone.allocate(
        2 * out,
        MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE,
    )?;
    // Separate EVDs: events of different streams have no order.
    let transfers = adapter.create_dispatcher(8, EvdFlags::DTO)?;
    let connections = adapter.create_dispatcher(8, EvdFlags::CONNECTION | EvdFlags::CR)?;
    let endpoint_options = EndpointOptions::new(&transfers).connect_events(&connections);
    let endpoint = zone.create_endpoint(&endpoint_options)?;
    let mut side = Side {
        endpoint,
        transfers,
        memory,
        size,
        out,
        sending: false,
    };
    side.receive()?;
    match &options.host {
        Some(host) => {
            connect(
                &mut side.endpoint,
                &connections,
                host,
                options.common.port,
                &[],
            )?;
            side.ping(options.count)?;
            side.endpoint.disconnect()?;
            expect(&connections, ConnectionKind::Disconnected)
        }
        None => {
            let listening = adapter.listen(options.common.port, &connections)?;
            println!("listening on {}", options.common.port);
            ConnectionRequest::from_event(&wait(&connections)?)
                .ok_or("no connection request")?
                .accept(&mut side.endpoint, &[])?;
            drop(listening);
            expect(&connections, ConnectionKind::Established)?;
            let answered = side.pong()?;
            expect(&connections, ConnectionKind::Disconnected)?;
            println!("{answered} messages answered");
            Ok(())
        }
    }
}

impl Side {
    /// Posts the receive for the next message.
    fn receive(&mut self) -> Outcome<()> {
        let place = self.memory.segment(0..self.size);
        Ok(self
            .endpoint
            .post_recv(&[place], RECEIVE, CompletionFlags::empty())?)
    }

    fn send(&mut self) -> Outcome<()> {
        let message = self.memory.segment(self.out..self.out + self.size);
        self.endpoint
            .post_send(&[message], SEND, CompletionFlags::empty())?;
        self.sending = true;
        Ok(())
    }

    /// Waits for a message, and until the last send has completed.
    fn message(&mut self) -> Outcome<Message> {
        let mut here = false;
        while !here || self.sending {
            match wait(&self.transfers)?.data {
                EventData::Dto {
                    cookie: SEND,
                    status: DtoStatus::Success,
                    ..
                } => {
                    self.sending = false;
                }
                EventData::Dto {
                    cookie: RECEIVE,
                    status: DtoStatus::Success,
                    length,
                    ..
                } => {
                    if length != self.size as u64 {
                        return Err(format!(
                            "received {length} bytes instead of {}: use the same -s on both sides",
                            self.size
                        )
                        .into());
                    }
                    here = true;
                }
                EventData::Dto {
                    // The last answer may be flushed as well: the peer may
                    // disconnect before this side sees the completion.
                    status: DtoStatus::Flushed,
                    ..
                } => {
                    return Ok(Message::Over);
                }
                other => return Err(format!("a transfer failed: {other:?}").into()),
            }
        }
        Ok(Message::Here)
    }

    fn ping(&mut self, count: u32) -> Outcome<()> {
        let mut times = Vec::with_capacity(count as usize);
        for number in 0..u64::from(count) {
            self.memory.write(self.out, &number.to_le_bytes());
            let begun = Instant::now();
            self.send()?;
            if self.message()? == Message::Over {
                return Err(format!("the server left after {number} round trips").into());
            }
            times.push(begun.elapsed());
            let mut answer = [0; 8];
            self.memory.read(0, &mut answer);
            if u64::from_le_bytes(answer) != number {
                return Err(format!("message {number} came back as {answer:?}").into());
            }
            // The answer has been read, so its buffer can receive the next one.
            self.receive()?;
        }
        times.sort_unstable();
        let part = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6;
        println!(
            "{count} round trips of {} bytes: least {:.2}, median {:.2}, 99% {:.2} microseconds",
            self.size,
            part(0),
            part(50),
            part(99)
        );
        Ok(())
    }

    /// Answers until the client leaves. Returns the number of answers.
    fn pong(&mut self) -> Outcome<u64> {
        let mut text = vec![0; self.size];
        for answered in 0.. {
            if self.message()? == Message::Over {
                return Ok(answered);
            }
            self.memory.read(0, &mut text);
            self.memory.write(self.out, &text);
            // Posted before the answer, because the next ping may arrive after
            // it.
            self.receive()?;
            self.send()?;
        }
        Ok(0)
    }
}
