//! Keys that the guest's driver changes by work requests.

use super::*;

/// The ring of the queue by which a driver changes keys, its record, and its list of pages.
pub(super) const CHANGES_PAGE: u64 = 106 * PAGE;
pub(super) const CHANGES_RECORD: u64 = RECORDS + 128;
pub(super) const LIST_PAGE: u64 = 107 * PAGE;

impl Driver {
    /// Creates the queue by which a driver changes keys. Returns its number.
    pub(super) fn create_changer(&mut self) -> u64 {
        let qp = OBJECT.get(&self.guest.succeed(
            0x500,
            &[
                (qpc::ST.at(24), 0xc),
                (qpc::UAR_PAGE.at(24), self.uar),
                (qpc::RQ_TYPE.at(24), 3),
                (qpc::LOG_SQ_SIZE.at(24), 6),
                (qpc::CQN_SND.at(24), self.cq),
                (qpc::CQN_RCV.at(24), self.cq),
                (qpc::DBR_ADDR.at(24), CHANGES_RECORD),
            ],
            &[CHANGES_PAGE],
        ));
        let to_init = [
            (OBJECT, qp),
            (qpc::PD.at(24), self.pd),
            (ads::VHCA_PORT_NUM.at(48), 1),
        ];
        self.guest.succeed(0x502, &to_init, &[]);
        self.guest
            .succeed(0x503, &[(OBJECT, qp), (qpc::MTU.at(24), 5)], &[]);
        self.guest.succeed(0x504, &[(OBJECT, qp)], &[]);
        qp
    }

    /// Posts a change of a key. Returns the opcode of its completion.
    pub(super) fn change(&self, qp: u64, change: &Change<'_>) -> u8 {
        let block = 3 * change.number;
        let segments = 8 + change.behind.len().div_ceil(16) as u32;
        let mut request = [
            &(u32::from(block) << 8 | 0x25).to_be_bytes()[..],
            &((qp as u32) << 8 | segments).to_be_bytes(),
            &[0, 0, 0, 8],
            &change.key.to_be_bytes(),
        ]
        .concat();
        request.resize(128, 0);
        request[16] = change.flags;
        request[20..22].copy_from_slice(&change.octowords.to_be_bytes());
        request[24..32].copy_from_slice(&change.mask.to_be_bytes());
        for (field, value) in change.context {
            field.at(64).set(&mut request, *value);
        }
        request.extend(change.behind);
        self.guest
            .write(CHANGES_PAGE + 64 * u64::from(block), &request);
        self.guest
            .write(CHANGES_RECORD + 4, &u32::from(block + 3).to_be_bytes());
        let bar = &self.guest.bar;
        bar.write_all_at(&request[..8], self.uar * PAGE + 0x800)
            .unwrap();
        self.guest.emulator.run_until_idle();
        let completed = self.guest.read(CQ_PAGE + 64 * change.completion, 64);
        assert_eq!(
            completed[57..60],
            (qp as u32).to_be_bytes()[1..],
            "its own completion"
        );
        completed[63] >> 4
    }
}

/// A change of a key.
#[derive(Clone, Copy)]
pub(super) struct Change<'a> {
    /// Number of the request; each has three blocks.
    pub(super) number: u16,
    pub(super) key: u32,
    pub(super) flags: u8,
    pub(super) mask: u64,
    pub(super) octowords: u16,
    pub(super) context: &'a [(Field, u64)],
    /// The translation entries, or the segment that points to them.
    pub(super) behind: &'a [u8],
    /// Number of its completion.
    pub(super) completion: u64,
}

/// Flags of changes.
pub(super) const INLINE: u8 = 1 << 7;
pub(super) const MUST_BE_FREE: u8 = 1 << 5;
const MUST_BE_OF_QP: u8 = 1 << 3;
/// What a change gives: length, size of a page, start, domain, low byte, rights, use.
pub(super) const WHOLE: u64 = 1 | 1 << 1 | 1 << 6 | 1 << 7 | 1 << 13 | 0b1111 << 17 | 1 << 29;

