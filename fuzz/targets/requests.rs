//! WQEs in the rings of two connected queue pairs of the emulated NIC.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mlx5emu::fuzzing::requests(bytes));
