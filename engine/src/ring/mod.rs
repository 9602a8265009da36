//! Send, receive, shared receive and completion rings in memory.

pub mod layout;
