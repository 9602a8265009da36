//! Decodes the x86-64 instructions with which programs store doorbells, well
//! enough to emulate them.
//!
//! Other instructions are not decoded; the caller then lets the program make its
//! store itself.

use super::vector::Encoding;

/// The registers that addresses and stored values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cpu {
    /// In the order of their numbers in instruction encodings: rax, rcx, rdx, rbx,
    /// rsp, rbp, rsi, rdi, r8 to r15.
    pub(super) general: [u64; 16],
    pub(super) rip: u64,
}

/// A store that the program is about to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Store {
    pub(super) address: u64,
    /// The first 8 bytes; zeros if they are unknown.
    pub(super) bytes: [u8; 8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Store(Store),
    /// Loads 8 bytes from `address` into a register.
    Load {
        register: usize,
        address: u64,
    },
    Set {
        register: usize,
        value: u64,
    },
}

/// Maximum number of register moves between two stores that are emulated together.
const MAX_MOVES: usize = 4;

/// Executes the store at `rip` if its address is `address`, and returns it.
pub(super) fn emulate_trapped(cpu: &mut Cpu, address: u64, code: &impl Memory) -> Option<Store> {
    let (effect, next) = decode(cpu, code)?;
    match effect {
        Effect::Store(store) if store.address == address => {
            cpu.rip = next;
            Some(store)
        }
        _ => None,
    }
}

/// Executes the next store if it is to the page of `address` and only loads and
/// moves to registers come before it, and returns it. A BlueFlame copy is such a
/// sequence, in which every store would be trapped separately. Returns `None`,
/// with nothing changed, otherwise.
pub(super) fn emulate_next(cpu: &mut Cpu, address: u64, memory: &impl Memory) -> Option<Store> {
    let before = cpu.rip;
    // The registers that moves have changed, and their values before.
    let mut changed = [None; MAX_MOVES + 1];
    for place in &mut changed {
        let Some((effect, next)) = decode(cpu, memory) else {
            break;
        };
        cpu.rip = next;
        let (register, value) = match effect {
            Effect::Store(store) if (store.address ^ address) >> 12 == 0 => return Some(store),
            Effect::Store(_) => break,
            Effect::Load { register, address } => (register, memory.load(address)),
            Effect::Set { register, value } => (register, value),
        };
        *place = Some((register, cpu.general[register]));
        cpu.general[register] = value;
    }
    for (register, value) in changed.into_iter().rev().flatten() {
        cpu.general[register] = value;
    }
    cpu.rip = before;
    None
}

/// Access to the program's code, data and vector registers.
pub(super) trait Memory {
    fn byte(&self, address: u64) -> u8;
    fn load(&self, address: u64) -> u64;
    /// Returns the first 8 bytes of a vector register, from 0 to 31; zeros if they are
    /// unknown.
    fn vector(&self, register: usize) -> [u8; 8];
}

/// Decodes the instruction at `rip`. Returns its effect and the address of the
/// next instruction.
fn decode(cpu: &Cpu, memory: &impl Memory) -> Option<(Effect, u64)> {
    let mut code = Code {
        at: cpu.rip,
        memory,
    };
    let mut byte = code.byte();
    if let Some(encoding) = Encoding::of(byte, &mut code) {
        let effect = vector_store(cpu, &mut code, &encoding?)?;
        return Some((effect, code.at));
    }
    let prefix = match byte {
        0x66 | 0xf3 => Some(std::mem::replace(&mut byte, code.byte())),
        _ => None,
    };
    let mut rex = 0;
    if byte & 0xf0 == 0x40 {
        rex = std::mem::replace(&mut byte, code.byte());
    }
    let wide = rex & 8 != 0;
    let effect = match (prefix, byte) {
        // mov [m], r64 and mov r64, [m]; lea r64, [m]
        (None, 0x89 | 0x8b | 0x8d) if wide => {
            let (register, address) = operands(cpu, &mut code, rex, 0, 1)?;
            match byte {
                0x89 => Effect::Store(Store {
                    address,
                    bytes: cpu.general[register].to_le_bytes(),
                }),
                0x8b => Effect::Load { register, address },
                _ => Effect::Set {
                    register,
                    value: address,
                },
            }
        }
        // mov r64, r64 (89 or 8b with two registers) is refused by `operands`.
        // mov qword [m], imm32
        (None, 0xc7) if wide => {
            let (_, address) = operands(cpu, &mut code, rex, 4, 1)?;
            let value = i64::from(code.number(4)? as i32);
            Effect::Store(Store {
                address,
                bytes: value.to_le_bytes(),
            })
        }
        // movnti
        (None, 0x0f) if wide && code.peek() == 0xc3 => {
            code.byte();
            let (register, address) = operands(cpu, &mut code, rex, 0, 1)?;
            Effect::Store(Store {
                address,
                bytes: cpu.general[register].to_le_bytes(),
            })
        }
        (prefix, 0x0f) => vector_store(cpu, &mut code, &Encoding::legacy(prefix, rex))?,
        _ => return None,
    };
    Some((effect, code.at))
}

