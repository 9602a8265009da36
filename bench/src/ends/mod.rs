//! The ends of measured connections, through the engine, DAT's Rust types, the C calls of
//! uDAPL 1.2 and 2.0, and libmlx5; and what commands with a client and a server have in
//! common.
//!
//! ```text
//! open           options → device → APIs
//! device_port    the device and port of a run
//! setup amount   what all ends have in common; sizes, rounds and turns of the APIs
//! interface      traits of the measured APIs: connecting two ends
//! end            trait of the ends: posting and polling
//! engine rust udapl libmlx5   the APIs and their ends
//! dat            connecting by private data: DAT's connections and rdma_cm's
//! link payload   an end with its messages; their memory
//! sides          the connected sides of a run, in one process or two
//! probe          what a queue pair of the device says, for APIs that cannot ask
//! watchdog       why a loop stops early; timeouts
//! serve          the server: clients one after another
//! memory_end     an end in memory, for tests of the loops
//! ```

mod amount;
mod dat;
mod device_port;
pub(crate) mod end;
pub(crate) mod engine;
pub(crate) mod interface;
pub(crate) mod libmlx5;
mod link;
#[cfg(test)]
pub(crate) mod memory_end;
mod payload;
mod probe;
pub(crate) mod rust;
mod serve;
mod setup;
mod sides;
pub(crate) mod udapl;
mod watchdog;

pub(crate) use amount::Amount;
pub(crate) use device_port::{DevicePort, Needs};
pub(crate) use end::{End, LONGEST_LIST};
pub(crate) use interface::{Boxing, RemoteInterface, Role};
pub(crate) use link::{CompletionResult, Link};
pub(crate) use serve::{Server, explain};
pub(crate) use setup::Setup;
pub(crate) use sides::{Connection, OpenInterface, Sides};
pub(crate) use watchdog::{Stop, Watchdog};

use dat_engine::cm::ListenOn;

use self::udapl::v1::Libdat;
use crate::cli::{Api, LISTEN, RunArgs};
use crate::failure::Failure;
use crate::{exchange, host};

/// The open device and interfaces of a run.
pub(crate) struct Opened<T> {
    pub(crate) device_port: DevicePort,
    /// The library of the API `c`.
    pub(crate) libdat: Option<Libdat>,
    /// In the order of `--api`.
    pub(crate) interfaces: Vec<T>,
    /// Where a server listens.
    pub(crate) listen: ListenOn,
}

/// Opens the device and the APIs, then pins the calling thread. Called before there are other
/// threads.
pub(crate) fn open<B: Boxing>(
    args: &RunArgs,
    needs: &Needs,
    boxing: &B,
) -> Result<Opened<B::Boxed>, Failure> {
    if let Some(host) = &args.host {
        // Refuses a mistyped name before a device is opened or emulated.
        exchange::resolve(host, args.port)?;
    }
    let libdat = args.api.contains(&Api::C).then(Libdat::load).transpose()?;
    let listen = args.listen()?;
    if args.listen.is_some() {
        // SAFETY: no other thread of this program runs before a device is opened.
        unsafe { std::env::set_var(LISTEN, listen.to_string()) };
    }
    let device_port = DevicePort::open(args.on.select()?, args, needs)?;
    let open = |&api| interface::open(api, libdat.as_ref(), &device_port, args, boxing);
    let interfaces = args.api.iter().map(open).collect::<Result<_, _>>()?;
    // After the interfaces are open: threads that they started stay unpinned.
    if let Some(cpu) = args.cpu {
        host::pin(cpu)?;
    }
    Ok(Opened {
        device_port,
        libdat,
        interfaces,
        listen,
    })
}
