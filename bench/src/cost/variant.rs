//! What is compared: interfaces, each with its locks and without.

use clap::ValueEnum;
use serde::Serialize;

/// An interface, with locks or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Variant {
    /// libmlx5's verbs, as programs get them
    Libmlx5,
    /// libmlx5's verbs with MLX5_SINGLE_THREADED=1
    Libmlx5St,
    /// The engine with a doorbell register that it shares, under a lock
    Engine,
    /// The engine with a doorbell register of its own, without a lock
    EngineSt,
    /// DAT's Rust types on a thread-safe adapter
    Rust,
    /// DAT's Rust types on an adapter for one thread
    RustSt,
    /// DAT's C calls on a thread-safe adapter
    C,
    /// DAT's C calls on an adapter for one thread
    CSt,
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
        }
    }

    /// Whether it connects its queue pairs itself.
    pub(super) fn is_below_dat(self) -> bool {
        use Variant::{Engine, EngineSt, Libmlx5, Libmlx5St};
        matches!(self, Libmlx5 | Libmlx5St | Engine | EngineSt)
    }

    /// Whether several threads may use it at a time, as far as it goes.
    pub(super) fn is_threadsafe(self) -> bool {
        matches!(self, Self::Libmlx5 | Self::Engine | Self::Rust | Self::C)
    }

    /// What the environment says of `MLX5_SINGLE_THREADED`: to libmlx5 alone,
    /// for ours are told in their own ways.
    pub(super) fn single_threaded_variable(self) -> Option<&'static str> {
        (self == Self::Libmlx5St).then_some("1")
    }
}
