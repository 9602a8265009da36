//! The fixture of these tests: an open IA, memory, and connected endpoints.

use std::alloc::{Layout, alloc_zeroed};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_api::handle::Handle;
use dat_api::object::cr::Cr;
use dat_api::object::ep::{Connect, Ep, EpChange, EpFields, kind};
use dat_api::object::evd::{self, Evd, Timeout};
use dat_api::object::ia::{AsyncEvd, Ia, OpenRequest};
use dat_api::object::lmr::{Lmr, MemoryKind};
use dat_api::object::psp::{EpCreator, Psp};
use dat_api::object::pz::Pz;
use dat_api::object::srq::Srq;
use dat_api::types::{
    AsyncKind, AsyncReason, CompletionFlags, ConnectionKind, DtoStatus, EpAttributes, EpState,
    EvdFlags, Event, EventData, LmrSegment, MemPrivileges, RmrSegment, SrqAttributes,
};
use dat_api::{DatReturn, EvdRefusal, ReturnType, Subtype};
use mlx5emu::config::{Config, Mode};
use mlx5emu::fabric::name::FabricName;

#[allow(dead_code, reason = "some of it is for other tests")]
#[path = "../../../tests/support/installed.rs"]
mod installed;

pub use installed::{is_iwarp, name};

/// The timeout of tests: long for a computer, short for a developer.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns whether the test runs on a given device, not the emulated one.
pub fn is_given() -> bool {
    installed::given().is_some()
}

/// Returns whether `DAT_CM` makes the emulated device connect by rdma_cm.
pub fn is_over_rdma_cm() -> bool {
    std::env::var("DAT_CM").is_ok_and(|manager| manager == "rdma_cm")
}

/// Sets up the device.
pub fn device() {
    installed::set_up(|| {
        // A fabric of its own, apart from other programs on this host.
        let fabric = format!("dat-api-{}", std::process::id());
        Config {
            fabric: FabricName::new(&fabric).expect("a name"),
            mode: Mode::Threaded,
            devices: 2,
            ..Config::from_env().expect("variables of the emulated device")
        }
    });
}

/// An adapter, a zone, and registered memory. Dropping it closes the adapter abruptly.
pub struct Fixture {
    pub ia: Arc<Ia>,
    pub pz: Arc<Pz>,
    pub memory: Memory,
    pub events: Handle,
}

/// Registered memory, with all privileges.
pub struct Memory {
    pub lmr: Arc<Lmr>,
    bytes: *mut u8,
    len: usize,
}

// SAFETY: threads access it one after the other, and the device as it likes.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(ia: &Arc<Ia>, pz: &Arc<Pz>, len: usize, rights: MemPrivileges) -> Self {
        // Aligned so that nothing short crosses a page: siw answers a read of up to 32 bytes that
        // crosses one with wrong data (siw_try_1seg in Linux).
        let layout = Layout::from_size_align(len.max(1), 64).expect("a size");
        // SAFETY: the size is not 0.
        let bytes = unsafe { alloc_zeroed(layout) };
        assert!(!bytes.is_null(), "{len} bytes");
        let kind = MemoryKind::Virtual {
            address: bytes as usize,
            length: len as u64,
        };
        // SAFETY: the memory is leaked, so it stays mapped as long as the process lives.
        let lmr = unsafe { Lmr::create(ia, kind, pz, rights) }.expect("an LMR");
        Self { lmr, bytes, len }
    }

    pub fn local(&self, at: usize, len: usize) -> LmrSegment {
        LmrSegment {
            context: self.lmr.query().lmr_context,
            address: self.bytes as u64 + at as u64,
            length: len as u64,
        }
    }

    pub fn remote(&self, at: usize, len: usize) -> RmrSegment {
        RmrSegment {
            context: self.lmr.query().rmr_context,
            address: self.bytes as u64 + at as u64,
            length: len as u64,
        }
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len);
        for (i, &byte) in bytes.iter().enumerate() {
            // SAFETY: inside the allocation.
            unsafe { self.bytes.add(at + i).write_volatile(byte) };
        }
    }

    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.len);
        (0..len)
            // SAFETY: inside the allocation.
            .map(|i| unsafe { self.bytes.add(at + i).read_volatile() })
            .collect()
    }
}

