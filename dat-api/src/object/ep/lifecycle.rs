//! Creating, disconnecting, resetting and freeing endpoints.
//!
//! An endpoint reserves its room in a completion queue once. Completions from before a reset would
//! take room that the endpoint needs after it, and the queue would overrun. So when an endpoint is
//! reset or freed, its EVDs drop its completions, those in completion queues and the staged ones.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;

use dat_engine::sync::Mutex;
use dat_engine::{Endpoint, EndpointHandle, SendFlags, SendOp, SendRequest, cm};

use super::attributes::{self, Request};
use super::build::{Plan, bad, check_connect_evd, check_dto_evd, check_zones};
use super::completions::{self, HighMarks, Unreported, UnsignalledReceives};
use super::poster::{Locked, Poster, unsigned};
use super::{Control, Ep, Streams, check};
use crate::error::Result;
use crate::handle::{self, Handle, Reservation};
use crate::object::counters::Refused;
use crate::object::evd::{Evd, StreamKind};
use crate::object::ia::Ia;
use crate::object::post::Posting;
use crate::object::pz::Pz;
use crate::object::srq::Srq;
use crate::object::stale;
use crate::object::usage::{Counted, Usage, Use};
use crate::object::{exhausted, of_another_ia};
use crate::state::{self, Call, Trigger};
use crate::status::Subtype;
use crate::types::{EpAttributes, EpState};

/// The objects that an endpoint is created from.
#[derive(Clone, Copy, Default)]
struct Parts<'a> {
    pz: Option<&'a Arc<Pz>>,
    recv: Option<&'a Arc<Evd>>,
    request: Option<&'a Arc<Evd>>,
    connect: Option<&'a Arc<Evd>>,
    srq: Option<&'a Arc<Srq>>,
}

impl Ep {
    /// Creates an endpoint with a receive queue of its own. Without a protection zone it cannot
    /// post or connect until [`Ep::modify`] sets one. Events for which there is no EVD are not
    /// delivered.
    ///
    /// Without attributes it gets 127 requests and 128 receives of 4 segments, the IA's largest
    /// message size, and 4 RDMA reads at a time in each direction, or fewer if the device has
    /// fewer (none on a strict IA).
    ///
    /// # Errors
    /// Section 3DAT, `dat_ep_create`; attributes are argument 6.
    pub fn create(
        ia: &Arc<Ia>,
        pz: Option<&Arc<Pz>>,
        recv: Option<&Arc<Evd>>,
        request: Option<&Arc<Evd>>,
        connect: Option<&Arc<Evd>>,
        attributes: Option<&EpAttributes>,
    ) -> Result<Arc<Self>> {
        let parts = Parts {
            pz,
            recv,
            request,
            connect,
            srq: None,
        };
        Self::create_from(ia, parts, attributes, Subtype::InvalidArg6)
    }

    /// Creates an endpoint that takes its receives from an SRQ.
    ///
    /// `max_recv_dtos` and `srq_soft_hw` are the hard and the soft high watermark, -1 for none: how
    /// many receives the endpoint may hold that the consumer has not dequeued. `max_recv_iov` is
    /// ignored, and 0 in `max_request_dtos`, `max_request_iov`, `max_message_size` and
    /// `max_rdma_size` means the default.
    ///
    /// # Errors
    /// Section 3DAT, `dat_ep_create_with_srq`; attributes are argument 7.
    pub fn create_with_srq(
        ia: &Arc<Ia>,
        pz: Option<&Arc<Pz>>,
        recv: Option<&Arc<Evd>>,
        request: Option<&Arc<Evd>>,
        connect: Option<&Arc<Evd>>,
        srq: &Arc<Srq>,
        attributes: &EpAttributes,
    ) -> Result<Arc<Self>> {
        let parts = Parts {
            pz,
            recv,
            request,
            connect,
            srq: Some(srq),
        };
        Self::create_from(ia, parts, Some(attributes), Subtype::InvalidArg7)
    }

    /// Creates an endpoint; `argument` is that of the attributes.
    fn create_from(
        ia: &Arc<Ia>,
        parts: Parts<'_>,
        attributes: Option<&EpAttributes>,
        argument: Subtype,
    ) -> Result<Arc<Self>> {
        parts.check(ia)?;
        let asked = parts.asked(argument);
        let attributes = match attributes {
            Some(attributes) => attributes::resolve(attributes, ia.rules(), asked)?,
            None => attributes::defaults(ia.rules(), asked),
        };
        Self::make(ia, parts, attributes, EpState::Unconnected)
    }