impl Driver {
    /// Makes its key one that was free, and got its memory by request 0 of a queue for changes,
    /// which has completion 0. Returns the number of that queue.
    pub(super) fn give_key(&mut self) -> u64 {
        let changer = self.create_changer();
        // A key of the guest's whole memory, for the list; one that is free.
        let whole = self.guest.succeed(
            0x200,
            &[(mkc::LENGTH64.at(16), 1), (mkc::PD.at(16), self.pd)],
            &[],
        );
        let whole = (OBJECT.get(&whole) << 8) as u32;
        let free = [
            (mkc::FREE.at(16), 1),
            (mkc::ACCESS_MODE_1_0.at(16), 1),
            (mkc::TRANSLATIONS_OCTWORD_SIZE.at(16), 2),
        ];
        let key = OBJECT.get(&self.guest.succeed(0x200, &free, &[])) << 8;
        self.key = key as u32 | 0x21;
        // The list of pages, padded with zeros; its data segment.
        let list: Vec<u8> = DATA
            .iter()
            .flat_map(|page| (page | 3).to_be_bytes())
            .collect();
        self.guest.write(LIST_PAGE, &list);
        let pointer = [
            &64_u32.to_be_bytes()[..],
            &whole.to_be_bytes(),
            &LIST_PAGE.to_be_bytes(),
        ]
        .concat();
        let context = [
            (mkc::LEN, REGION_LENGTH),
            (mkc::LOG_PAGE_SIZE, 12),
            (mkc::START_ADDR, REGION),
            (mkc::PD, self.pd),
            (mkc::MKEY_7_0, 0x21),
            (mkc::LW, 1),
        ];
        let given = Change {
            number: 0,
            key: key as u32,
            flags: MUST_BE_FREE,
            mask: WHOLE,
            octowords: 4,
            context: &context,
            behind: &pointer,
            completion: 0,
        };
        assert_eq!(self.change(changer, &given), 0);
        changer
    }
}

#[test]
fn a_driver_gives_a_free_key_memory_and_takes_it_away() {
    let mut driver = Driver::new();
    driver.connect();
    let changer = driver.give_key();
    let bytes: Vec<u8> = (100..164).collect();
    driver.guest.write(DATA[1], &bytes);
    driver.send((REGION & !(PAGE - 1)) + PAGE, REGION);
    assert_eq!(driver.guest.read(DATA[0] + 0x800, 64), bytes);
    // Taken away, after the completions of send and receive.
    let taken = Change {
        number: 1,
        key: driver.key,
        flags: INLINE,
        mask: 1 << 29,
        octowords: 0,
        context: &[(mkc::FREE, 1)],
        behind: &[0; 16],
        completion: 3,
    };
    assert_eq!(driver.change(changer, &taken), 0);
    driver.guest.succeed(0x50a, &[(OBJECT, driver.qp)], &[]);
    driver.guest.write(RECORDS + 64, &[0; 8]);
    driver.connect();
    driver.send(REGION, REGION);
    assert_eq!(driver.guest.read(CQ_PAGE + 4 * 64 + 63, 1)[0] >> 4, 13);
    // What is not free is not taken; what is elsewhere is not given.
    let elsewhere: Vec<u8> = [MEMORY; 4]
        .iter()
        .flat_map(|page| page.to_be_bytes())
        .collect();
    let refused = Change {
        number: 2,
        mask: WHOLE,
        octowords: 2,
        context: &[(mkc::LEN, REGION_LENGTH), (mkc::LOG_PAGE_SIZE, 12)],
        behind: &elsewhere,
        completion: 6,
        ..taken
    };
    assert_eq!(driver.change(changer, &refused), 13);
}

/// By another low byte; as libmlx5 invalidates windows (`IBV_WR_LOCAL_INV`).
#[test]
fn a_key_in_use_is_not_taken_away_as_it_should_not_be() {
    for (other, flags, mask) in [
        (1, 0, 0),
        (0, MUST_BE_OF_QP, 0),
        (1, MUST_BE_OF_QP, 1 << 13),
    ] {
        let mut driver = Driver::new();
        driver.connect();
        let changer = driver.give_key();
        let taken = Change {
            number: 1,
            key: driver.key ^ other,
            flags: INLINE | flags,
            mask: 1 << 29 | mask,
            octowords: 0,
            context: &[(mkc::FREE, 1)],
            behind: &[0; 16],
            completion: 1,
        };
        assert_eq!(driver.change(changer, &taken), 13);
        driver.guest.write(DATA[0] + 0x800 + 512, &[9; 64]);
        driver.send(REGION + 512, REGION);
        assert_eq!(driver.guest.read(DATA[0] + 0x800, 64), [9; 64]);
    }
}