pub const ALL_RIGHTS: MemPrivileges = MemPrivileges::all();

impl Fixture {
    pub fn new() -> Self {
        Self::open(false)
    }

    pub fn open(threadsafe: bool) -> Self {
        device();
        let (ia, events) = Ia::open(&OpenRequest {
            name: name(),
            async_qlen: 64,
            async_evd: AsyncEvd::New,
            threadsafe,
            major: 1,
            minor: 2,
            interface: (1, 2),
        })
        .expect("the adapter opens");
        Self::on(ia, events.expect("a new asynchronous EVD"))
    }

    /// As [`Self::new`], on an adapter that is strict or not, whatever the environment says.
    pub fn with_strict(is_strict: bool) -> Self {
        device();
        let request = OpenRequest {
            name: "of these tests",
            async_qlen: 64,
            async_evd: AsyncEvd::New,
            threadsafe: false,
            major: 1,
            minor: 2,
            interface: (1, 2),
        };
        let data = format!("{} 1 strict={}", name(), u8::from(is_strict));
        let (ia, events) = Ia::open_configured(&request, &data).expect("the adapter opens");
        Self::on(ia, events.expect("a new asynchronous EVD"))
    }

    /// Uses an open adapter, whose asynchronous events go to `events`.
    pub fn on(ia: Arc<Ia>, events: Handle) -> Self {
        let pz = Pz::create(&ia).expect("a zone");
        let memory = Memory::new(&ia, &pz, 1 << 16, ALL_RIGHTS);
        Self {
            ia,
            pz,
            memory,
            events,
        }
    }

    pub fn evd(&self, len: i32) -> Arc<Evd> {
        self.evd_for(len, EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR)
    }

    pub fn evd_for(&self, len: i32, flags: EvdFlags) -> Arc<Evd> {
        Evd::create(&self.ia, len, flags, None).expect("an EVD")
    }

    /// Creates an endpoint whose events all go to one EVD.
    pub fn ep(&self, evd: &Arc<Evd>, attributes: &EpAttributes) -> Arc<Ep> {
        let evd = Some(evd);
        Ep::create(&self.ia, Some(&self.pz), evd, evd, evd, Some(attributes)).expect("an endpoint")
    }

    pub fn shared_ep(&self, evd: &Arc<Evd>, srq: &Arc<Srq>) -> Arc<Ep> {
        let attributes = EpAttributes {
            max_recv_dtos: -1,
            ..plain()
        };
        let evd = Some(evd);
        Ep::create_with_srq(&self.ia, Some(&self.pz), evd, evd, evd, srq, &attributes)
            .expect("an endpoint")
    }

    pub fn srq(&self, depth: i32) -> Arc<Srq> {
        let attributes = SrqAttributes {
            max_recv_dtos: depth,
            max_recv_iov: 2,
            low_watermark: 0,
        };
        Srq::create(&self.ia, &self.pz, &attributes).expect("an SRQ")
    }

    /// Returns two connected endpoints of 8 requests and 8 receives, each with an EVD of its own.
    pub fn pair(&self) -> Pair {
        let evds = [self.evd(64), self.evd(64)];
        let eps = [self.ep(&evds[0], &plain()), self.ep(&evds[1], &plain())];
        self.join(&eps, &evds);
        Pair { eps, evds }
    }

    /// Connects the first to the second.
    pub fn join(&self, eps: &[Arc<Ep>; 2], evds: &[Arc<Evd>; 2]) {
        let (psp, qualifier) = self.listen(&evds[1]);
        self.connect(&eps[0], qualifier, b"").expect("connecting");
        let cr = request(&evds[1]);
        Cr::accept(cr, Some(eps[1].handle()), b"").expect("accepting");
        assert_eq!(
            connection(&evds[1]),
            (ConnectionKind::Established, eps[1].handle())
        );
        assert_eq!(
            connection(&evds[0]),
            (ConnectionKind::Established, eps[0].handle())
        );
        Psp::free(psp).expect("no other failure");
    }