    /// Creates the endpoint of a connection request on a service point that creates endpoints. It
    /// has no protection zone and no EVDs yet, and belongs to the consumer only after accepting.
    pub(crate) fn create_tentative(ia: &Arc<Ia>, request: &cm::Request) -> Result<Arc<Self>> {
        let (limits, parts) = (&ia.rules().limits, Parts::default());
        // The requester's numbers of reads, within the limits of the IA.
        let theirs = request.parameters();
        let attributes = EpAttributes {
            max_rdma_read_in: i32::from(theirs.reads_requested).min(limits.max_rdma_read_per_ep_in),
            max_rdma_read_out: i32::from(theirs.reads_served).min(limits.max_rdma_read_per_ep_out),
            ..attributes::defaults(ia.rules(), parts.asked(Subtype::NoSubtype))
        };
        let ep = Self::make(ia, parts, attributes, EpState::TentativeConnectionPending)?;
        ep.control().set_peer(request);
        Ok(ep)
    }

    fn make(
        ia: &Arc<Ia>,
        parts: Parts<'_>,
        attributes: EpAttributes,
        state: EpState,
    ) -> Result<Arc<Self>> {
        let place = Reservation::new().ok_or_else(exhausted)?;
        let ep = Arc::new(Self {
            handle: place.handle(),
            ia: Arc::clone(ia),
            state: AtomicU32::new(state as u32),
            posting: Posting::new(ia.rules().threadsafe, Poster::default()),
            taken: AtomicBool::new(false),
            refused: Refused::default(),
            reads_issued: AtomicU32::new(0),
            unsignalled: UnsignalledReceives::default(),
            marks: HighMarks::of(&attributes, parts.srq.is_some()),
            unreported: Unreported::default(),
            requests: AtomicUsize::new(0),
            discarded_of: AtomicUsize::new(0),
            control: Mutex::new(Control::new(attributes)),
            changing: Mutex::new(()),
            usage: Usage::default(),
        });
        ep.assemble(parts, attributes)?;
        let published = match state {
            EpState::TentativeConnectionPending => ia.publish_own(place, &ep),
            _ => ia.publish(place, &ep),
        };
        if let Err(error) = published {
            // SAFETY: no other call has the endpoint.
            unsafe { ep.dismantle() };
            return Err(error);
        }
        ep.attach_new();
        Ok(ep)
    }

    fn assemble(&self, parts: Parts<'_>, attributes: EpAttributes) -> Result<()> {
        let in_use = |subtype| move || bad(subtype, "the object is being freed");
        let plan = Plan {
            recv: parts.recv.cloned(),
            request: parts.request.cloned(),
            attributes,
        };
        let connect = match parts.connect {
            Some(evd) => Some(evd.attach(StreamKind::Connection)?),
            None => None,
        };
        let streams = plan.attach(self.handle, parts.srq, &Streams::default())?;
        let pz = match parts.pz {
            Some(pz) => Some(Use::of(pz).ok_or_else(in_use(Subtype::InvalidHandlePz))?),
            None => None,
        };
        let srq = match parts.srq {
            Some(srq) => Some(Use::of(srq).ok_or_else(in_use(Subtype::InvalidHandleSrq))?),
            None => None,
        };
        // SAFETY: no other call has the endpoint yet.
        let mut locked = unsafe { self.lock() };
        locked.control.connect = connect;
        locked.control.pz = pz;
        locked.control.srq = srq;
        let made = self.make_queue_pair(&locked.control, &streams, &plan);
        locked.control.streams = streams;
        let made = made.map(|(qp, unreported)| {
            self.unreported.replace(unreported);
            self.install(&mut locked, qp, &plan)
        });
        drop(locked);
        // There was no queue pair before that would have to be dropped.
        match made {
            Ok(_none) => Ok(()),
            Err(error) => {
                // SAFETY: no other call has the endpoint yet.
                unsafe { self.dismantle() };
                Err(error)
            }
        }
    }
}

