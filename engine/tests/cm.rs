//! The connection manager through its public face, over loopback.

// One level deeper, so that `cargo test cm` finds these too.
#[path = "cm/mod.rs"]
mod cm;
