//! The connection manager over TCP.
//!
//! One stream per connection, which stays open for its life, so that the
//! system tells at once when the peer's process dies. Handles open sockets on
//! the caller's thread, where errors can be returned, and pass them to the
//! service thread as commands; from then on only that thread touches them.
//!
//! | file | what |
//! | --- | --- |
//! | `frame` | messages as bytes |
//! | `open` | sockets, and what their errors mean |
//! | `handle` | what the application holds |
//! | `service` | what handles and the thread share; start and end |
//! | `run` | the thread: events, commands, deadlines |
//! | `session` | one connection's states |
//! | `silent` | connections that have not sent their request: how many, and which goes |

mod frame;
mod handle;
mod open;
mod run;
mod service;
mod session;
mod silent;

pub(super) use handle::{Connection, Listener, Request};
pub(super) use service::Service;
