use super::*;

/// Code at 0x1000 and data that is a function of its address.
struct Program(Vec<u8>);

const START: u64 = 0x1000;
const PAGE: u64 = 0x7f00_0000_0000;

impl Memory for Program {
    fn byte(&self, address: u64) -> u8 {
        let at = (address - START) as usize;
        *self.0.get(at).expect("a byte after the code was read")
    }

    fn load(&self, address: u64) -> u64 {
        address * 3
    }

    fn vector(&self, register: usize) -> [u8; 8] {
        vector(register).to_le_bytes()
    }
}

/// Returns the first 8 bytes of a vector register.
fn vector(register: usize) -> u64 {
    0x1_0000_0000 + register as u64
}

/// Returns registers with distinct values; rax points into the page.
fn cpu() -> Cpu {
    let mut general: [u64; 16] = std::array::from_fn(|n| n as u64 * 0x1_0000);
    general[0] = PAGE + 0x800;
    Cpu {
        general,
        rip: START,
    }
}

/// Returns address and value of the store that is the only instruction in `code`.
fn one(code: &[u8]) -> Option<(u64, u64)> {
    let program = Program(code.to_vec());
    let (effect, next) = decode(&cpu(), &program)?;
    assert_eq!(next, START + code.len() as u64, "{code:x?}");
    match effect {
        Effect::Store(Store { address, bytes }) => Some((address, u64::from_le_bytes(bytes))),
        _ => None,
    }
}

#[test]
fn every_addressing_mode_is_decoded() {
    let (page, r) = (PAGE + 0x800, |n: u64| n * 0x1_0000);
    for (code, expected) in [
        // mov %rcx,(%rax)
        (&[0x48, 0x89, 0x08][..], (page, r(1))),
        // mov %rdx,-0x40(%rax)
        (&[0x48, 0x89, 0x50, 0xc0], (page - 0x40, r(2))),
        // mov %r9,0x12345678(%r13)
        (
            &[0x4d, 0x89, 0x8d, 0x78, 0x56, 0x34, 0x12],
            (r(13) + 0x1234_5678, r(9)),
        ),
        // mov %rdx,0x8(%rdi,%rsi,1)
        (&[0x48, 0x89, 0x54, 0x37, 0x08], (r(7) + r(6) + 8, r(2))),
        // mov %rcx,(%rdx,%rax,1)
        (&[0x48, 0x89, 0x0c, 0x02], (r(2) + page, r(1))),
        // mov %rcx,(%rbx,%r12,8): r12 can be an index, rsp cannot
        (&[0x4a, 0x89, 0x0c, 0xe3], (r(3) + 8 * r(12), r(1))),
        // mov %rcx,(%r12) and mov %rcx,(%rsp): base only, by a SIB byte
        (&[0x49, 0x89, 0x0c, 0x24], (r(12), r(1))),
        (&[0x48, 0x89, 0x0c, 0x24], (r(4), r(1))),
        // mov %rcx,0x10(%rip)
        (&[0x48, 0x89, 0x0d, 0x10, 0, 0, 0], (START + 7 + 0x10, r(1))),
        // mov %rcx,0x1000: no base at all
        (&[0x48, 0x89, 0x0c, 0x25, 0, 0x10, 0, 0], (0x1000, r(1))),
        // mov %rcx,0x20(,%rbx,4)
        (
            &[0x48, 0x89, 0x0c, 0x9d, 0x20, 0, 0, 0],
            (4 * r(3) + 0x20, r(1)),
        ),
        // movq $-2,(%rax), and rip-relative, where rip is after the constant
        (
            &[0x48, 0xc7, 0x00, 0xfe, 0xff, 0xff, 0xff],
            (page, 2_u64.wrapping_neg()),
        ),
        (
            &[0x48, 0xc7, 0x05, 0x10, 0, 0, 0, 1, 0, 0, 0],
            (START + 11 + 0x10, 1),
        ),
        // movnti %rcx,(%rax)
        (&[0x48, 0x0f, 0xc3, 0x08], (page, r(1))),
        // movups, movaps, movntps; movdqa, movdqu, movntdq; %xmm9; movlps, movq %xmm1
        (&[0x0f, 0x11, 0x00], (page, vector(0))),
        (&[0x0f, 0x29, 0x40, 0x10], (page + 0x10, vector(0))),
        (&[0x0f, 0x2b, 0x00], (page, vector(0))),
        (&[0x66, 0x0f, 0x7f, 0x00], (page, vector(0))),
        (&[0xf3, 0x0f, 0x7f, 0x00], (page, vector(0))),
        (&[0x66, 0x44, 0x0f, 0xe7, 0x08], (page, vector(9))),
        (&[0x0f, 0x13, 0x08], (page, vector(1))),
        (&[0x66, 0x0f, 0xd6, 0x08], (page, vector(1))),
    ] {
        assert_eq!(one(code), Some(expected), "{code:x?}");
    }
}