    pub fn listen(&self, evd: &Arc<Evd>) -> (Handle, u64) {
        let psp = Psp::create_any(&self.ia, evd, EpCreator::Consumer).expect("a service point");
        (psp.handle(), psp.query().qualifier)
    }

    pub fn connect(&self, ep: &Ep, qualifier: u64, data: &[u8]) -> dat_api::Result<()> {
        ep.connect(&self.to(qualifier, data))
    }

    pub fn to<'a>(&self, qualifier: u64, private_data: &'a [u8]) -> Connect<'a> {
        Connect {
            address: self.address(),
            qualifier,
            timeout: Some(TIMEOUT),
            private_data,
            qos: 0,
            flags: 0,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.ia.address()
    }

    /// Returns the next asynchronous event; `None` if none comes in time.
    pub fn async_event(&self, timeout: Duration) -> Option<(AsyncKind, Handle, AsyncReason)> {
        match wait_for(self.events, timeout)?.data {
            EventData::Async {
                kind,
                handle,
                reason,
            } => Some((kind, handle, reason)),
            other => panic!("not asynchronous: {other:?}"),
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let closed = close_ia(self.ia.handle(), false);
        if !std::thread::panicking() {
            closed.expect("an abrupt close always completes");
        }
    }
}

/// Two connected endpoints.
pub struct Pair {
    pub eps: [Arc<Ep>; 2],
    pub evds: [Arc<Evd>; 2],
}

/// Returns attributes for 8 requests and 8 receives of 2 segments, 4 RDMA reads, default completion
/// flags.
pub fn plain() -> EpAttributes {
    EpAttributes {
        service_type: 0,
        max_message_size: 1 << 16,
        max_rdma_size: 1 << 16,
        qos: 0,
        recv_completion_flags: CompletionFlags::empty(),
        request_completion_flags: CompletionFlags::empty(),
        max_recv_dtos: 8,
        max_request_dtos: 8,
        max_recv_iov: 2,
        max_request_iov: 2,
        max_rdma_read_in: 4,
        max_rdma_read_out: 4,
        srq_soft_hw: -1,
        max_rdma_read_iov: if is_iwarp() { 1 } else { 2 },
        max_rdma_write_iov: 2,
    }
}

/// Waits for the next event of an EVD.
pub fn wait_for(evd: Handle, timeout: Duration) -> Option<Event> {
    let micros = u32::try_from(timeout.as_micros()).expect("less than an hour");
    let mut owned = evd::own(evd).expect("no other wait");
    match evd::wait(&mut owned, Timeout::Micros(micros), 1).result {
        Ok(event) => Some(event),
        Err(refusal) => {
            assert_eq!(refusal, EvdRefusal::TimedOut);
            None
        }
    }
}

/// Returns the next event, which must come.
pub fn next(evd: &Evd) -> EventData {
    wait_for(evd.handle(), TIMEOUT).expect("an event").data
}

/// Checks that there is no event, and that none comes for 30 ms.
pub fn nothing(evd: &Evd) {
    let found = wait_for(evd.handle(), Duration::from_millis(30));
    assert_eq!(found, None);
}

/// Returns the next event, which must be a connection event.
pub fn connection(evd: &Evd) -> (ConnectionKind, Handle) {
    match next(evd) {
        EventData::Connection { kind, ep, .. } => (kind, ep),
        other => panic!("not of a connection: {other:?}"),
    }
}

