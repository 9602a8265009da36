//! `mlx5-emu dump`: decodes bytes of a given format, one item or a ring of them.

use super::{Form, TextError, cqe, doorbell, receive_wqe, send_wqes, shared_receive_wqe};

/// The format of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Send WQEs, each at a multiple of 64 bytes.
    SendWqe(Form),
    /// One receive WQE.
    ReceiveWqe,
    /// One SRQ WQE.
    SharedReceiveWqe,
    /// CQEs of this size in bytes, 64 or 128.
    Cqe(usize),
    /// One store to a doorbell page.
    Doorbell,
}

/// Decodes bytes to text.
///
/// # Errors
/// Returns an error if the bytes do not have the format; for several CQEs or WQEs, the
/// error of the first that does not.
pub fn dump(kind: Kind, bytes: &[u8]) -> Result<String, TextError> {
    match kind {
        Kind::SendWqe(form) => send_wqes(bytes, form),
        Kind::ReceiveWqe => receive_wqe(bytes),
        Kind::SharedReceiveWqe => shared_receive_wqe(bytes),
        Kind::Cqe(size) if bytes.len() > size && bytes.len().is_multiple_of(size) => {
            bytes.chunks_exact(size).map(cqe).collect()
        }
        Kind::Cqe(128) if bytes.len() == 64 => Err(TextError::WrongLength {
            what: "a 128-byte CQE",
            expected: "128",
            given: 64,
        }),
        Kind::Cqe(_) => cqe(bytes),
        Kind::Doorbell => doorbell(bytes),
    }
}
