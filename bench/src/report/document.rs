//! Result files as JSON: the keys that all of them have. The schema has a
//! version: within a version, keys may be added; removing a key or changing its
//! meaning needs a new version.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::DeviceFacts;

#[derive(Serialize)]
struct Document<T> {
    /// Name and version of the schema.
    schema: &'static str,
    dat_bench: &'static str,
    /// Seconds since 1970, UTC.
    finished_at: u64,
    /// Whether the device is emulated, so that the figures are the emulator's.
    emulated: bool,
    #[serde(flatten)]
    body: T,
}

/// Returns a result file of a run on this device; `body` has the other keys.
pub(crate) fn document(schema: &'static str, device: &DeviceFacts, body: impl Serialize) -> String {
    pretty(&Document {
        schema,
        dat_bench: env!("CARGO_PKG_VERSION"),
        finished_at: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        emulated: device.emulated_fabric.is_some(),
        body,
    })
}

/// Returns JSON as text, with a newline at the end.
pub(crate) fn pretty(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value)
        .expect("the document has text keys and finite numbers only");
    text.push('\n');
    text
}
