use super::*;
use crate::nic::resources::{Field, Kind, Resource};

fn ask(config: &Config, command: u16, flags: u16, request: Message) -> Vec<Vec<u8>> {
    ask_with(&[], config, command, flags, request)
}

fn ask_with(
    reports: &[Vec<u8>],
    config: &Config,
    command: u16,
    flags: u16,
    request: Message,
) -> Vec<Vec<u8>> {
    let kind = CLIENT << 10 | command;
    let header = Message::new(kind, FLAG_REQUEST | flags, 7, 0);
    let request = header.bytes(&request.finish()[HEADER..]).finish();
    let nldev = Nldev {
        config,
        port_is_up: &|port| port.port == 1,
        reports: &|| reports.to_vec(),
        counters: &|port| Row::default().map(|_| port.port.into()),
    };
    nldev.reply(&request, 99)
}

fn nothing() -> Message {
    Message::new(0, 0, 0, 0)
}

/// Returns the code of an error or an acknowledgement.
fn code(reply: &[u8]) -> Option<i32> {
    let request = Request { bytes: reply };
    assert_eq!((request.sequence(), request.word(12)), (7, 99));
    (request.kind() == ERROR).then(|| request.word(HEADER).cast_signed())
}

#[test]
fn a_dump_shows_all_devices_and_then_ends() {
    let config = Config {
        devices: 2,
        ports: 2,
        ..Config::default()
    };
    let replies = ask(&config, GET, FLAG_DUMP | FLAG_ACK, nothing());
    assert_eq!(replies.len(), 3);
    let second = Request { bytes: &replies[1] };
    assert_eq!(second.flags(), FLAG_MULTI);
    assert_eq!(
        second.attribute(attribute::DEV_NAME),
        Some(&b"mlx5_1\0"[..])
    );
    assert_eq!(second.number(attribute::PORT_INDEX), Ok(2));
    assert_eq!(second.attribute(attribute::DEV_NODE_TYPE), Some(&[1][..]));
    let guid = u64::from_be_bytes(config.identity(1).guid);
    assert_eq!(
        second.attribute(attribute::NODE_GUID),
        Some(&guid.to_ne_bytes()[..])
    );
    let end = Request { bytes: &replies[2] };
    assert_eq!((end.kind(), end.bytes.len()), (DONE, HEADER + 4));
}

#[test]
fn a_port_is_shown_with_its_state_and_an_acknowledgement() {
    let mut config = Config {
        ports: 2,
        ..Config::default()
    };
    let port = |port| {
        nothing()
            .u32(attribute::DEV_INDEX, 0)
            .u32(attribute::PORT_INDEX, port)
    };
    let replies = ask(&config, PORT_GET, FLAG_ACK, port(1));
    assert_eq!(code(&replies[1]), Some(0));
    let first = Request { bytes: &replies[0] };
    assert_eq!(first.number(attribute::LID), Ok(1));
    assert_eq!(first.attribute(attribute::PORT_STATE), Some(&[4][..]));
    assert_eq!(first.attribute(attribute::NDEV_NAME), None);
    config.link = Link::Roce;
    let replies = ask(&config, PORT_GET, 0, port(2));
    let second = Request { bytes: &replies[0] };
    assert_eq!(replies.len(), 1, "no acknowledgement was requested");
    assert_eq!(second.attribute(attribute::PORT_STATE), Some(&[1][..]));
    assert_eq!(second.attribute(attribute::NDEV_NAME), Some(&b"lo\0"[..]));
    assert_eq!(second.attribute(attribute::LID), None);
    let dump = nothing().u32(attribute::DEV_INDEX, 0);
    assert_eq!(ask(&config, PORT_GET, FLAG_DUMP, dump).len(), 3);
}

#[test]
fn libibverbs_finds_the_device_file() {
    let config = Config {
        devices: 2,
        ..Config::default()
    };
    let request = nothing()
        .u32(attribute::DEV_INDEX, 1)
        .string(attribute::CHARDEV_TYPE, "uverbs");
    let replies = ask(&config, GET_CHARDEV, 0, request);
    let reply = Request { bytes: &replies[0] };
    let number = 231_u64 << 8 | 193;
    assert_eq!(
        reply.attribute(attribute::CHARDEV),
        Some(&number.to_ne_bytes()[..])
    );
    assert_eq!(
        reply.attribute(attribute::CHARDEV_NAME),
        Some(&b"uverbs1\0"[..])
    );
    assert_eq!(reply.number(attribute::UVERBS_DRIVER_ID), Ok(1));
    let replies = ask(&config, SYS_GET, 0, nothing());
    let reply = Request { bytes: &replies[0] };
    assert_eq!(reply.attribute(attribute::SYS_COPY_ON_FORK), Some(&[1][..]));
}

