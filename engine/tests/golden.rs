//! WQE segments against the encoders that `mlx5dv.h` itself defines.

use dat_engine::Segment;
use dat_engine::wire::{CtrlFlags, CtrlSegment, DataSegment, WqeOpcode};
use dv_sys::mlx5dv::{
    mlx5_wqe_ctrl_seg, mlx5_wqe_data_seg, mlx5dv_set_ctrl_seg, mlx5dv_set_data_seg,
};

/// The 16 bytes of a segment, as two words of memory.
fn words<T>(segment: &T) -> [u64; 2] {
    assert_eq!(size_of::<T>(), 16);
    // SAFETY: 16 initialised bytes without padding, of any alignment.
    unsafe {
        std::ptr::from_ref(segment)
            .cast::<[u64; 2]>()
            .read_unaligned()
    }
}

#[test]
fn a_control_segment_has_the_bytes_of_mlx5dv() {
    let opcodes = [
        WqeOpcode::Send,
        WqeOpcode::SendImm,
        WqeOpcode::RdmaWrite,
        WqeOpcode::RdmaWriteImm,
        WqeOpcode::RdmaRead,
    ];
    for opcode in opcodes {
        for (index, qpn, units) in [(0, 1, 1), (0x1234, 0x00ab_cdef, 5), (0xffff, 0xff_ffff, 63)] {
            for flags in [CtrlFlags::empty(), CtrlFlags::CQ_UPDATE, CtrlFlags::all()] {
                let imm: u32 = 0x1122_3344;
                let ours = CtrlSegment::new(opcode, index, qpn << 8, units, flags, imm);
                let mut theirs = mlx5_wqe_ctrl_seg::default();
                let units = u8::try_from(units).expect("six bits");
                // SAFETY: a whole segment to write to; the encoder reads nothing.
                unsafe {
                    mlx5dv_set_ctrl_seg(
                        &raw mut theirs,
                        index,
                        opcode as u8,
                        0,
                        qpn,
                        flags.bits(),
                        units,
                        0,
                        imm.to_be(),
                    );
                }
                assert_eq!(ours.to_words(), words(&theirs), "{opcode:?} {flags:?}");
            }
        }
    }
}

#[test]
fn a_data_segment_has_the_bytes_of_mlx5dv() {
    for (addr, length, lkey) in [
        (0, 1, 0),
        (0x1122_3344_5566_7788, 0x7fff_ffff, 0xdead_beef),
        (u64::MAX, 4096, 0x0100),
    ] {
        let ours = DataSegment::new(&Segment { addr, length, lkey });
        let mut theirs = mlx5_wqe_data_seg {
            byte_count: 0,
            lkey: 0,
            addr: 0,
        };
        let address = usize::try_from(addr).expect("64 bits");
        // SAFETY: a whole segment to write to; the address is only encoded.
        unsafe { mlx5dv_set_data_seg(&raw mut theirs, length, lkey, address) };
        assert_eq!(ours.to_words(), words(&theirs), "{addr:#x}");
    }
}
