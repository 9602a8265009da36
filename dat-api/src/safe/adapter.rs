//! Adapters and protection zones.

use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use dat_engine::sync::Mutex;
use dat_engine::wait::WaitPolicy;
use dat_engine::{DeviceInfo, PortInfo};

use super::dispatcher::Dispatcher;
use super::memory::Pages;
use super::{EventDispatcher, Memory};
use crate::error::Result;
use crate::handle::Handle;
use crate::object::counters::Counters;
use crate::object::ia::{AsyncEvd, Ia, IaInfo, OpenRequest};
use crate::object::pz::Pz;
use crate::registry::{self, Entry};
use crate::types::{CompletionFlags, EpAttributes, EvdFlags, MemPrivileges};

/// How to open an [`Adapter`].
///
/// ```no_run
/// use dat_api::safe::{Adapter, OpenOptions};
///
/// # fn main() -> dat_api::Result<()> {
/// let adapter = Adapter::open_with("mlx5_0", OpenOptions::new().async_events(256))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    async_events: u32,
    thread_safe: bool,
    version: (u32, u32),
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            async_events: 64,
            thread_safe: false,
            version: registry::VERSION,
        }
    }
}

impl OpenOptions {
    /// Returns the options of [`Adapter::open`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the least length of the dispatcher for asynchronous events: 64 by default.
    #[must_use]
    pub fn async_events(mut self, length: u32) -> Self {
        self.async_events = length;
        self
    }

    /// Lets several threads use one object at a time. The types of this module do not need it: they
    /// allow one thread at a time to post.
    #[must_use]
    pub fn thread_safe(mut self) -> Self {
        self.thread_safe = true;
        self
    }

    /// Sets the version of uDAPL whose entries of dat.conf have names: [`registry::VERSION`] by
    /// default. For programs that examine the file, since the adapter is the same.
    #[must_use]
    pub fn version(mut self, major: u32, minor: u32) -> Self {
        self.version = (major, minor);
        self
    }
}

/// An open interface adapter: a port of a device. Clones are the same adapter.
#[derive(Clone, Debug)]
pub struct Adapter(Arc<Open>);

#[derive(Debug)]
struct Open {
    ia: Arc<Ia>,
    asynchronous: Handle,
    /// What its owners share, while there are some.
    shared_asynchronous: Mutex<Weak<Dispatcher>>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Fails if the adapter was closed before.
        // SAFETY: every object that can be posted to keeps the adapter open, so none is left.
        let _ = unsafe { Ia::close(self.ia.handle(), false) };
    }
}

impl Adapter {
    /// Opens an adapter: `DEVICE`, `DEVICE-PORT` (`"mlx5_0"`, `"mlx5_0-1"`), or an entry of
    /// `dat.conf`.
    ///
    /// # Errors
    /// There is no adapter of that name, it cannot be used, or its port is down. The error says
    /// which, and what to do.
    pub fn open(name: &str) -> Result<Self> {
        Self::open_with(name, OpenOptions::default())
    }

