//! Options that perftest has, by its letters: what they do here, or what to use in their place.

use std::fmt;

use clap::Args;
use dat_engine::{Mtu, TransportOptions};
use serde::{Serialize, Serializer};

use crate::exchange::Options;
use crate::failure::Failure;

/// The heading of the options in the help.
const HEADING: &str = "perftest's options";

/// How queue pairs are connected; as JSON, `run.network`.
#[derive(Clone, Copy, Debug, Default, Args, PartialEq, Eq, Serialize)]
pub(crate) struct NetworkArgs {
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096 (engine only) [default: the port's]
    #[arg(help_heading = HEADING, short = 'm', long, value_name = "BYTES", value_parser = mtu)]
    #[serde(rename = "mtu_bytes", serialize_with = "bytes")]
    mtu: Option<Mtu>,
    /// Service level, 0 to 15; on RoCE its lower three bits are the priority of packets with a VLAN
    /// tag (engine only) [default: 0, or the route's]
    #[arg(help_heading = HEADING, short = 'S', long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=15))]
    #[serde(rename = "service_level")]
    sl: Option<u8>,
    /// ACK timeout: 4.096 us * 2^N, N from 1 to 31; 0 waits for ever (engine only) [default: 14]
    #[arg(help_heading = HEADING, short = 'u', long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=31))]
    #[serde(rename = "ack_timeout")]
    qp_timeout: Option<u8>,
    /// Traffic class, 0 to 255: on RoCE v2 the byte of the IP header whose upper six bits are the
    /// DSCP (engine only) [default: 0, or the route's]
    #[arg(help_heading = HEADING, short = 'T', long, value_name = "N")]
    #[serde(rename = "traffic_class")]
    tos: Option<u8>,
    /// Connect by rdma_cm (engine only; DAT connects as DAT_CM says)
    #[arg(help_heading = HEADING, short = 'R', long = "rdma_cm")]
    pub(crate) rdma_cm: bool,
}

/// All options of perftest that have no other place.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PerftestArgs {
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Type of the connection: RC, the only one that DAT has
    #[arg(help_heading = HEADING, short = 'c', long, value_name = "RC", value_parser = connection)]
    _connection: Option<Reliable>,
    /// Sleep until a completion arrives: the same as lat's --wait block
    #[arg(help_heading = HEADING, short = 'e', long)]
    pub(crate) events: bool,
    /// Accepted without effect: any frequency governor is measured, and named in the results
    #[arg(help_heading = HEADING, short = 'F', long = "CPU-freq")]
    _governor: bool,
    /// Refused: lat prints a histogram without it, --hgrm and --hlog write those of all cases, -U all
    /// samples
    #[arg(help_heading = HEADING, short = 'H', long)]
    report_histogram: bool,
    /// Print each measured message, unsorted: lat's --samples -
    #[arg(help_heading = HEADING, short = 'U', long)]
    pub(crate) report_unsorted: bool,
}

/// The value of `-c`.
#[derive(Clone, Copy, Debug)]
struct Reliable;

fn connection(text: &str) -> Result<Reliable, String> {
    match text.eq_ignore_ascii_case("RC") {
        true => Ok(Reliable),
        false => Err(
            "expected RC: dat-bench measures reliable connections, the only kind that DAT has; perftest itself measures UC, UD, XRC and DC".into(),
        ),
    }
}

fn mtu(text: &str) -> Result<Mtu, String> {
    let bytes = text.parse().ok();
    bytes
        .and_then(Mtu::from_bytes)
        .ok_or_else(|| "expected 256, 512, 1024, 2048 or 4096 bytes".into())
}

fn bytes<S: Serializer>(mtu: &Option<Mtu>, to: S) -> Result<S::Ok, S::Error> {
    mtu.map(Mtu::bytes).serialize(to)
}

impl NetworkArgs {
    /// Returns the engine's options.
    pub(crate) fn transport(&self) -> TransportOptions {
        TransportOptions {
            mtu: self.mtu,
            sl: self.sl,
            timeout: self.qp_timeout,
            traffic_class: self.tos,
            ..TransportOptions::default()
        }
    }

    /// Adds the options to those that both sides must have in common.
    pub(crate) fn agree(&self, options: &mut Options) {
        for (option, value) in self.given() {
            let value = if value.is_empty() { "yes" } else { &value };
            options.set(option, value);
        }
    }

    /// Returns the options that were given, with their values.
    fn given(&self) -> impl Iterator<Item = (&'static str, String)> {
        let number = |it: Option<u8>| it.map(|it| it.to_string());
        let all = [
            ("-m", self.mtu.map(|mtu| mtu.bytes().to_string())),
            ("-S", number(self.sl)),
            ("-u", number(self.qp_timeout)),
            ("-T", number(self.tos)),
            ("-R", self.rdma_cm.then(String::new)),
        ];
        all.into_iter()
            .filter_map(|(option, value)| Some((option, value?)))
    }
}

/// The options that were given, each behind a comma.
impl fmt::Display for NetworkArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.given().try_for_each(|(option, value)| {
            let space = if value.is_empty() { "" } else { " " };
            write!(f, ", {option}{space}{value}")
        })
    }
}

impl PerftestArgs {
    /// Refuses options that only name what to use instead, and with DAT those of the engine.
    pub(crate) fn check(&self, measures_dat: bool) -> Result<(), Failure> {
        if self.report_histogram {
            return Err(Failure::usage(
                "-H: lat prints the histogram of one case below its table; --hgrm FILE and --hlog FILE write those of all cases, and -U prints all samples",
            ));
        }
        match self.network.given().next() {
            Some(("-R", _)) if measures_dat => Err(Failure::usage(
                "-R is for --api engine alone: DAT connects by rdma_cm where the port has an IP address, or as the variable DAT_CM says (rdma_cm or socket); leave it out",
            )),
            Some((option, _)) if measures_dat => Err(Failure::usage(format!(
                "{option} is for --api engine alone: DAT takes MTU, service level, timeout and traffic class from dat.conf (keys mtu, sl, timeout, traffic_class); leave it out"
            ))),
            _ => Ok(()),
        }
    }
}
