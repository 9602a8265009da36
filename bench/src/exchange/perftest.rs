//! perftest's exchange, in place of dat-bench's control protocol (`--peer perftest`).
//!
//! ```text
//!                                        in each line the client writes, and the server answers
//! version                                16 bytes, text
//! page size, cache line                  4 bytes each
//! MTU                                    2 bytes, text
//! key, of every queue pair               twice before a ping-pong of writes or reads
//!    ······ queue pairs are connected ······
//! key 0, and key of every queue pair     sends in this order, writes and reads in the other
//! key 0                                  sends: receives are posted
//!    ······ messages over RDMA ······
//! key 0, five figures of 8 bytes         bandwidth of writes and reads
//! key 0                                  not after a ping-pong of writes, where both sides just exit
//! ```
//!
//! A key is a text of 59 bytes, or of 108 with a GID: hexadecimal numbers with colons between
//! them, and a NUL. perftest 6.28 also compares structures whose layout depends on its build; 6.29
//! and later do without them if the other side is older, as this one says that it is.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::message::{Address, Done};
use crate::failure::Failure;

/// The version that this side speaks, that of Debian 12.
const VERSION: &[u8; 16] = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0";
/// The first version with this exchange.
const OLDEST: f32 = 5.70;
/// The version that cannot do without comparing structures of its build.
const WITHOUT: &str = "6.28";
/// Writes of bandwidth tests go to all of a page of this side, or of perftest's if it is larger.
const PAGE: u32 = 4096;
/// The largest page of any host, and the least bytes of a buffer for perftest's messages.
pub(crate) const LARGEST_PAGE: u32 = 65536;
const CACHE_LINE: u32 = 64;
/// Bytes of a key, without and with a GID.
const KEY: [usize; 2] = [59, 108];
/// RDMA reads in flight.
const READS: u32 = 16;

/// The operation of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Send,
    Write,
    Read,
}

/// What is measured together with perftest.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) verb: Verb,
    /// `ib_*_lat`, else `ib_*_bw`.
    pub(crate) is_ping_pong: bool,
    pub(crate) is_client: bool,
    /// Whether `-x` is given, which perftest needs too.
    pub(crate) with_gid: bool,
    /// Where in the buffer of either side the bytes are that the other side accesses.
    pub(crate) exposed: u64,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Messages of all queue pairs.
    pub(crate) messages: u64,
}

/// A conversation with perftest.
pub(super) struct Perftest {
    test: Test,
    stream: TcpStream,
    timeout: Duration,
    name: String,
    /// The smaller MTU of both sides.
    mtu: u8,
    /// The keys of this side.
    keys: Vec<Vec<u8>>,
    /// What this side has sent.
    sent: Done,
    is_connected: bool,
}

impl Perftest {
    pub(super) fn new(stream: TcpStream, timeout: Duration, name: &str, test: Test) -> Self {
        Self {
            test,
            stream,
            timeout,
            name: name.to_owned(),
            mtu: 0,
            keys: Vec::new(),
            sent: Done::default(),
            is_connected: false,
        }
    }

    /// Returns whether a message during the measurement means that the other side has failed.
    pub(super) fn is_watched(&self) -> bool {
        // At the end of a ping-pong of writes perftest just exits.
        !(self.test.is_ping_pong && self.test.verb == Verb::Write)
    }

    /// Exchanges the addresses of one queue pair of each side; before the first ones, what both
    /// sides have to know.
    pub(super) fn addresses(&mut self, ours: &Address) -> Result<Address, Failure> {
        if self.keys.is_empty() {
            self.greet(ours.mtu)?;
        }
        let Test { exposed, verb, .. } = self.test;
        let with_gid = self.test.with_gid || ours.ethernet;
        let key = encode(ours, ours.buffer + exposed, with_gid);
        let times = 1 + u32::from(self.test.is_ping_pong && verb != Verb::Send);
        let mut theirs = Vec::new();
        for _ in 0..times {
            theirs = self.swap(&key)?;
        }
        self.keys.push(key);
        let theirs = decode(&theirs, with_gid).ok_or_else(|| {
            self.failed("sent no address of a queue pair in perftest's format; with -x on one side, it is needed on both")
        })?;
        Ok(Address {
            mtu: self.mtu,
            ethernet: ours.ethernet,
            buffer: theirs.buffer.wrapping_sub(exposed),
            length: ours.length,
            ..theirs
        })
    }

