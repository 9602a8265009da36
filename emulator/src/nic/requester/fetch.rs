//! Fetching send WQEs from the ring.

use super::super::core::Core;
use super::super::qp::Qp;
use super::super::scatter_gather::{self, Sge};
use super::super::{memory, psn};
use super::Request;
use crate::decode::cqe::Syndrome;
use crate::decode::umr::{CONTEXT, CONTROL, UmrFlags};
use crate::decode::wqe::{self, Body, Control, Data, DataSegments, Fence, Opcode, SEGMENT, WQEBB};
use crate::limits::MAX_MSG;
use crate::spec::{Access, Service};

/// Length in bytes of a UMR WQE without translation entries.
const UMR_LENGTH: usize = SEGMENT + CONTROL + CONTEXT;

/// Size of the operand of an atomic in bytes.
const ATOMIC: u32 = 8;

impl Qp {
    /// Fetches the next WQE. An invalid WQE becomes a failed request, which
    /// completes in order.
    pub(super) fn fetch_request(&mut self, core: &mut Core) {
        let counter = self.sq.fetch;
        let posted = self.sq.producer.wrapping_sub(counter);
        let mut request = Request {
            counter,
            opcode: 0,
            operation: None,
            signalled: false,
            solicited: false,
            fence: Fence::None,
            immediate: [0; 4],
            remote: wqe::RemoteAddress::default(),
            datagram: None,
            umr: None,
            entries: Vec::new(),
            atomic: None,
            sges: self.sq.free_lists.pop().unwrap_or_default(),
            length: 0,
            first_psn: self.sq.next_psn,
            packets: 0,
            progress: 0,
            failure: None,
            inline: None,
        };
        match self.read_wqe(counter, posted) {
            Ok(control) => {
                self.sq.fetch = counter.wrapping_add(control.wqebbs());
                request.opcode = control.opcode;
                request.signalled = control.signalled();
                request.solicited = control.solicited();
                request.fence = control.fence();
                request.immediate = control.immediate;
                if let Some(trace) = &mut core.trace {
                    let datagram = self.spec.service == Service::Ud;
                    trace.send_wqe(self.qpn.0, counter, datagram, &self.sq.bytes);
                }
                self.check_small_fence(core, counter, request.fence);
                request.failure = self.read_body(core, &mut request).err();
            }
            Err(text) => {
                self.sq.fetch = counter.wrapping_add(1);
                core.violation(format!("QP {:#x}, WQE {counter:#x}: {text}", self.qpn.0));
                request.failure = Some(Syndrome::LocalQpOperation);
            }
        }
        let is_local = matches!(request.operation, Some(Opcode::Nop | Opcode::Umr));
        if request.failure.is_none() && !is_local {
            request.packets = request.length.div_ceil(self.mtu()).max(1);
            self.sq.next_psn = psn::add(self.sq.next_psn, request.packets);
        }
        self.sq.requests.push_back(request);
    }

    /// Copies the WQE at `counter` from the ring, which may wrap.
    fn read_wqe(&mut self, counter: u16, posted: u16) -> Result<Control, String> {
        let blocks = self.spec.sq_wqebb_count;
        let slot = u32::from(counter) & (blocks - 1);
        let at = self.spec.sq_buf + u64::from(slot) * WQEBB as u64;
        let mut first = [0; SEGMENT];
        let fault = |fault: memory::Fault| fault.to_string();
        memory::read(at, &mut first).map_err(fault)?;
        let mut control = Control::parse(&first);
        for copied in &mut self.sq.copied_nops {
            if let Some(copy) = copied.take_if(|copy| copy.index == counter)
                && copy.opcode == control.opcode
            {
                control.flags |= copy.flags & Control::CQ_UPDATE;
            }
        }
        if control.index != counter || control.qpn != self.qpn.0 {
            return Err(format!(
                "its control segment has QP number {:#x}, index {:#x}",
                control.qpn, control.index
            ));
        }
        if control.segments == 0 || control.wqebbs() > posted {
            return Err(format!(
                "its control segment has length {} segments, but {posted} WQEBBs are posted",
                control.segments
            ));
        }
        let length = usize::from(control.segments) * SEGMENT;
        let to_end = (blocks - slot) as usize * WQEBB;
        self.sq.bytes.resize(length, 0);
        let (head, wrapped) = self.sq.bytes.split_at_mut(length.min(to_end));
        memory::read(at, head).map_err(fault)?;
        if !wrapped.is_empty() {
            memory::read(self.spec.sq_buf, wrapped).map_err(fault)?;
        }
        Ok(control)
    }

    /// Reports a WQE without the small fence behind a change of a memory key. A
    /// device may start such a WQE before the change is complete. This one does
    /// not, but software must not rely on that.
    fn check_small_fence(&mut self, core: &mut Core, counter: u16, fence: Fence) {
        if std::mem::take(&mut self.sq.changes_key) && fence == Fence::None {
            self.report_wqe(
                core,
                counter,
                "no small fence behind a change of a memory key",
            );
        }
    }

