//! A ring in the consumer's memory that the producer writes by RDMA, and that
//! the consumer polls: the shortest way from memory to memory, with neither a
//! receive nor an event. `examples/c/rdma_ring.c` is the same in C.
//!
//! Why the consumer may look at memory: a slot is one cache line, and its last
//! word is the number of the message. On a reliable connection writes arrive in
//! the order of posting, and the devices that this library drives place the
//! bytes of one write in ascending order; a line that is written whole comes as
//! a whole. So when the last word is new, the rest is too. The look at it is an
//! acquire load: what is read afterwards is not older. (DAT itself promises
//! nothing before a completion; where that is not enough, send a message behind
//! the write.)
//!
//! Worth copying:
//! - Credits flow back the same way: the consumer writes how many slots it has
//!   emptied into the producer's memory, and one such write at a time is enough,
//!   for the number is a sum.
//! - The producer asks for one completion every [`SIGNALLED`] writes. It says
//!   that all before it are done, too, so their memory may be used again.
//! - The words that the two sides write have cache lines of their own.
//! - Nothing is allocated, and nobody sleeps, between first and last message.

mod common;

use std::hint;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use clap::Parser;
use common::{Common, LINE, Outcome, connect, expect, wait};
use dat_api::safe::{
    Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher, Memory, RemoteSegment,
};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EvdFlags, EventData, MemPrivileges,
};

/// Writes messages into a ring in the peer's memory, which the peer polls
///
/// Without HOST it is the consumer, of one producer; with HOST it is the
/// producer. Both keep a processor busy.
#[derive(Parser)]
#[command(after_help = common::STATUSES)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Messages that the producer writes
    #[arg(short = 'n', long, default_value_t = 10_000)]
    count: u64,
    /// Where the consumer is
    host: Option<String>,
}

fn main() -> ExitCode {
    common::main(run)
}

/// Slots of the ring, each a cache line.
const SLOTS: u64 = 64;
/// One write in so many asks for a completion; and so many slots are given back
/// at a time.
const SIGNALLED: u64 = SLOTS / 4;
/// Where the number is in a slot: the last word.
const NUMBER: usize = LINE - 8;
/// Looks in vain before the processor is offered to others, and the connection
/// looked at.
const PATIENCE: u32 = 1000;

fn run(options: Options) -> Outcome<()> {
    let adapter = Adapter::open(&options.common.adapter)?;
    let zone = adapter.zone()?;
    let transfers = adapter.dispatcher(SLOTS as u32, EvdFlags::DTO)?;
    let connections = adapter.dispatcher(8, EvdFlags::CONNECTION | EvdFlags::CR)?;
    let endpoint = zone.endpoint(&EndpointOptions {
        connect: Some(&connections),
        ..EndpointOptions::new(&transfers)
    })?;
    // The slots, and behind them one line for the count of those emptied.
    let memory = zone.memory(
        (SLOTS as usize + 1) * LINE,
        MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE | MemPrivileges::REMOTE_WRITE,
    )?;
    let mut side = Side {
        endpoint,
        transfers,
        connections,
        memory,
        idle: 0,
    };
    let port = options.common.port;
    match &options.host {
        Some(host) => {
            // Where credits are to be written, and how much will come.
            let mut about = describe(side.memory.remote(EMPTIED..EMPTIED + 8)).to_vec();
            about.extend_from_slice(&options.count.to_le_bytes());
            connect(&mut side.endpoint, &side.connections, host, port, &about)?;
            let ring = understand(&side.endpoint.private_data())
                .filter(|ring| ring.length == SLOTS * LINE as u64)
                .ok_or("the peer has no ring of this kind: is it rdma_ring?")?;
            side.produce(ring, options.count)?;
            side.endpoint.disconnect(true)?;
            expect(&side.connections, ConnectionKind::Disconnected)
        }
        None => {
            let listening = adapter.listen(port, &side.connections)?;
            println!("listening on {port}");
            let mut request = ConnectionRequest::from_event(&wait(&side.connections)?)
                .ok_or("no connection request")?;
            let about = request.private_data();
            let credits = understand(&about).ok_or("the peer is no rdma_ring")?;
            let count = about.get(24..32).and_then(|count| count.first_chunk());
            let count = u64::from_le_bytes(*count.ok_or("the peer is no rdma_ring")?);
            let ring = describe(side.memory.remote(0..SLOTS as usize * LINE));
            request.accept(&mut side.endpoint, &ring)?;
            drop(listening);
            expect(&side.connections, ConnectionKind::Established)?;
            side.consume(credits, count)?;
            expect(&side.connections, ConnectionKind::Disconnected)
        }
    }
}

/// Memory in words for the peer: address, length, context.
fn describe(memory: RemoteSegment) -> [u8; 24] {
    let mut words = [0; 24];
    words[..8].copy_from_slice(&memory.address.to_le_bytes());
    words[8..16].copy_from_slice(&memory.length.to_le_bytes());
    words[16..].copy_from_slice(&u64::from(memory.context).to_le_bytes());
    words
}

fn understand(words: &[u8]) -> Option<RemoteSegment> {
    let word = |at: usize| Some(u64::from_le_bytes(*words.get(at..)?.first_chunk()?));
    Some(RemoteSegment {
        address: word(0)?,
        length: word(8)?,
        context: u32::try_from(word(16)?).ok()?,
    })
}

