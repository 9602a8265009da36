//! The kernel's side of `/dev/infiniband/rdma_cm`, as unmodified librdmacm sees
//! it: rdma_cm ids, addresses, ports and events.
//!
//! ```text
//! preload ──► file       an open file: its queue of events, and its readiness
//!               │ write
//!             commands   decoding; every length is checked
//!               │
//!             resolve    bind, listen, resolve     ──► host, ports, network
//!             connect    connect, accept, reject, …──► cm (the messages)
//!             requests   requests of peers         ◄── cm
//!             query      addresses, paths, queue pair attributes
//! ```
//!
//! Each process has its own ids, where a host has one table in its kernel. What
//! processes must agree on is found through the fabric's directory
//! ([`crate::fabric::registry`]): who uses a port, and who listens.
//!
//! Addresses are those of the host that the process runs on. Each belongs to a
//! port of an emulated device: `network` says which. An address of another host
//! cannot be reached, and its resolution times out, as if that host were off.
//!
//! The error numbers are those of the kernel's rdma_ucm and rdma_cm. Multicast is
//! refused with `EOPNOTSUPP`, and so are questions to a subnet manager for
//! services.
//!
//! Decision: `docs/decisions/064-rdma-cm-between-processes.md`

pub(crate) mod abi;
mod address;
mod agent;
mod commands;
mod connect;
mod events;
mod file;
mod host;
mod id;
mod network;
mod options;
mod ports;
mod private_header;
mod qp_attributes;
mod query;
mod rdma_cm;
mod requests;
mod resolve;
mod services;
mod start;
mod text;

#[cfg(fuzzing)]
pub(crate) use tests::fuzzing;
#[cfg(any(test, fuzzing))]
#[cfg_attr(
    fuzzing,
    allow(
        dead_code,
        unused_imports,
        reason = "the other fixtures are for the tests"
    )
)]
mod tests;

pub(crate) use agent::Ucma;
pub(crate) use file::CmFile;
pub(crate) use services::listener_of;
