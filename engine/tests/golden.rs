//! WQE segments against the encoders that `mlx5dv.h` itself defines.

use std::ptr::NonNull;

use dat_engine::ring::layout::{RegisterLayout, SendLayout};
use dat_engine::ring::send::{DoorbellPolicy, SendConsumer, SendProducer};
use dat_engine::wire::{CtrlFlags, CtrlSegment, DataSegment, WqeOpcode};
use dat_engine::{Segment, SendFlags, SendOp, SendRequest};
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
        WqeOpcode::Nop,
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

#[repr(align(64))]
struct Memory(#[allow(dead_code, reason = "read by address")] [u8; 1024]);

#[test]
fn a_marker_is_the_nop_that_mlx5dv_encodes_whatever_its_flags() {
    const QPN: u32 = 0x12_3456;
    for (asked, expected) in [
        (SendFlags::empty(), CtrlFlags::CQ_UPDATE),
        (SendFlags::SIGNALED, CtrlFlags::CQ_UPDATE),
        (
            SendFlags::FENCE | SendFlags::SOLICITED | SendFlags::INLINE,
            CtrlFlags::CQ_UPDATE | CtrlFlags::FENCE,
        ),
    ] {
        // Four WQEBBs, the doorbell records, and two halves of a register.
        let memory = NonNull::from(Box::leak(Box::new(Memory([0xa5; 1024])))).cast::<u8>();
        // SAFETY: offsets inside the memory.
        let (dbrec, reg) = unsafe { (memory.add(256 + 4), memory.add(512)) };
        let layout = SendLayout {
            buf: memory,
            wqebb_count: 4,
            dbrec: dbrec.cast(),
            register: RegisterLayout {
                reg,
                half_size: 256,
                exclusive: true,
            },
            qpn: QPN,
            max_requests: 4,
            max_segments: 1,
            max_inline: 0,
        };
        let policy = DoorbellPolicy {
            blue_flame: true,
            serialised: false,
        };
        // SAFETY: the memory is never freed, and nobody else uses it.
        let consumer = unsafe { SendConsumer::new(&layout) }.expect("a layout");
        // SAFETY: the consumer outlives the producer, and stays.
        let mut producer = unsafe { SendProducer::new(&layout, policy, &consumer) };
        producer.open();
        let segment = Segment::default();
        for (counter, segments) in [(0, &[][..]), (1, &[segment][..])] {
            let marker = SendRequest {
                cookie: 77,
                op: SendOp::Nop,
                flags: asked,
                segments,
            };
            // SAFETY: a marker names no memory.
            unsafe { producer.post(&marker) }.expect("room");
            let mut theirs = mlx5_wqe_ctrl_seg::default();
            // SAFETY: a whole segment to write to; the encoder reads nothing.
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
            // A doorbell of eight bytes, in whichever half is next.
            assert!([at(512), at(768)].contains(&theirs[0]), "{asked:?}");
            assert_eq!(consumer.retire(counter).cookie, 77);
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
