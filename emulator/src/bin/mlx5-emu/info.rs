//! `mlx5-emu info`: shows what is emulated, and its limits.

use std::process::ExitCode;

use clap::Args;
use mlx5emu::limits::{self, PROFILES, Profile};
use mlx5emu::limits::{MAX_DEVICES, MAX_PORTS};

use super::{Failure, print};

const ABOUT_PROFILES: &str = "\
Limits of other vendors' devices, for `mlx5-emu run --limits profile:NAME`. The numbers come from
the source of Linux 6.1 (paths are below drivers/infiniband or drivers) and rdma-core; none was
measured on a device. \"reports\" is what a driver reports beyond what the emulated device can do;
there the emulated device's own limit applies.
";

#[derive(Args)]
pub(super) struct Arguments {
    /// List the profiles for `run --limits profile:NAME`: the limits of each
    /// device, what its driver reports beyond the emulated device, and the
    /// sources of the numbers.
    #[arg(long)]
    limits: bool,
}

pub(super) fn info(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.limits {
        let profiles: Vec<_> = PROFILES.iter().map(Profile::describe).collect();
        return print(&format!("{ABOUT_PROFILES}\n{}", profiles.join("\n")));
    }
    print(&format!(
        "\
mlx5-emu {version}: an emulated ConnectX-6 Dx for unmodified libibverbs + libmlx5

Emulated
  link           InfiniBand, or RoCE (GID index 0: link-local v1, 1: link-local v2,
                 2: IPv4 v1, 3: IPv4 v2)
  commands       ioctl and write(), or write() only (--face write)
  transport      reliable connection (RC): SEND, RDMA WRITE, RDMA READ, atomics, immediate data
                 unreliable connection (UC): SEND, RDMA WRITE, immediate data
                 datagrams (UD): SEND, immediate data, global route headers
  queues         RQ and SRQ; CQEs of 64 and 128 bytes, versions 0 and 1, with inline scatter and
                 timestamps; CQ resize, CQs that ignore overruns; BlueFlame
  memory         memory regions; memory windows of type 1 and 2, SEND with invalidate, local invalidate
  events         completion channels; asynchronous events of CQ, QP, SRQ, port and device
  host           /dev/infiniband, /sys/class/infiniband, the PCI bus, RDMA netlink
  rdma_cm        connections on the host's own addresses, for programs that use librdmacm
  faults         injected with run --faults: packets, completions, QPs, ports, the device;
                 ports of running programs go down and up with port down, port up
  limits         lowered with run --limits: everything listed below
  modes          run --nasty: a device that forgives no mistake of a driver
  not emulated   XRC, DC, on-demand paging, multicast, DevX (but ibv_query_qp_data_in_order)

Limits (per process unless said otherwise)
  devices        {MAX_DEVICES}, each with up to {MAX_PORTS} ports
  processes      {} on one fabric
  QPs            {}
  CQs            {} of up to {} entries
  SRQs           {} of up to {} receives
  work requests  {} per queue, with {} segments ({} from an SRQ)
  reads, atomics {} outstanding per QP and direction
  messages       {} bytes

Tested with
  rdma-core      44 (Debian 12), 50, 56 (Debian 13), 64
",
        limits::MAX_PROCESSES,
        limits::MAX_QP,
        limits::MAX_CQ,
        limits::MAX_CQE,
        limits::MAX_SRQ,
        limits::MAX_SRQ_WR,
        limits::MAX_WR,
        limits::MAX_SGE,
        limits::MAX_SRQ_SGE,
        limits::MAX_RD_ATOMIC,
        limits::MAX_MSG,
        version = env!("CARGO_PKG_VERSION"),
    ))
}
