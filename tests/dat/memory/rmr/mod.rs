//! `dat_rmr_*`: rows of the tables of the calls, and the guarantees of binds.

mod access;
mod bind;
mod life;
mod order;

use dat::abi::*;

use crate::support::{Bound, End, Fixture, Memory, Pair, Shape, Window, ok, take_bound};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
const READ: DAT_MEM_PRIV_FLAGS = DAT_MEM_PRIV_REMOTE_READ_FLAG;
const WRITE: DAT_MEM_PRIV_FLAGS = DAT_MEM_PRIV_REMOTE_WRITE_FLAG;

/// Two ends: `owner` has the windows, `peer` accesses memory through them.
struct Ends {
    peer: End,
    owner: End,
    local: Memory,
    region: Memory,
    fixture: Fixture,
}

impl Ends {
    fn new() -> Self {
        Self::in_fixture(Fixture::new())
    }

    fn in_fixture(fixture: Fixture) -> Self {
        let pair = Pair::for_windows(&fixture, &Shape::default());
        Self {
            peer: pair.active,
            owner: pair.passive,
            local: fixture.memory(4096),
            region: fixture.memory(4096),
            fixture,
        }
    }

    fn window(&self) -> Window {
        Window::new(self.fixture.pz)
    }

    /// Takes the owner's completion of a bind, which must succeed.
    #[track_caller]
    fn bound(&self, window: &Window, tag: u64) {
        self.fixture.run();
        let (rmr, status) = (window.rmr, DAT_DTO_SUCCESS);
        let expected = Bound {
            rmr,
            cookie: tag,
            status,
        };
        assert_eq!(take_bound(self.owner.request), expected);
    }

    /// Binds a part of the region, and waits for the completion.
    #[track_caller]
    fn bind(&self, window: &Window, at: usize, len: usize, rights: u32) -> DAT_RMR_TRIPLET {
        let segment = self.region.segment(at, len);
        let remote = window.bind(self.owner.ep, &segment, rights, 11);
        self.bound(window, 11);
        remote
    }

    /// Lets the peer write as many bytes as the target has. Returns the status.
    #[track_caller]
    fn write(&self, remote: &DAT_RMR_TRIPLET) -> DAT_DTO_COMPLETION_STATUS {
        let iov = [self.local.segment(0, remote.segment_length as usize)];
        ok(self.peer.post_write(&iov, remote, 5, DEFAULT));
        self.fixture.run();
        self.peer.requested().status
    }

    /// Lets the peer read as many bytes as the target has. Returns the status.
    #[track_caller]
    fn read(&self, remote: &DAT_RMR_TRIPLET) -> DAT_DTO_COMPLETION_STATUS {
        let iov = [self.local.segment(2048, remote.segment_length as usize)];
        ok(self.peer.post_read(&iov, remote, 6, DEFAULT));
        self.fixture.run();
        self.peer.requested().status
    }
}

/// Returns a part of a target.
fn part(of: &DAT_RMR_TRIPLET, offset: i64, len: u64) -> DAT_RMR_TRIPLET {
    DAT_RMR_TRIPLET {
        target_address: of.target_address.wrapping_add_signed(offset),
        segment_length: len,
        ..*of
    }
}
