//! Values that no driver or client should give, and numbers that drivers read.

use super::*;

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
