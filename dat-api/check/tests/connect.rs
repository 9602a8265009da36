//! The connection tests of `dat-check`, on the emulated device: in one process, between two, and
//! those that fail.

use crate::common::{CONF, Folder, emulated, emulated_with, finish, json, server, server_with};

#[test]
fn a_loopback_verifies_all_transfers_on_both_paths_and_link_layers() {
    for link in ["ib", "roce"] {
        for path in ["direct", "verbs"] {
            let mut command = emulated_with(&["--link", link], "--loopback -t 50 --json mlx5_0");
            command.env("DAT_PATH", path);
            let report = json(finish(command, 0));
            let test = &report["test"];
            assert_eq!(
                (&test["kind"], &test["result"]),
                (&"loopback".into(), &"ok".into())
            );
            let transfers = test["transfers"].as_array().expect("a list");
            let of = |operation: &str| -> Vec<u64> {
                let done = transfers.iter().filter(|one| one["operation"] == operation);
                done.filter_map(|one| one["bytes"].as_u64()).collect()
            };
            for operation in ["send", "rdma_write", "rdma_read"] {
                assert_eq!(of(operation), [8, 1024, 65536], "{operation}");
            }
            assert_eq!(report["adapters"][0]["path"], path);
        }
    }
}

#[test]
fn a_test_uses_the_first_name_that_opens() {
    let folder = Folder::new("first");
    let mut command = emulated("--loopback --json");
    command.env("DAT_OVERRIDE", folder.file("dat.conf", CONF));
    let report = json(finish(command, 2));
    // The file has an invalid line, which is the only problem.
    assert_eq!(
        (&report["problems"], &report["test"]["result"]),
        (&1.into(), &"ok".into())
    );
    assert_eq!(report["adapters"][0]["name"], "fast");

    let mut command = emulated("--loopback other");
    command.env("DAT_OVERRIDE", folder.at("dat.conf"));
    finish(command, 2).says(&[
        "libibverbs.so.1 serves the name",
        "loopback      NOT RUN",
        "1 name: 1 cannot be used; loopback NOT RUN; 2 PROBLEMS",
    ]);
}

#[test]
fn a_device_without_rdma_reads_passes_with_a_note() {
    let limits = ["--limits", "max_qp_rd_atom=0,max_qp_init_rd_atom=0"];
    let ended = finish(emulated_with(&limits, "--loopback -t 50 mlx5_0"), 0);
    ended.says(&["the device issues no RDMA reads", "loopback passed"]);
    assert!(!ended.stdout.contains("rdma_read "), "{}", ended.stdout);
}

#[test]
fn a_wire_that_loses_everything_is_reported_as_lost_packets() {
    // Over rdma_cm, the connection itself would not be made.
    let faults = ["--no-rdma-cm", "--faults", "seed=1,drop=1"];
    let ended = finish(emulated_with(&faults, "--loopback mlx5_0 -t 30"), 2);
    ended.says(&[
        "status DAT_DTO_ERR_TRANSPORT",
        "packets of the adapter to itself",
        "loopback FAILED",
    ]);
    // There is one process only.
    assert!(!ended.stdout.contains("other side"), "{}", ended.stdout);
}

#[test]
fn two_processes_move_data_both_ways() {
    let (listening, fabric, port) = server_with("--serve", "mlx5_0");
    let words = format!("--connect localhost --port {port} -t 50 --json mlx5_0");
    let report = json(finish(crate::common::on_fabric(&fabric, &[], &words), 0));
    assert_eq!(report["test"]["kind"], "connect");
    assert_eq!(report["test"]["host"], "localhost");
    assert_eq!(
        report["test"]["transfers"].as_array().map(Vec::len),
        Some(9)
    );
    listening
        .end(0)
        .says(&["listen        ok", "listen passed"]);
}

#[test]
fn two_fabrics_do_not_reach_each_other_and_the_output_says_so() {
    let (mut listening, fabric, port) = server("mlx5_0");
    let words = format!("--connect 127.0.0.1 --port {port} -t 20 mlx5_0");
    let ended = finish(emulated(&words), 2);
    ended.says(&[
        "refuses the connection",
        "the same fabric (here: dat-check-",
    ]);
    assert!(!ended.stdout.contains(&fabric), "{}", ended.stdout);
    listening.kill();
}

#[test]
fn a_connection_to_nothing_says_what_to_start() {
    // Nothing listens on a port that was free a moment ago.
    let port = crate::common::free_port();
    let words = format!("--connect 127.0.0.1 --port {port} -t 5 mlx5_0");
    let ended = finish(emulated(&words), 2);
    ended.says(&[
        "refuses the connection",
        "nothing listens there",
        "here: rdma_cm",
        "same fabric",
        "dat-check --listen",
        "connect FAILED",
    ]);
    let ended = finish(emulated_with(&["--no-rdma-cm"], &words), 2);
    ended.says(&["refuses the connection", "here: socket", "connect FAILED"]);
    let ended = finish(emulated("--connect no.such.host.invalid mlx5_0"), 2);
    ended.says(&["no.such.host.invalid has no known address"]);
}

#[test]
fn connect_without_a_host_connects_the_adapter_to_itself() {
    let report = json(finish(emulated("--json mlx5_0 --connect -t 50"), 0));
    let test = &report["test"];
    assert_eq!(
        (&test["kind"], &test["result"]),
        (&"loopback".into(), &"ok".into())
    );
    // The name of an adapter in the place of a host's.
    let ended = finish(emulated("--connect mlx5_0"), 2);
    ended.says(&["mlx5_0 has no known address", "dat-check mlx5_0 --connect"]);
}

#[test]
fn a_listener_that_nothing_connects_to_ends_at_its_limit() {
    let port = crate::common::free_port();
    let ended = finish(emulated(&format!("--listen --port {port} -t 1 mlx5_0")), 2);
    ended.says(&[
        "listening as 127.0.0.1",
        "in another process of this host",
        "no connection request of a dat-check came within the time limit",
        "here: rdma_cm",
        "listen FAILED",
    ]);
}

#[test]
fn a_killed_peer_ends_the_test_with_an_error() {
    let (mut listening, fabric, port) = server("mlx5_0");
    listening.kill();
    let words = format!("--connect 127.0.0.1 --port {port} -t 5 mlx5_0");
    finish(crate::common::on_fabric(&fabric, &[], &words), 2).says(&["connect FAILED"]);
}
