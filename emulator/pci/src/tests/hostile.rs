//! Values that no driver or client should give, and numbers that drivers read.

use std::io::Write;

use mlx5emu::spec::{AsyncEvent, AsyncObject, ContextId, EventSink};

use super::keys::{CHANGES_PAGE, Change};
use super::*;
use crate::events::Sink;
use crate::testing::emulator;

#[test]
fn a_client_leaves_no_doorbell_to_the_next_one() {
    let mut guest = Guest::new();
    let bar = guest.bar.try_clone().unwrap();
    bar.write_all_at(&[7; 8], 20 * PAGE + 0x800).unwrap();
    guest.device.disconnect();
    let mut word = [1; 8];
    bar.read_exact_at(&mut word, 20 * PAGE + 0x800).unwrap();
    assert_eq!(word, [0; 8]);
}

#[test]
fn a_change_of_state_that_does_not_exist_is_refused() {
    let mut driver = Driver::new();
    driver.connect();
    let mut status = |opcode| {
        let fields = [(OBJECT, driver.qp), (ads::VHCA_PORT_NUM.at(48), 1)];
        driver.guest.command(&command(opcode, &fields, &[]), 16)[0]
    };
    assert_eq!(status(0x502), 0x03);
    assert_eq!(status(0x507), 0);
    assert_eq!(status(0x503), 0x10);
}

#[test]
fn a_key_gets_neither_an_unknown_domain_nor_addresses_that_wrap_around() {
    const INLINE: u8 = 1 << 7;
    // Length, size of a page, start, domain, free.
    const MASK: u64 = 1 | 1 << 1 | 1 << 6 | 1 << 7 | 1 << 29;
    for (is_valid, domain, start) in [
        (true, 0, REGION),
        (false, 0x00ab_cdef, REGION),
        (false, 0, u64::MAX - PAGE + 1),
    ] {
        let mut driver = Driver::new();
        let changer = driver.create_changer();
        let free = [
            (mkc::FREE.at(16), 1),
            (mkc::ACCESS_MODE_1_0.at(16), 1),
            (mkc::TRANSLATIONS_OCTWORD_SIZE.at(16), 2),
        ];
        let index = OBJECT.get(&driver.guest.succeed(0x200, &free, &[]));
        let list: Vec<u8> = DATA.iter().flat_map(|page| page.to_be_bytes()).collect();
        let given = Change {
            number: 0,
            key: (index << 8) as u32,
            flags: INLINE,
            mask: MASK,
            octowords: 2,
            context: &[
                (mkc::LEN, REGION_LENGTH),
                (mkc::LOG_PAGE_SIZE, 12),
                (mkc::START_ADDR, start),
                (mkc::PD, if domain == 0 { driver.pd } else { domain }),
            ],
            behind: &list,
            completion: 0,
        };
        let opcode = if is_valid { 0 } else { 13 };
        assert_eq!(driver.change(changer, &given), opcode, "{start:#x}");
        driver.guest.succeed(0x202, &[(OBJECT, index)], &[]);
    }
}

#[test]
fn interrupts_neither_wait_for_room_nor_outlive_their_descriptors() {
    const EVENTFD: u32 = 1 << 2 | 1 << 5;
    let mut driver = Driver::new();
    // SAFETY: a new descriptor that nothing else owns.
    let mut full = unsafe { File::from_raw_fd(libc::eventfd(0, 0)) };
    full.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
    let own = driver.interrupt.try_clone().unwrap();
    driver.interrupts();
    for (descriptors, counted) in [(vec![full], 0), (vec![own], 1), (vec![], 0)] {
        let device = &mut driver.guest.device;
        device.set_irqs(2, EVENTFD, 3, 1, descriptors).unwrap();
        driver.guest.succeed(0x104, &[], &[]);
        assert_eq!(driver.interrupts(), counted);
    }
}

#[test]
fn changes_of_the_port_have_the_numbers_that_the_driver_knows() {
    let mut driver = Driver::new();
    let fields = [
        (eqc::LOG_EQ_SIZE.at(16), 6),
        (create_eq_in::EVENT_BITMASK, 1 << 0x09),
    ];
    driver.guest.succeed(0x301, &fields, &[CHANGES_PAGE]);
    let sink = Sink::new(emulator().1, false);
    for (at, (event, number)) in [
        (AsyncEvent::PortErr, 1),
        (AsyncEvent::PortActive, 4),
        (AsyncEvent::GidChange, 8),
    ]
    .into_iter()
    .enumerate()
    {
        sink.asynchronous(ContextId(0), event, AsyncObject::Port(1));
        let entry = driver.guest.read(CHANGES_PAGE + 64 * at as u64, 64);
        assert_eq!((entry[1], entry[3], entry[40]), (0x09, number, 0x10));
    }
}
