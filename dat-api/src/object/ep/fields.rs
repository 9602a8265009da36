//! The mask of endpoint parameters.
#![expect(missing_docs, reason = "the names are DAT's")]

bitflags::bitflags! {
    /// `DAT_EP_PARAM_MASK`, with its bits: the members of `DAT_EP_PARAM`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EpFields: u64 {
        const IA = 1 << 0;
        const STATE = 1 << 1;
        const LOCAL_ADDRESS = 1 << 2;
        const LOCAL_PORT = 1 << 3;
        const REMOTE_ADDRESS = 1 << 4;
        const REMOTE_PORT = 1 << 5;
        const PZ = 1 << 6;
        const RECV_EVD = 1 << 7;
        const REQUEST_EVD = 1 << 8;
        const CONNECT_EVD = 1 << 9;
        const SRQ = 1 << 10;
        const SERVICE_TYPE = 1 << 12;
        const MAX_MESSAGE_SIZE = 1 << 13;
        const MAX_RDMA_SIZE = 1 << 14;
        const QOS = 1 << 15;
        const RECV_FLAGS = 1 << 16;
        const REQUEST_FLAGS = 1 << 17;
        const MAX_RECV_DTOS = 1 << 18;
        const MAX_REQUEST_DTOS = 1 << 19;
        const MAX_RECV_IOV = 1 << 20;
        const MAX_REQUEST_IOV = 1 << 21;
        const MAX_RDMA_READ_IN = 1 << 22;
        const MAX_RDMA_READ_OUT = 1 << 23;
        const SRQ_SOFT_HW = 1 << 24;
        const MAX_RDMA_READ_IOV = 1 << 25;
        const MAX_RDMA_WRITE_IOV = 1 << 26;
        const NUM_TRANSPORT_ATTRIBUTES = 1 << 27;
        const TRANSPORT_ATTRIBUTES = 1 << 28;
        const NUM_PROVIDER_ATTRIBUTES = 1 << 29;
        const PROVIDER_ATTRIBUTES = 1 << 30;
    }
}

impl EpFields {
    /// All attributes that can be changed.
    pub(crate) const ATTRIBUTES: Self = Self::SERVICE_TYPE
        .union(Self::MAX_MESSAGE_SIZE)
        .union(Self::MAX_RDMA_SIZE)
        .union(Self::QOS)
        .union(Self::RECV_FLAGS)
        .union(Self::REQUEST_FLAGS)
        .union(Self::MAX_RECV_DTOS)
        .union(Self::MAX_REQUEST_DTOS)
        .union(Self::MAX_RECV_IOV)
        .union(Self::MAX_REQUEST_IOV)
        .union(Self::MAX_RDMA_READ_IN)
        .union(Self::MAX_RDMA_READ_OUT)
        .union(Self::MAX_RDMA_READ_IOV)
        .union(Self::MAX_RDMA_WRITE_IOV);
}
