//! Requests to RDMA netlink, and the reports of other processes that its replies show.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mlx5emu::fuzzing::netlink(bytes));
