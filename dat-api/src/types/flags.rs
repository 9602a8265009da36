//! Flag words.

bitflags::bitflags! {
    /// `DAT_COMPLETION_FLAGS`: of a post, or of an endpoint's attributes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CompletionFlags: u32 {
        /// No event if the request succeeds.
        const SUPPRESS = 0x01;
        /// Send: the peer's receive notifies. Endpoint: only such receives notify.
        const SOLICITED_WAIT = 0x02;
        /// The event is queued but wakes no waiter.
        const UNSIGNALLED = 0x04;
        /// The request starts only after all earlier RDMA reads of the endpoint.
        const BARRIER_FENCE = 0x08;
        /// Endpoint: the threshold of the wait decides when a waiter wakes.
        const EVD_THRESHOLD = 0x10;
    }
}

bitflags::bitflags! {
    /// `DAT_EVD_FLAGS`: the streams that an EVD may carry.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EvdFlags: u32 {
        /// Software events, posted by the consumer.
        const SOFTWARE = 0x001;
        /// Connection requests.
        const CR = 0x010;
        /// Completions of data transfers.
        const DTO = 0x020;
        /// Connection events.
        const CONNECTION = 0x040;
        /// Completions of RMR binds.
        const RMR_BIND = 0x080;
        /// Asynchronous errors.
        const ASYNC = 0x100;
    }
}

bitflags::bitflags! {
    /// `DAT_MEM_PRIV_FLAGS`: the privileges of memory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MemPrivileges: u32 {
        /// Requests of this side may read it.
        const LOCAL_READ = 0x01;
        /// RDMA reads of peers may read it.
        const REMOTE_READ = 0x02;
        /// Receives and RDMA reads of this side may write it.
        const LOCAL_WRITE = 0x10;
        /// RDMA writes of peers may write it.
        const REMOTE_WRITE = 0x20;
        /// Atomic operations of peers may change it. An extension of uDAPL 2.0
        /// (`DAT_IB_MEM_PRIV_REMOTE_ATOMIC`).
        const REMOTE_ATOMIC = 0x40;
    }
}
