//! How the two sides of a run find and understand each other: a TCP
//! connection beside the measured one.
//!
//! ```text
//! frame     header and check sum: bytes on the socket → (kind, payload)
//! message   what is said: options, addresses, begin, done, abort
//! peer      the connection: connect, deadlines, who says what when
//! lobby     the server's port: which connection is the client
//! options   the comparison of what the two command lines asked for
//! ```
//!
//! Everything read is a stranger's bytes until checked: no length is trusted,
//! no text printed raw, no read without a deadline.

mod frame;
mod lobby;
mod message;
mod options;
mod peer;

pub(crate) use lobby::{Door, Lobby};
pub(crate) use message::{Address, Service};
pub(crate) use options::Options;
pub(crate) use peer::{Peer, resolve};
