//! Commands to `/dev/infiniband/rdma_cm`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mlx5emu::fuzzing::rdma_cm(bytes));
