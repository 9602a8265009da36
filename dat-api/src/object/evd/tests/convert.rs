//! Statuses of the device in events.

use dat_engine::Status;

use crate::object::evd::convert::status;
use crate::types::DtoStatus;

/// Section 3.3, by the number in `enum ibv_wc_status`.
#[test]
fn every_device_status_has_a_dat_status() {
    let rows = [
        (0, DtoStatus::Success),
        (5, DtoStatus::Flushed),
        (1, DtoStatus::LocalLength),
        (2, DtoStatus::LocalEp),
        (4, DtoStatus::LocalProtection),
        (8, DtoStatus::LocalProtection),
        (7, DtoStatus::BadResponse),
        (10, DtoStatus::RemoteAccess),
        (9, DtoStatus::RemoteResponder),
        (11, DtoStatus::RemoteResponder),
        (16, DtoStatus::RemoteResponder),
        (12, DtoStatus::Transport),
        (21, DtoStatus::Transport),
        (13, DtoStatus::ReceiverNotReady),
        (6, DtoStatus::RmrOperationFailed),
    ];
    assert_eq!(rows.len(), Status::ALL.len());
    for (number, expected) in rows {
        assert_eq!(
            status(Status::from_ibv_wc_status(number)),
            expected,
            "{number}"
        );
    }
    // The numbers are DAT's; no status becomes a partial packet (10).
    let numbers: Vec<u8> = rows.iter().map(|&(_, row)| row as u8).collect();
    assert!((0..=11).all(|number| numbers.contains(&number) || number == 10));
}