/// The bytes are those of GNU as.
#[test]
fn stores_of_avx_registers_are_decoded() {
    let (page, r) = (PAGE + 0x800, |n: u64| n * 0x1_0000);
    for (code, expected) in [
        // vmovups %ymm0,(%rax)
        (&[0xc5, 0xfc, 0x11, 0x00][..], (page, vector(0))),
        // vmovdqu %ymm1,0x20(%rax)
        (&[0xc5, 0xfe, 0x7f, 0x48, 0x20], (page + 0x20, vector(1))),
        // vmovdqu %xmm9,(%rax)
        (&[0xc5, 0x7a, 0x7f, 0x08], (page, vector(9))),
        // vmovdqa %ymm12,-0x40(%r13)
        (
            &[0xc4, 0x41, 0x7d, 0x7f, 0x65, 0xc0],
            (r(13) - 0x40, vector(12)),
        ),
        // vmovaps %ymm3,(%rdi,%rsi,1)
        (&[0xc5, 0xfc, 0x29, 0x1c, 0x37], (r(7) + r(6), vector(3))),
        // vmovntdq %ymm2,0x8(%r12)
        (
            &[0xc4, 0xc1, 0x7d, 0xe7, 0x54, 0x24, 0x08],
            (r(12) + 8, vector(2)),
        ),
        // vmovntps %ymm15,(%r9,%r10,8)
        (
            &[0xc4, 0x01, 0x7c, 0x2b, 0x3c, 0xd1],
            (r(9) + 8 * r(10), vector(15)),
        ),
        // vmovupd %xmm4,0x12345678(%rax)
        (
            &[0xc5, 0xf9, 0x11, 0xa0, 0x78, 0x56, 0x34, 0x12],
            (page + 0x1234_5678, vector(4)),
        ),
        // vmovdqu %ymm5,0x10(%rip)
        (
            &[0xc5, 0xfe, 0x7f, 0x2d, 0x10, 0x00, 0x00, 0x00],
            (START + 8 + 0x10, vector(5)),
        ),
        // vmovq %xmm6,(%rax)
        (&[0xc5, 0xf9, 0xd6, 0x30], (page, vector(6))),
        // vmovlps %xmm7,(%rax)
        (&[0xc5, 0xf8, 0x13, 0x38], (page, vector(7))),
        // vmovdqu64 %ymm16,(%rax)
        (&[0x62, 0xe1, 0xfe, 0x28, 0x7f, 0x00], (page, vector(16))),
        // vmovdqu64 %zmm31,0x40(%rax)
        (
            &[0x62, 0x61, 0xfe, 0x48, 0x7f, 0x78, 0x01],
            (page + 0x40, vector(31)),
        ),
        // vmovdqu64 %zmm16,-0x40(%r13)
        (
            &[0x62, 0xc1, 0xfe, 0x48, 0x7f, 0x45, 0xff],
            (r(13) - 0x40, vector(16)),
        ),
        // vmovdqu8 %ymm18,0x20(%rdi,%rsi,1)
        (
            &[0x62, 0xe1, 0x7f, 0x28, 0x7f, 0x54, 0x37, 0x01],
            (r(7) + r(6) + 0x20, vector(18)),
        ),
        // vmovups %zmm17,0x10(%rax)
        (
            &[0x62, 0xe1, 0x7c, 0x48, 0x11, 0x88, 0x10, 0x00, 0x00, 0x00],
            (page + 0x10, vector(17)),
        ),
        // vmovaps %zmm1,(%r9,%r10,8)
        (
            &[0x62, 0x91, 0x7c, 0x48, 0x29, 0x0c, 0xd1],
            (r(9) + 8 * r(10), vector(1)),
        ),
        // vmovntdq %zmm20,(%rax)
        (&[0x62, 0xe1, 0x7d, 0x48, 0xe7, 0x20], (page, vector(20))),
        // vmovdqa32 %xmm25,0x30(%rax)
        (
            &[0x62, 0x61, 0x7d, 0x08, 0x7f, 0x48, 0x03],
            (page + 0x30, vector(25)),
        ),
        // vmovupd %ymm30,(%rax)
        (&[0x62, 0x61, 0xfd, 0x28, 0x11, 0x30], (page, vector(30))),
    ] {
        assert_eq!(one(code), Some(expected), "{code:x?}");
    }
}

