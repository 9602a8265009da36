//! WQE segments compared with those of the encoders in `mlx5dv.h`.

use std::ptr::NonNull;

use crate::{Segment, SendFlags, SendOp, SendRequest};
use dv_sys::mlx5dv::{
    MLX5_OPCODE_UMR, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE, MLX5_WQE_MKEY_CONTEXT_FREE,
    MLX5_WQE_UMR_CTRL_FLAG_INLINE, MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET, mlx5_wqe_atomic_seg,
    mlx5_wqe_ctrl_seg, mlx5_wqe_data_seg, mlx5dv_set_ctrl_seg, mlx5dv_set_data_seg,
};
use mlx5_rings::layout::{RegisterLayout, SendLayout};
use mlx5_rings::send::{DoorbellPolicy, SendConsumer, SendProducer};
use mlx5_rings::wire::{
    AtomicOp, CtrlFlags, CtrlSegment, DataSegment, MkeyAccess, WindowChange, WindowRange, WqeOpcode,
};

/// Returns the 16 bytes of a segment as two words.
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
fn a_control_segment_equals_that_of_mlx5dv() {
    for opcode in (0..=u8::MAX).filter_map(WqeOpcode::from_bits) {
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
fn an_atomic_segment_equals_that_of_mlx5dv() {
    let (compare, swap): (u64, u64) = (0x0102_0304_0506_0708, 0xf1f2_f3f4_f5f6_f7f8);
    let theirs = mlx5_wqe_atomic_seg {
        swap_add: swap.to_be(),
        compare: compare.to_be(),
    };
    let (first, second) = AtomicOp::CompareSwap { compare, swap }.to_words();
    assert_eq!(
        Some([first, second.unwrap_or(0)]),
        second.and(Some(words(&theirs)))
    );
}

#[repr(align(64))]
struct Memory(#[allow(dead_code, reason = "accessed by address")] [u8; 1024]);

#[test]
fn a_marker_equals_the_nop_of_mlx5dv_with_any_flags() {
    const QPN: u32 = 0x12_3456;
    for (asked, expected) in [
        (SendFlags::empty(), CtrlFlags::CQ_UPDATE),
        (SendFlags::SIGNALED, CtrlFlags::CQ_UPDATE),
        (
            SendFlags::FENCE | SendFlags::SOLICITED | SendFlags::INLINE,
            CtrlFlags::CQ_UPDATE | CtrlFlags::FENCE,
        ),
    ] {
        // Four WQEBBs, the doorbell records, and both halves of a doorbell
        // register.
        let memory = NonNull::from(Box::leak(Box::new(Memory([0xa5; 1024])))).cast::<u8>();
        // SAFETY: the offsets are inside the memory.
        let (dbrec, reg) = unsafe { (memory.add(256 + 4), memory.add(512)) };
        let mut register = RegisterLayout::new(reg);
        register.half_size = 256;
        register.exclusive = true;
        let layout = SendLayout::new(memory, 4, dbrec.cast(), register, QPN);
        let policy = DoorbellPolicy {
            blue_flame: true,
            locked: false,
        };
        // SAFETY: the memory is never freed, and has no other user.
        let consumer = unsafe { SendConsumer::new(&layout) }.expect("a layout");
        // SAFETY: the consumer outlives the producer, and does not move.
        let mut producer = unsafe { SendProducer::new(&layout, policy, &consumer) };
        producer.open();
        let segment = Segment::default();
        for (counter, segments) in [(0, &[][..]), (1, &[segment][..])] {
            let marker = SendRequest {
                wr_id: 77,
                op: SendOp::Nop,
                flags: asked,
                segments,
            };
            // SAFETY: a marker refers to no memory.
            unsafe { producer.post(&marker, 0) }.expect("room");
            let mut theirs = mlx5_wqe_ctrl_seg::default();
            // SAFETY: the pointer is to a whole segment, which the encoder only
            // writes.
            unsafe {
                mlx5dv_set_ctrl_seg(
                    &raw mut theirs,
                    counter,
                    0, // MLX5_OPCODE_NOP
                    0,
                    QPN,
                    expected.bits(),
                    1,
                    0,
                    0,
                );
            }
            let theirs = words(&theirs);
            let at = |offset: usize| {
                // SAFETY: inside the memory, aligned.
                unsafe { memory.add(offset).cast::<u64>().read_volatile() }
            };
            let wqe = usize::from(counter) * 64;
            assert_eq!([at(wqe), at(wqe + 8)], theirs, "{asked:?}");
            assert_eq!(
                at(wqe + 16),
                0xa5a5_a5a5_a5a5_a5a5,
                "a control segment alone"
            );
            // An 8-byte doorbell, in the half that is used next.
            assert!([at(512), at(768)].contains(&theirs[0]), "{asked:?}");
            // SAFETY: no device reads the ring.
            let retired = unsafe { consumer.retire(counter) };
            assert_eq!(retired.wr_id, 77);
        }
    }
}

#[test]
fn a_data_segment_equals_that_of_mlx5dv() {
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
        // SAFETY: the pointer is to a whole segment; the address is only encoded.
        unsafe { mlx5dv_set_data_seg(&raw mut theirs, length, lkey, address) };
        assert_eq!(ours.to_words(), words(&theirs), "{addr:#x}");
    }
}

/// `mlx5dv.h` has no encoder for these segments, so the test fills in the header's
/// structs. The reference tests check that libmlx5 fills them in likewise.
#[test]
fn the_segments_of_a_bind_match_the_structs_of_the_header() {
    use dv_sys::mlx5dv::{mlx5_wqe_mkey_context_seg, mlx5_wqe_umr_ctrl_seg, mlx5_wqe_umr_klm_seg};
    assert_eq!(u32::from(WqeOpcode::Umr as u8), MLX5_OPCODE_UMR);
    assert_eq!(
        u32::from(CtrlFlags::SMALL_FENCE.bits()),
        MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE
    );
    let range = WindowRange {
        lkey: 0x0102_0304,
        addr: 0x1122_3344_5566_7788,
        length: 0x8000_0000,
        access: MkeyAccess::REMOTE_READ | MkeyAccess::REMOTE_WRITE,
    };
    for range in [Some(range), None] {
        let change = WindowChange {
            before: 0x00ab_cdfe,
            key: 0x00ab_cdff,
            range,
        };
        let flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET;
        // FREE and MKEY; LEN, START_ADDR and the four rights.
        let mask: u64 = match range {
            Some(_) => 1 << 29 | 1 << 13 | 1 | 1 << 6 | 0xf << 18,
            None => 1 << 29 | 1 << 13,
        };
        // SAFETY: all fields are integers, for which zero is valid.
        let (mut control, mut context, mut klm): (
            mlx5_wqe_umr_ctrl_seg,
            mlx5_wqe_mkey_context_seg,
            mlx5_wqe_umr_klm_seg,
        ) = unsafe { core::mem::zeroed() };
        control.flags = u8::try_from(flags).expect("a byte");
        control.mkey_mask = mask.to_be();
        context.qpn_mkey = 0xffff_ffff_u32.to_be();
        match range {
            Some(range) => {
                control.klm_octowords = 4_u16.to_be();
                // Remote write, remote read.
                context.access_flags = 1 << 5 | 1 << 4;
                context.start_addr = range.addr.to_be();
                context.len = range.length.to_be();
                klm.byte_count = 0x8000_0000_u32.to_be();
                klm.mkey = range.lkey.to_be();
                klm.address = range.addr.to_be();
            }
            None => {
                context.free = u8::try_from(MLX5_WQE_MKEY_CONTEXT_FREE).expect("a byte");
            }
        }
        let mut expected = [[0; 2]; 11];
        let mut at = expected.as_mut_ptr().cast::<u8>();
        // SAFETY: the structs have 48, 64 and 16 bytes, without padding; the array
        // has 176.
        unsafe {
            at.cast::<mlx5_wqe_umr_ctrl_seg>().write_unaligned(control);
            at = at.add(48);
            at.cast::<[u8; 64]>().write_unaligned(
                std::ptr::from_ref(&context)
                    .cast::<[u8; 64]>()
                    .read_unaligned(),
            );
            at = at.add(64);
            at.cast::<mlx5_wqe_umr_klm_seg>().write_unaligned(klm);
        }
        assert_eq!(change.body(), expected, "{range:?}");
        assert_eq!(change.units(), if range.is_some() { 12 } else { 8 });
    }
}
