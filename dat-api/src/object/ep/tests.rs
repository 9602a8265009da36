//! Endpoints on an emulated device.
