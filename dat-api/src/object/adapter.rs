//! Opening and closing interface adapters: the part of an IA that uses EVDs, because its
//! asynchronous events go to one.

use std::sync::Arc;

use super::evd::{Evd, StreamGuard, StreamKind};
use super::ia::{AsyncEvd, AsyncStream, Ia, OpenRequest, in_use};
use super::usage::Counted;
use crate::error::{DatError, Result};
use crate::handle::{self, Handle};
use crate::object::stale;
use crate::registry::{self, Entry, Key, Resolved};
use crate::status::{ReturnType, Subtype};
use crate::types::EvdFlags;

impl Ia {
    /// Opens an adapter. Also returns the new asynchronous EVD, if one was created: it cannot be
    /// freed, and is freed with the IA.
    ///
    /// Starts the IA's thread. The first IA of the process that uses a connection manager also
    /// starts the manager's thread.
    ///
    /// # Errors
    /// - `DAT_INVALID_PARAMETER`: argument 1, the name is longer than 255 bytes; argument 2, the
    ///   length of a new EVD is below 1; without an argument, an environment variable has an
    ///   invalid value.
    /// - `DAT_PROVIDER_NOT_FOUND`: no such device or port, or dat.conf requests something
    ///   impossible. The cause lists the devices and ports.
    /// - `DAT_INVALID_HANDLE_EVD_ASYNC`: the given EVD does not exist, was not created for
    ///   asynchronous events, or belongs to another device.
    /// - `DAT_INVALID_ADDRESS`: the configured GID is not in the port's table; or this host does
    ///   not have the address that service points are to listen on; or rdma_cm was requested, and
    ///   the port's network interface has no address that it serves.
    /// - `DAT_MODEL_NOT_SUPPORTED`: the device cannot be driven as the configuration says, or not
    ///   at all; or rdma_cm was requested, and the kernel has none; or sockets were requested, and
    ///   the device is an iWARP device.
    /// - `DAT_INSUFFICIENT_RESOURCES`: descriptors, threads, memory, or the permission to use the
    ///   device.
    pub fn open(request: &OpenRequest<'_>) -> Result<(Arc<Self>, Option<Handle>)> {
        Self::open_as(request, || {
            registry::resolve(Key {
                name: request.name,
                major: request.major,
                minor: request.minor,
                threadsafe: request.threadsafe,
                interface: request.interface,
            })
        })
    }

