//! Requests between two sides, right and wrong ones: what both get. `perf-scripts/lib/wire-tests` runs the
//! same programs between the emulated device and the kernel's Soft-RoCE.

use std::path::Path;

use crate::common::{compiled, fabric, finish, free_port, run, start};

/// The options of the server's launcher and of the client's.
type Wire = [Vec<String>; 2];

/// Two addresses, which are two hosts to the devices.
fn two_hosts(number: u8) -> Wire {
    let [.., high, low] = std::process::id().to_be_bytes();
    [0, 1].map(|side| {
        let net = 200 + 2 * number + side;
        vec![format!("--wire=udp=127.{net}.{high}.{low}")]
    })
}

fn one_host() -> Wire {
    let options = vec!["--link=roce".into(), format!("--fabric={}", fabric())];
    [options.clone(), options]
}

/// Runs a program on both sides. Returns the output of the client.
fn exchange(wire: Wire, source: &str, arguments: &[&str], faults: &str) -> String {
    let (program, port) = (compiled(source), free_port().to_string());
    let [server, client] = wire.map(|options| {
        let mut command = run(&options);
        command.arg(&program).arg(&port).args(arguments);
        command.env("MLX5EMU_FAULTS", faults);
        command
    });
    let (server, mut client) = (start(server), client);
    client.arg("127.0.0.1");
    let client = finish(client);
    let server = server.finish().expect_success("the server");
    client.expect_success(&server)
}

/// Requires the lines that are expected of two emulated devices.
fn get_what_is_expected(wire: Wire) {
    let output = exchange(wire, "two_sides/cases.c", &["3"], "");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/two_sides/cases.expected");
    let expected = std::fs::read_to_string(path).unwrap();
    let emulated = |line: &str| line.bytes().take(2).all(|it| it == b'?' || it == b'e');
    let expected = expected.lines().filter(|line| emulated(line));
    let expected: Vec<_> = expected.map(|line| &line[3..]).collect();
    let lines: Vec<_> = output.lines().collect();
    for (line, expected) in lines.iter().zip(&expected) {
        assert_eq!(line, expected);
    }
    assert_eq!(lines.len(), expected.len(), "{output}");
}

#[test]
fn both_sides_of_a_request_get_what_is_expected_between_two_hosts() {
    get_what_is_expected(two_hosts(0));
}

#[test]
fn both_sides_of_a_request_get_what_is_expected_on_one_host() {
    get_what_is_expected(one_host());
}

#[test]
fn each_request_arrives_once_also_if_packets_are_lost_repeated_and_reordered() {
    let faults = "seed=3,drop=0.02,reorder=0.05,dup=0.02";
    for wire in [two_hosts(1), one_host()] {
        let arguments = ["3", "100", "3000", "4"];
        let output = exchange(wire, "two_sides/rounds.c", &arguments, faults);
        assert!(output.contains("each arrived once"), "{output}");
    }
}

#[test]
fn rdma_cm_carries_private_data_rejections_and_disconnects_between_two_hosts() {
    let wire = two_hosts(2);
    let address = wire[0][0].trim_start_matches("--wire=udp=").to_owned();
    let output = exchange(wire, "two_sides/cm.c", &[&address], "");
    assert!(output.contains("no listener"), "{output}");
}
