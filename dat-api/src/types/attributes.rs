//! Attributes of endpoints and shared receive queues.

use super::CompletionFlags;

/// `DAT_EP_ATTR`. Counts are as C programs give them, including negative and huge ones; they are
/// checked when an endpoint is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpAttributes {
    /// The service type; only 0, a reliable connection, exists.
    pub service_type: u32,
    /// The maximum length of a send or receive, in bytes.
    pub max_message_size: u64,
    /// The maximum length of an RDMA transfer, in bytes.
    pub max_rdma_size: u64,
    /// The quality of service, as `DAT_QOS`.
    pub qos: u32,
    /// How receives notify.
    pub recv_completion_flags: CompletionFlags,
    /// How requests notify.
    pub request_completion_flags: CompletionFlags,
    /// The maximum number of outstanding receives. On an SRQ: the hard high watermark.
    pub max_recv_dtos: i32,
    /// The maximum number of outstanding requests.
    pub max_request_dtos: i32,
    /// The maximum number of segments of a receive.
    pub max_recv_iov: i32,
    /// The maximum number of segments of a request.
    pub max_request_iov: i32,
    /// The maximum number of the peer's RDMA reads that are served at a time.
    pub max_rdma_read_in: i32,
    /// The maximum number of RDMA reads outstanding at a time.
    pub max_rdma_read_out: i32,
    /// The soft high watermark of receives taken from an SRQ.
    pub srq_soft_hw: i32,
    /// The maximum number of segments of an RDMA read.
    pub max_rdma_read_iov: i32,
    /// The maximum number of segments of an RDMA write.
    pub max_rdma_write_iov: i32,
}

/// `DAT_SRQ_ATTR`, as C programs give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttributes {
    /// The number of receives that it holds.
    pub max_recv_dtos: i32,
    /// The maximum number of segments of a receive.
    pub max_recv_iov: i32,
    /// The low watermark; 0 at creation.
    pub low_watermark: i32,
}
