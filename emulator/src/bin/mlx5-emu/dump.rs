//! `mlx5-emu dump`: decodes the bytes of WQEs, CQEs and doorbells to text.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use mlx5emu::decode::text::{self, Form, Kind};

use super::{Failure, print};

#[derive(Args)]
pub(super) struct Arguments {
    /// The format of the bytes.
    kind: KindArg,
    /// The bytes: a file (of hex digits, or raw) of at most 64 MiB, or hex
    /// digits in any grouping.
    #[arg(required = true, value_name = "FILE|HEX")]
    bytes: Vec<OsString>,
    /// Size of one CQE in bytes. The second half of a 128-byte CQE holds the completion.
    #[arg(long, default_value = "64", value_parser = ["64", "128"])]
    cqe_size: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum KindArg {
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
    /// One store to a UAR page: an 8-byte doorbell, or a BlueFlame copy of a WQE.
    Doorbell,
}

pub(super) fn dump(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // Groups of hex digits may come as separate arguments.
    let bytes = text::bytes_of_argument(&arguments.bytes.join(OsStr::new(" ")))
        .map_err(|error| Failure::usage(error.to_string()))?;
    let kind = match arguments.kind {
        KindArg::Wqe => Kind::SendWqe(Form::Connected),
        KindArg::UdWqe => Kind::SendWqe(Form::Datagram),
        KindArg::RecvWqe => Kind::ReceiveWqe,
        KindArg::SrqWqe => Kind::SharedReceiveWqe,
        KindArg::Cqe if arguments.cqe_size == "128" => Kind::Cqe(128),
        KindArg::Cqe => Kind::Cqe(64),
        KindArg::Doorbell => Kind::Doorbell,
    };
    let text = text::dump(kind, &bytes).map_err(|error| Failure::usage(error.to_string()))?;
    print(&text)
}
