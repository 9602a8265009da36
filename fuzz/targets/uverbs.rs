//! Commands to `/dev/infiniband/uverbs0`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mlx5emu::fuzzing::uverbs(bytes));
