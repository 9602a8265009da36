//! Conversions between C's types and the objects: handles, results, events,
//! segments, attributes. Nothing here applies DAT's rules.

pub(crate) mod address;
pub(crate) mod attributes;
pub(crate) mod call;
pub(crate) mod cancel;
pub(crate) mod debug;
pub(crate) mod event;
pub(crate) mod frame;
pub(crate) mod handles;
pub(crate) mod output;
pub(crate) mod private_data;
pub(crate) mod provider;
pub(crate) mod refused;
pub(crate) mod segments;
pub(crate) mod strings;
pub(crate) mod subject;