#[test]
fn other_instructions_are_not_decoded() {
    for code in [
        // mov %rcx,%rax
        &[0x48, 0x89, 0xc8][..],
        // mov %ecx,(%rax): four bytes
        &[0x89, 0x08],
        // add %rcx,(%rax)
        &[0x48, 0x01, 0x08],
        // xchg %rcx,(%rax)
        &[0x48, 0x87, 0x08],
        // rep movsq
        &[0xf3, 0x48, 0xa5],
        // mov %rcx,%fs:(%rax)
        &[0x64, 0x48, 0x89, 0x08],
        // mov %rcx,(%eax)
        &[0x67, 0x48, 0x89, 0x08],
        // movss %xmm0,(%rax); movsd
        &[0xf3, 0x0f, 0x11, 0x00],
        &[0xf2, 0x0f, 0x11, 0x00],
        // vmovups (%rax),%ymm0
        &[0xc5, 0xfc, 0x10, 0x00],
        // vmovups %ymm0,%ymm1
        &[0xc5, 0xfc, 0x10, 0xc8],
        // vmovss %xmm0,(%rax)
        &[0xc5, 0xfa, 0x11, 0x00],
        // vmovsd %xmm0,(%rax)
        &[0xc5, 0xfb, 0x11, 0x00],
        // vmovdqu64 %zmm16,(%rax){%k1}
        &[0x62, 0xe1, 0xfe, 0x49, 0x7f, 0x00],
        // vmovdqu64 (%rax),%zmm16
        &[0x62, 0xe1, 0xfe, 0x48, 0x6f, 0x00],
        // vextractf128 $0x1,%ymm0,(%rax)
        &[0xc4, 0xe3, 0x7d, 0x19, 0x00, 0x01],
        // vmovhps %xmm1,(%rax)
        &[0xc5, 0xf8, 0x17, 0x08],
        // vmovd %xmm1,(%rax)
        &[0xc5, 0xf9, 0x7e, 0x08],
        // vzeroupper
        &[0xc5, 0xf8, 0x77],
        // vmaskmovps %ymm0,%ymm1,(%rax)
        &[0xc4, 0xe2, 0x75, 0x2e, 0x00],
        // mov $1,%rax
        &[0x48, 0xc7, 0xc0, 1, 0, 0, 0],
    ] {
        assert_eq!(decode(&cpu(), &Program(code.to_vec())), None, "{code:x?}");
    }
}

/// As libmlx5 copies a WQE to a BlueFlame register.
#[test]
fn a_sequence_of_loads_and_stores_to_the_page_is_emulated_at_once() {
    let program = Program(vec![
        0x48, 0x89, 0x50, 0xc0, // mov %rdx,-0x40(%rax)
        0x48, 0x8b, 0x55, 0x08, // mov 0x8(%rbp),%rdx
        0x48, 0x89, 0x50, 0xc8, // mov %rdx,-0x38(%rax)
        0x48, 0x8d, 0x55, 0x40, // lea 0x40(%rbp),%rdx
        0x48, 0x8b, 0x75, 0x38, // mov 0x38(%rbp),%rsi
        0x48, 0x89, 0x70, 0xd0, // mov %rsi,-0x30(%rax)
        0x39, 0xc7, // cmp %eax,%edi
    ]);
    let mut cpu = cpu();
    let (register, base) = (cpu.general[0] - 0x40, cpu.general[5]);
    let store = emulate_trapped(&mut cpu, register, &program).unwrap();
    assert_eq!(store.bytes, 0x2_0000_u64.to_le_bytes());
    let store = emulate_next(&mut cpu, register, &program).unwrap();
    assert_eq!(
        (store.address, u64::from_le_bytes(store.bytes)),
        (register + 8, (base + 8) * 3)
    );
    let store = emulate_next(&mut cpu, register, &program).unwrap();
    assert_eq!(
        (store.address, u64::from_le_bytes(store.bytes)),
        (register + 16, (base + 0x38) * 3)
    );
    assert_eq!((cpu.general[2], cpu.rip), (base + 0x40, START + 24));
    let before = cpu;
    assert_eq!(emulate_next(&mut cpu, register, &program), None);
    assert_eq!(cpu, before, "the compare is left to the program");
}

#[test]
fn a_store_elsewhere_is_left_to_the_program_with_the_loads_before_it() {
    let program = Program(vec![
        0x48, 0x89, 0x08, // mov %rcx,(%rax)
        0x48, 0x8b, 0x55, 0x08, // mov 0x8(%rbp),%rdx
        0x48, 0x89, 0x13, // mov %rdx,(%rbx)
    ]);
    let mut cpu = cpu();
    assert_eq!(emulate_trapped(&mut cpu, PAGE + 0x900, &program), None);
    assert_eq!(cpu.rip, START, "not the store that was trapped");
    emulate_trapped(&mut cpu, PAGE + 0x800, &program).unwrap();
    let before = cpu;
    assert_eq!(emulate_next(&mut cpu, PAGE + 0x800, &program), None);
    assert_eq!(cpu, before);
}
