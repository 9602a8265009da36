//! The connection manager through its public interface, over loopback.

// One level deeper, so that `cargo test cm` finds these too.
#[path = "cm/mod.rs"]
mod cm;
