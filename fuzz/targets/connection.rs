//! The messages of a peer's connection manager: over TCP, and as private data of rdma_cm.
#![no_main]

use dat_engine::cm::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    fuzzing::frames(bytes);
    fuzzing::private_data(bytes);
});
