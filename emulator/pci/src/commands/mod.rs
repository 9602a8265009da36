//! The commands of the firmware: what the kernel's driver asks of a device.
//!
//! A command is a structure of big-endian fields, the opcode first; so is its result, the status
//! first. Those that are not in [`COMMANDS`] are refused with the status that a device gives for
//! commands it does not know. What the guest writes is checked here and by the NIC; none of it is
//! trusted.

mod capabilities;
mod completion;
mod event;
mod function;
mod key;
mod pair;
mod port;
mod receive;
mod registers;
mod send;

use crate::bits::Field;
use crate::layout::command_in;
use crate::memory::PagesError;

pub use function::{BAR, FIRST_UAR, Function};

/// Why a command fails (`enum mlx5_cmd_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The device does not know the command.
    BadOpcode = 0x02,
    /// A value is out of range.
    BadParameter = 0x03,
    /// The device is not in the state for it.
    BadSystemState = 0x04,
    /// There is no such object.
    BadResource = 0x05,
    /// Something still uses the object.
    Busy = 0x06,
    /// Too many objects.
    Limit = 0x08,
    /// The system lacks something that the device needs.
    NoResources = 0x0f,
    /// The queue pair is not in the state for it.
    BadQpState = 0x10,
    /// The command is too short.
    InputLength = 0x50,
}

impl From<mlx5emu::spec::Errno> for Status {
    fn from(errno: mlx5emu::spec::Errno) -> Self {
        match errno.0 {
            libc::EBUSY => Self::Busy,
            libc::ENOMEM => Self::Limit,
            libc::EIO | libc::ENODEV => Self::BadSystemState,
            _ => Self::BadParameter,
        }
    }
}

impl From<PagesError> for Status {
    fn from(error: PagesError) -> Self {
        match error {
            PagesError::NotShared => Self::BadParameter,
            PagesError::System(_) => {
                eprintln!("mlx5-emu pci: {error}");
                Self::NoResources
            }
        }
    }
}

/// The result of a command.
type Outcome = Result<(), Status>;

/// Executes a command; writes the result from byte 8 on.
type Execute = fn(&mut Function, &[u8], &mut [u8]) -> Outcome;

/// A command that the device knows.
pub struct Command {
    opcode: u16,
    /// The name, as in the manual.
    pub name: &'static str,
    /// Length in bytes of the shortest command, and of the shortest room for its result.
    input: usize,
    output: usize,
    execute: Execute,
}

const fn command(
    opcode: u16,
    name: &'static str,
    input: usize,
    output: usize,
    execute: Execute,
) -> Command {
    Command {
        opcode,
        name,
        input,
        output,
        execute,
    }
}

/// The number of an object in commands, and in the results of those that create it.
const OBJECT: Field = Field::new(72, 24);
/// The number of an event queue.
const EVENT_QUEUE: Field = Field::new(88, 8);
/// Offsets of the first context in commands that create objects, of a queue pair's, and of
/// lists of pages.
const CONTEXT: usize = 16;
const QP_CONTEXT: usize = 24;
const PAGES: usize = 272;

/// Succeeds without an effect.
fn nothing(_: &mut Function, _: &[u8], _: &mut [u8]) -> Outcome {
    Ok(())
}

