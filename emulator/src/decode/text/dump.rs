//! `mlx5-emu dump`: bytes of a named kind, one thing or a ring of them.

use super::{Form, TextError, cqe, doorbell, receive_wqe, send_wqes, shared_receive_wqe};

/// What the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Send WQEs, each at a multiple of 64 bytes.
    SendWqe(Form),
    /// One receive WQE.
    ReceiveWqe,
    /// One SRQ WQE.
    SharedReceiveWqe,
    /// CQEs of that many bytes, 64 or 128.
    Cqe(usize),
    /// One store on a doorbell page.
    Doorbell,
}

/// The text of the bytes.
///
/// # Errors
/// They cannot be that; with several CQEs or WQEs, the first that cannot.
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
