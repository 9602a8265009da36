//! Faults of a whole device, port, QP, CQ or SRQ, as tests and injected faults
//! cause them.
//!
//! A failed device completes nothing any more, its contexts' commands are refused with `EIO`, and its
//! event files end: what is unread can be read, then reads return `EIO`. Requests in flight are lost,
//! and every wait wakes up.

use super::adapter::Nic;
use crate::fabric::counters::Counter;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::{
    AsyncEvent, AsyncObject, ContextId, Cqn, PortAddress, PortSet, QpState, Qpn, Result, Srqn,
};

/// The cause of failures that are asked for.
const INJECTED: &str = "a fault of --faults, or a test, made it fail";

/// The state of the emulated devices.
#[derive(Debug, Default)]
pub(super) struct Devices {
    down: PortSet,
    /// One bit per failed device.
    failed: u32,
}

impl Devices {
    /// Returns whether packets reach this port.
    pub(super) fn reaches(&self, device: u8, port: u8) -> bool {
        !self.is_failed(device) && !self.down.contains(PortAddress { device, port })
    }

    pub(super) fn is_failed(&self, device: u8) -> bool {
        self.failed & bit(device) != 0
    }
}

fn bit(device: u8) -> u32 {
    1_u32.checked_shl(device.into()).unwrap_or(0)
}

impl Nic {
    /// Moves a QP to error as after a device error that no completion reports,
    /// and raises `IBV_EVENT_QP_FATAL`.
    ///
    /// # Errors
    /// `EINVAL` if the QP does not exist.
    pub fn fail_qp(&mut self, qpn: Qpn) -> Result<()> {
        let qp = self.qps.get_mut(qpn.0);
        let qp = qp.or_refuse(libc::EINVAL, "the queue pair does not exist")?;
        qp.fail_fatally(&mut self.core, INJECTED);
        self.process_failures();
        Ok(())
    }

    /// Fails a CQ as after an overrun: raises `IBV_EVENT_CQ_ERR` and moves its QPs
    /// to error.
    ///
    /// # Errors
    /// `EINVAL` if the CQ does not exist or has failed already.
    pub fn fail_cq(&mut self, cqn: Cqn) -> Result<()> {
        let failed = self.core.fail_cq(cqn, INJECTED);
        self.process_failures();
        let unknown = "the completion queue does not exist, or has failed already";
        refuse_if(!failed, libc::EINVAL, unknown)
    }

    /// Fails an SRQ: raises `IBV_EVENT_SRQ_ERR`, and no receive is taken from it
    /// any more.
    ///
    /// # Errors
    /// `EINVAL` if the SRQ does not exist or has failed already.
    pub fn fail_srq(&mut self, srqn: Srqn) -> Result<()> {
        let failed = self.core.fail_srq(srqn, INJECTED);
        let unknown = "the shared receive queue does not exist, or has failed already";
        refuse_if(!failed, libc::EINVAL, unknown)
    }

    /// Takes a port down or up. Packets to and from a port that is down are
    /// dropped. A change raises an event on every context of the device. Nothing
    /// happens to a port that no device has.
    pub fn set_port(&mut self, at: PortAddress, up: bool) {
        let PortAddress { device, port } = at;
        let options = &self.core.options;
        if device >= options.devices || !(1..=options.ports).contains(&port) {
            return;
        }
        let down = &mut self.core.devices.down;
        if down.contains(at) == up {
            *down = down.with(at, !up);
            let event = if up {
                AsyncEvent::PortActive
            } else {
                AsyncEvent::PortErr
            };
            if !up {
                self.core.count(at, Counter::LinkDowned);
                let cause = format!(
                    "port {port} of device {device} was taken down, by a fault of --faults or \
                     by mlx5-emu port"
                );
                self.core.explain_failure(event, &cause);
            }
            self.raise_on_device(device, event, AsyncObject::Port(port));
        }
    }

    /// Returns the ports that are down.
    #[must_use]
    pub fn down_ports(&self) -> PortSet {
        self.core.devices.down
    }

    /// Returns whether a port is up.
    #[must_use]
    pub fn port_is_up(&self, at: PortAddress) -> bool {
        self.core.devices.reaches(at.device, at.port)
    }

    /// Raises `IBV_EVENT_GID_CHANGE` for a port. The contents of the table are the
    /// same as before, as if an address had been removed and added again.
    pub fn change_gids(&mut self, at: PortAddress) {
        let object = AsyncObject::Port(at.port);
        self.raise_on_device(at.device, AsyncEvent::GidChange, object);
    }

    /// Fails a device permanently: it executes and completes nothing from now on,
    /// and every context gets an event. The receiver of the event (`uverbs`) then
    /// ends the contexts' commands and files.
    pub fn fail_device(&mut self, device: u8) {
        self.end_device(device, INJECTED);
    }

    /// Fails a device for this reason: see [`fail_device`](Self::fail_device).
    pub(crate) fn end_device(&mut self, device: u8, cause: &str) {
        if self.core.devices.is_failed(device) {
            return;
        }
        self.core.devices.failed |= bit(device);
        for (qpn, qp) in self.qps.iter_mut().filter(|(_, qp)| qp.device == device) {
            qp.reset_queues();
            qp.state = QpState::Reset;
            self.core.ready.retain(|ready| *ready != qpn);
            self.core.flushing.retain(|flushing| *flushing != qpn);
            qp.is_ready = false;
        }
        let cause = format!("device {device}: {cause}");
        self.core.explain_failure(AsyncEvent::DeviceFatal, &cause);
        self.raise_on_device(device, AsyncEvent::DeviceFatal, AsyncObject::Device);
    }

    /// Fails all devices for this reason: see [`fail_device`](Self::fail_device).
    pub(crate) fn end_all_devices(&mut self, cause: &str) {
        (0..self.core.options.devices).for_each(|device| self.end_device(device, cause));
    }

    /// Returns the devices that have failed, one bit each.
    pub(crate) fn failed_devices(&self) -> u32 {
        self.core.devices.failed
    }

    /// Returns whether the device of a context has failed.
    #[must_use]
    pub fn has_failed(&self, context: ContextId) -> bool {
        let context = self.core.contexts.get(context.0);
        context.is_some_and(|context| self.core.devices.is_failed(context.device))
    }

    fn raise_on_device(&self, device: u8, event: AsyncEvent, object: AsyncObject) {
        let contexts = self.core.contexts.iter();
        for (context, _) in contexts.filter(|(_, context)| context.device == device) {
            self.core
                .events
                .asynchronous(ContextId(context), event, object);
        }
    }
}
