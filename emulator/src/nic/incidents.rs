//! What happens to a device as a whole, or to a QP from outside: ports that
//! go down, tables that change, failures.

use std::collections::BTreeSet;

use super::adapter::Nic;
use super::spec::{
    AsyncEvent, AsyncObject, ContextId, Cqn, Errno, PortAddress, QpState, Qpn, Result, Srqn,
};

/// The state of the emulated devices.
#[derive(Debug, Default)]
pub(super) struct Devices {
    down: BTreeSet<(u8, u8)>,
    /// A bit each.
    failed: u32,
}

impl Devices {
    /// Whether packets come and go there.
    pub(super) fn reaches(&self, device: u8, port: u8) -> bool {
        !self.is_failed(device) && (self.down.is_empty() || !self.down.contains(&(device, port)))
    }

    pub(super) fn is_failed(&self, device: u8) -> bool {
        self.failed & bit(device) != 0
    }
}

fn bit(device: u8) -> u32 {
    1_u32.checked_shl(device.into()).unwrap_or(0)
}

impl Nic {
    /// A QP fails, as by an error of the device that no completion tells: it
    /// goes to error, and its owner is told (`IBV_EVENT_QP_FATAL`).
    ///
    /// # Errors
    /// `EINVAL` when it is unknown.
    pub fn fail_qp(&mut self, qpn: Qpn) -> Result<()> {
        let qp = self.qps.get_mut(qpn.0).ok_or(Errno(libc::EINVAL))?;
        qp.fail_fatally(&mut self.core);
        self.settle();
        Ok(())
    }

    /// A CQ fails, as by an overrun: its owner is told (`IBV_EVENT_CQ_ERR`), and
    /// its QPs fail.
    ///
    /// # Errors
    /// `EINVAL` when it is unknown, or has failed.
    pub fn fail_cq(&mut self, cqn: Cqn) -> Result<()> {
        let failed = self.core.fail_cq(cqn);
        self.settle();
        failed.then_some(()).ok_or(Errno(libc::EINVAL))
    }

    /// An SRQ fails: its owner is told (`IBV_EVENT_SRQ_ERR`), and nothing is
    /// taken from it any more.
    ///
    /// # Errors
    /// `EINVAL` when it is unknown, or has failed.
    pub fn fail_srq(&mut self, srqn: Srqn) -> Result<()> {
        let failed = self.core.fail_srq(srqn);
        failed.then_some(()).ok_or(Errno(libc::EINVAL))
    }

    /// A port goes down or comes up again. Packets to and from a port that is
    /// down vanish; every context of its device is told of a change.
    pub fn set_port(&mut self, at: PortAddress, up: bool) {
        let PortAddress { device, port } = at;
        let down = &mut self.core.devices.down;
        let (changed, event) = if up {
            (down.remove(&(device, port)), AsyncEvent::PortActive)
        } else {
            (down.insert((device, port)), AsyncEvent::PortErr)
        };
        if changed {
            self.tell_all(device, event, AsyncObject::Port(port));
        }
    }

    /// Whether a port is up.
    #[must_use]
    pub fn port_is_up(&self, at: PortAddress) -> bool {
        self.core.devices.reaches(at.device, at.port)
    }

    /// The GID table of a port is announced as changed. What is in it now
    /// is what was in it: an address was taken away and came back.
    pub fn change_gids(&mut self, at: PortAddress) {
        let object = AsyncObject::Port(at.port);
        self.tell_all(at.device, AsyncEvent::GidChange, object);
    }

    /// A device fails, for good: it neither executes nor completes anything
    /// from now on, and every context is told. What the kernel does to their
    /// commands and files is the business of who hears the event.
    pub fn fail_device(&mut self, device: u8) {
        if self.core.devices.is_failed(device) {
            return;
        }
        self.core.devices.failed |= bit(device);
        for (qpn, qp) in self.qps.iter_mut().filter(|(_, qp)| qp.device == device) {
            qp.forget();
            qp.state = QpState::Reset;
            self.core.ready.retain(|ready| *ready != qpn);
            self.core.flushing.retain(|flushing| *flushing != qpn);
            qp.is_ready = false;
        }
        self.tell_all(device, AsyncEvent::DeviceFatal, AsyncObject::Device);
    }

    /// Every device fails: see [`fail_device`](Self::fail_device).
    pub fn fail_all_devices(&mut self) {
        (0..self.core.options.devices).for_each(|device| self.fail_device(device));
    }

    /// Whether the device of a context has failed.
    #[must_use]
    pub fn has_failed(&self, context: ContextId) -> bool {
        let context = self.core.contexts.get(context.0);
        context.is_some_and(|context| self.core.devices.is_failed(context.device))
    }

    fn tell_all(&self, device: u8, event: AsyncEvent, object: AsyncObject) {
        let contexts = self.core.contexts.iter();
        for (context, _) in contexts.filter(|(_, context)| context.device == device) {
            self.core.raise(ContextId(context), event, object);
        }
    }
}