    fn read_body(&mut self, core: &mut Core, request: &mut Request) -> Result<(), Syndrome> {
        let parse = match self.spec.service {
            Service::Rc | Service::Uc => wqe::parse_connected,
            Service::Ud => wqe::parse_datagram,
        };
        let (_, body) = parse(&self.sq.bytes).map_err(|malformed| {
            self.report_wqe(core, request.counter, &malformed.to_string());
            Syndrome::LocalQpOperation
        })?;
        request.operation = Some(body.opcode);
        request.remote = body.remote;
        request.atomic = body.atomic;
        request.umr = body.umr;
        if !is_supported(self.spec.service, body.opcode) {
            self.report_wqe(
                core,
                request.counter,
                "this QP type does not support the operation",
            );
            return Err(Syndrome::LocalQpOperation);
        }
        if let Some(address) = body.address {
            request.datagram = Some(self.read_address(core, request.counter, address)?);
        }
        self.read_list(core, request, &body)?;
        self.read_entries(core, request)?;
        self.check_limits(core, request)?;
        let changes_key = request.umr.is_some();
        let length = scatter_gather::total(&request.sges);
        request.length = match u32::try_from(length) {
            Ok(length) if length <= MAX_MSG => length,
            _ => return Err(Syndrome::LocalLength),
        };
        // An atomic has exactly 8 bytes, and a datagram fits in one packet.
        let is_odd_atomic = request.atomic.is_some() && request.length != ATOMIC;
        let is_long_datagram = request.datagram.is_some() && request.length > self.mtu();
        if is_odd_atomic || is_long_datagram {
            return Err(Syndrome::LocalLength);
        }
        let needs = if request.has_response_data() {
            Access::LOCAL_WRITE
        } else {
            Access::empty()
        };
        let allowed = core.check_list(&request.sges, self.spec.pd, needs);
        allowed.map_err(|_| Syndrome::LocalProtection)?;
        self.sq.changes_key = changes_key;
        Ok(())
    }

    /// Reads the translation entries of a change of a guest's key: those in the WQE, or those
    /// to which its data segment points.
    fn read_entries(&self, core: &mut Core, request: &mut Request) -> Result<(), Syndrome> {
        let key = u32::from_be_bytes(request.immediate);
        let Some(umr) = &request.umr else {
            return Ok(());
        };
        if umr.octowords == 0 || !core.mkeys.is_guest_region(key >> 8) {
            return Ok(());
        }
        let length = usize::from(umr.octowords) * SEGMENT;
        if umr.flags.contains(UmrFlags::INLINE) {
            let behind = self.sq.bytes.get(UMR_LENGTH..).unwrap_or_default();
            request.entries.extend(behind.iter().take(length));
            return Ok(());
        }
        let Some(Ok(Data::Pointer {
            length: room,
            key,
            address,
        })) = DataSegments::at(&self.sq.bytes, UMR_LENGTH).next()
        else {
            return Err(Syndrome::LocalQpOperation);
        };
        let sges = [Sge {
            address,
            length: room,
            key: Some(key),
        }];
        let length = room.min(length as u32);
        let gathered = core.gather(&sges, self.spec.pd, 0, length, &mut request.entries);
        gathered.map_err(|_| Syndrome::LocalProtection)
    }

    fn read_list(
        &self,
        core: &mut Core,
        request: &mut Request,
        body: &Body<'_>,
    ) -> Result<(), Syndrome> {
        for segment in body.data {
            match segment {
                Ok(Data::Pointer {
                    length,
                    key,
                    address,
                }) => {
                    request.sges.push(Sge {
                        address,
                        length,
                        key: Some(key),
                    });
                }
                Ok(Data::Inline { offset, length }) if !request.has_response_data() => {
                    self.add_inline_sges(request.counter, offset, length, &mut request.sges);
                }
                Ok(Data::Inline { .. }) => {
                    self.report_wqe(
                        core,
                        request.counter,
                        "the response to a read or atomic cannot go into inline data",
                    );
                    return Err(Syndrome::LocalQpOperation);
                }
                Err(malformed) => {
                    self.report_wqe(core, request.counter, &malformed.to_string());
                    return Err(Syndrome::LocalQpOperation);
                }
            }
        }
        Ok(())
    }

    /// Checks the limits that a device with lower limits checks only here, since its
    /// own driver library would refuse the post.
    fn check_limits(&self, core: &mut Core, request: &Request) -> Result<(), Syndrome> {
        let limits = core.options.limits;
        let inline = request.sges.iter().filter(|sge| sge.key.is_none());
        let inline: u32 = inline.map(|sge| sge.length).sum();
        let is_read = request.operation == Some(Opcode::Read);
        let (what, found, max) = if inline > limits.max_inline {
            ("inline bytes", inline, limits.max_inline)
        } else if is_read && request.sges.len() > limits.max_sge_rd as usize {
            let found = request.sges.len() as u32;
            ("segments of a read", found, limits.max_sge_rd)
        } else {
            return Ok(());
        };
        let text = format!("{found} {what}, but the device's limit is {max}");
        self.report_wqe(core, request.counter, &text);
        Err(Syndrome::LocalQpOperation)
    }

    /// Adds inline data as memory ranges: one, or two if the ring wraps.
    fn add_inline_sges(&self, counter: u16, offset: u16, length: u16, sges: &mut Vec<Sge>) {
        let ring = u64::from(self.spec.sq_wqebb_count) * WQEBB as u64;
        let slot = u64::from(counter) & u64::from(self.spec.sq_wqebb_count - 1);
        let start = (slot * WQEBB as u64 + u64::from(offset)) % ring;
        let head = u64::from(length).min(ring - start) as u32;
        let tail = u32::from(length) - head;
        let base = self.spec.sq_buf;
        sges.push(Sge {
            address: base + start,
            length: head,
            key: None,
        });
        if tail > 0 {
            sges.push(Sge {
                address: base,
                length: tail,
                key: None,
            });
        }
    }

    pub(super) fn report_wqe(&self, core: &mut Core, counter: u16, text: &str) {
        core.violation(format!("QP {:#x}, WQE {counter:#x}: {text}", self.qpn.0));
    }
}

/// Returns whether a QP of this service supports an operation.
fn is_supported(service: Service, opcode: Opcode) -> bool {
    match opcode {
        Opcode::Nop | Opcode::Send | Opcode::SendImmediate => true,
        _ if opcode == Opcode::Read || opcode.is_atomic() => service == Service::Rc,
        _ => service != Service::Ud,
    }
}