#[test]
fn librdmacm_finds_its_device_file_only_if_it_is_emulated() {
    let mut config = Config::default();
    let request = || nothing().string(attribute::CHARDEV_TYPE, "rdma_cm");
    let replies = ask(&config, GET_CHARDEV, 0, request());
    assert_eq!(code(&replies[0]), Some(-EOPNOTSUPP));
    config.rdma_cm = true;
    let replies = ask(&config, GET_CHARDEV, 0, request());
    let reply = Request { bytes: &replies[0] };
    assert_eq!(
        reply.attribute(attribute::CHARDEV_NAME),
        Some(&b"rdma_cm\0"[..])
    );
    assert_eq!(
        reply.attribute(attribute::CHARDEV_ABI),
        Some(&4_u64.to_ne_bytes()[..])
    );
    assert_eq!(
        reply.attribute(attribute::CHARDEV),
        Some(&(10_u64 << 8 | 122).to_ne_bytes()[..])
    );
    let of_device = request().u32(attribute::DEV_INDEX, 0);
    let replies = ask(&config, GET_CHARDEV, 0, of_device);
    assert_eq!(code(&replies[0]), Some(-EOPNOTSUPP));
}

#[test]
fn counters_of_a_port_are_shown_by_name() {
    let config = Config {
        ports: 2,
        ..Config::default()
    };
    let port = |port| {
        nothing()
            .u32(attribute::DEV_INDEX, 0)
            .u32(attribute::PORT_INDEX, port)
    };
    let replies = ask(&config, STAT_GET, 0, port(2));
    let reply = Request { bytes: &replies[0] };
    let mut table = reply.attribute(attribute::STAT_HWCOUNTERS).unwrap();
    let mut names = Vec::new();
    while let Some(len) = table.first_chunk() {
        let len = usize::from(u16::from_ne_bytes(*len));
        // A message of this entry's attributes.
        let entry = [&[0; HEADER], &table[4..len]].concat();
        let entry = Request { bytes: &entry };
        let name = entry.attribute(attribute::STAT_HWCOUNTER_ENTRY_NAME);
        names.push(String::from_utf8(name.unwrap().to_vec()).unwrap());
        let value = entry.attribute(attribute::STAT_HWCOUNTER_ENTRY_VALUE);
        assert_eq!(value, Some(&2_u64.to_ne_bytes()[..]));
        table = &table[len..];
    }
    let expected = crate::nic::counters::hardware(config.link).iter();
    let expected: Vec<_> = expected.map(|(name, _)| format!("{name}\0")).collect();
    assert_eq!(names, expected);
    // No queue pair has counters of its own.
    let queue_pairs = || port(1).u32(attribute::STAT_RES, 19);
    let replies = ask(&config, STAT_GET, FLAG_DUMP, queue_pairs());
    assert_eq!(replies.len(), 1);
    let replies = ask(&config, STAT_GET, 0, queue_pairs());
    let reply = Request { bytes: &replies[0] };
    assert_eq!(reply.number(attribute::STAT_MODE), Ok(0));
}

const QP_GET: u16 = 10;
const CQ_GET: u16 = 12;
const SRQ_GET: u16 = 23;

fn resource(kind: Kind, port: u8, number: u32) -> Resource {
    Resource {
        kind,
        device: 0,
        port,
        number,
        fields: vec![(Field::State, 3), (Field::Users, 7)],
        addresses: [None, Some(vec![2, 0])],
        queue_pairs: vec![5, 6, 7, 9],
    }
}

/// Returns the attributes of a kind in an attribute, each as a message.
fn nested(message: &[u8], table: u16, wanted: u16) -> Vec<Vec<u8>> {
    let message = Request { bytes: message };
    let mut rest = message.attribute(table).unwrap();
    let mut found = Vec::new();
    while let Some([a, b, c, d]) = rest.first_chunk() {
        let (len, kind) = (u16::from_ne_bytes([*a, *b]), u16::from_ne_bytes([*c, *d]));
        let (entry, next) = rest.split_at(usize::from(len).next_multiple_of(4));
        assert_eq!(kind, wanted);
        found.push([&[0; HEADER], &entry[4..]].concat());
        rest = next;
    }
    found
}

