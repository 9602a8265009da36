//! A ring in the consumer's memory. The producer writes the ring by RDMA, and the
//! consumer polls it. This is the fastest way from memory to memory: it needs
//! neither receives nor events. `examples/c/rdma_ring.c` is the same program in
//! C.
//!
//! Why the consumer may poll memory: a slot is one cache line, and its last word
//! is the number of the message. On a reliable connection, writes arrive in
//! posting order. The devices that this library drives place the bytes of one
//! write in ascending order, and place a whole line at once. So when the last
//! word is new, the rest of the slot is new too. The consumer reads that word
//! with an acquire load, so later reads are not older. DAT itself guarantees
//! nothing before a completion; where that is not enough, send a message after
//! the write.
//!
//! Worth copying:
//! - Credits return the same way: the consumer writes the total number of slots
//!   that it has emptied to the producer's memory. The number is a total, so one
//!   such write at a time is enough.
//! - The producer requests one completion every [`SIGNALLED`] writes. That
//!   completion covers all earlier writes, so their memory may be reused.
//! - Words that different sides write have their own cache lines.
//! - Between the first and the last message nothing is allocated, and no thread
//!   sleeps.

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
/// Without HOST it is the consumer for one producer; with HOST it is the
/// producer. Both busy-poll: each uses a whole processor.
#[derive(Parser)]
#[command(after_help = common::STATUSES)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Messages to write (producer)
    #[arg(short = 'n', long, default_value_t = 10_000)]
    count: u64,
    /// The consumer's host
    host: Option<String>,
}

fn main() -> ExitCode {
    common::main(run)
}

/// Slots of the ring; each is a cache line.
const SLOTS: u64 = 64;
/// Writes per completion, and slots per credit write.
const SIGNALLED: u64 = SLOTS / 4;
/// Offset of the number in a slot: the last word.
const NUMBER: usize = LINE - 8;
/// Empty polls before the processor is yielded and the connection checked.
const POLLS_PER_YIELD: u32 = 1000;

fn run(options: Options) -> Outcome<()> {
    let adapter = Adapter::open(&options.common.adapter)?;
    let zone = adapter.zone()?;
    let transfers = adapter.dispatcher(SLOTS as u32, EvdFlags::DTO)?;
    let connections = adapter.dispatcher(8, EvdFlags::CONNECTION | EvdFlags::CR)?;
    let endpoint = zone.endpoint(&EndpointOptions {
        connect: Some(&connections),
        ..EndpointOptions::new(&transfers)
    })?;
    // The slots, followed by one line for the total of emptied slots.
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
            // The address for credits, and the number of messages to come.
            let mut about = describe(side.memory.remote(EMPTIED..EMPTIED + 8)).to_vec();
            about.extend_from_slice(&options.count.to_le_bytes());
            connect(&mut side.endpoint, &side.connections, host, port, &about)?;
            let ring = parse_credits(&side.endpoint.private_data())
                .filter(|ring| ring.length == SLOTS * LINE as u64)
                .ok_or("the peer has no ring of this size: start rdma_ring there")?;
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
            let credits = parse_credits(&about).ok_or("the peer is not rdma_ring")?;
            let count = about.get(24..32).and_then(|count| count.first_chunk());
            let count = u64::from_le_bytes(*count.ok_or("the peer is not rdma_ring")?);
            let ring = describe(side.memory.remote(0..SLOTS as usize * LINE));
            request.accept(&mut side.endpoint, &ring)?;
            drop(listening);
            expect(&side.connections, ConnectionKind::Established)?;
            side.consume(credits, count)?;
            expect(&side.connections, ConnectionKind::Disconnected)
        }
    }
}

/// Describes memory for the peer in three words: address, length, context.
fn describe(memory: RemoteSegment) -> [u8; 24] {
    let mut words = [0; 24];
    words[..8].copy_from_slice(&memory.address.to_le_bytes());
    words[8..16].copy_from_slice(&memory.length.to_le_bytes());
    words[16..].copy_from_slice(&u64::from(memory.context).to_le_bytes());
    words
}

fn parse_credits(words: &[u8]) -> Option<RemoteSegment> {
    let word = |at: usize| Some(u64::from_le_bytes(*words.get(at..)?.first_chunk()?));
    Some(RemoteSegment {
        address: word(0)?,
        length: word(8)?,
        context: u32::try_from(word(16)?).ok()?,
    })
}

