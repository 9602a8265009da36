//! Attributes of endpoints and shared receive queues.

use super::CompletionFlags;

/// `DAT_EP_ATTR`. Counts are as C gives them, negative and huge ones included:
/// they are checked where an endpoint is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpAttributes {
    /// 0 is reliable connections, the only one there is.
    pub service_type: u32,
    /// Bytes of one send or receive, at most.
    pub max_message_size: u64,
    /// Bytes of one RDMA transfer, at most.
    pub max_rdma_size: u64,
    /// Quality of service, as `DAT_QOS`.
    pub qos: u32,
    /// What receives are configured for.
    pub recv_completion_flags: CompletionFlags,
    /// What requests are configured for.
    pub request_completion_flags: CompletionFlags,
    /// Receives outstanding, at most. On an SRQ: the hard high watermark.
    pub max_recv_dtos: i32,
    /// Requests outstanding, at most.
    pub max_request_dtos: i32,
    /// Segments of one receive, at most.
    pub max_recv_iov: i32,
    /// Segments of one request, at most.
    pub max_request_iov: i32,
    /// RDMA reads of the peer that are served at a time.
    pub max_rdma_read_in: i32,
    /// RDMA reads to the peer that are outstanding at a time.
    pub max_rdma_read_out: i32,
    /// Soft high watermark of receives taken from an SRQ.
    pub srq_soft_hw: i32,
    /// Segments of one RDMA read, at most.
    pub max_rdma_read_iov: i32,
    /// Segments of one RDMA write, at most.
    pub max_rdma_write_iov: i32,
}

/// `DAT_SRQ_ATTR`, as C gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttributes {
    /// Receives that it holds.
    pub max_recv_dtos: i32,
    /// Segments of one receive, at most.
    pub max_recv_iov: i32,
    /// At creation 0.
    pub low_watermark: i32,
}