    /// Opens an adapter with options.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(name: &str, options: OpenOptions) -> Result<Self> {
        let opened = Ia::open(&OpenRequest {
            name,
            async_qlen: i32::try_from(options.async_events).unwrap_or(i32::MAX),
            async_evd: AsyncEvd::New,
            threadsafe: options.thread_safe,
            major: options.version.0,
            minor: options.version.1,
            interface: options.version,
        })?;
        Ok(Self::of(opened))
    }

    /// Opens the adapter of one entry of `dat.conf`, also where another entry of the same name
    /// comes first: for programs that examine the file.
    ///
    /// # Errors
    /// As [`Self::open`], or the entry is for another library or version of DAT.
    pub fn open_entry(entry: &Entry) -> Result<Self> {
        let length = OpenOptions::default().async_events;
        let length = i32::try_from(length).unwrap_or(i32::MAX);
        Ok(Self::of(Ia::open_entry(entry, length)?))
    }

    fn of((ia, asynchronous): (Arc<Ia>, Option<Handle>)) -> Self {
        let asynchronous = asynchronous.unwrap_or_else(|| ia.handle());
        Self(Arc::new(Open {
            ia,
            asynchronous,
            shared_asynchronous: Mutex::default(),
        }))
    }

    /// Returns its DAT handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.0.ia.handle()
    }

    /// Returns the attributes of the adapter and of this library.
    #[must_use]
    pub fn query(&self) -> IaInfo {
        self.0.ia.query()
    }

    /// Returns its RDMA device, as it was when the adapter was opened.
    #[must_use]
    pub fn device(&self) -> &DeviceInfo {
        self.0.ia.device().info()
    }

    /// Returns its port, as it is now.
    ///
    /// # Errors
    /// The device was removed.
    pub fn port(&self) -> Result<PortInfo> {
        let ia = &self.0.ia;
        Ok(ia.device().port(ia.rules().connect.port)?)
    }

    /// Returns the address at which peers reach it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.ia.address()
    }

    /// Returns the sum of the counters of all objects that it has and had.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.ia().counters()
    }

    /// Returns attributes for an endpoint of one's own receives: room for these numbers of receives
    /// and requests of one segment each, and for one RDMA read at a time in each direction, if the
    /// device has reads. Change the fields that differ.
    #[must_use]
    pub fn endpoint_attributes(&self, receives: u32, requests: u32) -> EpAttributes {
        let limits = self.query().ia;
        let count = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        EpAttributes {
            service_type: 0,
            max_message_size: limits.max_message_size,
            max_rdma_size: limits.max_rdma_size,
            qos: 0,
            recv_completion_flags: CompletionFlags::empty(),
            request_completion_flags: CompletionFlags::empty(),
            max_recv_dtos: count(receives),
            max_request_dtos: count(requests),
            max_recv_iov: 1,
            max_request_iov: 1,
            max_rdma_read_in: limits.max_rdma_read_per_ep_in.min(1),
            max_rdma_read_out: limits.max_rdma_read_per_ep_out.min(1),
            srq_soft_hw: 0,
            max_rdma_read_iov: 1,
            max_rdma_write_iov: 1,
        }
    }

    /// Returns the dispatcher of asynchronous errors and watermarks: always the same one.
    #[must_use]
    pub fn async_events(&self) -> EventDispatcher {
        let mut shared = self.0.shared_asynchronous.lock();
        shared.upgrade().map(EventDispatcher).unwrap_or_else(|| {
            let events = EventDispatcher::of_adapter(self, self.0.asynchronous);
            *shared = Arc::downgrade(&events.0);
            events
        })
    }

    /// Creates a protection zone.
    ///
    /// # Errors
    /// The device has no more.
    pub fn create_zone(&self) -> Result<ProtectionZone> {
        let pz = Pz::create(&self.0.ia)?;
        Ok(ProtectionZone(Arc::new(Zone {
            pz,
            adapter: self.clone(),
        })))
    }

    /// Creates an event dispatcher that holds at least `length` events of these streams.
    ///
    /// # Errors
    /// A length of 0 or above the adapter's limit, or no memory.
    pub fn create_dispatcher(&self, length: u32, streams: EvdFlags) -> Result<EventDispatcher> {
        EventDispatcher::create(self, length, streams, None)
    }

    /// Creates a dispatcher with a wait policy of its own, which overrides `DAT_WAIT`.
    ///
    /// # Errors
    /// As [`Self::create_dispatcher`].
    pub fn create_dispatcher_with_policy(
        &self,
        length: u32,
        streams: EvdFlags,
        policy: WaitPolicy,
    ) -> Result<EventDispatcher> {
        EventDispatcher::create(self, length, streams, Some(policy))
    }

    /// Closes the adapter, if nothing is left of it except its asynchronous events; a thread that
    /// waits for those gets `DAT_ABORT`. If their dispatcher has been armed or has had a stream, its
    /// values must be dropped, too. Not needed in most programs: the adapter is closed when
    /// its last owner is dropped.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` while objects of it live; it stays open.
    pub fn close(&self) -> Result<()> {
        // SAFETY: the close is graceful. An abrupt one would free endpoints that other threads may
        // be posting to.
        unsafe { Ia::close(self.0.ia.handle(), true) }
    }

    pub(super) fn ia(&self) -> &Arc<Ia> {
        &self.0.ia
    }
}

/// A protection zone: memory and endpoints of one zone can be used together. Clones are the same
/// zone.
#[derive(Clone, Debug)]
pub struct ProtectionZone(Arc<Zone>);

#[derive(Debug)]
struct Zone {
    pz: Arc<Pz>,
    adapter: Adapter,
}

impl Drop for Zone {
    fn drop(&mut self) {
        // All users of the zone own it, so this fails only if the adapter was closed.
        let _ = Pz::free(self.pz.handle());
    }
}

impl ProtectionZone {
    /// Returns its DAT handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.0.pz.handle()
    }

    /// Returns the adapter it belongs to.
    #[must_use]
    pub fn adapter(&self) -> &Adapter {
        &self.0.adapter
    }

    /// Allocates `bytes` zeroed bytes, and registers them.
    ///
    /// # Errors
    /// No memory, or the limit on locked memory is too low.
    pub fn allocate(&self, bytes: usize, privileges: MemPrivileges) -> Result<Memory> {
        Memory::allocate(self, bytes, privileges, Pages::Normal)
    }

    /// As [`Self::allocate`], on huge pages of the system's default size, and rounded up to whole ones:
    /// the translation buffers of the processor and of the device miss less often.
    ///
    /// By default the kernel takes the pages from the NUMA node of the calling thread while that has
    /// free ones; with `DAT_NUMA=device`, from that of the device.
    /// The queues of an mlx5 device are on huge pages if the program starts with the variables
    /// `MLX_QP_ALLOC_TYPE`, `MLX_CQ_ALLOC_TYPE` and `MLX_SRQ_ALLOC_TYPE` of libmlx5 set to
    /// `PREFER_HUGE`.
    ///
    /// # Errors
    /// As for [`Self::allocate`]; also if not enough huge pages are free, with the number that is
    /// needed.
    pub fn allocate_huge(&self, bytes: usize, privileges: MemPrivileges) -> Result<Memory> {
        Memory::allocate(self, bytes, privileges, Pages::Huge)
    }

    pub(super) fn pz(&self) -> &Arc<Pz> {
        &self.0.pz
    }
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Adapter>();
    shared::<ProtectionZone>();
    assert!(mem::size_of::<Adapter>() == mem::size_of::<usize>());
};