/// Offset of the total of emptied slots, behind the slots.
const EMPTIED: usize = SLOTS as usize * LINE;

fn place(number: u64) -> usize {
    (number % SLOTS) as usize * LINE
}

struct Side {
    endpoint: Endpoint,
    transfers: EventDispatcher,
    connections: EventDispatcher,
    /// The producer fills its slots before it writes them to the peer; the
    /// consumer's slots are the ring.
    memory: Memory,
    /// Empty polls since the last successful one.
    idle: u32,
}

impl Side {
    /// Runs the producer.
    fn produce(&mut self, ring: RemoteSegment, count: u64) -> Outcome<()> {
        let begun = Instant::now();
        // Completed writes, and slots that the consumer has emptied.
        let (mut done, mut emptied) = (0, 0);
        for sent in 0..count {
            // The local slot belongs to the device until its last write
            // completes; the remote slot belongs to the consumer until the
            // consumer has emptied it.
            while sent - done >= SLOTS || sent - emptied >= SLOTS {
                match self.completion()? {
                    Some(number) => done = number + 1,
                    None => {
                        emptied = self.memory.load_u64(EMPTIED);
                        self.idle_poll()?;
                    }
                }
            }
            self.idle = 0;
            let at = place(sent);
            // The payload: here the same word throughout, with the number last.
            for word in 0..NUMBER / 8 {
                self.memory.write(at + word * 8, &text(sent).to_le_bytes());
            }
            // Numbers begin at 1, because an empty ring is all zeroes.
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
        // Waits for the last credits too, because they still need the connection.
        while done < count || emptied < count {
            match self.completion()? {
                Some(number) => done = number + 1,
                None => {
                    emptied = self.memory.load_u64(EMPTIED);
                    self.idle_poll()?;
                }
            }
        }
        let each = begun.elapsed().as_secs_f64() * 1e9 / count.max(1) as f64;
        println!("{count} messages written, {each:.0} nanoseconds each");
        Ok(())
    }

    /// Runs the consumer.
    fn consume(&mut self, credits: RemoteSegment, count: u64) -> Outcome<()> {
        // Slots that the producer knows to be empty; a credit write with a higher
        // number may be in flight.
        let (mut reported, mut reporting) = (0, false);
        for taken in 0..count {
            let at = place(taken);
            while self.memory.load_u64(at + NUMBER) != taken + 1 {
                self.idle_poll()?;
            }
            self.idle = 0;
            for word in 0..NUMBER / 8 {
                let mut found = [0; 8];
                self.memory.read(at + word * 8, &mut found);
                if u64::from_le_bytes(found) != text(taken) {
                    return Err(
                        format!("wrong data in message {taken}, word {word}: {found:?}").into(),
                    );
                }
            }
            reporting = reporting && self.completion()?.is_none();
            if !reporting && taken + 1 - reported >= SIGNALLED {
                reported = taken + 1;
                reporting = true;
                self.report(credits, reported)?;
            }
        }
        // Writes the last total. The producer disconnects when it has arrived.
        // The completion of that write is not waited for: the disconnect may be
        // reported first.
        while reported < count {
            if reporting {
                self.idle_poll()?;
                reporting = self.completion()?.is_none();
            } else {
                reported = count;
                self.report(credits, reported)?;
            }
        }
        println!("{count} messages read");
        Ok(())
    }

    /// Writes the total number of emptied slots to the producer.
    fn report(&mut self, credits: RemoteSegment, emptied: u64) -> Outcome<()> {
        self.memory.write(EMPTIED, &emptied.to_le_bytes());
        let sum = self.memory.segment(EMPTIED..EMPTIED + 8);
        let flags = CompletionFlags::empty();
        Ok(self
            .endpoint
            .post_rdma_write(&[sum], emptied, credits, flags)?)
    }

    /// Polls for the completion of a write, and returns its cookie.
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

    /// Counts an empty poll. Once in `POLLS_PER_YIELD` polls the processor is yielded,
    /// in case the peer needs it, and the program ends if the connection has
    /// ended.
    fn idle_poll(&mut self) -> Outcome<()> {
        hint::spin_loop();
        self.idle += 1;
        if self.idle.is_multiple_of(POLLS_PER_YIELD) {
            thread::yield_now();
            if let Some(event) = self.connections.next()? {
                return Err(format!("the peer has left: {:?}", event.data).into());
            }
        }
        Ok(())
    }
}

/// Returns the payload of message `number`.
fn text(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