impl Parts<'_> {
    /// Returns what the attributes depend on; `argument` is theirs.
    fn asked(&self, argument: Subtype) -> Request {
        Request {
            shared: self.srq.is_some(),
            has_recv: self.recv.is_some(),
            has_request: self.request.is_some(),
            argument,
        }
    }

    fn check(&self, ia: &Arc<Ia>) -> Result<()> {
        if let Some(pz) = self.pz
            && !Arc::ptr_eq(pz.ia(), ia)
        {
            return Err(bad(
                Subtype::InvalidHandlePz,
                of_another_ia("protection zone", pz.ia(), ia),
            ));
        }
        check_connect_evd(ia, self.connect, ia.rules().of_endpoint(self.srq.is_some()))?;
        check_dto_evd(ia, self.recv, Subtype::InvalidHandleEvdRecv)?;
        check_dto_evd(ia, self.request, Subtype::InvalidHandleEvdRequest)?;
        if let Some(srq) = self.srq
            && !Arc::ptr_eq(srq.ia(), ia)
        {
            return Err(bad(
                Subtype::InvalidHandleSrq,
                of_another_ia("SRQ", srq.ia(), ia),
            ));
        }
        if let Some(srq) = self.srq {
            let pz = self.pz.map(|pz| &**pz);
            check_zones(ia, pz, srq, Subtype::InvalidArg2)?;
        }
        Ok(())
    }
}

impl Ep {
    /// Disconnects, or gives up an attempt to connect. A graceful disconnect first completes the
    /// requests that were posted.
    ///
    /// # Errors
    /// `INVALID_STATE` if there is nothing to disconnect.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs at the same time, unless its IA is threadsafe.
    pub unsafe fn disconnect(&self, graceful: bool) -> Result<()> {
        // SAFETY: no post runs at the same time, unless posts take the lock.
        let mut locked = unsafe { self.lock() };
        let state = self.state();
        check(Call::Disconnect, "disconnecting", state)?;
        let trigger = if graceful {
            Trigger::DisconnectGraceful
        } else {
            Trigger::DisconnectAbrupt
        };
        let mut waits = false;
        let mut given_up = None;
        match state {
            EpState::Connected => {
                self.step(&mut locked.control, trigger);
                waits = graceful && !self.requests_are_done(&mut locked);
                if !graceful {
                    locked.control.flush();
                }
                if waits {
                    locked.control.draining = true;
                } else if let Some(connection) = &locked.control.connection {
                    connection.disconnect();
                }
            }
            EpState::DisconnectPending if !graceful => {
                // Kept so that it sends the disconnect; its later events are ignored.
                if let Some(connection) = &locked.control.connection {
                    connection.disconnect();
                }
                self.step(&mut locked.control, trigger);
            }
            EpState::ActiveConnectionPending | EpState::CompletionPending => {
                given_up = locked.control.connection.take();
                self.step(&mut locked.control, trigger);
            }
            _ => {
                self.step(&mut locked.control, trigger);
            }
        }
        drop(locked);
        drop(given_up);
        if waits {
            self.poll_everything();
            if self.control().draining {
                completions::watch(self.handle);
            }
        }
        Ok(())
    }

    /// Returns whether no request is outstanding; posts a marker if some are.
    fn requests_are_done(&self, locked: &mut Locked<'_>) -> bool {
        let Some(qp) = &mut locked.poster.qp else {
            return true;
        };
        qp.open_sends();
        if qp.sends_idle() {
            return true;
        }
        // The ring has one entry for the marker beyond those of the consumer.
        let attributes = &locked.control.attributes;
        qp.limit(
            unsigned(attributes.max_request_dtos) + 1,
            unsigned(attributes.max_recv_dtos),
        );
        self.inspect_completions();
        let marker = SendRequest {
            wr_id: 0,
            op: SendOp::Nop,
            // The fence makes the marker wait for reads: an iWARP device completes a write as soon
            // as TCP has the bytes.
            flags: SendFlags::SIGNALED | SendFlags::FENCE,
            segments: &[],
        };
        post_marker(qp, &marker)
    }