/// Decodes a store of a vector register after its prefixes.
fn vector_store<M: Memory>(
    cpu: &Cpu,
    code: &mut Code<'_, M>,
    encoding: &Encoding,
) -> Option<Effect> {
    if !encoding.stores(code.byte()) {
        return None;
    }
    let (register, address) = operands(cpu, code, encoding.rex, 0, encoding.unit)?;
    Some(Effect::Store(Store {
        address,
        bytes: code.memory.vector(register + encoding.first),
    }))
}

/// Decodes the register and the memory address given by ModRM, SIB and
/// displacement; `immediate` bytes follow them. A displacement of one byte counts
/// `unit` bytes.
fn operands<M: Memory>(
    cpu: &Cpu,
    code: &mut Code<'_, M>,
    rex: u8,
    immediate: u64,
    unit: i64,
) -> Option<(usize, u64)> {
    const SIB: u8 = 4;
    const NO_INDEX: usize = 4;
    let extended = |bit: u8, number: u8| usize::from(number & 7 | (rex >> bit & 1) << 3);
    let modrm = code.byte();
    let (mode, low) = (modrm >> 6, modrm & 7);
    let register = extended(2, modrm >> 3);
    if mode == 3 {
        return None;
    }
    let mut base = Some(extended(0, low));
    let mut scaled = 0_u64;
    let mut relative = mode == 0 && low == 5;
    if low == SIB {
        let sib = code.byte();
        base = Some(extended(0, sib));
        relative = false;
        if mode == 0 && sib & 7 == 5 {
            base = None;
        }
        let index = extended(1, sib >> 3);
        if index != NO_INDEX {
            scaled = cpu.general[index] << (sib >> 6);
        }
    }
    let displacement = match mode {
        1 => unit * i64::from(code.byte().cast_signed()),
        2 => i64::from(code.number(4)? as i32),
        _ if relative || base.is_none() => i64::from(code.number(4)? as i32),
        _ => 0,
    };
    let start = match base {
        _ if relative => code.at + immediate,
        Some(base) => cpu.general[base],
        None => 0,
    };
    let address = start.wrapping_add(scaled).wrapping_add_signed(displacement);
    Some((register, address))
}

/// Reads the bytes of an instruction in order, and none that the processor would
/// not fetch.
pub(super) struct Code<'a, M> {
    at: u64,
    memory: &'a M,
}

impl<M: Memory> Code<'_, M> {
    /// Returns the next byte of the instruction.
    fn peek(&self) -> u8 {
        self.memory.byte(self.at)
    }

    pub(super) fn byte(&mut self) -> u8 {
        let byte = self.memory.byte(self.at);
        self.at += 1;
        byte
    }

    fn number(&mut self, bytes: u32) -> Option<u32> {
        (0..bytes).try_fold(0, |number, place| {
            Some(number | u32::from(self.byte()).checked_shl(8 * place)?)
        })
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