    fn greet(&mut self, mtu: u8) -> Result<(), Failure> {
        let theirs = self.swap(VERSION)?;
        if theirs.starts_with(b"DATB") {
            return Err(self.failed("is dat-bench, not perftest: leave out --peer perftest"));
        }
        let version = text(&theirs).unwrap_or_default();
        match version.parse::<f32>() {
            Err(_) => return Err(self.failed("sent something else than a version of perftest")),
            Ok(number) if version == WITHOUT || !(OLDEST..100.0).contains(&number) => {
                return Err(self.failed(&format!(
                    "is perftest {number}; this side needs version {OLDEST} or later, except {WITHOUT}"
                )));
            }
            Ok(number) => tracing::debug!(number, "version of perftest"),
        }
        let page = self.swap(&PAGE.to_be_bytes())?;
        self.swap(&CACHE_LINE.to_be_bytes())?;
        let page = u32::from_be_bytes(page.try_into().expect("as many bytes as were sent"));
        if page > LARGEST_PAGE {
            return Err(self.failed(&format!(
                "writes into {page} bytes in turns; this side has {LARGEST_PAGE}"
            )));
        }
        let theirs = self.swap(&[b'0' + mtu, 0])?;
        // perftest ignores a wrong MTU, too.
        let theirs = text(&theirs).and_then(|it| it.parse().ok());
        self.mtu = theirs
            .filter(|it| (1..=5).contains(it))
            .unwrap_or(mtu)
            .min(mtu);
        Ok(())
    }

    /// Returns the numbers of the queue pairs whose keys are exchanged again when they are
    /// connected. The last one waits for the memory of the first pass.
    fn again(&self) -> Vec<usize> {
        let each = 0..self.keys.len();
        match self.test.verb {
            Verb::Send => [0].into_iter().chain(each).collect(),
            Verb::Write | Verb::Read => each.chain([0]).collect(),
        }
    }

    /// Waits until both sides are connected. The end of a pass is no barrier of perftest.
    pub(super) fn barrier(&mut self) -> Result<(), Failure> {
        if core::mem::replace(&mut self.is_connected, true) {
            return Ok(());
        }
        let all = self.again();
        all[..all.len() - 1]
            .iter()
            .try_for_each(|&at| self.swap_key(at))
    }

    /// The memory of this side is prepared.
    pub(super) fn prepared(&mut self) -> Result<(), Failure> {
        let last = self.again()[self.keys.len()];
        self.swap_key(last)?;
        match self.test.verb {
            Verb::Send => self.swap_key(0),
            Verb::Write | Verb::Read => Ok(()),
        }
    }

    /// Keeps what this side has done, for [`Self::end`]. The number of messages is the same on
    /// both sides.
    pub(super) fn done(&mut self, done: Done) -> Result<(), Failure> {
        self.sent = done;
        self.require_messages(done.messages)
    }

    pub(super) fn require_messages(&self, messages: u64) -> Result<(), Failure> {
        let expected = self.test.messages;
        match messages == expected {
            true => Ok(()),
            false => Err(self.failed(&format!(
                "exchanged {messages} messages, but this side expects {expected}: give both sides the same -n"
            ))),
        }
    }

    /// Waits for the end of the other side. Returns what it has done.
    pub(super) fn end(&mut self, within: Duration) -> Result<Done, Failure> {
        let timeout = core::mem::replace(&mut self.timeout, within);
        match (self.test.is_ping_pong, self.test.verb) {
            (true, Verb::Write) => {}
            (true, Verb::Read) | (_, Verb::Send) => self.swap_key(0)?,
            (false, Verb::Write | Verb::Read) => {
                self.swap_key(0)?;
                self.timeout = timeout;
                self.swap_report()?;
                self.swap_key(0)?;
            }
        }
        self.timeout = timeout;
        Ok(Done {
            messages: self.test.messages,
            ..Done::default()
        })
    }

    /// Exchanges the figures of a bandwidth test, which perftest's server prints.
    fn swap_report(&mut self) -> Result<(), Failure> {
        const MEBIBYTE: f64 = 1_048_576.0;
        let (test, sent) = (&self.test, self.sent.transfer);
        let rate = |messages: u64, picoseconds: u64| match picoseconds {
            0 => 0.0,
            _ => messages as f64 / (picoseconds as f64 * 1e-12),
        };
        let average = rate(sent.messages, sent.picoseconds);
        let peak = rate(sent.peak_messages, sent.peak_picoseconds);
        let bytes = f64::from(test.size) / MEBIBYTE;
        let figures = [
            u64::from(test.size).to_be_bytes(),
            test.messages.to_be_bytes(),
            (peak * bytes).to_be_bytes(),
            (average * bytes).to_be_bytes(),
            (average / 1e6).to_be_bytes(),
        ];
        let mut theirs = [0; 5];
        for (figure, theirs) in figures.iter().zip(&mut theirs) {
            let bytes = self.swap(figure)?;
            *theirs = u64::from_be_bytes(bytes.try_into().expect("as many bytes as were sent"));
        }
        let [size, messages, ..] = theirs;
        match self.test.is_client {
            true => Ok(()),
            false if size != u64::from(self.test.size) => Err(self.failed(&format!(
                "sent messages of {size} bytes, but this side expects {}: give both sides the same -s",
                self.test.size
            ))),
            false => self.require_messages(messages),
        }
    }

