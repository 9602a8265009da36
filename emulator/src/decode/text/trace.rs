//! The trace option: what the NIC reads and writes, as it happens, as text.

use std::io::Write;

use super::{cqe, send_wqe};

/// Writes the text of each WQE and CQE to a file or to standard error.
///
/// Lines are flushed one event at a time: a trace is most wanted of a process
/// that dies. Output that fails is dropped; the traced program goes on.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
}

impl<W: Write> TraceWriter<W> {
    /// Traces to `out`.
    pub fn new(out: W) -> Self {
        TraceWriter { out }
    }

    fn entry(&mut self, title: &str, text: Result<String, super::TextError>) {
        let body = text.unwrap_or_else(|error| format!("  {error}\n"));
        let _ = write!(self.out, "{title}\n{body}").and_then(|()| self.out.flush());
    }

    /// A send WQE that the NIC starts to execute.
    pub fn wqe(&mut self, qpn: u32, index: u16, bytes: &[u8]) {
        self.entry(
            &format!("WQE QPN {qpn:#08x} index {index}"),
            send_wqe(bytes),
        );
    }

    /// A CQE that the NIC has written.
    pub fn cqe(&mut self, cqn: u32, index: u32, bytes: &[u8]) {
        self.entry(&format!("CQE CQN {cqn:#08x} index {index}"), cqe(bytes));
    }

    /// Anything else worth knowing.
    pub fn note(&mut self, note: &str) {
        self.entry(&format!("NIC {note}"), Ok(String::new()));
    }
}
