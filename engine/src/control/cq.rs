//! Completion queues.

use super::channel::CompletionChannel;
use super::context::Context;
use super::device::Device;
use super::export;
use super::id::ObjectId;
use super::limits::Bounded;
use super::memlock::LockedMemory;
use crate::error::{ControlError, ControlErrorKind};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering};
use dv_sys::mlx5dv::{MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, mlx5dv_cq_init_attr, mlx5dv_create_cq};
use dv_sys::verbs::{self, ibv_cq, ibv_cq_init_attr_ex};
use mlx5_rings::layout::CompletionLayout;
use std::sync::Arc;

/// The size of a CQE. Ignored on the verbs path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CqeSize {
    /// libmlx5's default: 64 bytes, unless `MLX5_CQE_SIZE` sets another size.
    #[default]
    Default,
    /// 64 bytes.
    B64,
    /// 128 bytes: with room for 64 bytes of payload in the CQE.
    B128,
}

/// An `ibv_cq`. On the direct path the engine owns its ring, and libmlx5 does not
/// access it. Clones are handles to the same CQ; it is destroyed with the last
/// handle and the last queue that completes on it.
#[derive(Clone)]
pub struct VerbsCq(pub(super) Arc<RawCq>);

impl VerbsCq {
    /// Creates a CQ of at least `depth` entries. `vector` is the interrupt vector
    /// (below [`super::Limits::vectors`]).
    ///
    /// # Errors
    /// An argument exceeds its limit, the device has no CQs left, or its ring does
    /// not match the library's description.
    pub fn create(
        device: &Device,
        depth: u32,
        cqe_size: CqeSize,
        channel: Option<&CompletionChannel>,
        vector: u32,
    ) -> Result<Self, ControlError> {
        device.context.require_here(OPERATION)?;
        check(device, depth, vector)?;
        if channel.is_some_and(|channel| !channel.raw.belongs_to(&device.context)) {
            return Err(ControlError::new(
                ControlErrorKind::Invalid,
                OPERATION,
                "its completion channel belongs to another open device",
            ));
        }
        let shared = Arc::new(CqShared {
            id: ObjectId::next(),
            events: AtomicU32::new(0),
        });
        // SAFETY: integers and pointers, for which zero is valid.
        let mut attr: ibv_cq_init_attr_ex = unsafe { core::mem::zeroed() };
        attr.cqe = depth;
        attr.cq_context = Arc::as_ptr(&shared).cast_mut().cast();
        attr.channel = channel.map_or(ptr::null_mut(), |channel| channel.raw.as_ptr());
        attr.comp_vector = vector;
        let _placed = device.context.prefer_node();
        // SAFETY: device and channel are alive; the context outlives the CQ: see the
        // drop of RawCq.
        let raw = unsafe {
            match device.is_direct() {
                true => create(device, &mut attr, cqe_size),
                false => create_plain(device, &attr),
            }
        };
        let Some(raw) = NonNull::new(raw) else {
            let error = ControlError::last(OPERATION);
            return Err(LockedMemory::current().explain(error, u64::from(depth) * 64));
        };
        // From here on, dropping `cq` destroys the CQ.
        let mut cq = RawCq {
            raw,
            layout: None,
            // SAFETY: the CQ was just created, and no other thread uses it.
            capacity: AtomicU32::new(u32::try_from(unsafe { raw.as_ref() }.cqe).unwrap_or(0)),
            shared,
            channel: channel.cloned(),
            context: Arc::clone(&device.context),
            mlx5: device.is_mlx5(),
            solicits: device.reports_solicited(),
        };
        if device.is_direct() {
            // SAFETY: a live CQ of an mlx5 device, since only mlx5 devices are on
            // the direct path.
            let layout = unsafe { export::completion_layout(raw)? };
            cq.capacity = AtomicU32::new(layout.cqe_count - 1);
            cq.layout = Some(layout);
        }
        let cq = Self(Arc::new(cq));
        tracing::debug!(cqn = cq.cqn(), capacity = cq.capacity(), "created a CQ");
        Ok(cq)
    }

    /// Returns the location of the ring; `None` on the verbs path.
    #[must_use]
    pub fn layout(&self) -> Option<CompletionLayout> {
        self.0.layout
    }

    /// Returns the CQ number. On the verbs path the device's number is unknown;
    /// this is the kernel's handle, for messages.
    #[must_use]
    pub fn cqn(&self) -> u32 {
        match self.0.layout {
            Some(layout) => layout.cqn,
            // SAFETY: the CQ is alive, and the field does not change.
            None => unsafe { (*self.as_ptr()).handle },
        }
    }

