//! The parameters that all commands with two sides have: options with their defaults, cut to the
//! device's limits.

use super::amount::Amount;
use crate::clock::Clock;
use crate::ends::{DevicePort, Setup, Watchdog};
use crate::exchange::{Options, Peer};
use crate::failure::Failure;
use crate::options::{NetworkArgs, RunArgs};
use dat_engine::cm::ListenOn;

/// The common part of a plan.
pub(crate) struct CommonPlan {
    pub(crate) setup: Setup,
    pub(crate) amount: Amount,
    pub(crate) clock: Clock,
    network: NetworkArgs,
    /// Whether the device speaks iWARP; set by [`Self::fit_to_device`].
    iwarp: bool,
}

impl CommonPlan {
    /// `tx_depth` and `inline` are the command's defaults. Also calibrates the clock, so it is
    /// called on the measuring thread after pinning.
    pub(crate) fn new(args: &RunArgs, amount: Amount, tx_depth: u32, inline: u32) -> Self {
        Self {
            setup: Setup::new(args, amount.largest(), tx_depth, inline),
            amount,
            clock: Clock::calibrate(),
            network: args.perftest.network,
            iwarp: false,
        }
    }

    /// Reads the device's transport, sets where a server listens, and cuts default values to the
    /// device's limits. Values of options are not cut: the device refuses those beyond its limits.
    pub(crate) fn fit_to_device(
        &mut self,
        device_port: &DevicePort,
        listen: ListenOn,
        args: &RunArgs,
    ) -> Result<(), Failure> {
        self.iwarp = device_port.is_iwarp();
        let setup = &mut self.setup;
        setup.listen = listen;
        setup.receives = setup.receives.min(device_port.most_depth);
        if args.tx_depth.is_none() {
            setup.tx_depth = setup.tx_depth.min(device_port.most_depth);
        }
        setup.reserve_slots(args)?;
        device_port.require_memory(setup.layout)?;
        if args.inline.is_none() && setup.inline > 0 {
            let depths = (setup.tx_depth, setup.receives.max(1));
            setup.inline = device_port.inline(setup.inline, &args.api, depths, setup.segments)?;
        }
        Ok(())
    }

    /// Returns the options that both sides must have in common. `command` is the name of the
    /// command.
    pub(crate) fn options(&self, command: &str) -> Options {
        let mut options = self
            .amount
            .options(command, self.setup.operation, self.iwarp);
        self.network.agree(&mut options);
        let setup = &self.setup;
        options.set("--check", if setup.checks { "given" } else { "not given" });
        options.set("--sge", setup.segments.to_string());
        if setup.checks {
            // The slots of messages are computed from the depths.
            options.set("-t", setup.tx_depth.to_string());
            options.set("-r", setup.receives.to_string());
        }
        options
    }

    /// Returns the watchdog of a loop; `peer` is the other process.
    pub(crate) fn watchdog<'a>(&self, peer: Option<&'a Peer>) -> Watchdog<'a> {
        match self.setup.waits {
            true => Watchdog::for_waits(self.setup.timeout, peer),
            false => Watchdog::new(self.setup.timeout, peer),
        }
    }
}
