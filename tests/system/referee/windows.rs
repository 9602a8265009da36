//! Memory windows of unmodified libmlx5, which binds, invalidates and unbinds:
//! the emulated NIC grants access to the bound range and nothing else.

use core::mem::zeroed;

use dv_sys::verbs::*;

use crate::support::device;
use crate::support::libmlx5::{Answer, Bind, Buffer, Cq, Link, Pd, Qp, Window};
use crate::support::side::Memory;
use crate::support::system::System;

const ONE: u32 = ibv_mw_type::IBV_MW_TYPE_1;
const TWO: u32 = ibv_mw_type::IBV_MW_TYPE_2;
const SUCCESS: u32 = ibv_wc_status::IBV_WC_SUCCESS;
const REMOTE_ACCESS: u32 = ibv_wc_status::IBV_WC_REM_ACCESS_ERR;
const BIND_ERROR: u32 = ibv_wc_status::IBV_WC_MW_BIND_ERR;
const BOUND: u32 = ibv_wc_opcode::IBV_WC_BIND_MW;
const INVALIDATED: u32 = ibv_wc_opcode::IBV_WC_LOCAL_INV;

const READ: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
const WRITE: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
const ZERO_BASED: u32 = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
const BINDABLE: u32 =
    ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | ibv_access_flags::IBV_ACCESS_MW_BIND.0;

const MEMORY: usize = 1 << 14;
/// Short, so that the WQEs of binds, three WQEBBs each, wrap at every position.
const DEPTH: u32 = 4;

/// Two ends of libmlx5: one writes and reads, the other has the windows.
struct Ends {
    peer: Qp,
    owner: Qp,
    local: Buffer,
    region: Buffer,
    system: System,
}

impl Ends {
    fn new() -> Self {
        let system = System::new();
        let pd = Pd::new(system.context());
        let end = || {
            let cq = Cq::new(system.context(), 64);
            Qp::of_every_operation(&pd, [&cq, &cq], DEPTH, false)
        };
        let (peer, owner) = (end(), end());
        let link = Link::default();
        peer.connect(&owner.address(), &link);
        owner.connect(&peer.address(), &link);
        let local = Buffer::new(&pd, MEMORY);
        let region = Buffer::with_access(&pd, MEMORY, BINDABLE);
        Ends {
            peer,
            owner,
            local,
            region,
            system,
        }
    }

    fn window(&self, kind: u32) -> Window {
        Window::new(&self.owner.pd, kind)
    }

    fn bind(&self, offset: usize, len: usize, access: u32) -> Bind<'_> {
        Bind {
            region: &self.region,
            offset,
            len,
            access,
        }
    }

    /// Runs the device, and returns the next completion of that end.
    fn done(&self, qp: &Qp) -> Answer {
        self.system.run();
        device::comes(|| qp.send_cq.poll()).expect("it completes")
    }

    /// Returns the owner's next completion: {status, opcode}.
    fn owned(&self) -> (u32, Option<u32>) {
        let answer = self.done(&self.owner);
        (answer.status, answer.opcode)
    }

    fn post(&self, qp: &Qp, mut wr: ibv_send_wr) {
        // SAFETY: the memory lives as long as the ends.
        unsafe { qp.post(&mut wr) }.expect("posted");
        self.system.after_doorbell();
    }

    /// Binds a window of type 1. Returns the status.
    fn bind_one(&self, window: &mut Window, to: Option<Bind<'_>>) -> u32 {
        window.bind_one(&self.owner, 11, to);
        self.system.after_doorbell();
        self.owned().0
    }

    /// Binds a window of type 2. Returns the status.
    fn bind_two(&self, window: &mut Window, to: Bind<'_>) -> u32 {
        self.post(&self.owner, window.bind_two(22, to));
        self.owned().0
    }

    /// Returns a request of the peer on the first `len` bytes of its own memory.
    fn request(&self, opcode: u32, segment: &mut ibv_sge, remote: (u64, u32)) -> ibv_send_wr {
        // SAFETY: all zeroes is a valid ibv_send_wr.
        let mut wr: ibv_send_wr = unsafe { zeroed() };
        wr.opcode = opcode;
        wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        (wr.sg_list, wr.num_sge) = (segment, 1);
        let (remote_addr, rkey) = remote;
        wr.wr.rdma = rdma_t { remote_addr, rkey };
        wr
    }

    fn segment(&self, len: u32) -> ibv_sge {
        ibv_sge {
            addr: self.local.addr(),
            length: len,
            lkey: self.local.lkey(),
        }
    }

    /// Lets the peer write this many bytes. Returns the status.
    fn write(&self, key: u32, at: u64, len: u32) -> u32 {
        let mut segment = self.segment(len);
        let write = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        self.post(&self.peer, self.request(write, &mut segment, (at, key)));
        self.done(&self.peer).status
    }

    fn read(&self, key: u32, at: u64, len: u32) -> u32 {
        let mut segment = self.segment(len);
        let read = ibv_wr_opcode::IBV_WR_RDMA_READ;
        self.post(&self.peer, self.request(read, &mut segment, (at, key)));
        self.done(&self.peer).status
    }

    fn at(&self, offset: usize) -> u64 {
        self.region.addr() + offset as u64
    }
}

