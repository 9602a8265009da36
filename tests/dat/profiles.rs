//! A complete exchange on devices with the limits that other vendors' drivers
//! report (`mlx5-emu info --limits`), on both data paths. `small_devices` tests
//! single limits.
//!
//! The limits of a device are set before it is opened, so each profile needs its
//! own process: this test binary, started again, which runs
//! `the_library_keeps_to_the_limits_of_its_device`.

use std::env;
use std::process::{Command, Stdio};
use std::ptr;

use dat::abi::*;
use dat::exports::*;
use mlx5emu::config::Config;
use mlx5emu::limits::{Limits, PROFILES};

use crate::support::{
    End, Fixture, Memory, Pair, Shape, Window, abilities, both_failed, ep_info, expect, fails,
    nothing_on, ok, post_srq, take_bound,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
/// The test that the process of a profile runs.
const CHILD: &str = "profiles::the_library_keeps_to_the_limits_of_its_device";
/// Length of the longest message in bytes.
const LONGEST: usize = 1 << 16;

/// Returns the limits that the device under test was configured with.
fn device() -> Limits {
    Config::from_env().expect("variables of the device").limits
}

/// Returns four, or less if the device supports less.
fn up_to_four(most: DAT_COUNT) -> DAT_COUNT {
    most.min(4)
}

/// Returns attributes of endpoints that the device of `ia` supports.
fn attributes(ia: &DAT_IA_ATTR) -> DAT_EP_ATTR {
    let mut attr = Shape::default().attributes();
    let iov = up_to_four(ia.max_iov_segments_per_dto);
    (attr.max_recv_iov, attr.max_request_iov) = (iov, iov);
    attr.max_rdma_read_in = up_to_four(ia.max_rdma_read_per_ep_in);
    attr.max_rdma_read_out = up_to_four(ia.max_rdma_read_per_ep_out);
    attr.max_rdma_read_iov = up_to_four(ia.max_iov_segments_per_rdma_read).min(iov);
    attr.max_rdma_write_iov = up_to_four(ia.max_iov_segments_per_rdma_write).min(iov);
    attr
}

fn end(fixture: &Fixture, ia: &DAT_IA_ATTR) -> End {
    let mut end = End::without_ep(fixture, &Shape::default());
    end.request = fixture.evd(32, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG);
    let mut ep = ptr::null_mut();
    ok(create(fixture, &end, &attributes(ia), &mut ep));
    End { ep, ..end }
}

fn create(fixture: &Fixture, end: &End, attr: &DAT_EP_ATTR, ep: &mut DAT_EP_HANDLE) -> DAT_RETURN {
    // SAFETY: live handles; the result is writable.
    unsafe {
        dat_ep_create(
            fixture.ia,
            fixture.pz,
            end.recv,
            end.request,
            end.connect,
            ptr::from_ref(attr),
            ep,
        )
    }
}

/// Splits `len` bytes into this many segments.
fn split(memory: &Memory, at: usize, len: usize, count: usize) -> Vec<DAT_LMR_TRIPLET> {
    let begin = |n: usize| len * n / count;
    let piece = |n| memory.segment(at + begin(n), begin(n + 1) - begin(n));
    (0..count).map(piece).collect()
}

/// A change to the attributes of an endpoint.
type Change<'a> = &'a dyn Fn(&mut DAT_EP_ATTR);

/// A pair of endpoints and the memory of both.
struct MessagePair {
    fixture: Fixture,
    ia: DAT_IA_ATTR,
    pair: Pair,
    memory: Memory,
}

/// Offsets of the source and the target of messages.
const FROM: usize = 0;
const TO: usize = LONGEST;

impl MessagePair {
    fn new(fixture: Fixture) -> Self {
        let ia = abilities(&fixture).0;
        let pair = Pair::connect(&fixture, end(&fixture, &ia), end(&fixture, &ia));
        let memory = fixture.memory(2 * LONGEST);
        Self {
            fixture,
            ia,
            pair,
            memory,
        }
    }

    /// Fills the source with `len` bytes and clears the target.
    fn fill(&mut self, len: usize, seed: usize) -> Vec<u8> {
        let bytes: Vec<_> = (0..len).map(|at| (at * 7 + seed * 13 + 1) as u8).collect();
        self.memory.write(FROM, &bytes);
        self.memory.write(TO, &vec![0; len + 1]);
        bytes
    }

    /// Checks that these bytes have arrived, and no more.
    #[track_caller]
    fn arrived(&self, bytes: &[u8], what: &str) {
        let found = self.memory.read(TO, bytes.len() + 1);
        assert!(found[..bytes.len()] == *bytes, "{what}: other bytes");
        assert_eq!(found[bytes.len()], 0, "{what}: too many bytes");
    }

    #[track_caller]
    fn completed(&self, end: &End, what: &str) {
        self.fixture.run();
        assert_eq!(end.requested().status, DAT_DTO_SUCCESS, "{what}");
    }

    /// Messages around the inline size, in both directions, in one segment and in
    /// as many as allowed.
    fn sends(&mut self) {
        let inline = device().max_inline as usize;
        let around = [inline.saturating_sub(1), inline, inline + 1, 2 * inline];
        let sizes = [0, 1, 8, 60, 64, 65, 236, 1000, 4096, 5000, LONGEST - 1];
        let most = attributes(&self.ia).max_request_iov as usize;
        for (seed, len) in sizes.into_iter().chain(around).enumerate() {
            let Pair { active, passive } = self.pair;
            for (from, to) in [(active, passive), (passive, active)] {
                for count in [1, most] {
                    let what = format!("{len} bytes in {count} segments");
                    let bytes = self.fill(len, seed);
                    ok(to.post_recv(&split(&self.memory, TO, LONGEST, count), 1));
                    ok(from.post_send(&split(&self.memory, FROM, len, count), 2, DEFAULT));
                    self.completed(&from, &what);
                    let received = to.received();
                    assert_eq!(received.status, DAT_DTO_SUCCESS, "{what}");
                    assert_eq!(received.length, len as u64, "{what}");
                    self.arrived(&bytes, &what);
                }
            }
        }
        let many = vec![self.memory.segment(FROM, 1); most + 1];
        let active = self.pair.active;
        fails(active.post_send(&many, 3, DEFAULT), DAT_INVALID_PARAMETER);
        fails(active.post_recv(&many, 3), DAT_INVALID_PARAMETER);
        nothing_on(active.request);
    }

    fn writes(&mut self) {
        let inline = device().max_inline as usize;
        let most = attributes(&self.ia).max_rdma_write_iov as usize;
        for (seed, len) in [1, 48, inline + 1, LONGEST - 1].into_iter().enumerate() {
            for count in [1, most] {
                let what = format!("write of {len} bytes in {count} segments");
                let bytes = self.fill(len, seed);
                let remote = self.memory.remote(TO, len);
                let local = split(&self.memory, FROM, len, count);
                let active = self.pair.active;
                ok(active.post_write(&local, &remote, 4, DEFAULT));
                self.completed(&active, &what);
                self.arrived(&bytes, &what);
            }
        }
    }

    /// Reads into as many segments as allowed, or checks that reads are refused.
    fn reads(&mut self) {
        let device = device();
        let active = self.pair.active;
        let can = device.max_qp_rd_atom.min(device.max_qp_init_rd_atom) > 0;
        if !can {
            let local = [self.memory.segment(TO, 8)];
            let remote = self.memory.remote(FROM, 8);
            let answer = active.post_read(&local, &remote, 5, DEFAULT);
            fails(answer, DAT_MODEL_NOT_SUPPORTED);
            nothing_on(active.request);
            return;
        }
        let most = attributes(&self.ia).max_rdma_read_iov as usize;
        assert!(most <= device.max_sge_rd as usize);
        for (seed, len) in [1, 4096, LONGEST - 1].into_iter().enumerate() {
            for count in [1, most.min(len)] {
                let what = format!("read of {len} bytes into {count} segments");
                let bytes = self.fill(len, seed);
                let local = split(&self.memory, TO, len, count);
                let remote = self.memory.remote(FROM, len);
                ok(active.post_read(&local, &remote, 5, DEFAULT));
                self.completed(&active, &what);
                self.arrived(&bytes, &what);
            }
        }
        let remote = self.memory.remote(FROM, LONGEST);
        let many = vec![self.memory.segment(TO, 1); most + 1];
        let answer = active.post_read(&many, &remote, 5, DEFAULT);
        fails(answer, DAT_INVALID_PARAMETER);
    }

    /// Binds an RMR and writes through it, or checks that there are none.
    fn windows(&mut self) {
        if !device().has_windows() {
            assert_eq!(self.ia.max_rmrs, 0);
            let mut rmr = ptr::null_mut();
            // SAFETY: a live zone; the result is writable.
            let answer = unsafe { dat_rmr_create(self.fixture.pz, &raw mut rmr) };
            fails(answer, DAT_MODEL_NOT_SUPPORTED);
            return;
        }
        let Pair { active, passive } = self.pair;
        let mut window = Window::new(self.fixture.pz);
        let bytes = self.fill(100, 7);
        let segment = self.memory.segment(TO, 100);
        let remote = window.bind(passive.ep, &segment, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, 6);
        self.fixture.run();
        assert_eq!(take_bound(passive.request).status, DAT_DTO_SUCCESS);
        ok(active.post_write(&[self.memory.segment(FROM, 100)], &remote, 7, DEFAULT));
        self.completed(&active, "write through an RMR");
        self.arrived(&bytes, "write through an RMR");
        window.unbind(passive.ep, 8);
        self.fixture.run();
        assert_eq!(take_bound(passive.request).status, DAT_DTO_SUCCESS);
        ok(window.free());
    }

    /// Resizes the EVDs of endpoints up and down while they hold events.
    fn resizes(&mut self) {
        let Pair { active, passive } = self.pair;
        for qlen in [200, 40, 33] {
            for evd in [active.request, passive.recv] {
                // SAFETY: a live EVD.
                ok(unsafe { dat_evd_resize(evd, qlen) });
            }
            for tag in 0..8 {
                ok(passive.post_recv(&[self.memory.segment(TO, 64)], tag));
                ok(active.post_send(&[self.memory.segment(FROM, 64)], tag, DEFAULT));
            }
            self.fixture.run();
            for tag in 0..8 {
                assert_eq!(active.requested().cookie, tag, "{qlen} events");
                assert_eq!(passive.received().cookie, tag, "{qlen} events");
            }
        }
    }

    /// Receives messages on a shared queue, or checks that there is none.
    fn shared_queues(&mut self) {
        let device = device();
        let provider = abilities(&self.fixture).1;
        assert_eq!(provider.srq_supported != DAT_FALSE, device.has_srqs());
        let iov = up_to_four(self.ia.max_iov_segments_per_dto)
            .min(DAT_COUNT::try_from(device.max_srq_sge).expect("a count"));
        let mut attr = DAT_SRQ_ATTR {
            max_recv_dtos: 8,
            max_recv_iov: iov,
            low_watermark: DAT_SRQ_LW_DEFAULT,
        };
        let mut srq = ptr::null_mut();
        // SAFETY: live handles; attributes and result are local.
        let answer = unsafe {
            dat_srq_create(
                self.fixture.ia,
                self.fixture.pz,
                &raw mut attr,
                &raw mut srq,
            )
        };
        if !device.has_srqs() {
            assert_eq!(self.ia.max_srqs, 0);
            fails(answer, DAT_MODEL_NOT_SUPPORTED);
            return;
        }
        ok(answer);
        let mut attr = attributes(&self.ia);
        attr.max_recv_dtos = DAT_HW_DEFAULT;
        let mut to = End::without_ep(&self.fixture, &Shape::default());
        // SAFETY: live handles; attributes and result are local.
        ok(unsafe {
            dat_ep_create_with_srq(
                self.fixture.ia,
                self.fixture.pz,
                to.recv,
                to.request,
                to.connect,
                srq,
                &raw const attr,
                &raw mut to.ep,
            )
        });
        let pair = Pair::connect(&self.fixture, end(&self.fixture, &self.ia), to);
        for tag in 0..20 {
            let bytes = self.fill(128, tag as usize);
            let receive = split(&self.memory, TO, 128, iov as usize);
            ok(post_srq(srq, &receive, tag));
            let message = [self.memory.segment(FROM, 128)];
            ok(pair.active.post_send(&message, tag, DEFAULT));
            self.completed(&pair.active, "to a shared queue");
            let received = to.received();
            assert_eq!((received.cookie, received.length), (tag, 128));
            self.arrived(&bytes, "to a shared queue");
        }
        disconnect_both(&pair);
        // SAFETY: live handles that are not used afterwards.
        unsafe {
            ok(dat_ep_free(to.ep));
            ok(dat_srq_free(srq));
        }
    }

    /// Attributes beyond the limits are refused when the endpoint is created.
    fn refusals(&self) {
        let device = device();
        let evds = End::without_ep(&self.fixture, &Shape::default());
        let with = |change: Change<'_>| {
            let mut attr = attributes(&self.ia);
            change(&mut attr);
            let mut ep = ptr::null_mut();
            let answer = create(&self.fixture, &evds, &attr, &mut ep);
            if answer == DAT_SUCCESS {
                // SAFETY: a live endpoint.
                ok(unsafe { dat_ep_free(ep) });
            }
            answer
        };
        ok(with(&|_| ()));
        let number = |limit: u32| DAT_COUNT::try_from(limit).expect("a count");
        let rows: [(&str, Change<'_>); 6] = [
            ("send segments", &|it| {
                it.max_request_iov = number(device.max_sge + 1);
            }),
            ("receive segments", &|it| {
                it.max_recv_iov = number(device.max_sge + 1);
            }),
            ("segments of a read", &|it| {
                it.max_rdma_read_iov = number(device.max_sge_rd.min(device.max_sge) + 1);
            }),
            ("reads served", &|it| {
                it.max_rdma_read_in = number(device.max_qp_rd_atom + 1);
            }),
            ("reads issued", &|it| {
                it.max_rdma_read_out = number(device.max_qp_init_rd_atom + 1);
            }),
            ("receives", &|it| {
                it.max_recv_dtos = number(device.max_qp_wr + 1);
            }),
        ];
        for (what, change) in rows {
            println!("more {what} than the device has");
            fails(with(change), DAT_INVALID_PARAMETER);
        }
    }
}

fn disconnect_both(pair: &Pair) {
    // SAFETY: a live endpoint.
    ok(unsafe { dat_ep_disconnect(pair.active.ep, DAT_CLOSE_GRACEFUL_FLAG) });
    for end in [pair.active, pair.passive] {
        expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    }
}

/// Checks that the attributes do not exceed the limits of the device.
fn attributes_are_true(fixture: &Fixture) {
    let (device, ia) = (device(), abilities(fixture).0);
    let most = |limit: u64| DAT_COUNT::try_from(limit).unwrap_or(DAT_COUNT::MAX);
    for (what, reported, limit) in [
        ("max_eps", ia.max_eps, device.max_qp),
        ("max_dto_per_ep", ia.max_dto_per_ep, device.max_qp_wr),
        ("max_evd_qlen", ia.max_evd_qlen, device.max_cqe),
        (
            "reads in",
            ia.max_rdma_read_per_ep_in,
            device.max_qp_rd_atom,
        ),
        (
            "reads out",
            ia.max_rdma_read_per_ep_out,
            device.max_qp_init_rd_atom,
        ),
        ("segments", ia.max_iov_segments_per_dto, device.max_sge),
        (
            "segments of a read",
            ia.max_iov_segments_per_rdma_read,
            device.max_sge_rd,
        ),
        (
            "segments of a write",
            ia.max_iov_segments_per_rdma_write,
            device.max_sge,
        ),
        ("max_lmrs", ia.max_lmrs, device.max_mr),
        ("max_rmrs", ia.max_rmrs, device.max_mw),
        ("max_srqs", ia.max_srqs, device.max_srq),
    ] {
        assert!(reported <= most(limit.into()), "{what}: {reported}");
    }
    assert!(ia.max_iov_segments_per_dto > 0 && ia.max_dto_per_ep > 0);
    assert!(ia.max_lmr_block_size <= device.max_mr_size);
}

/// An endpoint with default attributes fits the limits of the device.
fn defaults_fit(fixture: &Fixture) {
    let ia = abilities(fixture).0;
    let mut pair = [(); 2].map(|()| End::without_ep(fixture, &Shape::default()));
    for end in &mut pair {
        // SAFETY: live handles; without attributes; the result is writable.
        ok(unsafe {
            dat_ep_create(
                fixture.ia,
                fixture.pz,
                end.recv,
                end.request,
                end.connect,
                ptr::null(),
                &raw mut end.ep,
            )
        });
        let attr = ep_info(end.ep).ep_attr;
        assert!((1..=ia.max_iov_segments_per_dto).contains(&attr.max_request_iov));
        assert!((1..=ia.max_dto_per_ep).contains(&attr.max_request_dtos));
    }
    let pair = Pair::connect(fixture, pair[0], pair[1]);
    let memory = fixture.memory(512);
    ok(pair.passive.post_recv(&[memory.segment(256, 256)], 1));
    ok(pair.active.post_send(&[memory.segment(0, 250)], 2, DEFAULT));
    fixture.run();
    assert_eq!(pair.passive.received().length, 250);
    assert_eq!(pair.active.requested().status, DAT_DTO_SUCCESS);
    disconnect_both(&pair);
}

#[test]
fn the_library_keeps_to_the_limits_of_its_device() {
    let fixture = Fixture::new();
    attributes_are_true(&fixture);
    defaults_fit(&fixture);
    let mut messages = MessagePair::new(fixture);
    messages.sends();
    messages.writes();
    messages.reads();
    messages.windows();
    messages.resizes();
    messages.shared_queues();
    messages.refusals();
    disconnect_both(&messages.pair);
    // An error is reported too: a write outside of the memory.
    let pair = Pair::connect(
        &messages.fixture,
        end(&messages.fixture, &messages.ia),
        end(&messages.fixture, &messages.ia),
    );
    let outside = messages.memory.remote(2 * LONGEST, 8);
    let local = [messages.memory.segment(FROM, 8)];
    ok(pair.active.post_write(&local, &outside, 9, DEFAULT));
    messages.fixture.run();
    let status = pair.active.requested().status;
    assert_eq!(status, DAT_DTO_ERR_REMOTE_ACCESS);
    both_failed(&messages.fixture, &pair.active, &pair.passive);
}

/// Runs the test above on every profile, on this path.
fn on_all_profiles(path: &str) {
    let this = env::current_exe().expect("this binary has a path");
    let mut failed = Vec::new();
    for profile in PROFILES {
        let limits = format!("profile:{}", profile.name);
        let output = Command::new(&this)
            .args(["--exact", CHILD, "--nocapture"])
            .env(Config::LIMITS, &limits)
            .env("DAT_PATH", path)
            .stdin(Stdio::null())
            .output()
            .expect("this binary runs");
        let stdout = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || !stdout.contains("1 passed") {
            let errors = String::from_utf8_lossy(&output.stderr);
            failed.push(format!("{limits} on the {path} path:\n{stdout}{errors}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_profile_works_on_the_verbs_path() {
    on_all_profiles("verbs");
}

#[test]
fn every_profile_works_on_the_direct_path() {
    on_all_profiles("direct");
}
