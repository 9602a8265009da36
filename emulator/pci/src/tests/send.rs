//! Send queues by themselves.

use std::os::unix::fs::FileExt;

use super::{CQ_PAGE, Driver, OBJECT, QP_PAGE, RECORDS};
use crate::layout::{sqc, wq};
use crate::memory::PAGE;
use crate::testing::command;

const PAGES: [u64; 1] = [QP_PAGE + PAGE];
const RECORD: u64 = RECORDS + 128;
/// Offsets of the context in commands, and of the queue in it.
const CONTEXT: usize = 32;
const QUEUE: usize = CONTEXT + 48;

/// As the driver of Linux 6.12 tests whether stores to a doorbell register are combined.
#[test]
fn a_send_queue_takes_nops_and_the_flags_of_their_copies() {
    let mut driver = Driver::new();
    let queue = |size, stride| {
        [
            (sqc::CQN.at(CONTEXT), driver.cq),
            (wq::UAR_PAGE.at(QUEUE), driver.uar),
            (wq::DBR_ADDR.at(QUEUE), RECORD),
            (wq::LOG_WQ_STRIDE.at(QUEUE), stride),
            (wq::LOG_WQ_SZ.at(QUEUE), size),
        ]
    };
    for (size, stride) in [(4, 5), (16, 6), (31, 6)] {
        let refused = command(0x904, &queue(size, stride), &PAGES);
        assert_eq!(driver.guest.command(&refused, 16)[0], 3, "{size} {stride}");
    }
    let sq = OBJECT.get(&driver.guest.succeed(0x904, &queue(4, 6), &PAGES));
    let ready = [(OBJECT, sq), (sqc::STATE.at(CONTEXT), 1)];
    driver.guest.succeed(0x905, &ready, &[]);
    for index in 0..2_u32 {
        let mut nop = [
            (index << 8).to_be_bytes(),
            ((sq as u32) << 8 | 1).to_be_bytes(),
            [0; 4],
            [0; 4],
        ]
        .concat();
        driver.guest.write(PAGES[0] + 64 * u64::from(index), &nop);
        // The copy asks for a completion.
        nop[11] = 8;
        let register = driver.uar * PAGE + 0x800 + 0x100 * u64::from(index);
        driver.guest.bar.write_all_at(&nop, register).unwrap();
    }
    driver.guest.write(RECORD + 4, &2_u32.to_be_bytes());
    driver.guest.emulator.run_until_idle();
    for index in 0..2_u16 {
        let completed = driver.guest.read(CQ_PAGE + 64 * u64::from(index), 64);
        assert_eq!(completed[60..62], index.to_be_bytes());
        assert_eq!(completed[63] >> 4, 0, "done");
    }
    driver.guest.succeed(0x906, &[(OBJECT, sq)], &[]);
}
