//! Sends numbered messages to `srq_server`, with as many in flight as the server
//! allows. `examples/c/srq_client.c` is the same program in C.
//!
//! Worth copying:
//! - The completion of a send says that the message is in a buffer of the server,
//!   not that the server has used it. Therefore the server reports how many
//!   messages it has consumed, and the client stays within the window. No send
//!   waits for a receive that is not posted.
//! - Each message in flight has its own memory, which is reused only after its
//!   send has completed.

mod common;

use std::process::ExitCode;

use clap::Parser;
use common::{Common, LINE, Outcome, connect, expect, wait};
use dat_api::safe::{Adapter, Endpoint, EndpointOptions, EventDispatcher, Memory};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EvdFlags, EventData, MemPrivileges,
};

/// Sends numbered messages to `srq_server`
#[derive(Parser)]
#[command(after_help = common::STATUSES)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Number of messages
    #[arg(short = 'n', long, default_value_t = 1000)]
    count: u64,
    /// The server's host
    #[arg(default_value = "127.0.0.1")]
    host: String,
}

fn main() -> ExitCode {
    common::main(run)
}

/// Receives for the server's grants; one may be in flight while another is not
/// read yet.
const GRANTS: u64 = 2;
/// Marks the cookie of a grant, as opposed to a message.
const GRANT: u64 = 1 << 63;
/// Limit of messages in flight; the server may set a lower one.
const MOST: u64 = 64;

struct Client {
    endpoint: Endpoint,
    transfers: EventDispatcher,
    /// A cache line for each grant, then one for each message in flight.
    memory: Memory,
    window: u64,
    sent: u64,
    /// Completed sends.
    done: u64,
    /// Messages that the server has consumed.
    consumed: u64,
}

fn run(options: Options) -> Outcome<()> {
    let adapter = Adapter::open(&options.common.adapter)?;
    let zone = adapter.create_zone()?;
    let memory = zone.allocate(
        (GRANTS + MOST) as usize * LINE,
        MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE,
    )?;
    let transfers = adapter.create_dispatcher((GRANTS + MOST) as u32, EvdFlags::DTO)?;
    let connections = adapter.create_dispatcher(8, EvdFlags::CONNECTION)?;
    let endpoint =
        zone.create_endpoint(&EndpointOptions::new(&transfers).connect_events(&connections))?;
    let mut client = Client {
        endpoint,
        transfers,
        memory,
        window: 0,
        sent: 0,
        done: 0,
        consumed: 0,
    };
    for number in 0..GRANTS {
        client.receive(number)?;
    }
    let announced = options.count.to_le_bytes();
    let port = options.common.port;
    connect(
        &mut client.endpoint,
        &connections,
        &options.host,
        port,
        &announced,
    )?;
    let private_data = client.endpoint.private_data();
    let window = private_data
        .first_chunk()
        .ok_or("the server sent no window: is it srq_server?")?;
    client.window = u64::from_le_bytes(*window).clamp(1, MOST);

    client.send_all(options.count)?;
    client.endpoint.disconnect()?;
    expect(&connections, ConnectionKind::Disconnected)?;
    println!("{} messages sent", options.count);
    Ok(())
}

impl Client {
    /// Posts a receive for a grant.
    fn receive(&mut self, number: u64) -> Outcome<()> {
        let at = number as usize * LINE;
        let place = self.memory.segment(at..at + 8);
        Ok(self
            .endpoint
            .post_recv(&[place], GRANT | number, CompletionFlags::empty())?)
    }

    /// Sends all messages, and returns when the server has consumed them.
    fn send_all(&mut self, count: u64) -> Outcome<()> {
        while self.done < count || self.consumed < count {
            let room = self.sent - self.consumed < self.window && self.sent - self.done < MOST;
            if self.sent < count && room {
                self.send()?;
            } else {
                self.event()?;
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Outcome<()> {
        let at = (GRANTS + self.sent % MOST) as usize * LINE;
        self.memory.write(at, &self.sent.to_le_bytes());
        let message = self.memory.segment(at..at + 8);
        self.endpoint
            .post_send(&[message], self.sent, CompletionFlags::empty())?;
        self.sent += 1;
        Ok(())
    }

    /// Takes one event: a send has completed, or a grant has arrived.
    fn event(&mut self) -> Outcome<()> {
        match wait(&self.transfers)?.data {
            EventData::Dto {
                cookie,
                status: DtoStatus::Success,
                ..
            } if cookie & GRANT != 0 => {
                let number = cookie ^ GRANT;
                let mut consumed = [0; 8];
                self.memory.read(number as usize * LINE, &mut consumed);
                self.consumed = u64::from_le_bytes(consumed);
                // Posted before further sends, which lead to the next grant.
                self.receive(number)
            }
            EventData::Dto {
                status: DtoStatus::Success,
                ..
            } => {
                self.done += 1;
                Ok(())
            }
            EventData::Dto {
                status: DtoStatus::Flushed,
                ..
            } => Err(format!(
                "the server left after {} of {} messages",
                self.consumed, self.sent
            )
            .into()),
            other => Err(format!("a transfer failed: {other:?}").into()),
        }
    }
}
