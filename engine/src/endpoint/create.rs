//! Creating endpoints on the data path of the device.

use core::mem::ManuallyDrop;
use std::sync::Arc;

use super::options::InlineShape;
use super::{Endpoint, EndpointHandle, EndpointOptions};
use crate::control::{ProtectionDomain, QpGrant, QpSpec, VerbsQp};
use crate::error::{ControlError, ControlErrorKind};
use crate::path::{self, CqSide, SrqSide, direct, verbs};
use crate::queue::CqOptions;
use mlx5_rings::layout::SendLayout;
use mlx5_rings::send::DoorbellPolicy;

impl ProtectionDomain {
    /// Returns how many inline bytes, at most `most`, an endpoint of this shape
    /// gets. Creates endpoints to find out, and drops them.
    /// # Errors
    /// An endpoint of this shape cannot be created even without inline data.
    pub fn probe_inline(&self, shape: &InlineShape, most: u32) -> Result<u32, ControlError> {
        let cq = self.device().create_cq(&CqOptions {
            depth: 1,
            ..CqOptions::default()
        })?;
        let endpoint = self.create_endpoint(&EndpointOptions {
            send_depth: shape.send_depth,
            recv_depth: shape.recv_depth,
            send_segments: shape.send_segments,
            inline_bytes: most,
            inline_or_fewer: true,
            ..EndpointOptions::new(&cq, &cq)
        })?;
        Ok(endpoint.max_inline().min(most))
    }

    /// Creates an endpoint in RESET.
    ///
    /// # Errors
    /// An argument exceeds the device's limits, the parts belong to different
    /// devices, or the device has no queue pairs left.
    pub fn create_endpoint(&self, options: &EndpointOptions<'_>) -> Result<Endpoint, ControlError> {
        let environment_options = self.device().environment();
        let spec = QpSpec {
            send_cq: &options.send_cq.verbs,
            recv_cq: &options.recv_cq.verbs,
            srq: options.srq.map(|srq| &srq.verbs),
            send_depth: options.send_depth,
            recv_depth: options.recv_depth,
            send_segments: options.send_segments,
            recv_segments: options.recv_segments,
            inline_bytes: if environment_options.no_inline {
                0
            } else {
                options.inline_bytes
            },
            inline_or_fewer: options.inline_or_fewer,
            exclusive_register: options.exclusive_register,
            payload_in_completion: options.payload_in_completion,
            windows: options.windows,
        };
        let verbs = Arc::new(VerbsQp::create(self, &spec)?);
        let single = options.thread_mode.serialized || environment_options.single_threaded;
        let doorbell = DoorbellPolicy {
            blue_flame: !environment_options.no_blue_flame,
            locked: !single,
        };
        let mut grant = verbs.grant();
        if environment_options.no_inline {
            grant.inline_bytes = 0;
        }
        let path = match verbs.send_layout() {
            Some(send) => direct_path(&verbs, send, options, doorbell, grant)?,
            None => verbs_path(&verbs, options, grant)?,
        };
        Ok(Endpoint {
            handle: ManuallyDrop::new(EndpointHandle::new(verbs, path.watch())),
            path: ManuallyDrop::new(path),
            max_inline: grant.inline_bytes,
        })
    }
}

fn direct_path(
    verbs: &Arc<VerbsQp>,
    mut send: SendLayout,
    options: &EndpointOptions<'_>,
    doorbell: DoorbellPolicy,
    grant: QpGrant,
) -> Result<path::QueuePair, ControlError> {
    send.max_inline = grant.inline_bytes;
    let (CqSide::Direct(send_commands), CqSide::Direct(recv_commands)) =
        (&options.send_cq.path, &options.recv_cq.path)
    else {
        return Err(mixed());
    };
    let shared = match options.srq.map(|srq| &srq.path) {
        None => None,
        Some(SrqSide::Direct(shared)) => Some(shared.clone()),
        Some(SrqSide::Verbs(_)) => return Err(mixed()),
    };
    let parts = direct::QueuePairParts {
        send,
        doorbell: DoorbellPolicy {
            locked: doorbell.locked && !send.register.exclusive,
            ..doorbell
        },
        recv: verbs.recv_layout(),
        shared,
        send_commands: Arc::clone(send_commands),
        recv_commands: Arc::clone(recv_commands),
        context: options.context,
        owner: Arc::clone(verbs) as direct::Owner,
    };
    // SAFETY: the layouts are those of a queue pair that was just created, which
    // lives, and keeps its number, as long as the owner; its rings have no other
    // user. The doorbell register is its own, or shared with other queue pairs of
    // the engine and locked unless the application promised one posting thread.
    unsafe { direct::QueuePair::new(parts) }
        .map(path::QueuePair::Direct)
        .map_err(|error| {
            ControlError::new(
                ControlErrorKind::Unsupported,
                "use a queue pair on the direct path",
                error.to_string(),
            )
        })
}

fn verbs_path(
    verbs: &Arc<VerbsQp>,
    options: &EndpointOptions<'_>,
    grant: QpGrant,
) -> Result<path::QueuePair, ControlError> {
    let (CqSide::Verbs(send), CqSide::Verbs(recv)) = (&options.send_cq.path, &options.recv_cq.path)
    else {
        return Err(mixed());
    };
    let shared = match options.srq.map(|srq| &srq.path) {
        None => None,
        Some(SrqSide::Verbs(shared)) => Some(shared.clone()),
        Some(SrqSide::Direct(_)) => return Err(mixed()),
    };
    let parts = verbs::QueuePairParts {
        queue: Arc::clone(verbs),
        grant,
        shared,
        send: send.clone(),
        recv: recv.clone(),
        context: options.context,
    };
    verbs::QueuePair::new(parts)
        .map(path::QueuePair::Verbs)
        .ok_or_else(|| {
            ControlError::new(
                ControlErrorKind::OutOfResources,
                CREATE,
                "a completion queue serves no more than 2^20 endpoints",
            )
            .with_remedy("create some of the endpoints on another completion queue")
        })
}

/// Returns the error for parts on different data paths. Parts of different devices
/// were refused when the queue pair was created.
fn mixed() -> ControlError {
    ControlError::new(
        ControlErrorKind::Invalid,
        CREATE,
        "its parts are on different data paths",
    )
}

const CREATE: &str = "create an endpoint";