/// Returns the next event, which must be a connection request.
pub fn request(evd: &Evd) -> Handle {
    match next(evd) {
        EventData::ConnectionRequest { cr, .. } => cr,
        other => panic!("not a request: {other:?}"),
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub ep: Handle,
    pub cookie: u64,
    pub status: DtoStatus,
    pub length: u64,
}

/// Returns the next event, which must be a completion.
pub fn done(evd: &Evd) -> Done {
    match next(evd) {
        EventData::Dto {
            ep,
            cookie,
            status,
            length,
            ..
        } => Done {
            ep,
            cookie,
            status,
            length,
        },
        other => panic!("not a completion: {other:?}"),
    }
}

/// Returns cookie and length of the next event, which must be a successful completion.
pub fn success(evd: &Evd) -> (u64, u64) {
    let done = done(evd);
    assert_eq!(done.status, DtoStatus::Success, "{done:?}");
    (done.cookie, done.length)
}

/// Returns the cookie of the next event, which must be a flushed completion.
pub fn flushed(evd: &Evd) -> u64 {
    let done = done(evd);
    assert_eq!(done.status, DtoStatus::Flushed, "{done:?}");
    done.cookie
}

pub fn recv(ep: &Ep, segments: &[LmrSegment], cookie: u64) -> Result<(), DatReturn> {
    // SAFETY: one thread posts; the memory is never unmapped.
    unsafe { ep.post_recv(segments, cookie, CompletionFlags::empty()) }
}

pub fn send(ep: &Ep, segments: &[LmrSegment], cookie: u64) -> Result<(), DatReturn> {
    send_with(ep, segments, cookie, CompletionFlags::empty())
}

pub fn send_with(
    ep: &Ep,
    segments: &[LmrSegment],
    cookie: u64,
    flags: CompletionFlags,
) -> Result<(), DatReturn> {
    // SAFETY: as in `recv`.
    unsafe { ep.post(kind::Send, segments, cookie, flags) }
}

pub fn read(
    ep: &Ep,
    segments: &[LmrSegment],
    cookie: u64,
    remote: &RmrSegment,
) -> Result<(), DatReturn> {
    // SAFETY: as in `recv`.
    unsafe {
        ep.post(
            kind::Read(|| *remote),
            segments,
            cookie,
            CompletionFlags::empty(),
        )
    }
}

pub fn write(
    ep: &Ep,
    segments: &[LmrSegment],
    cookie: u64,
    remote: &RmrSegment,
) -> Result<(), DatReturn> {
    // SAFETY: as in `recv`.
    unsafe {
        ep.post(
            kind::Write(|| *remote),
            segments,
            cookie,
            CompletionFlags::empty(),
        )
    }
}

/// Returns the code that a refused call must return.
pub fn refusal(kind: ReturnType, subtype: Subtype) -> DatReturn {
    DatReturn::error(kind, subtype)
}

/// Waits until a condition becomes true.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < TIMEOUT, "{what} does not come");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Waits for a state that another thread enters.
pub fn reaches(ep: &Ep, state: EpState) {
    until("the state", || ep.state() == state);
}

/// Calls that must not run beside posts to the same endpoint; in these tests they do not.
pub trait Alone {
    fn reset_now(&self) -> dat_api::Result<()>;
    fn modify_now(&self, fields: EpFields, change: &EpChange) -> dat_api::Result<()>;
    fn disconnect_now(&self, graceful: bool) -> dat_api::Result<()>;
}

impl Alone for Ep {
    fn reset_now(&self) -> dat_api::Result<()> {
        // SAFETY: the test that calls this posts on the same thread.
        unsafe { self.reset() }
    }

    fn modify_now(&self, fields: EpFields, change: &EpChange) -> dat_api::Result<()> {
        // SAFETY: as above.
        unsafe { self.modify(fields, change) }
    }

    fn disconnect_now(&self, graceful: bool) -> dat_api::Result<()> {
        // SAFETY: as above.
        unsafe { self.disconnect(graceful) }
    }
}

/// Frees an endpoint to which no thread posts any more.
pub fn free_ep(ep: Handle) -> dat_api::Result<()> {
    // SAFETY: the caller posts no more.
    unsafe { Ep::free(ep) }
}

/// Closes an adapter to whose endpoints no thread posts any more.
pub fn close_ia(ia: Handle, graceful: bool) -> dat_api::Result<()> {
    // SAFETY: the caller posts no more.
    unsafe { Ia::close(ia, graceful) }
}

/// Waits until a thread sleeps in a wait on an EVD.
pub fn until_asleep(thread: impl Fn() -> i32) {
    let asleep = libc::SYS_ppoll.to_string();
    until("a thread that sleeps", || {
        let call = std::fs::read_to_string(format!("/proc/self/task/{}/syscall", thread()));
        call.is_ok_and(|call| call.split(' ').next() == Some(&asleep))
    });
}
