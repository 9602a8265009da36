//! A ring in the consumer's memory, which the producer writes by RDMA.
//! `examples/c/rdma_ring.c` is the same program in C.
//!
//! There are two ways for the consumer to notice a message:
//! - It polls its memory. This is the fastest way from memory to memory: it needs
//!   neither receives nor events. A slot is one cache line, and its last word is the
//!   number of the message. If the device writes the bytes of one message in
//!   ascending order, the rest of the slot is new when that word is. The consumer
//!   reads the word with an acquire load, so later reads are not older.
//! - It polls for the receive of an empty send that the producer posts behind each
//!   write. What was written before a send is in memory when the send is received.
//!   DAT guarantees this, and nothing earlier.
//!
//! The consumer asks its connected endpoint whether the device promises the order
//! (`Endpoint::data_in_order`), and tells the producer which way it takes in a first
//! message. The promise is for one message: it says nothing about two of them.
//!
//! Worth copying:
//! - Credits are the total number of slots that the consumer has emptied. They return
//!   the same way: by a write to the producer's memory, or by a message with the total.
//!   As it is a total, one at a time is enough.
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

use clap::{Parser, ValueEnum};
use common::{Common, LINE, Outcome, connect, expect, wait};
use dat_api::safe::{
    Adapter, ConnectionRequest, DataInOrder, Endpoint, EndpointOptions, EventDispatcher, Memory,
    RemoteSegment,
};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EvdFlags, EventData, MemPrivileges,
};