/// The commands that the device knows.
static COMMANDS: &[Command] = &[
    command(0x100, "QUERY_HCA_CAP", 16, 16, capabilities::query),
    command(0x101, "QUERY_ADAPTER", 16, 16, registers::query_adapter),
    command(0x102, "INIT_HCA", 16, 8, nothing),
    command(0x103, "TEARDOWN_HCA", 16, 8, function::tear_down),
    command(0x104, "ENABLE_HCA", 16, 8, function::enable),
    command(0x105, "DISABLE_HCA", 16, 8, function::disable),
    command(0x107, "QUERY_PAGES", 16, 16, nothing),
    command(0x108, "MANAGE_PAGES", 16, 16, nothing),
    command(0x109, "SET_HCA_CAP", 16, 8, capabilities::set),
    command(0x10a, "QUERY_ISSI", 16, 112, registers::query_issi),
    command(0x10b, "SET_ISSI", 16, 8, nothing),
    command(0x10d, "SET_DRIVER_VERSION", 16, 8, nothing),
    command(0x200, "CREATE_MKEY", PAGES, 16, key::create),
    command(0x201, "QUERY_MKEY", 16, 16, key::query),
    command(0x202, "DESTROY_MKEY", 16, 8, key::destroy),
    command(0x203, "QUERY_SPECIAL_CONTEXTS", 16, 16, key::special),
    command(0x301, "CREATE_EQ", PAGES, 16, event::create),
    command(0x302, "DESTROY_EQ", 16, 8, event::destroy),
    command(0x303, "QUERY_EQ", 16, 80, event::query),
    command(0x400, "CREATE_CQ", PAGES, 16, completion::create),
    command(0x401, "DESTROY_CQ", 16, 8, completion::destroy),
    command(0x402, "QUERY_CQ", 16, 80, completion::query),
    command(0x403, "MODIFY_CQ", PAGES, 8, completion::modify),
    command(0x500, "CREATE_QP", PAGES, 16, pair::create),
    command(0x501, "DESTROY_QP", 16, 8, pair::destroy),
    command(0x502, "RST2INIT_QP", 256, 8, pair::to_init),
    command(0x503, "INIT2RTR_QP", 256, 8, pair::to_rtr),
    command(0x504, "RTR2RTS_QP", 256, 8, pair::to_rts),
    command(0x505, "RTS2RTS_QP", 256, 8, pair::change),
    command(0x506, "SQERR2RTS_QP", 256, 8, pair::recover),
    command(0x507, "2ERR_QP", 16, 8, pair::to_error),
    command(0x50a, "2RST_QP", 16, 8, pair::to_reset),
    command(0x50b, "QUERY_QP", 16, PAGES, pair::query),
    command(0x50c, "SQD_RTS_QP", 256, 8, pair::recover),
    command(0x50d, "MAD_IFC", PAGES, PAGES, port::mad),
    command(0x50e, "INIT2INIT_QP", 256, 8, pair::to_init),
    command(0x705, "CREATE_XRC_SRQ", PAGES, 16, receive::create_xrc),
    command(0x706, "DESTROY_XRC_SRQ", 16, 8, receive::destroy),
    command(0x750, "QUERY_VPORT_STATE", 16, 16, port::state),
    command(0x762, "QUERY_HCA_VPORT_CONTEXT", 16, 528, port::context),
    command(0x763, "MODIFY_HCA_VPORT_CONTEXT", 16, 8, nothing),
    command(0x764, "QUERY_HCA_VPORT_GID", 16, 32, port::gid),
    command(0x765, "QUERY_HCA_VPORT_PKEY", 16, 20, port::pkey),
    command(0x770, "QUERY_VPORT_COUNTER", 16, 528, nothing),
    command(0x771, "ALLOC_Q_COUNTER", 16, 16, function::allocate_counter),
    command(0x772, "DEALLOC_Q_COUNTER", 16, 8, nothing),
    command(0x773, "QUERY_Q_COUNTER", 16, 256, nothing),
    command(0x800, "ALLOC_PD", 16, 16, function::allocate_domain),
    command(0x801, "DEALLOC_PD", 16, 8, function::free_domain),
    command(0x802, "ALLOC_UAR", 16, 16, function::allocate_page),
    command(0x803, "DEALLOC_UAR", 16, 8, function::free_page),
    command(0x805, "ACCESS_REGISTER", 16, 16, registers::access),
    command(0x80e, "ALLOC_XRCD", 16, 16, function::allocate_number),
    command(0x80f, "DEALLOC_XRCD", 16, 8, nothing),
    command(
        0x816,
        "ALLOC_TRANSPORT_DOMAIN",
        16,
        16,
        function::allocate_number,
    ),
    command(0x817, "DEALLOC_TRANSPORT_DOMAIN", 16, 8, nothing),
    command(0x904, "CREATE_SQ", PAGES, 16, send::create),
    command(0x905, "MODIFY_SQ", PAGES, 16, send::modify),
    command(0x906, "DESTROY_SQ", 16, 8, pair::destroy),
    command(0x90c, "CREATE_RMP", PAGES, 16, receive::create),
    command(0x90d, "MODIFY_RMP", 272, 8, receive::modify),
    command(0x90e, "DESTROY_RMP", 16, 8, receive::destroy),
    command(0x90f, "QUERY_RMP", 16, 272, receive::query),
];

/// Returns the command with an opcode.
#[must_use]
pub fn find(opcode: u16) -> Option<&'static Command> {
    let at = COMMANDS.binary_search_by_key(&opcode, |it| it.opcode);
    at.ok().map(|at| &COMMANDS[at])
}

impl Function {
    /// Executes a command. Returns its result, with as many bytes as there is room for: at
    /// least those of the status.
    pub fn execute(&mut self, input: &[u8], room: usize) -> Vec<u8> {
        let opcode = command_in::OPCODE.get32(input) as u16;
        let found = find(opcode);
        let mut output = vec![0; room.max(found.map_or(0, |it| it.output))];
        let outcome = match found {
            None => Err(Status::BadOpcode),
            Some(it) if input.len() < it.input => Err(Status::InputLength),
            Some(it) => (it.execute)(self, input, &mut output),
        };
        if let Err(status) = outcome {
            output.fill(0);
            output[0] = status as u8;
        }
        self.trace(opcode, found.map(|it| it.name), input, outcome);
        output.truncate(room);
        output
    }
}
