//! `mlx5-emu dump`: what bytes of a queue say.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use mlx5emu::decode::text::{self, Form, Kind};

use super::{Failure, print};

#[derive(Args)]
pub(super) struct Arguments {
    /// What the bytes are.
    kind: KindName,
    /// The bytes: a file (of hex, or raw) of at most 64 MiB, or hex itself, in
    /// any grouping.
    #[arg(required = true, value_name = "FILE|HEX")]
    bytes: Vec<OsString>,
    /// Bytes of one CQE; of 128, the second half is the completion.
    #[arg(long, default_value = "64", value_parser = ["64", "128"])]
    cqe_size: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum KindName {
    /// Send WQEs of an RC or UC QP, each at a multiple of 64 bytes.
    Wqe,
    /// Send WQEs of a UD QP.
    UdWqe,
    /// One receive WQE.
    RecvWqe,
    /// One receive WQE of a shared receive queue.
    SrqWqe,
    /// CQEs.
    Cqe,
    /// One store on a doorbell page: 8 bytes, or a copied WQE.
    Doorbell,
}

pub(super) fn dump(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // Words of hex may come as arguments of their own.
    let bytes = text::bytes_of_argument(&arguments.bytes.join(OsStr::new(" ")))
        .map_err(|error| Failure::usage(error.to_string()))?;
    let kind = match arguments.kind {
        KindName::Wqe => Kind::SendWqe(Form::Connected),
        KindName::UdWqe => Kind::SendWqe(Form::Datagram),
        KindName::RecvWqe => Kind::ReceiveWqe,
        KindName::SrqWqe => Kind::SharedReceiveWqe,
        KindName::Cqe if arguments.cqe_size == "128" => Kind::Cqe(128),
        KindName::Cqe => Kind::Cqe(64),
        KindName::Doorbell => Kind::Doorbell,
    };
    let text = text::dump(kind, &bytes).map_err(|error| Failure::usage(error.to_string()))?;
    print(&text)
}
