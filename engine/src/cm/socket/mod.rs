//! The connection manager over TCP.
//!
//! There is one stream per connection, open for the connection's lifetime, so that
//! the system reports at once when the peer's process dies. Handles open sockets on
//! the caller's thread, where errors can be returned. From then on only the service thread
//! uses them.
//!
//! | file | content |
//! | --- | --- |
//! | `port` | the port of a connection qualifier |
//! | `frame` | the messages as bytes |
//! | `open` | sockets, and the meaning of their errors |
//! | `network` | what handles and the thread share; listeners |
//! | `stream` | the wire of a session |
//! | `accept` | the thread's part: connections that arrive, up to their request |
//! | `silent` | connections that have not sent their request: how many, and which is dropped |

mod accept;
mod frame;
mod network;
mod open;
mod port;
mod silent;
mod stream;

#[cfg(fuzzing)]
pub use frame::fuzz as frames;
pub(super) use network::Tcp;
pub use port::port_of;