#[test]
fn the_device_has_windows_of_both_types() {
    let system = System::new();
    // SAFETY: the context is open and the attributes writable.
    let attr = unsafe {
        let mut attr: ibv_device_attr = zeroed();
        assert_eq!(ibv_query_device(system.context().raw, &raw mut attr), 0);
        attr
    };
    let windows = ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW.0
        | ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0
        | ibv_device_cap_flags::IBV_DEVICE_MEM_MGT_EXTENSIONS.0;
    assert_eq!(attr.device_cap_flags & windows, windows);
    assert!(attr.max_mw > 0);
}

#[test]
fn type_1_is_bound_moved_and_unbound() {
    let ends = Ends::new();
    let mut window = ends.window(ONE);
    for round in 0..20 {
        let offset = 512 + round * 64;
        ends.local.put(0, &[round as u8 + 1; 32]);
        let to = ends.bind(offset, 32, WRITE | READ);
        window.bind_one(&ends.owner, 11, Some(to));
        ends.system.after_doorbell();
        assert_eq!(ends.owned(), (SUCCESS, Some(BOUND)));
        assert_eq!(ends.write(window.rkey, ends.at(offset), 32), SUCCESS);
        assert_eq!(ends.region.bytes(offset, 32), [round as u8 + 1; 32]);
        assert_eq!(ends.read(window.rkey, ends.at(offset + 16), 16), SUCCESS);
    }
    let bound = window.rkey;
    assert_eq!(ends.bind_one(&mut window, None), SUCCESS);
    let offset = 512 + 19 * 64;
    assert_eq!(ends.write(bound, ends.at(offset), 8), REMOTE_ACCESS);
    assert_eq!(ends.region.bytes(offset, 8), [20; 8]);
}

