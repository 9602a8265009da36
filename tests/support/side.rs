//! One end of a connection, driven by libmlx5 or the engine.

use dat_engine::{ConnectOptions, Endpoint, Segment, TransportOptions};

use super::device;
use super::iwarp;
use super::libmlx5::{Answer, Link, Peer};
use super::rings::Rings;
use super::work::{BindWork, RecvWork, SendWork, WindowKeys};

/// One registered region of memory.
pub trait Memory {
    fn addr(&self) -> u64;
    fn len(&self) -> usize;
    fn lkey(&self) -> u32;
    fn rkey(&self) -> u32;

    /// Returns a segment of the region.
    fn segment(&self, offset: usize, length: usize) -> Segment {
        assert!(offset + length <= self.len(), "segment outside its region");
        Segment {
            addr: self.addr() + offset as u64,
            length: length as u32,
            lkey: self.lkey(),
        }
    }

    /// Copies bytes that the device is not writing now.
    fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.len(), "read outside the region");
        let first = self.addr() as *const u8;
        let mut copy = vec![0; length];
        // SAFETY: inside the region, which lives as long as `self`. No reference
        // to it exists, and the test steps the device.
        unsafe {
            first
                .add(offset)
                .copy_to_nonoverlapping(copy.as_mut_ptr(), length)
        };
        copy
    }

    /// Writes bytes that the device is not using now.
    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(
            offset + bytes.len() <= self.len(),
            "write outside the region"
        );
        let first = self.addr() as *mut u8;
        // SAFETY: as in `read`.
        unsafe {
            first
                .add(offset)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
    }
}

/// The position in a list at which a post failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Requests posted before the refused one.
    pub posted: usize,
}

/// One end of a connection.
pub trait Side {
    fn memory(&self) -> &dyn Memory;
    /// Registers another region, which peers may read but not write.
    fn read_only_memory(&self) -> Box<dyn Memory>;
    fn receives_are_shared(&self) -> bool;
    fn peer(&self) -> Peer;
    /// Returns where the rings are, as the library says. Call it before anything is posted.
    fn rings(&self) -> Rings;
    fn connect(&mut self, peer: &Peer, link: &Link);
    /// Returns the engine's endpoint, if the engine drives this end.
    fn endpoint(&mut self) -> Option<&mut Endpoint> {
        None
    }
    fn to_error(&mut self);
    /// Returns the keys of the window and the region, if the shape has windows.
    fn window_keys(&self) -> WindowKeys;
    /// Returns the window's new key.
    fn post_bind(&mut self, work: &BindWork) -> Result<u32, Refused>;
    fn post_sends(&mut self, works: &[SendWork]) -> Result<(), Refused>;
    /// Posts to the shared receive queue if the end has one.
    fn post_recvs(&mut self, works: &[RecvWork]) -> Result<(), Refused>;
    fn poll_send(&mut self) -> Option<Answer>;
    fn poll_recv(&mut self) -> Option<Answer>;

    /// Requests an event at the next receive completion.
    fn arm_recv(&mut self, solicited_only: bool);
    /// Takes the events of the receive completions, without waiting.
    fn take_events(&mut self) -> u32;

    fn send(&mut self, work: SendWork) {
        self.post_sends(&[work]).expect("room in the send queue");
    }

    fn recv(&mut self, wr_id: u64, segments: Vec<Segment>) {
        self.post_recvs(&[RecvWork { wr_id, segments }])
            .expect("room in the receive queue");
    }

    /// Returns all send completions so far, at least this many.
    fn send_answers(&mut self, count: usize) -> Vec<Answer> {
        device::all(count, || self.poll_send())
    }

    /// Returns all receive completions so far, at least this many.
    fn recv_answers(&mut self, count: usize) -> Vec<Answer> {
        device::all(count, || self.poll_recv())
    }
}

/// Connects two ends.
pub fn connect(sides: &mut [Box<dyn Side>; 2], link: &Link) {
    if iwarp::is_iwarp() {
        let ends = sides.each_mut().map(|side| side.endpoint());
        return iwarp::join(ends.map(|end| end.expect("the engine's")), &options(link));
    }
    let [a, b] = [sides[0].peer(), sides[1].peer()];
    sides[0].connect(&b, link);
    sides[1].connect(&a, link);
}

/// Converts a link to the engine's options.
pub fn options(link: &Link) -> ConnectOptions {
    ConnectOptions {
        reads_issued: link.reads,
        reads_served: link.reads,
        transport: TransportOptions {
            timeout: Some(link.timeout),
            retry: Some(link.retries),
            rnr_retry: Some(link.rnr_retries),
            rnr_timer: Some(link.min_rnr_timer),
            ..TransportOptions::default()
        },
        ..ConnectOptions::default()
    }
}
