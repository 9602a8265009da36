//! Commands with random bytes: every command returns, with or without an error.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::fixtures::*;
use crate::uverbs::DeviceFile;
use crate::uverbs::abi::{DRIVER_MLX5, IoctlHeader, RDMA_VERBS_IOCTL};

fn send_raw(file: &Arc<DeviceFile>, bytes: &mut [u8]) {
    // The result may be an error; the call must return.
    let _ = file.ioctl(RDMA_VERBS_IOCTL, bytes.as_mut_ptr() as u64);
}

/// Generates random numbers, limits of fields, and small numbers that may be handles.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..8_u64,
        Just(u64::MAX),
        Just(1 << 31),
        Just(u64::from(u32::MAX)),
        any::<u64>()
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_not_panic(mut bytes in vec(any::<u8>(), 24..400)) {
        let (file, _) = open_context();
        send_raw(&file, &mut bytes);
    }

    #[test]
    fn random_attributes_of_existing_methods_do_not_panic(
        object in prop_oneof![0..9_u16, Just(16), Just(0x1008)],
        method in prop_oneof![0..7_u16, 0x1000..0x1002_u16],
        attributes in vec((0..16_u16, prop_oneof![0..70_u16, any::<u16>()], value()), 0..16),
    ) {
        let (file, _) = open_context();
        let mut command = Command::new(object, method);
        for (id, len, data) in attributes {
            command = command.attribute(id, len.into(), data);
        }
        let _ = command.send(&file);
    }

    #[test]
    fn random_bytes_in_a_wrapped_write_command_do_not_panic(
        number in prop_oneof![0..42_u32, (0..42_u32).prop_map(|it| it | 1 << 31)],
        core in vec(any::<u8>(), 0..140),
        driver in vec(any::<u8>(), 0..80),
        reply_len in 0..400_usize,
    ) {
        let (file, _) = open_context();
        let command = Command::write(number, &core, reply_len)
            .input(crate::uverbs::abi::UHW_IN, &driver)
            .output(crate::uverbs::abi::UHW_OUT, 40);
        let _ = command.send(&file);
    }

    #[test]
    fn an_attribute_count_beyond_the_buffer_does_not_panic(count in any::<u16>(), length in any::<u16>()) {
        let (file, _) = open_context();
        let header = IoctlHeader {
            length,
            object_id: 0,
            method_id: 2,
            num_attrs: count,
            reserved1: 0,
            driver_id: DRIVER_MLX5,
            reserved2: 0,
        };
        send_raw(&file, &mut header.as_bytes().to_vec());
    }
}
