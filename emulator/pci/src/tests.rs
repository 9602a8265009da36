//! The device as a driver and as an enemy use it.

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use vfio_user::ServerBackend;

use crate::bits::Field;
use crate::layout::{ads, command_in, cqc, create_eq_in, create_mkey_in, eqc, mkc, qpc};
use crate::memory::PAGE;
use crate::testing::{Guest, MEMORY, QUEUE, command};

mod hostile;
mod keys;
mod send;

/// The number of an object in commands and results.
const OBJECT: Field = Field::new(72, 24);
const EVENT_QUEUE: Field = Field::new(88, 8);

/// A driver's objects: a queue pair that is connected to itself.
struct Driver {
    guest: Guest,
    interrupt: File,
    uar: u64,
    pd: u64,
    cq: u64,
    qp: u64,
    key: u32,
}

/// Pages of the guest for the objects of a driver.
const EQ_PAGE: u64 = 100 * PAGE;
const CQ_PAGE: u64 = 101 * PAGE;
const QP_PAGE: u64 = 103 * PAGE;
const RECORDS: u64 = 105 * PAGE;
/// A region of three pages, in this order, from the address `REGION` on.
const DATA: [u64; 3] = [112 * PAGE, 110 * PAGE, 111 * PAGE];
const REGION: u64 = 0x7000_0000_0800;
const REGION_LENGTH: u64 = 2 * PAGE;
/// The low byte of its key.
const VARIANT: u64 = 0x5a;
const ENTRIES: u64 = 64;

