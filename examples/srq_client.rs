//! Sends numbered messages to `srq_server`, as many at a time as that allows.
//! `examples/c/srq_client.c` is the same in C.
//!
//! Worth copying:
//! - A send that is done says that the message lies in a buffer of the server,
//!   not that the server has used it. So the server tells how many it has
//!   consumed, and the client stays within the window: no send ever waits for a
//!   receive that is not there.
//! - Each message on the way has memory of its own, used again only when its
//!   send is done.

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
    /// Messages
    #[arg(short = 'n', long, default_value_t = 1000)]
    count: u64,
    /// Where the server is
    #[arg(default_value = "127.0.0.1")]
    host: String,
}

fn main() -> ExitCode {
    common::main(run)
}

/// Receives for grants of the server: it has one under way, and one may lie
/// here unread.
const GRANTS: u64 = 2;
/// In cookies: a grant, not a message.
const GRANT: u64 = 1 << 63;
/// Messages on the way, at most; the server says how many it wants.
const MOST: u64 = 64;

struct Client {
    endpoint: Endpoint,
    transfers: EventDispatcher,
    /// A cache line for each message on the way, behind those for the grants.
    memory: Memory,
    window: u64,
    sent: u64,
    /// Sends that are done.
    done: u64,
    /// Messages that the server has consumed.
    consumed: u64,
}

fn run(options: Options) -> Outcome<()> {
    let adapter = Adapter::open(&options.common.adapter)?;
    let zone = adapter.zone()?;
    let memory = zone.memory(
        (GRANTS + MOST) as usize * LINE,
        MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE,
    )?;
    let transfers = adapter.dispatcher((GRANTS + MOST) as u32, EvdFlags::DTO)?;
    let connections = adapter.dispatcher(8, EvdFlags::CONNECTION)?;
    let endpoint = zone.endpoint(&EndpointOptions {
        connect: Some(&connections),
        ..EndpointOptions::new(&transfers)
    })?;
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
    let told = client.endpoint.private_data();
    let window = told
        .first_chunk()
        .ok_or("the server is no srq_server: it tells no window")?;
    client.window = u64::from_le_bytes(*window).clamp(1, MOST);

    client.send_all(options.count)?;
    client.endpoint.disconnect(true)?;
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

    /// Sends, and ends when the server has consumed everything.
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

    /// Takes one: a send is done, or the server has consumed more.
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
                // Before more is sent: then comes the next grant.
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
