//! Shared receive queues on an emulated device.