#[test]
fn objects_of_all_reports_are_listed_in_messages_of_a_page() {
    let config = Config {
        devices: 2,
        ports: 2,
        ..Config::default()
    };
    let queue_pairs: Vec<_> = (1..=100).map(|n| resource(Kind::Qp, 1, n)).collect();
    let others = [resource(Kind::Qp, 2, 101), resource(Kind::Cq, 0, 1)];
    let reports = [report(&queue_pairs), report(&others)];
    let device = |index| nothing().u32(attribute::DEV_INDEX, index);
    let listed = |command, request| {
        let mut replies = ask_with(&reports, &config, command, FLAG_DUMP, request);
        assert_eq!(
            Request {
                bytes: &replies.pop().unwrap()
            }
            .kind(),
            DONE
        );
        assert!(replies.iter().all(|reply| reply.len() <= 4096));
        replies
    };
    let numbers = |replies: &[Vec<u8>]| {
        let entries = replies.iter().flat_map(|reply| nested(reply, 19, 20));
        let numbers = entries.map(|entry| Request { bytes: &entry }.number(21).unwrap());
        numbers.collect::<Vec<_>>()
    };
    let all = listed(QP_GET, device(0));
    assert!(all.len() > 1);
    assert_eq!(numbers(&all), (1..=101).collect::<Vec<_>>());
    let of_port = device(0).u32(attribute::PORT_INDEX, 2);
    assert_eq!(numbers(&listed(QP_GET, of_port)), [101]);
    assert!(listed(QP_GET, device(1)).is_empty());
    // CQs have no port.
    let of_port = device(0).u32(attribute::PORT_INDEX, 2);
    let cqs = listed(CQ_GET, of_port);
    let cq = nested(&cqs[0], 35, 36).remove(0);
    let cq = Request { bytes: &cq };
    assert_eq!(cq.number(61), Ok(1));
    assert_eq!(cq.number(attribute::RES_PID), Ok(std::process::id()));
    assert_eq!(cq.attribute(27), Some(&[3][..]));
    assert_eq!(cq.attribute(38), Some(&7_u64.to_ne_bytes()[..]));
    let peer = cq.attribute(attribute::RES_DST_ADDR).unwrap();
    assert_eq!((peer.len(), peer[0], peer[127]), (128, 2, 0));
    let counts = listed(RES_GET, nothing());
    let counts = nested(
        &counts[0],
        attribute::RES_SUMMARY,
        attribute::RES_SUMMARY_ENTRY,
    );
    let counts = counts.iter().map(|entry| {
        let entry = Request { bytes: entry };
        let name = entry.attribute(attribute::RES_SUMMARY_ENTRY_NAME).unwrap();
        let count = entry.attribute(attribute::RES_SUMMARY_ENTRY_CURR).unwrap();
        (String::from_utf8_lossy(name).into_owned(), count[0])
    });
    let names = ["pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"];
    let expected = names.map(|name| format!("{name}\0")).into_iter();
    let expected = expected.zip([0, 1, 101, 0, 0, 0, 0]);
    assert_eq!(counts.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn one_object_is_shown_by_its_number() {
    let config = Config::default();
    let reports = [report(&[
        resource(Kind::Qp, 1, 3),
        resource(Kind::Srq, 0, 4),
    ])];
    let device = || nothing().u32(attribute::DEV_INDEX, 0);
    let ask = |command, request| ask_with(&reports, &config, command, 0, request).remove(0);
    let on_port = |number| device().u32(21, number).u32(attribute::PORT_INDEX, 1);
    let found = ask(QP_GET, on_port(3));
    assert_eq!(Request { bytes: &found }.number(21), Ok(3));
    assert_eq!(code(&ask(QP_GET, on_port(4))), Some(-libc::ENOENT));
    assert_eq!(code(&ask(QP_GET, device().u32(21, 3))), Some(-EINVAL));
    assert_eq!(code(&ask(QP_GET, device())), Some(-EINVAL));
    let found = ask(SRQ_GET, device().u32(90, 4));
    let ranges = nested(&found, 19, 20);
    let ranges = ranges.iter().map(|range| {
        let range = Request { bytes: range };
        let bounds = [attribute::MIN_RANGE, attribute::MAX_RANGE, 21];
        bounds.map(|bound| range.number(bound).ok())
    });
    let expected = [[Some(5), Some(7), None], [None, None, Some(9)]];
    assert_eq!(ranges.collect::<Vec<_>>(), expected);
}

#[test]
fn a_report_that_is_cut_off_or_garbage_lists_what_is_whole() {
    let config = Config::default();
    let whole = report(&[resource(Kind::Qp, 1, 1), resource(Kind::Qp, 1, 2)]);
    let count = |report: &[u8]| {
        let request = nothing().u32(attribute::DEV_INDEX, 0);
        let replies = ask_with(&[report.to_vec()], &config, QP_GET, FLAG_DUMP, request);
        let tables = &replies[..replies.len() - 1];
        tables
            .iter()
            .map(|it| nested(it, 19, 20).len())
            .sum::<usize>()
    };
    for len in 0..whole.len() {
        assert_eq!(count(&whole[..len]), 2 * len / whole.len(), "{len} bytes");
    }
    assert_eq!(count(&[0xff; 100]), 0);
    assert_eq!(count(&[2; 100]), 0);
}

#[test]
fn other_requests_are_refused() {
    let config = Config::default();
    let device = |index| nothing().u32(attribute::DEV_INDEX, index);
    let umad = device(0).string(attribute::CHARDEV_TYPE, "umad");
    for (command, request, expected) in [
        (GET, nothing(), EINVAL),
        (GET, device(1), EINVAL),
        (PORT_GET, device(0), EINVAL),
        (PORT_GET, device(0).u32(attribute::PORT_INDEX, 2), EINVAL),
        (GET_CHARDEV, device(0), EINVAL),
        (GET_CHARDEV, umad, EOPNOTSUPP),
        (2, device(0), EOPNOTSUPP),
        (16, device(0), EOPNOTSUPP),
        (STAT_GET, device(0), EINVAL),
        (STAT_GET, device(0).u32(attribute::STAT_RES, 35), EINVAL),
        (0, nothing(), EINVAL),
        (COMMANDS, nothing(), EINVAL),
    ] {
        let replies = ask(&config, command, 0, request);
        assert_eq!(replies.len(), 1);
        assert_eq!(code(&replies[0]), Some(-expected), "command {command}");
    }
    let old = Config {
        face: Face::Write,
        ..Config::default()
    };
    assert_eq!(code(&ask(&old, SYS_GET, 0, nothing())[0]), Some(-EINVAL));
    assert_eq!(code(&ask(&old, STAT_GET, 0, nothing())[0]), Some(-EINVAL));
    assert_eq!(ask(&old, GET, FLAG_DUMP, nothing()).len(), 2);
}

#[test]
fn incomplete_messages_get_no_reply() {
    let config = Config::default();
    let nldev = Nldev {
        config: &config,
        port_is_up: &|_| true,
        counters: &|_| Row::default(),
        reports: &Vec::new,
    };
    let kind = CLIENT << 10 | GET;
    let whole = Message::new(kind, FLAG_REQUEST | FLAG_DUMP, 1, 0).finish();
    for len in 0..whole.len() {
        assert!(nldev.reply(&whole[..len], 9).is_empty(), "{len} bytes");
    }
    let mut wrong = whole.clone();
    wrong[0] = 4;
    assert!(nldev.reply(&wrong, 9).is_empty());
    let no_request = Message::new(kind, FLAG_DUMP, 1, 0).finish();
    assert!(nldev.reply(&no_request, 9).is_empty());
    let two = [whole.clone(), whole].concat();
    assert_eq!(nldev.reply(&two, 9).len(), 4);
    // An attribute with a length of 0, and one that is longer than the request.
    for len in [0_u16, 100] {
        let attribute = [len.to_ne_bytes(), 1_u16.to_ne_bytes()].concat();
        let message = Message::new(kind, FLAG_REQUEST, 1, 0).bytes(&attribute);
        let replies = nldev.reply(&message.finish(), 9);
        assert_eq!(Request { bytes: &replies[0] }.kind(), ERROR);
    }
}