impl Driver {
    fn new() -> Self {
        let mut guest = Guest::new();
        // SAFETY: a new descriptor that nothing else owns.
        let interrupt = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_NONBLOCK)) };
        let listener = vec![interrupt.try_clone().unwrap()];
        // MSI-X, from number 3: a descriptor that is triggered.
        guest
            .device
            .set_irqs(2, 1 << 2 | 1 << 5, 3, 1, listener)
            .unwrap();
        for opcode in [0x104, 0x10a, 0x100, 0x102] {
            guest.succeed(opcode, &[], &[]);
        }
        let uar = OBJECT.get(&guest.succeed(0x802, &[], &[]));
        let pd = OBJECT.get(&guest.succeed(0x800, &[], &[]));
        let eq = EVENT_QUEUE.get(&guest.succeed(
            0x301,
            &[
                (eqc::LOG_EQ_SIZE.at(16), 6),
                (eqc::INTR.at(16), 3),
                // Commands, and what goes wrong at a responder.
                (create_eq_in::EVENT_BITMASK, 1 << 0x0a | 1 << 0x11),
            ],
            &[EQ_PAGE],
        ));
        let cq = OBJECT.get(&guest.succeed(
            0x400,
            &[
                (cqc::LOG_CQ_SIZE.at(16), ENTRIES.ilog2().into()),
                (cqc::UAR_PAGE.at(16), uar),
                (cqc::C_EQN_OR_APU_ELEMENT.at(16), eq),
                (cqc::DBR_ADDR.at(16), RECORDS),
            ],
            &[CQ_PAGE],
        ));
        let qp = OBJECT.get(&guest.succeed(
            0x500,
            &[
                (qpc::PD.at(24), pd),
                (qpc::UAR_PAGE.at(24), uar),
                // 16 receives of 16 bytes; 16 blocks for requests.
                (qpc::LOG_RQ_SIZE.at(24), 4),
                (qpc::LOG_SQ_SIZE.at(24), 4),
                (qpc::CQN_SND.at(24), cq),
                (qpc::CQN_RCV.at(24), cq),
                (qpc::DBR_ADDR.at(24), RECORDS + 64),
            ],
            &[QP_PAGE],
        ));
        let key = guest.succeed(
            0x200,
            &[
                (mkc::ACCESS_MODE_1_0.at(16), 1),
                (mkc::LOG_PAGE_SIZE.at(16), 12),
                (mkc::PD.at(16), pd),
                (mkc::START_ADDR.at(16), REGION),
                (mkc::LEN.at(16), REGION_LENGTH),
                (mkc::LW.at(16), 1),
                (mkc::MKEY_7_0.at(16), VARIANT),
                (create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, 2),
            ],
            &DATA,
        );
        let key = (OBJECT.get(&key) << 8 | VARIANT) as u32;
        Self {
            guest,
            interrupt,
            uar,
            pd,
            cq,
            qp,
            key,
        }
    }

    /// Connects the queue pair to itself.
    fn connect(&mut self) {
        let path = |field: Field| field.at(24 + 24);
        let to_init = [(path(ads::VHCA_PORT_NUM), 1)];
        let to_rtr = [
            (path(ads::RLID), 1),
            (path(ads::VHCA_PORT_NUM), 1),
            (qpc::MTU.at(24), 5),
            (qpc::REMOTE_QPN.at(24), self.qp),
        ];
        for (opcode, fields) in [(0x502, &to_init[..]), (0x503, &to_rtr[..]), (0x504, &[])] {
            let fields = [&[(OBJECT, self.qp)], fields].concat();
            self.guest.succeed(opcode, &fields, &[]);
        }
        let state = self.guest.succeed(0x50b, &[(OBJECT, self.qp)], &[]);
        assert_eq!(qpc::STATE.at(24).get(&state), 3, "ready to send");
        assert_eq!(qpc::REMOTE_QPN.at(24).get(&state), self.qp);
    }

    /// Posts a receive of 64 bytes and a signalled send of 64 bytes.
    fn send(&self, from: u64, to: u64) {
        let pointer = |at: u64| {
            [
                &64_u32.to_be_bytes()[..],
                &self.key.to_be_bytes(),
                &at.to_be_bytes(),
            ]
            .concat()
        };
        self.guest.write(QP_PAGE, &pointer(to));
        self.guest.write(RECORDS + 64, &1_u32.to_be_bytes());
        // SEND, request 0, two segments, with a completion.
        let qpn = (self.qp as u32) << 8 | 2;
        let control = [
            &0x0a_u32.to_be_bytes()[..],
            &qpn.to_be_bytes(),
            &[0, 0, 0, 8],
            &[0; 4],
        ]
        .concat();
        self.guest
            .write(QP_PAGE + 256, &[control.clone(), pointer(from)].concat());
        self.guest.write(RECORDS + 68, &1_u32.to_be_bytes());
        self.guest
            .bar
            .write_all_at(&control[..8], self.uar * PAGE + 0x800)
            .unwrap();
        self.guest.emulator.run_until_idle();
    }

    fn interrupts(&mut self) -> u64 {
        let mut count = [0; 8];
        self.interrupt
            .read(&mut count)
            .map_or(0, |_| u64::from_ne_bytes(count))
    }

    fn event(&self, number: u64) -> Vec<u8> {
        self.guest.read(EQ_PAGE + 64 * number, 64)
    }
}

#[test]
fn a_message_crosses_the_scattered_pages_of_a_region_and_its_events_arrive() {
    let mut driver = Driver::new();
    // Every command behind CREATE_EQ had an event.
    let commands = driver.interrupts();
    assert_eq!(commands, 3);
    let first = driver.event(0);
    assert_eq!(
        (first[1], &first[32..36], first[63]),
        (0x0a, &[0, 0, 0, 1][..], 0)
    );
    driver.connect();
    let before = commands + driver.interrupts();
    // 32 bytes at the end of the first page, and 32 at the beginning of the second.
    let from = (REGION & !(PAGE - 1)) + PAGE - 32;
    let bytes: Vec<u8> = (1..=64).collect();
    driver.guest.write(DATA[0] + PAGE - 32, &bytes[..32]);
    driver.guest.write(DATA[1], &bytes[32..]);
    // Armed for the first completion.
    let armed = 0_u32;
    driver.guest.write(RECORDS + 4, &armed.to_be_bytes());
    let arm = [armed.to_be_bytes(), (driver.cq as u32).to_be_bytes()].concat();
    driver
        .guest
        .bar
        .write_all_at(&arm, driver.uar * PAGE + 0x20)
        .unwrap();
    driver.guest.emulator.run_until_idle();
    driver.send(from, REGION);
    assert_eq!(driver.guest.read(DATA[0] + 0x800, 64), bytes);
    let completion = |at: u64| driver.guest.read(CQ_PAGE + 64 * at + 63, 1)[0] >> 4;
    // A send at the responder, a request; the third is still the initial one.
    assert_eq!((completion(0), completion(1), completion(2)), (2, 0, 0));
    assert_eq!(driver.interrupts(), 1);
    let event = driver.event(before);
    assert_eq!((event[1], event[63]), (0, 0));
    assert_eq!(event[56..60], (driver.cq as u32).to_be_bytes());
}

