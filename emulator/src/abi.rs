//! The layout of structures of the kernel's interfaces.

macro_rules! abi {
    ($($(#[$doc:meta])* struct $name:ident = $size:literal { $($field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout,
            zerocopy::Immutable,
        )]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $ty,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}
pub(crate) use abi;

abi! {
    /// `struct ib_uverbs_ah_attr`.
    struct AhAttr = 32 {
        dgid: [u8; 16], flow_label: u32, sgid_index: u8, hop_limit: u8, traffic_class: u8, reserved0: u8,
        dlid: u16, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8, port_num: u8, reserved1: u8,
    }
}