#[test]
fn type_2_is_bound_and_invalidated_from_both_sides() {
    let ends = Ends::new();
    let mut window = ends.window(TWO);
    for round in 0..12_u32 {
        let to = ends.bind(64, 256, WRITE);
        ends.post(&ends.owner, window.bind_two(22, to));
        assert_eq!(ends.owned(), (SUCCESS, Some(BOUND)));
        assert_eq!(ends.write(window.rkey, ends.at(64 + 248), 8), SUCCESS);
        if round % 2 == 0 {
            ends.post(&ends.owner, window.invalidate(33));
            assert_eq!(ends.owned(), (SUCCESS, Some(INVALIDATED)));
            continue;
        }
        let mut into = ibv_sge {
            addr: ends.at(0),
            length: 16,
            lkey: ends.region.lkey(),
        };
        // SAFETY: plain numbers and pointers; the memory is the region's.
        unsafe {
            let mut receive: ibv_recv_wr = zeroed();
            (receive.wr_id, receive.sg_list, receive.num_sge) = (44, &raw mut into, 1);
            let mut bad = core::ptr::null_mut();
            let posted =
                dv_sys::inline::ibv_post_recv(ends.owner.raw, &raw mut receive, &raw mut bad);
            assert_eq!(posted, 0);
        }
        let mut segment = ends.segment(4);
        let invalidate = ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
        let mut wr = ends.request(invalidate, &mut segment, (0, 0));
        wr.imm_data_invalidated_rkey_union.invalidated_rkey = window.rkey;
        ends.post(&ends.peer, wr);
        assert_eq!(ends.done(&ends.peer).status, SUCCESS);
        let received = ends.done(&ends.owner);
        assert_eq!((received.wr_id, received.byte_len), (44, Some(4)));
        assert_eq!(received.invalidated, Some(window.rkey));
    }
    assert_eq!(ends.write(window.rkey, ends.at(64), 8), REMOTE_ACCESS);
}

#[test]
fn a_zero_based_window_counts_from_0() {
    let ends = Ends::new();
    let mut window = ends.window(TWO);
    let to = ends.bind(1000, 100, WRITE | ZERO_BASED);
    assert_eq!(ends.bind_two(&mut window, to), SUCCESS);
    ends.local.put(0, b"from nought");
    assert_eq!(ends.write(window.rkey, 0, 11), SUCCESS);
    assert_eq!(ends.region.bytes(1000, 11), b"from nought");
    assert_eq!(ends.write(window.rkey, ends.at(1000), 8), REMOTE_ACCESS);
}

#[test]
fn a_window_grants_no_more_than_was_bound() {
    for (access, len, status) in [
        (READ, 8, REMOTE_ACCESS),
        (WRITE, 33, REMOTE_ACCESS),
        (WRITE, 32, SUCCESS),
    ] {
        let ends = Ends::new();
        let mut window = ends.window(ONE);
        let to = ends.bind(0, 32, access);
        assert_eq!(ends.bind_one(&mut window, Some(to)), SUCCESS);
        assert_eq!(ends.write(window.rkey, ends.at(0), len), status);
    }
}

#[test]
fn an_illegal_bind_fails_and_ends_the_connection() {
    let cases: [fn(&Ends) -> u32; 2] = [
        |ends| {
            let mut window = ends.window(TWO);
            let to = ends.bind(0, 32, WRITE);
            assert_eq!(ends.bind_two(&mut window, to), SUCCESS);
            ends.bind_two(&mut window, to)
        },
        |ends| {
            let to = ends.bind(MEMORY - 16, 32, WRITE);
            ends.bind_one(&mut ends.window(ONE), Some(to))
        },
    ];
    for case in cases {
        let ends = Ends::new();
        assert_eq!(case(&ends), BIND_ERROR);
        let flushed = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
        assert_eq!(ends.bind_one(&mut ends.window(ONE), None), flushed);
    }
}

#[test]
fn a_region_without_the_right_takes_no_window() {
    let ends = Ends::new();
    let plain = Buffer::new(&ends.owner.pd, 64);
    let to = Bind {
        region: &plain,
        ..ends.bind(0, 32, WRITE)
    };
    assert_eq!(ends.bind_one(&mut ends.window(ONE), Some(to)), BIND_ERROR);
}

#[test]
fn a_region_is_kept_while_a_window_is_bound() {
    let mut ends = Ends::new();
    let mut window = ends.window(ONE);
    let to = ends.bind(0, 32, WRITE);
    assert_eq!(ends.bind_one(&mut window, Some(to)), SUCCESS);
    assert_eq!(ends.region.deregister(), Err(libc::EBUSY));
    assert_eq!(ends.bind_one(&mut window, None), SUCCESS);
    assert_eq!(ends.region.deregister(), Ok(()));
}
