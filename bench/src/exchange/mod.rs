//! The control connection of client and server: TCP, beside the measured
//! connection.
//!
//! ```text
//! frame     header and checksum: bytes of the socket → (kind, payload)
//! message   the messages: options, addresses, begin, done, abort
//! peer      an established control connection, with timeouts
//! perftest  perftest's exchange, in its place
//! listener  the server's port: finds the client among all connections
//! options   the options that both sides must have in common
//! ```
//!
//! Received bytes are not trusted: lengths are checked, control characters are
//! not printed, and every read has a deadline.

mod frame;
mod listener;
mod message;
mod options;
mod peer;
mod perftest;

pub(crate) use listener::{ClientListener, ControlPort};
pub(crate) use message::{Address, Done, Service, Transfer};
pub(crate) use options::Options;
pub(crate) use peer::{Peer, resolve};
pub(crate) use perftest::{LARGEST_PAGE, Test, Verb};