#[test]
fn an_access_outside_the_region_fails_the_request_alone() {
    let mut driver = Driver::new();
    driver.connect();
    driver.send(REGION - 8, REGION);
    let error = driver.guest.read(CQ_PAGE, 64);
    assert_eq!(
        (error[63] >> 4, error[55]),
        (13, 4),
        "a local protection error"
    );
    let state = driver.guest.succeed(0x50b, &[(OBJECT, driver.qp)], &[]);
    assert_eq!(qpc::STATE.at(24).get(&state), 6);
    // Reset and connected again, it works.
    driver.guest.succeed(0x50a, &[(OBJECT, driver.qp)], &[]);
    driver.connect();
}

#[test]
fn objects_in_use_stay_and_a_reset_leaves_nothing() {
    let mut driver = Driver::new();
    let mut status = |opcode, object| {
        driver
            .guest
            .command(&command(opcode, &[(OBJECT, object)], &[]), 16)[0]
    };
    assert_eq!(status(0x401, driver.cq), 0x06, "the queue pair uses it");
    assert_eq!(status(0x501, driver.qp), 0);
    assert_eq!(status(0x501, driver.qp), 0x03);
    assert_eq!(status(0x401, driver.cq), 0);
    assert_eq!(status(0x50b, driver.qp), 0x05);
    driver.guest.device.reset().unwrap();
    driver.guest.set_queue();
    assert_eq!(
        driver.guest.command(&command(0x800, &[], &[]), 16)[0],
        0x04,
        "it is not enabled"
    );
    assert_eq!(driver.guest.register(0x14), 0x56);
}

#[test]
fn commands_that_cannot_be_delivered_say_so() {
    let mut guest = Guest::new();
    let long = command(0x104, &[], &[0; 100]);
    let mut deliver = |at: u64, bytes: &[u8]| {
        guest.put(&long, 272);
        guest.write(QUEUE + at, bytes);
        guest.set_register(0x18, 1);
        guest.read(QUEUE + 0x3f, 1)[0] >> 1
    };
    // The pointers to the mailboxes, the lengths.
    assert_eq!(deliver(0x08, &MEMORY.to_be_bytes()), 0x5);
    assert_eq!(deliver(0x08, &u64::MAX.to_be_bytes()), 0x5);
    assert_eq!(deliver(0x30, &(QUEUE + MEMORY - 100).to_be_bytes()), 0x4);
    assert_eq!(deliver(0x04, &8_u32.to_be_bytes()), 0x7);
    assert_eq!(deliver(0x04, &u32::MAX.to_be_bytes()), 0x7);
    assert_eq!(deliver(0x38, &u32::MAX.to_be_bytes()), 0x8);
    assert_eq!(deliver(0x38, &7_u32.to_be_bytes()), 0x8);
    // As mlx5_core gives ENABLE_HCA.
    assert_eq!(deliver(0x38, &12_u32.to_be_bytes()), 0);
    assert_eq!(deliver(0x3f, &[1]), 0);
    // A command that does not exist, without room for its status.
    guest.put(&command(0xfff, &[], &[]), 0);
    guest.set_register(0x18, 1);
    assert_eq!(guest.read(QUEUE + 0x3f, 1)[0] >> 1, 0x8);
    // A queue that is nowhere.
    guest.set_register(0x14, 0xffff_f000);
    guest.set_register(0x18, u32::MAX);
    assert_eq!(guest.register(0x18), 0);
}