    /// Returns the endpoint to the unconnected state, ready to connect again. Completions that were
    /// not dequeued are dropped.
    ///
    /// # Errors
    /// `INVALID_STATE`; a failure of the device.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs at the same time, unless its IA is threadsafe.
    pub unsafe fn reset(&self) -> Result<()> {
        let (connection, evds, in_place) = {
            let mut control = self.control();
            let state = self.state();
            check(Call::Reset, "resetting", state)?;
            if state == EpState::Unconnected {
                return Ok(());
            }
            let in_place = control.qp.as_ref().is_none_or(EndpointHandle::may_be_reset);
            (control.connection.take(), control.streams.evds(), in_place)
        };
        // After this the manager sends no more events.
        drop(connection);
        match in_place {
            // SAFETY: no post runs at the same time, unless posts take the lock.
            true => unsafe { self.reset_queue_pair() }?,
            // SAFETY: no post runs at the same time, unless posts take the lock.
            false => unsafe { self.replace_queue_pair() }?,
        }
        for evd in evds {
            evd.purge(self.handle);
        }
        self.poll_unreported();
        // SAFETY: no post runs at the same time, unless posts take the lock.
        let mut locked = unsafe { self.lock() };
        let Locked {
            poster, control, ..
        } = &mut locked;
        self.reset_counters(control);
        poster.unsignalled = 0;
        if let Some(qp) = &mut poster.qp
            && in_place
        {
            qp.init(&self.options(&control.attributes))?;
            qp.limit(
                unsigned(control.attributes.max_request_dtos),
                unsigned(control.attributes.max_recv_dtos),
            );
        }
        control.private_data = Box::default();
        self.reads_issued.store(0, Ordering::Relaxed);
        self.step(control, Trigger::Reset);
        drop(locked);
        self.attach_new();
        Ok(())
    }

    /// Resets the queue pair to the state after creation.
    ///
    /// # Safety
    /// As for [`Self::reset`].
    unsafe fn reset_queue_pair(&self) -> Result<()> {
        // SAFETY: no post runs at the same time, unless posts take the lock.
        let locked = unsafe { self.lock() };
        if self.state() != EpState::Disconnected {
            return Err(state::refused("resetting", self.state()));
        }
        if let Some(qp) = &mut locked.poster.qp {
            qp.reset()?;
        }
        Ok(())
    }

    /// Frees an endpoint in any state, except while a service point holds it. A connection, or an
    /// attempt to connect, ends.
    ///
    /// # Errors
    /// `INVALID_HANDLE`; `INVALID_STATE`.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs at the same time, unless its IA is threadsafe.
    pub unsafe fn free(handle: Handle) -> Result<()> {
        let ep = handle::pin::<Self>(handle).ok_or_else(stale::<Self>)?;
        check(Call::Free, "freeing", ep.state())?;
        if !ep.usage().close() {
            return Err(stale::<Self>());
        }
        // SAFETY: no post runs at the same time, unless posts take the lock.
        unsafe { ep.dismantle() };
        drop(ep);
        handle::retire::<Self>(handle, |_| ()).ok_or_else(stale::<Self>)?;
        Ok(())
    }

    /// Frees the endpoint in any state, because the IA is closed abruptly, or the request that it
    /// was created for was rejected.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs at the same time, unless its IA is threadsafe.
    pub(crate) unsafe fn abort(handle: Handle) {
        if let Some(ep) = handle::pin::<Self>(handle) {
            ep.usage().close_anyway();
            // SAFETY: no post runs at the same time, unless posts take the lock.
            unsafe { ep.dismantle() };
        }
        drop(handle::retire::<Self>(handle, |_| ()));
    }

    /// Releases the parts of the endpoint: ends the connection, destroys the queue pair, and
    /// detaches from the EVDs.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs at the same time, unless its IA is threadsafe.
    pub(super) unsafe fn dismantle(&self) {
        let connection = self.control().connection.take();
        drop(connection);
        let (qp, evds, parts) = {
            // SAFETY: no post runs at the same time, unless posts take the lock.
            let mut locked = unsafe { self.lock() };
            let Locked {
                poster, control, ..
            } = &mut locked;
            // Later device events and completions find the endpoint unconnected.
            self.set_state(EpState::Unconnected);
            control.draining = false;
            control.qp = None;
            let qp = poster.serve(None);
            let evds = control.streams.evds();
            let parts = (
                core::mem::take(&mut control.streams),
                control.connect.take(),
                control.pz.take(),
                control.srq.take(),
            );
            (qp, evds, parts)
        };
        if let Some(qp) = &qp {
            self.ia.unwatch(qp.verbs().id());
        }
        // Before the streams, which release the room of its completions.
        drop(qp);
        for evd in evds {
            evd.purge(self.handle);
        }
        self.end_inspection();
        self.unreported.replace(None);
        drop(parts);
        self.ia.unregister(self.handle);
    }
}

fn post_marker(qp: &mut Endpoint, marker: &SendRequest<'_>) -> bool {
    // SAFETY: a marker has no segments.
    match unsafe { qp.post_send(marker) } {
        Ok(()) => false,
        Err(error) => {
            // The queue pair is in the error state, so its requests are flushed anyway.
            tracing::warn!(
                "a graceful disconnect cannot wait for its requests, no marker can be posted: {error}"
            );
            true
        }
    }
}
