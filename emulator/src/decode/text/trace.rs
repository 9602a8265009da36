//! The trace: what the NIC reads and writes, as text.

use std::io::Write;

use super::{TextError, cqe, datagram_wqe, receive_wqe, send_wqe, shared_receive_wqe};

/// Writes each WQE and CQE as text to a file or to standard error.
///
/// The output is flushed after every entry, so that it is complete if the process dies.
/// Write errors are ignored, so that the traced program continues.
pub struct TraceWriter {
    out: Box<dyn Write + Send>,
}

impl TraceWriter {
    /// Returns a trace that writes to `out`.
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out }
    }

    fn entry(&mut self, title: &str, text: Result<String, TextError>) {
        let body = text.unwrap_or_else(|error| format!("  {error}\n"));
        // One write per entry, so that processes can share a file.
        let entry = format!("{title}\n{body}");
        let _ = (self.out.write_all(entry.as_bytes())).and_then(|()| self.out.flush());
    }

    /// Records a send WQE that was taken, of a UD QP or of a connected one.
    /// `counter` is the WQEBB counter of its start.
    pub fn send_wqe(&mut self, qpn: u32, counter: u16, datagram: bool, bytes: &[u8]) {
        let text = if datagram {
            datagram_wqe(bytes)
        } else {
            send_wqe(bytes)
        };
        self.entry(&format!("send WQE {counter} of QP {qpn:#08x}"), text);
    }

    /// Records a receive WQE that was taken by a QP. `index` is a counter in the
    /// QP's own queue, or the WQE's index in a shared one.
    pub fn receive_wqe(&mut self, qpn: u32, index: u16, shared: bool, bytes: &[u8]) {
        let (kind, text) = if shared {
            ("shared receive", shared_receive_wqe(bytes))
        } else {
            ("receive", receive_wqe(bytes))
        };
        self.entry(&format!("{kind} WQE {index} by QP {qpn:#08x}"), text);
    }

    /// Records a CQE that was written. `index` is the producer counter.
    pub fn cqe(&mut self, cqn: u32, index: u32, bytes: &[u8]) {
        self.entry(&format!("CQE {index} of CQ {cqn:#08x}"), cqe(bytes));
    }

    /// Records a remark.
    pub fn note(&mut self, text: &str) {
        self.entry(&format!("note: {text}"), Ok(String::new()));
    }
}