    fn swap_key(&mut self, at: usize) -> Result<(), Failure> {
        let key = self.keys[at].clone();
        self.swap(&key).map(drop)
    }

    /// Sends these bytes and receives as many; a server the other way round.
    fn swap(&mut self, ours: &[u8]) -> Result<Vec<u8>, Failure> {
        if self.test.is_client {
            self.write(ours)?;
        }
        let theirs = self.read(ours.len())?;
        if !self.test.is_client {
            self.write(ours)?;
        }
        Ok(theirs)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.stream.write_all(bytes);
        written.map_err(|error| self.failed_by(&error))
    }

    /// Reads `length` bytes. The timeout is for all of them, however slowly they arrive.
    fn read(&mut self, length: usize) -> Result<Vec<u8>, Failure> {
        let deadline = Instant::now() + self.timeout;
        let mut bytes = vec![0; length];
        let mut at = 0;
        while at < length {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.failed(&format!(
                    "sent {at} of {length} expected bytes within {} s: it needs the same test, -s, -n and -x (--timeout waits longer)",
                    self.timeout.as_secs_f64()
                )));
            }
            let read = self
                .stream
                .set_read_timeout(Some(left))
                .and_then(|()| self.stream.read(&mut bytes[at..]));
            match read {
                Ok(0) => {
                    return Err(self.failed(
                        "closed the connection: see its output; it needs the same test, -s, -n and -x",
                    ));
                }
                Ok(read) => at += read,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                    _ => return Err(self.failed_by(&error)),
                },
            }
        }
        Ok(bytes)
    }

    fn failed(&self, what: &str) -> Failure {
        Failure::run(format!("the other side ({}) {what}", self.name))
    }

    fn failed_by(&self, error: &io::Error) -> Failure {
        self.failed(&format!("ended, or was killed ({error}): see its output"))
    }
}

/// Returns the text before the first NUL.
fn text(bytes: &[u8]) -> Option<&str> {
    let length = bytes.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&bytes[..length]).ok()
}

/// Returns the key of a queue pair, at which the other side may access `buffer`.
fn encode(address: &Address, buffer: u64, with_gid: bool) -> Vec<u8> {
    let Address {
        lid,
        qpn,
        psn,
        rkey,
        ..
    } = address;
    let mut key = format!("{lid:04x}:{READS:04x}:{qpn:06x}:{psn:06x}:{rkey:08x}:{buffer:016x}:");
    if with_gid {
        address
            .gid
            .iter()
            .for_each(|byte| key += &format!("{byte:02x}:"));
    }
    // The number of an SRQ, which RC does not need.
    key += "00000000";
    if with_gid {
        key.push(':');
    }
    key.push('\0');
    debug_assert_eq!(key.len(), KEY[usize::from(with_gid)]);
    key.into_bytes()
}

/// Decodes a key; none if it is not one, or has a number out of range.
fn decode(key: &[u8], with_gid: bool) -> Option<Address> {
    let key = text(key)?;
    let numbers: Option<Vec<u64>> = key
        .trim_end_matches(':')
        .split(':')
        .map(|it| u64::from_str_radix(it, 16).ok())
        .collect();
    let numbers = numbers?;
    let (&[lid, _, qpn, psn, rkey, buffer], rest) = numbers.split_first_chunk()?;
    let mut gid = [0; 16];
    if with_gid {
        for (byte, &number) in gid.iter_mut().zip(rest) {
            *byte = number.try_into().ok()?;
        }
    }
    let bits_24 = |number: u64| u32::try_from(number).ok().filter(|it| it >> 24 == 0);
    (rest.len() == 1 + if with_gid { 16 } else { 0 }).then_some(Address {
        qpn: bits_24(qpn)?,
        psn: bits_24(psn)?,
        lid: lid.try_into().ok()?,
        gid_index: 0,
        mtu: 0,
        ethernet: false,
        gid,
        buffer,
        rkey: rkey.try_into().ok()?,
        length: 0,
    })
}

#[cfg(test)]
mod tests;
