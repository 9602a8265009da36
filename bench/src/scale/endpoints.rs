//! Many endpoints on the queues of one end, each connected to itself.

use std::ptr::NonNull;
use std::time::Duration;

use dat_engine::cm::ListenOn;
use dat_engine::{Device, Endpoint, Segment};
use dv_sys::verbs::ibv_qp;

use crate::ends::end::{End, Fault, Op, Queue};
use crate::ends::engine::{Engine, EngineEnd};
use crate::ends::interface::{Interface, Shape};
use crate::ends::libmlx5::{Verbs, VerbsEnd};
use crate::failure::Failure;
use crate::select::Selected;

/// Depth of the shared receive queue.
pub(super) const RECEIVES: u32 = 2048;
/// Send queue depth of an endpoint.
const SENDS: u32 = 16;
/// Bytes of a message.
const MESSAGE: usize = 32;
/// Where messages are received.
const INTO: usize = 1024;

/// An API that can add endpoints to the queues of an end.
pub(super) trait Adding: Interface + Sized {
    type Endpoint;
    /// A prepared receive.
    type Receive;

    fn open(selected: &Selected, port: u8) -> Result<Self, Failure>;

    /// Creates an endpoint with this number, connected to itself.
    fn add(&self, end: &Self::End<true>, number: u64) -> Result<Self::Endpoint, Failure>;

    /// Posts a send on such an endpoint.
    fn send(
        end: &mut Self::End<true>,
        endpoint: &mut Self::Endpoint,
        request: &mut <Self::End<true> as End>::Request,
    ) -> Result<(), Fault>;

    fn receive(end: &Self::End<true>) -> Self::Receive;

    /// Posts a receive.
    fn post_receive(
        end: &mut Self::End<true>,
        receive: &mut Self::Receive,
        cookie: u64,
    ) -> Result<(), Fault>;
}

impl Adding for Engine {
    type Endpoint = Endpoint;
    type Receive = Segment;

    fn open(selected: &Selected, port: u8) -> Result<Self, Failure> {
        let device = Device::open(&selected.name)?;
        Self::open(&device, device.port(port)?, None, false)
    }

    fn add(&self, end: &EngineEnd<true>, number: u64) -> Result<Endpoint, Failure> {
        self.another(end, SENDS, MESSAGE as u32, number)
    }

    fn send(
        end: &mut EngineEnd<true>,
        endpoint: &mut Endpoint,
        request: &mut <EngineEnd<true> as End>::Request,
    ) -> Result<(), Fault> {
        end.send_by(endpoint, request)
    }

    fn receive(end: &EngineEnd<true>) -> Segment {
        end.segment(INTO..INTO + MESSAGE)
    }

    #[inline(always)]
    fn post_receive(
        end: &mut EngineEnd<true>,
        receive: &mut Segment,
        cookie: u64,
    ) -> Result<(), Fault> {
        end.post_one(receive, cookie)
    }
}

impl Adding for Verbs {
    type Endpoint = NonNull<ibv_qp>;
    type Receive = <VerbsEnd<true> as End>::Receive;

    fn open(selected: &Selected, port: u8) -> Result<Self, Failure> {
        let port = Device::open(&selected.name)?.port(port)?;
        Self::open(&selected.name, port, false)
    }

    fn add(&self, end: &VerbsEnd<true>, _: u64) -> Result<Self::Endpoint, Failure> {
        self.another(end, SENDS)
    }

    fn send(
        end: &mut VerbsEnd<true>,
        endpoint: &mut Self::Endpoint,
        request: &mut <VerbsEnd<true> as End>::Request,
    ) -> Result<(), Fault> {
        end.send_by(*endpoint, request)
    }

    fn receive(end: &VerbsEnd<true>) -> Self::Receive {
        end.receive(INTO..INTO + MESSAGE)
    }

    #[inline(always)]
    fn post_receive(
        end: &mut VerbsEnd<true>,
        receive: &mut Self::Receive,
        cookie: u64,
    ) -> Result<(), Fault> {
        end.post_receive(INTO..INTO + MESSAGE, receive, cookie)
    }
}

/// Connected endpoints on a shared receive queue, whose receives are posted.
pub(super) struct Endpoints<I: Adding> {
    // Dropped in this order: the memory of `end` after all objects that write to it.
    endpoints: Vec<I::Endpoint>,
    end: I::End<true>,
    request: <I::End<true> as End>::Request,
    receive: I::Receive,
    sum: u64,
}

impl<I: Adding> Endpoints<I> {
    /// Creates this many.
    pub(super) fn create(selected: &Selected, count: u32, port: u8) -> Result<Self, Failure> {
        let shape = Shape {
            bytes: 4096,
            sends: SENDS,
            receives: RECEIVES,
            sent_completions: 2 * RECEIVES,
            received_completions: 2 * RECEIVES,
            inline: 0,
            reads: 1,
            posted: RECEIVES,
            into: INTO..INTO + MESSAGE,
            policy: None,
            timeout: Duration::from_secs(10),
            listen: ListenOn::All,
        };
        let interface = I::open(selected, port)?;
        let [near, _] = interface.connect_pair::<true>(&shape)?;
        let (end, theirs) = (near.end, near.theirs);
        let add = |number| interface.add(&end, u64::from(number));
        Ok(Self {
            endpoints: (0..count).map(add).collect::<Result<_, _>>()?,
            request: end.request(Op::Send, 0..MESSAGE, theirs),
            receive: I::receive(&end),
            end,
            sum: 0,
        })
    }

    /// Returns their number.
    pub(super) fn count(&self) -> usize {
        self.endpoints.len()
    }

    /// Sends a message on one of them. Returns whether its queue had room.
    pub(super) fn send(&mut self, endpoint: usize) -> bool {
        let endpoint = &mut self.endpoints[endpoint];
        I::send(&mut self.end, endpoint, &mut self.request).is_ok()
    }

    /// Polls completions of sends. Returns their number.
    pub(super) fn sent(&mut self) -> Result<u32, Failure> {
        let mut done = 0;
        while self.end.poll(Queue::Sent).transpose()?.is_some() {
            done += 1;
        }
        Ok(done)
    }

    /// Polls `count` messages and posts their receives again: what is measured. Returns how
    /// many it got before a poll was empty or a call failed.
    #[inline(always)]
    pub(super) fn take(&mut self, count: u32) -> u32 {
        for taken in 0..count {
            let Some(Ok(done)) = self.end.poll(Queue::Received) else {
                return taken;
            };
            if I::post_receive(&mut self.end, &mut self.receive, done.cookie).is_err() {
                return taken;
            }
            self.sum = self.sum.wrapping_add(done.endpoint + done.length);
        }
        core::hint::black_box(self.sum);
        count
    }
}