#[test]
fn any_command_gets_a_status_and_reaches_only_the_guest_s_memory() {
    let mut driver = Driver::new();
    driver.connect();
    // `perf-scripts/soak` continues for longer, with other commands.
    let given = |name| std::env::var(name).map_or(0, |value| value.parse::<u64>().unwrap());
    let seconds = Duration::from_secs(given("MLX5EMU_FLOOD_SECONDS"));
    let begin = Instant::now();
    let mut random = 0x9e37_79b9_7f4a_7c15 ^ given("MLX5EMU_FLOOD_SEED");
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let opcodes: Vec<_> = (0..0x1000)
        .filter(|opcode| crate::commands::find(*opcode).is_some())
        .collect();
    let mut statuses = std::collections::BTreeMap::new();
    for round in 0.. {
        if round >= 20_000 && begin.elapsed() >= seconds {
            println!("{round} commands");
            break;
        }
        if round % 100 == 99 {
            // Commands have destroyed the objects by now.
            drop(driver);
            driver = Driver::new();
            driver.connect();
        }
        let length = 16 + next(600) as usize;
        let mut input: Vec<u8> = (0..length).map(|_| next(256) as u8).collect();
        // Mostly zeros, so that some commands are valid.
        for byte in &mut input {
            *byte *= u8::from(next(3) == 0);
        }
        let opcode = opcodes[next(opcodes.len() as u64) as usize];
        command_in::OPCODE.set(&mut input, opcode.into());
        if next(2) == 0 {
            let object = [driver.qp, driver.cq, 1, u64::from(driver.key >> 8)][next(4) as usize];
            OBJECT.set(&mut input, object);
        }
        let room = 8 + next(600) as usize;
        driver.guest.put(&input, room);
        driver.guest.set_register(0x18, 1);
        let entry = driver.guest.read(QUEUE, 64);
        assert_eq!(entry[0x3f], 0, "{opcode:#x}");
        *statuses.entry(entry[0x20]).or_insert(0) += 1;
        // Doorbells and pages of any bytes.
        driver
            .guest
            .bar
            .write_all_at(
                &next(u64::MAX).to_ne_bytes(),
                driver.uar * PAGE + 8 * next(512),
            )
            .unwrap();
        driver
            .guest
            .write(CQ_PAGE + next(8 * PAGE), &next(u64::MAX).to_ne_bytes());
        driver.guest.emulator.run_until_idle();
    }
    assert!(statuses.len() >= 6 && statuses[&0] > 2000, "{statuses:?}");
    // The device is whole: it works after a reset.
    driver.guest.device.reset().unwrap();
    drop(driver);
    Driver::new().connect();
}

#[test]
fn accesses_outside_the_regions_are_refused() {
    let mut guest = Guest::new();
    let device = &mut guest.device;
    for (region, offset, length) in [
        (0, 32 << 20, 4),
        (0, u64::MAX, 4),
        (0, 16 * PAGE - 2, 4),
        (7, 4094, 4),
        (7, u64::MAX - 1, 1),
        (1, 0, 4),
        (200, 0, 1),
    ] {
        let mut bytes = vec![0; length];
        assert!(
            device.region_read(region, offset, &mut bytes).is_err(),
            "{region} {offset:#x}"
        );
        assert!(
            device.region_write(region, offset, &bytes).is_err(),
            "{region} {offset:#x}"
        );
    }
    // A doorbell page that the client does not map.
    device
        .region_write(0, 20 * PAGE + 8, &[1, 2, 3, 4])
        .unwrap();
    let mut bytes = [0; 4];
    device.region_read(0, 20 * PAGE + 8, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4]);
    // The identity cannot be written, the command register can.
    device.region_write(7, 0, &[0xff; 8]).unwrap();
    let mut head = [0; 8];
    device.region_read(7, 0, &mut head).unwrap();
    assert_eq!(head, [0xb3, 0x15, 0x1d, 0x10, 0xff, 0xff, 0x10, 0x00]);
    // Interrupts that do not exist.
    device
        .set_irqs(2, 1 << 2 | 1 << 5, u32::MAX, 0, Vec::new())
        .unwrap();
    device.set_irqs(0, 1 << 5, 0, 1, Vec::new()).unwrap();
}
