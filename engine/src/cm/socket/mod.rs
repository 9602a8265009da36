//! The connection manager over TCP.
//!
//! There is one stream per connection, open for the connection's lifetime, so that
//! the system reports at once when the peer's process dies. Handles open sockets on
//! the caller's thread, where errors can be returned, and pass them to the service
//! thread as commands. From then on only that thread uses them.
//!
//! | file | content |
//! | --- | --- |
//! | `frame` | the messages as bytes |
//! | `open` | sockets, and the meaning of their errors |
//! | `handle` | the handles of the application |
//! | `service` | state shared by handles and the thread; start and end |
//! | `run` | the thread: events, commands, deadlines |
//! | `session` | the states of one connection |
//! | `silent` | connections that have not sent their request: how many, and which is dropped |

mod frame;
mod handle;
mod open;
mod run;
mod service;
mod session;
mod silent;

pub(super) use handle::{Connection, Listener, Request};
pub(super) use service::Service;