/// Where the count of emptied slots lies: behind the slots.
const EMPTIED: usize = SLOTS as usize * LINE;

fn place(number: u64) -> usize {
    (number % SLOTS) as usize * LINE
}

struct Side {
    endpoint: Endpoint,
    transfers: EventDispatcher,
    connections: EventDispatcher,
    /// The producer fills slots here before it writes them over; the consumer's
    /// slots are the ring.
    memory: Memory,
    /// Looks in vain since the last that was not.
    idle: u32,
}

impl Side {
    /// The producer.
    fn produce(&mut self, ring: RemoteSegment, count: u64) -> Outcome<()> {
        let begun = Instant::now();
        // Writes that are done, and slots that the consumer has emptied.
        let (mut done, mut emptied) = (0, 0);
        for sent in 0..count {
            // The slot is the device's until its last write is done; there it is
            // the consumer's until he has emptied it.
            while sent - done >= SLOTS || sent - emptied >= SLOTS {
                match self.completion()? {
                    Some(number) => done = number + 1,
                    None => {
                        emptied = self.memory.load_u64(EMPTIED);
                        self.in_vain()?;
                    }
                }
            }
            self.idle = 0;
            let at = place(sent);
            // Anything: here the same word all over, the number last.
            for word in 0..NUMBER / 8 {
                self.memory.write(at + word * 8, &text(sent).to_le_bytes());
            }
            // Numbers begin at 1: an empty ring is full of zeroes.
            self.memory.write(at + NUMBER, &(sent + 1).to_le_bytes());
            let last = (sent + 1) % SIGNALLED == 0 || sent + 1 == count;
            let flags = if last {
                CompletionFlags::empty()
            } else {
                CompletionFlags::SUPPRESS
            };
            self.endpoint.post_rdma_write(
                &[self.memory.segment(at..at + LINE)],
                sent,
                RemoteSegment {
                    address: ring.address + at as u64,
                    length: LINE as u64,
                    ..ring
                },
                flags,
            )?;
        }
        // The last credits are waited for, too: the connection is still needed
        // for them.
        while done < count || emptied < count {
            match self.completion()? {
                Some(number) => done = number + 1,
                None => {
                    emptied = self.memory.load_u64(EMPTIED);
                    self.in_vain()?;
                }
            }
        }
        let each = begun.elapsed().as_secs_f64() * 1e9 / count.max(1) as f64;
        println!("{count} messages written, {each:.0} nanoseconds each");
        Ok(())
    }

    /// The consumer.
    fn consume(&mut self, credits: RemoteSegment, count: u64) -> Outcome<()> {
        // Slots that the producer knows to be empty; a write that tells him of
        // more is on its way.
        let (mut told, mut telling) = (0, false);
        for taken in 0..count {
            let at = place(taken);
            while self.memory.load_u64(at + NUMBER) != taken + 1 {
                self.in_vain()?;
            }
            self.idle = 0;
            for word in 0..NUMBER / 8 {
                let mut found = [0; 8];
                self.memory.read(at + word * 8, &mut found);
                if u64::from_le_bytes(found) != text(taken) {
                    return Err(format!("message {taken}, word {word}: {found:?}").into());
                }
            }
            telling = telling && self.completion()?.is_none();
            if !telling && taken + 1 - told >= SIGNALLED {
                told = taken + 1;
                telling = true;
                self.tell(credits, told)?;
            }
        }
        // The last sum. The producer leaves when it has come; that this is known
        // here, too, is not waited for: its leaving may be heard of before.
        while told < count {
            if telling {
                self.in_vain()?;
                telling = self.completion()?.is_none();
            } else {
                told = count;
                self.tell(credits, told)?;
            }
        }
        println!("{count} messages read");
        Ok(())
    }

    /// Tells the producer how many slots have been emptied in all.
    fn tell(&mut self, credits: RemoteSegment, emptied: u64) -> Outcome<()> {
        self.memory.write(EMPTIED, &emptied.to_le_bytes());
        let sum = self.memory.segment(EMPTIED..EMPTIED + 8);
        let flags = CompletionFlags::empty();
        Ok(self
            .endpoint
            .post_rdma_write(&[sum], emptied, credits, flags)?)
    }

    /// The cookie of the next write that is done, if one is.
    fn completion(&mut self) -> Outcome<Option<u64>> {
        let Some(event) = self.transfers.next()? else {
            return Ok(None);
        };
        match event.data {
            EventData::Dto {
                cookie,
                status: DtoStatus::Success,
                ..
            } => Ok(Some(cookie)),
            EventData::Dto {
                status: DtoStatus::Flushed,
                ..
            } => Err("the peer has left".into()),
            other => Err(format!("a write failed: {other:?}").into()),
        }
    }

    /// Nothing to be seen. Every so often others get the processor, in case it
    /// is they who are waited for; and a connection that is over ends the wait.
    fn in_vain(&mut self) -> Outcome<()> {
        hint::spin_loop();
        self.idle += 1;
        if self.idle.is_multiple_of(PATIENCE) {
            thread::yield_now();
            if let Some(event) = self.connections.next()? {
                return Err(format!("the peer has left: {:?}", event.data).into());
            }
        }
        Ok(())
    }
}

/// What message `number` says.
fn text(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
