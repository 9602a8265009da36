//! Result files as JSON: the keys that all of them have. The schema has a
//! version: within a version, keys may be added; removing a key or changing its
//! meaning needs a new version.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::conditions::DeviceFacts;

/// Makes a value with these keys in JSON, in this order; `docs/schema` describes them.
macro_rules! object {
    ($($(#[$attribute:meta])* $key:ident: $value:expr),* $(,)?) => {{
        #[allow(non_camel_case_types, reason = "the type of a key has its name")]
        let object = {
            #[derive(serde::Serialize)]
            struct Object<$($key),*> {
                $($(#[$attribute])* $key: $key,)*
            }
            Object {
                $($key: $value,)*
            }
        };
        object
    }};
}
pub(crate) use object;

/// Returns a result file of a run on this device; `body` has the other keys.
pub(crate) fn document(schema: &'static str, device: &DeviceFacts, body: impl Serialize) -> String {
    let finished = SystemTime::now().duration_since(UNIX_EPOCH);
    pretty(&object! {
        schema: schema,
        dat_bench: env!("CARGO_PKG_VERSION"),
        finished_at: finished.map_or(0, |since| since.as_secs()),
        emulated: device.emulated_fabric.is_some(),
        #[serde(flatten)]
        body: body,
    })
}

/// Returns JSON as text, with a newline at the end.
pub(crate) fn pretty(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value)
        .expect("the document has text keys and finite numbers only");
    text.push('\n');
    text
}
