//! The measured variants: the interfaces, each with locks and without.

use crate::options::choices;

choices! {
    /// An interface with locks, or without them (`-st`).
    pub(crate) enum Variant {
        /// libmlx5's verbs with their locks
        Libmlx5 = "libmlx5",
        /// libmlx5's verbs with MLX5_SINGLE_THREADED=1
        Libmlx5St = "libmlx5-st",
        /// The engine with a shared doorbell register under a lock
        Engine = "engine",
        /// The engine with an exclusive doorbell register, without a lock
        EngineSt = "engine-st",
        /// DAT's Rust types on a thread-safe adapter
        Rust = "rust",
        /// DAT's Rust types on an adapter that is not thread-safe
        RustSt = "rust-st",
        /// The C calls of uDAPL 1.2 on a thread-safe adapter
        C = "c",
        /// The C calls of uDAPL 1.2 on an adapter that is not thread-safe
        CSt = "c-st",
        /// The C calls of uDAPL 2.0 on a thread-safe adapter
        C2 = "c2",
        /// The C calls of uDAPL 2.0 on an adapter that is not thread-safe
        C2St = "c2-st",
    }
}

impl Variant {
    /// Returns whether the variant uses queue pairs without DAT, and so connects
    /// them without a connection manager.
    pub(super) fn is_below_dat(self) -> bool {
        self.name().starts_with("libmlx5") || self.name().starts_with("engine")
    }

    /// Returns whether the variant locks, so that several threads can use it.
    pub(super) fn is_threadsafe(self) -> bool {
        !self.name().ends_with("-st")
    }
}
