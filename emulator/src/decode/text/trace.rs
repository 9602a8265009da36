//! The trace: what the NIC reads and writes, as text.

use std::io::Write;

use super::{TextError, cqe, datagram_wqe, receive_wqe, send_wqe, shared_receive_wqe};
use crate::nic::Trace;

/// Writes each WQE and CQE as text to a file or to standard error.
///
/// The output is flushed after every entry, so that it is complete if the process dies.
/// Write errors are ignored, so that the traced program continues.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
}

impl<W: Write> TraceWriter<W> {
    /// Returns a trace that writes to `out`.
    pub fn new(out: W) -> Self {
        TraceWriter { out }
    }

    fn entry(&mut self, title: &str, text: Result<String, TextError>) {
        let body = text.unwrap_or_else(|error| format!("  {error}\n"));
        // One write per entry, so that processes can share a file.
        let entry = format!("{title}\n{body}");
        let _ = (self.out.write_all(entry.as_bytes())).and_then(|()| self.out.flush());
    }
}

impl<W: Write> Trace for TraceWriter<W> {
    fn send_wqe(&mut self, qpn: u32, counter: u16, datagram: bool, bytes: &[u8]) {
        let text = if datagram {
            datagram_wqe(bytes)
        } else {
            send_wqe(bytes)
        };
        self.entry(&format!("send WQE {counter} of QP {qpn:#08x}"), text);
    }

    fn receive_wqe(&mut self, qpn: u32, index: u16, shared: bool, bytes: &[u8]) {
        let (kind, text) = if shared {
            ("shared receive", shared_receive_wqe(bytes))
        } else {
            ("receive", receive_wqe(bytes))
        };
        self.entry(&format!("{kind} WQE {index} by QP {qpn:#08x}"), text);
    }

    fn cqe(&mut self, cqn: u32, index: u32, bytes: &[u8]) {
        self.entry(&format!("CQE {index} of CQ {cqn:#08x}"), cqe(bytes));
    }

    fn note(&mut self, text: &str) {
        self.entry(&format!("note: {text}"), Ok(String::new()));
    }
}
