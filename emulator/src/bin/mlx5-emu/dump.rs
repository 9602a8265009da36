//! `mlx5-emu dump`: what bytes of a queue say.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use mlx5emu::decode::text::{self, Kind};

use super::Failure;

#[derive(Args)]
pub(super) struct Arguments {
    /// What the bytes are.
    kind: KindName,
    /// The bytes: a file (of hex, or raw), or hex itself.
    bytes: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum KindName {
    /// Send WQEs, each at a multiple of 64 bytes.
    Send,
    /// One receive WQE.
    Recv,
    /// One receive WQE of a shared receive queue.
    Srq,
    /// CQEs of 64 bytes.
    Cqe,
    /// CQEs of 128 bytes.
    Cqe128,
    /// One 8-byte store on a doorbell page.
    Doorbell,
}

pub(super) fn dump(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let bytes = text::bytes_of_argument(&arguments.bytes)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let kind = match arguments.kind {
        KindName::Send => Kind::SendWqe,
        KindName::Recv => Kind::ReceiveWqe,
        KindName::Srq => Kind::SharedReceiveWqe,
        KindName::Cqe => Kind::Cqe(64),
        KindName::Cqe128 => Kind::Cqe(128),
        KindName::Doorbell => Kind::Doorbell,
    };
    let text = text::dump(kind, &bytes).map_err(|error| Failure::usage(error.to_string()))?;
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}