/// Writes messages into a ring in the peer's memory
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
    /// Whether to poll the last word of a slot, instead of a message behind each write (consumer)
    #[arg(short, long, value_name = "WHEN", default_value = "auto")]
    last_byte: LastByte,
    /// The consumer's host
    host: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LastByte {
    /// If the device promises that it is written last
    Auto,
    /// In any case
    Force,
    /// Never
    Never,
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
/// Messages from the consumer that the producer has not taken: as many credits as
/// there can be for a full ring, and the first message.
const MESSAGES: usize = (SLOTS / SIGNALLED) as usize + 1;
/// The first message of the consumer: how it notices writes.
const POLLS_MEMORY: u64 = 1;
const POLLS_MESSAGES: u64 = 2;
/// Empty polls before the processor is yielded and the connection checked.
const POLLS_PER_YIELD: u32 = 1000;

fn run(options: Options) -> Outcome<()> {
    let adapter = Adapter::open(&options.common.adapter)?;
    let zone = adapter.create_zone()?;
    let transfers = adapter.create_dispatcher(SLOTS as u32, EvdFlags::DTO)?;
    let arrivals = adapter.create_dispatcher(SLOTS as u32, EvdFlags::DTO)?;
    let connections = adapter.create_dispatcher(8, EvdFlags::CONNECTION | EvdFlags::CR)?;
    // A receive for each slot, and a write and a send.
    let attributes = adapter.endpoint_attributes(SLOTS as u32, 2 * SLOTS as u32);
    let endpoint_options = EndpointOptions::new(&transfers)
        .recv_events(&arrivals)
        .connect_events(&connections)
        .attributes(attributes);
    let endpoint = zone.create_endpoint(&endpoint_options)?;
    // The slots, followed by one line for the total of emptied slots, and one for
    // each message of the consumer.
    let memory = zone.allocate(
        (SLOTS as usize + 1 + MESSAGES) * LINE,
        MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE | MemPrivileges::REMOTE_WRITE,
    )?;
    let mut side = Side {
        endpoint,
        transfers,
        arrivals,
        connections,
        memory,
        by_message: false,
        idle: 0,
    };
    let port = options.common.port;
    match &options.host {
        Some(host) => {
            // The address for credits, and the number of messages to come.
            for line in 0..MESSAGES {
                side.post_message_receive(line)?;
            }
            let mut about = describe(side.memory.remote(EMPTIED..EMPTIED + 8)).to_vec();
            about.extend_from_slice(&options.count.to_le_bytes());
            connect(&mut side.endpoint, &side.connections, host, port, &about)?;
            let ring = parse_credits(&side.endpoint.private_data())
                .filter(|ring| ring.length == SLOTS * LINE as u64)
                .ok_or("the peer has no ring of this size: start rdma_ring there")?;
            side.by_message = side.method()?;
            side.produce(ring, options.count)?;
            side.endpoint.disconnect()?;
            expect(&side.connections, ConnectionKind::Disconnected)
        }
        None => {
            let listening = adapter.listen(port, &side.connections)?;
            println!("listening on {port}");
            let request = ConnectionRequest::from_event(&wait(&side.connections)?)
                .ok_or("no connection request")?;
            let about = request.private_data();
            let credits = parse_credits(&about).ok_or("the peer is not rdma_ring")?;
            let count = about.get(24..32).and_then(|count| count.first_chunk());
            let count = u64::from_le_bytes(*count.ok_or("the peer is not rdma_ring")?);
            let ring = describe(side.memory.remote(0..SLOTS as usize * LINE));
            request.accept(&mut side.endpoint, &ring)?;
            drop(listening);
            expect(&side.connections, ConnectionKind::Established)?;
            side.choose(options.last_byte)?;
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

/// Returns the offset of a message of the consumer.
fn message(line: usize) -> usize {
    EMPTIED + (1 + line) * LINE
}

fn place(number: u64) -> usize {
    (number % SLOTS) as usize * LINE
}

struct Side {
    endpoint: Endpoint,
    /// Completions of writes and sends.
    transfers: EventDispatcher,
    /// Receives.
    arrivals: EventDispatcher,
    connections: EventDispatcher,
    /// The producer fills its slots before it writes them to the peer; the
    /// consumer's slots are the ring.
    memory: Memory,
    /// Whether messages announce what was written.
    by_message: bool,
    /// Empty polls since the last successful one.
    idle: u32,
}

impl Side {
    /// Chooses how the consumer notices writes, and tells the producer.
    fn choose(&mut self, last_byte: LastByte) -> Outcome<()> {
        // The device can be asked once the endpoint is connected.
        let answer = self.endpoint.data_in_order();
        self.by_message = match last_byte {
            LastByte::Auto => answer != DataInOrder::Yes,
            LastByte::Force => false,
            LastByte::Never => true,
        };
        let (method, text) = match self.by_message {
            false => (POLLS_MEMORY, "polling memory"),
            true => (POLLS_MESSAGES, "polling for a message behind each write"),
        };
        println!("{text}; data in order: {answer}");
        if self.by_message {
            for _ in 0..SLOTS {
                self.post_announcement_receive()?;
            }
        }
        self.send_total(method)
    }

    /// Returns whether the producer has to post a send behind each write, as the
    /// consumer's first message says.
    fn method(&mut self) -> Outcome<bool> {
        loop {
            match self.message()? {
                Some(POLLS_MEMORY) => return Ok(false),
                Some(POLLS_MESSAGES) => return Ok(true),
                Some(_) => return Err("the peer is not rdma_ring".into()),
                None => self.idle_poll()?,
            }
        }
    }

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
                        emptied = self.emptied(emptied)?;
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
            let (of_write, behind) = match self.by_message {
                false => (flags, None),
                true => (CompletionFlags::SUPPRESS, Some(flags)),
            };
            self.endpoint.post_rdma_write(
                &[self.memory.segment(at..at + LINE)],
                sent,
                RemoteSegment {
                    address: ring.address + at as u64,
                    length: LINE as u64,
                    ..ring
                },
                of_write,
            )?;
            if let Some(flags) = behind {
                self.endpoint.post_send(&[], sent, flags)?;
            }
        }
        // Waits for the last credits too, because they still need the connection.
        while done < count || emptied < count {
            match self.completion()? {
                Some(number) => done = number + 1,
                None => {
                    emptied = self.emptied(emptied)?;
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
        // number may be in flight, as the first message is at the beginning.
        let (mut reported, mut reporting) = (0, true);
        for taken in 0..count {
            let at = place(taken);
            while !self.has_arrived(at, taken)? {
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

    /// Returns whether message `number` is in its slot, which begins at `at`.
    fn has_arrived(&mut self, at: usize, number: u64) -> Outcome<bool> {
        if self.by_message {
            if completed(&self.arrivals)?.is_none() {
                return Ok(false);
            }
            self.post_announcement_receive()?;
            // Not a condition, but a check of this program.
            if self.memory.load_u64(at + NUMBER) != number + 1 {
                return Err(format!("message {number} was announced before it was there").into());
            }
            return Ok(true);
        }
        Ok(self.memory.load_u64(at + NUMBER) == number + 1)
    }

    /// Returns the total of emptied slots, which was `known` before.
    fn emptied(&mut self, known: u64) -> Outcome<u64> {
        match self.by_message {
            false => Ok(self.memory.load_u64(EMPTIED)),
            true => Ok(self.message()?.unwrap_or(known)),
        }
    }

    /// Takes a message of the consumer, which is a number.
    fn message(&mut self) -> Outcome<Option<u64>> {
        let Some(line) = completed(&self.arrivals)? else {
            return Ok(None);
        };
        let number = self.memory.load_u64(message(line as usize));
        self.post_message_receive(line as usize)?;
        Ok(Some(number))
    }

    fn post_message_receive(&mut self, line: usize) -> Outcome<()> {
        let at = message(line);
        let segment = self.memory.segment(at..at + 8);
        let flags = CompletionFlags::empty();
        Ok(self.endpoint.post_recv(&[segment], line as u64, flags)?)
    }

    fn post_announcement_receive(&mut self) -> Outcome<()> {
        Ok(self.endpoint.post_recv(&[], 0, CompletionFlags::empty())?)
    }

    /// Sends a number to the producer. The last such send must have completed.
    fn send_total(&mut self, number: u64) -> Outcome<()> {
        self.memory.write(EMPTIED, &number.to_le_bytes());
        let total = self.memory.segment(EMPTIED..EMPTIED + 8);
        let flags = CompletionFlags::empty();
        Ok(self.endpoint.post_send(&[total], number, flags)?)
    }

    /// Reports the total number of emptied slots to the producer. The last report must
    /// have completed.
    fn report(&mut self, credits: RemoteSegment, emptied: u64) -> Outcome<()> {
        if self.by_message {
            return self.send_total(emptied);
        }
        self.memory.write(EMPTIED, &emptied.to_le_bytes());
        let sum = self.memory.segment(EMPTIED..EMPTIED + 8);
        let flags = CompletionFlags::empty();
        Ok(self
            .endpoint
            .post_rdma_write(&[sum], emptied, credits, flags)?)
    }

    /// Polls for the completion of a write or send, and returns its cookie.
    fn completion(&mut self) -> Outcome<Option<u64>> {
        completed(&self.transfers)
    }

    /// Counts an empty poll. Once in `POLLS_PER_YIELD` polls the processor is yielded,
    /// in case the peer needs it, and the program ends if the connection has
    /// ended.
    fn idle_poll(&mut self) -> Outcome<()> {
        hint::spin_loop();
        self.idle += 1;
        if self.idle.is_multiple_of(POLLS_PER_YIELD) {
            thread::yield_now();
            if let Some(event) = self.connections.dequeue()? {
                return Err(format!("the peer has left: {:?}", event.data).into());
            }
        }
        Ok(())
    }
}

/// Takes a completion, and returns its cookie.
fn completed(events: &EventDispatcher) -> Outcome<Option<u64>> {
    let Some(event) = events.dequeue()? else {
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
        other => Err(format!("a transfer failed: {other:?}").into()),
    }
}

/// Returns the payload of message `number`.
fn text(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
