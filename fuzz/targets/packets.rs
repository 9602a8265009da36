//! RoCE packets, to queue pairs of the emulated NIC and to its connection manager.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mlx5emu::fuzzing::packets(bytes));