    /// Returns how many completions the CQ holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.0.capacity.load(Ordering::Acquire)
    }

    /// Returns its id in asynchronous events.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.0.shared.id
    }

    /// Returns whether it can wake for solicited receives only:
    /// [`Device::reports_solicited`].
    pub(crate) fn solicits(&self) -> bool {
        self.0.solicits
    }

    /// Returns whether libmlx5 is the library of its device, on either path.
    pub(crate) fn is_mlx5(&self) -> bool {
        self.0.mlx5
    }

    /// Raises an event on the channel, as the kernel does for a completion of the
    /// device. Does nothing without a channel, and on devices whose completions all
    /// come from the kernel.
    #[cold]
    pub(crate) fn raise_event(&self) {
        let Some(software_event) = self.channel().and_then(CompletionChannel::software_event)
        else {
            return;
        };
        self.0.shared.events.fetch_add(1, Ordering::Release);
        software_event.raise();
    }

    /// Returns the channel that the CQ was created with.
    #[must_use]
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.0.channel.as_ref()
    }

    /// Returns the number of completion events that were read for the CQ since its
    /// creation, modulo 2^32. The arm doorbell has the lowest two bits of it.
    #[must_use]
    pub fn event_count(&self) -> u32 {
        self.0.shared.events.load(Ordering::Acquire)
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.0.raw.as_ptr()
    }

    pub(super) fn belongs_to(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.0.context, context)
    }
}

const OPERATION: &str = "create a completion queue";

fn check(device: &Device, depth: u32, vector: u32) -> Result<(), ControlError> {
    let limits = device.limits();
    Bounded {
        what: "its depth",
        value: depth,
        least: 1,
        most: limits.cq_depth,
        limit: "max_cqe",
    }
    .check(OPERATION)?;
    Bounded {
        what: "its completion vector",
        value: vector,
        least: 0,
        most: limits.vectors.saturating_sub(1),
        limit: "num_comp_vectors - 1",
    }
    .check(OPERATION)
}

/// Creates an extended CQ.
///
/// # Safety
/// The device is open; in the attributes, the channel is null or alive, and the context
/// points to a [`CqShared`] that outlives the CQ.
unsafe fn create(
    device: &Device,
    attr: &mut ibv_cq_init_attr_ex,
    cqe_size: CqeSize,
) -> *mut ibv_cq {
    let bytes = match cqe_size {
        CqeSize::Default => None,
        CqeSize::B64 => Some(64),
        CqeSize::B128 => Some(128),
    };
    // SAFETY: integers and pointers, for which zero is valid.
    let mut mlx5: mlx5dv_cq_init_attr = unsafe { core::mem::zeroed() };
    if let Some(bytes) = bytes {
        mlx5.comp_mask = u64::from(MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE);
        mlx5.cqe_size = bytes;
    }
    // SAFETY: the arguments are alive for the call; see the caller.
    unsafe {
        let cq = mlx5dv_create_cq(device.context.as_ptr(), attr, &raw mut mlx5);
        // An `ibv_cq_ex` begins with the `ibv_cq` (`ibv_cq_ex_to_cq`).
        if cq.is_null() {
            ptr::null_mut()
        } else {
            dv_sys::inline::ibv_cq_ex_to_cq(cq)
        }
    }
}

/// Creates a CQ on the verbs path, without attributes that only some devices
/// support.
/// # Safety
/// As for [`create`].
unsafe fn create_plain(device: &Device, attr: &ibv_cq_init_attr_ex) -> *mut ibv_cq {
    // Both values are within limits that have this type.
    let signed = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    // SAFETY: the arguments are alive for the call; see the caller.
    unsafe {
        verbs::ibv_create_cq(
            device.context.as_ptr(),
            signed(attr.cqe),
            attr.cq_context,
            attr.channel,
            signed(attr.comp_vector),
        )
    }
}

/// The context of a CQ in libibverbs, to which libibverbs keeps a pointer.
pub(super) struct CqShared {
    pub(super) id: ObjectId,
    /// The number of completion events read; see [`VerbsCq::event_count`].
    pub(super) events: AtomicU32,
}

pub(super) struct RawCq {
    raw: NonNull<ibv_cq>,
    /// Set when creation is complete, on the direct path.
    layout: Option<CompletionLayout>,
    /// See [`VerbsCq::capacity`]. Only [`VerbsCq::resize`] changes it.
    pub(super) capacity: AtomicU32,
    shared: Arc<CqShared>,
    // Used by the CQ, so dropped after it.
    channel: Option<CompletionChannel>,
    pub(super) context: Arc<Context>,
    mlx5: bool,
    solicits: bool,
}

// SAFETY: libibverbs allows any threads to use a CQ at the same time. The layout is
// plain values; `ring` decides which thread accesses the ring.
unsafe impl Send for RawCq {}
// SAFETY: as above.
unsafe impl Sync for RawCq {}

impl Drop for RawCq {
    fn drop(&mut self) {
        let errno = match self.context.here() {
            // SAFETY: created by `create`; queues on it held an `Arc` of this and
            // were destroyed. The call waits for events that were read and not
            // acknowledged; every reader acknowledges at once.
            true => unsafe { verbs::ibv_destroy_cq(self.raw.as_ptr()) },
            false => libc::EPERM,
        };
        if errno != 0 {
            // The CQ was not destroyed, so its context must stay valid.
            core::mem::forget(Arc::clone(&self.shared));
            if self.context.here() {
                tracing::error!(errno, "ibv_destroy_cq failed");
            }
        }
    }
}
