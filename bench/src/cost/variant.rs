//! The measured variants: the interfaces, each with locks and without.

use clap::ValueEnum;
use serde::Serialize;

/// An interface with locks, or without them (`-st`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Variant {
    /// libmlx5's verbs with their locks
    Libmlx5,
    /// libmlx5's verbs with MLX5_SINGLE_THREADED=1
    Libmlx5St,
    /// The engine with a shared doorbell register under a lock
    Engine,
    /// The engine with an exclusive doorbell register, without a lock
    EngineSt,
    /// DAT's Rust types on a thread-safe adapter
    Rust,
    /// DAT's Rust types on an adapter that is not thread-safe
    RustSt,
    /// The C calls of uDAPL 1.2 on a thread-safe adapter
    C,
    /// The C calls of uDAPL 1.2 on an adapter that is not thread-safe
    CSt,
    /// The C calls of uDAPL 2.0 on a thread-safe adapter
    C2,
    /// The C calls of uDAPL 2.0 on an adapter that is not thread-safe
    C2St,
}

impl Variant {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Libmlx5 => "libmlx5",
            Self::Libmlx5St => "libmlx5-st",
            Self::Engine => "engine",
            Self::EngineSt => "engine-st",
            Self::Rust => "rust",
            Self::RustSt => "rust-st",
            Self::C => "c",
            Self::CSt => "c-st",
            Self::C2 => "c2",
            Self::C2St => "c2-st",
        }
    }

    /// Returns whether the variant uses queue pairs without DAT, and so connects
    /// them without a connection manager.
    pub(super) fn is_below_dat(self) -> bool {
        use Variant::{Engine, EngineSt, Libmlx5, Libmlx5St};
        matches!(self, Libmlx5 | Libmlx5St | Engine | EngineSt)
    }

    /// Returns whether the variant locks, so that several threads can use it.
    pub(super) fn is_threadsafe(self) -> bool {
        matches!(
            self,
            Self::Libmlx5 | Self::Engine | Self::Rust | Self::C | Self::C2
        )
    }
}
