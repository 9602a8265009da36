//! The control path: devices, protection domains, memory and queues, through
//! libibverbs.
//!
//! Each verbs object has one file and one owner type that destroys it. An object
//! keeps the objects that it was created from alive, so the order in which handles
//! are dropped does not matter. Nothing here runs per message. On the direct path,
//! `export` passes the location of the rings to `mlx5_rings` as plain values; on
//! the verbs path the queues themselves are passed to `path/verbs`.

mod access;
mod address;
mod buffer;
mod channel;
mod clock;
mod connect;
mod context;
mod cq;
mod cq_resize;
mod data_in_order;
mod device;
mod device_list;
mod domain;
mod events;
mod export;
mod gid;
mod greeting;
mod id;
mod inline;
mod limits;
mod managed;
mod memlock;
mod numa;
mod path;
mod pkey;
mod port;
mod qp;
mod qp_attributes;
mod quirks;
mod reach;
mod region;
mod register;
mod route;
mod siw_offset;
mod software_event;
mod srq;
mod transport;
mod transport_options;
mod window;

pub use access::Access;
pub use address::{ConnectOptions, EndpointAddress};
pub use buffer::RegisteredBuffer;
pub use channel::CompletionChannel;
pub use clock::DeviceClock;
pub use connect::QpState;
pub(crate) use context::forks;
pub use cq::{CqeSize, VerbsCq};
pub use data_in_order::DataInOrder;
pub use device::{DataPath, Device, DeviceInfo, Guid, devices, devices_with};
pub use domain::ProtectionDomain;
pub use events::{AsyncEvent, AsyncEventKind, AsyncEvents, AsyncSource};
pub use gid::{Gid, GidChoice, GidEntry, GidKind};
pub(crate) use greeting::GREETING_WR_ID;
pub use greeting::{Greeting, GreetingPlace};
pub use id::ObjectId;
pub use limits::Limits;
pub use managed::{IwarpRoute, ManagedRoute, Route};
pub use memlock::LockedMemory;
pub use numa::NumaNode;
pub use path::PathRequest;
pub use pkey::PartitionKey;
pub use port::{LinkLayer, Mtu, PortInfo, PortState};
pub use qp::{QpGrant, QpSpec, VerbsQp};
pub use qp_attributes::QpAttributes;
pub use quirks::Quirks;
pub use region::MemoryRegion;
pub use srq::VerbsSrq;
pub use transport::Transport;
pub use transport_options::TransportOptions;
pub use window::{MemoryWindow, WindowTarget};