    /// Opens an adapter whose name another registry has resolved to this instance data, in the form
    /// of a dat.conf entry.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_configured(
        request: &OpenRequest<'_>,
        instance_data: &str,
    ) -> Result<(Arc<Self>, Option<Handle>)> {
        Self::open_as(request, || Resolved::configured(instance_data))
    }

    /// Opens the adapter of one entry of dat.conf, also where another entry of the same name comes
    /// first. The name, version and thread safety are those of the entry.
    ///
    /// # Errors
    /// As [`Self::open`]; `DAT_PROVIDER_NOT_FOUND` for an entry of another library.
    pub fn open_entry(entry: &Entry, async_qlen: i32) -> Result<(Arc<Self>, Option<Handle>)> {
        let request = OpenRequest {
            name: &entry.name,
            async_qlen,
            async_evd: AsyncEvd::New,
            threadsafe: entry.threadsafe,
            major: entry.major,
            minor: entry.minor,
            interface: (entry.major, entry.minor),
        };
        Self::open_as(&request, || registry::resolve_entry(entry))
    }

    fn open_as(
        request: &OpenRequest<'_>,
        resolve: impl FnOnce() -> Result<Resolved>,
    ) -> Result<(Arc<Self>, Option<Handle>)> {
        if request.async_evd == AsyncEvd::New && request.async_qlen <= 0 {
            return Err(DatError::new(
                ReturnType::InvalidParameter,
                Subtype::InvalidArg2,
                format!(
                    "invalid length of the asynchronous EVD, {}: expected 1 or more",
                    request.async_qlen
                ),
            ));
        }
        let (place, ia) = Self::make(request, resolve)?;
        let made = attach_events(&ia, request)?;
        if let Err(error) = ia.start() {
            // The EVD and the IA refer to each other: dismantling breaks the cycle.
            ia.dismantle();
            return Err(error);
        }
        place.publish(Arc::clone(&ia));
        Ok((ia, made))
    }

    /// Closes an adapter. A graceful close succeeds only if the consumer has freed every object of
    /// the IA. An abrupt close frees the remaining objects: they are gone when this returns, and
    /// threads that wait on an EVD get `DAT_ABORT`.
    ///
    /// Waits for calls on the IA and its objects that are in progress, except those that wait for
    /// events.
    ///
    /// # Errors
    /// - `DAT_INVALID_HANDLE_IA`: the handle names no open IA, another thread is closing it, or
    ///   this process is a fork of the one that opened it.
    /// - `DAT_INVALID_STATE_IA_IN_USE`: the close is graceful, and objects are left. The cause says
    ///   how many of which kind; nothing has changed.
    ///
    /// # Safety
    /// For an abrupt close, no post and no bind to an endpoint or a shared queue of the IA runs at
    /// the same time, unless the IA is threadsafe. A graceful close succeeds only without such
    /// objects.
    pub unsafe fn close(handle: Handle, graceful: bool) -> Result<()> {
        let ia = handle::pin::<Self>(handle)
            .ok_or_else(stale::<Self>)?
            .to_arc();
        ia.require_here()?;
        if graceful && has_shared_evd(&ia) {
            return Err(in_use(
                "another IA sends its asynchronous events to the EVD of this one: close that IA first",
            ));
        }
        // SAFETY: no post runs at the same time, unless posts take the lock.
        unsafe { ia.end(graceful) }
    }
}

/// Sets where asynchronous events go; returns the EVD if one was created.
fn attach_events(ia: &Arc<Ia>, request: &OpenRequest<'_>) -> Result<Option<Handle>> {
    match request.async_evd {
        AsyncEvd::New => {
            let evd = Evd::create_async(ia, request.async_qlen, EvdFlags::ASYNC, None)?;
            let handle = evd.handle();
            match evd.attach(StreamKind::Async) {
                Ok(stream) => ia.reports().set_own(stream_of(stream)),
                Err(error) => {
                    Evd::abort(handle);
                    return Err(error);
                }
            }
            Ok(Some(handle))
        }
        AsyncEvd::Existing(handle) => {
            let evd = handle::pin::<Evd>(handle).ok_or_else(|| {
                bad_evd(format!(
                    "EVD {:#x} was freed: expected a live EVD",
                    handle.bits()
                ))
            })?;
            if evd.ia().device().info().guid != ia.device().info().guid {
                return Err(bad_evd(format!(
                    "EVD {:#x} belongs to IA {:#x}, of another device: expected one of this device, \
                     or DAT_HANDLE_NULL for a new one",
                    handle.bits(),
                    evd.ia().handle().bits()
                )));
            }
            let stream = evd.to_arc().attach(StreamKind::Async)?;
            ia.reports().set(stream_of(stream));
            Ok(None)
        }
        AsyncEvd::Elsewhere => {
            ia.reports().set_elsewhere();
            Ok(None)
        }
    }
}

fn stream_of(stream: StreamGuard) -> AsyncStream {
    let evd = Arc::clone(stream.evd());
    AsyncStream::new(evd.handle(), evd.ia(), Box::new(stream))
}

/// Returns whether other IAs report to the EVD that was created for this one.
fn has_shared_evd(ia: &Ia) -> bool {
    let own = ia.reports().own().and_then(handle::pin::<Evd>);
    own.is_some_and(|evd| evd.usage().count() > 1)
}

fn bad_evd(cause: String) -> DatError {
    DatError::new(
        ReturnType::InvalidHandle,
        Subtype::InvalidHandleEvdAsync,
        cause,
    )
}
