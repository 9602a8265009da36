//! `--pcap`: the packets of programs, as tshark reads them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{finish, pair_with, run, skipped};

/// Returns a path for a capture of this call alone.
pub(crate) fn capture_file() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("capture-{}-{number}.pcap", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Returns tshark's summaries of the packets, with the queue pair and the sequence number,
/// and removes the file. `None` if there is no tshark.
pub(crate) fn decoded(file: &Path) -> Option<Vec<String>> {
    let tshark = |options: &[&str]| {
        let mut command = Command::new("tshark");
        command.args(["-n", "-r"]).arg(file).args(options);
        // It takes the data of some SENDs for RPC over RDMA.
        command.args(["--disable-protocol", "rpcordma"]);
        let output = command.output().ok()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(malformed) = tshark(&["-V", "-Y", "_ws.malformed || !infiniband"]) else {
        skipped("tshark is not installed (apt-get install tshark)");
        let _ = std::fs::remove_file(file);
        return None;
    };
    assert_eq!(malformed, "");
    let fields = [
        "_ws.col.Info",
        "infiniband.bth.destqp",
        "infiniband.bth.psn",
    ];
    let fields: Vec<&str> = fields.iter().flat_map(|field| ["-e", field]).collect();
    let text = tshark(&[&["-T", "fields"], &fields[..]].concat())?;
    std::fs::remove_file(file).expect("the capture");
    Some(text.lines().map(str::to_owned).collect())
}

#[test]
fn tshark_reads_the_packets_of_two_programs_on_every_link() {
    for (link, gid) in [("ib", None), ("roce", Some("1")), ("roce", Some("2"))] {
        let file = capture_file();
        let options = ["--pcap", file.to_str().expect("ASCII")];
        let gid = gid.iter().flat_map(|gid| ["-g", gid]);
        let arguments: Vec<&str> = ["-n", "3", "-m", "1024"].into_iter().chain(gid).collect();
        let program = "ibv_rc_pingpong";
        pair_with(&options, link, program, "ibverbs-utils", &arguments, &[]);
        if !file.exists() {
            return;
        }
        let Some(packets) = decoded(&file) else {
            return;
        };
        // Three messages of four packets in both directions; some may be repeated.
        for (operation, count) in [("First", 6), ("Middle", 12), ("Last", 6)] {
            let name = format!("RC Send {operation} ");
            let found: BTreeSet<_> = packets.iter().filter(|it| it.starts_with(&name)).collect();
            assert_eq!(found.len(), count, "{link} {operation}: {packets:#?}");
        }
        let is_ack = |packet: &String| packet.starts_with("RC Acknowledge ");
        assert!(packets.iter().any(is_ack), "{packets:#?}");
    }
}

#[test]
fn a_packet_that_a_fault_loses_is_in_the_capture() {
    let file = capture_file();
    let options = [
        "--faults",
        "drop@1",
        "--pcap",
        file.to_str().expect("ASCII"),
    ];
    let (program, package) = ("ibv_rc_pingpong", "ibverbs-utils");
    pair_with(
        &options,
        "roce",
        program,
        package,
        &["-n", "100", "-s", "64", "-g", "3"],
        &[],
    );
    if !file.exists() {
        return;
    }
    let Some(packets) = decoded(&file) else {
        return;
    };
    // The first packet of the client is lost, then the acknowledgement of the second one,
    // which is the server's first packet.
    let first = packets.iter().find(|it| it.starts_with("RC Send Only "));
    let times = packets.iter().filter(|&it| Some(it) == first).count();
    assert!(times >= 3, "{times}: {packets:#?}");
}

#[test]
fn files_that_cannot_take_packets_are_named() {
    let other = capture_file();
    std::fs::write(&other, "no capture").expect("a temporary file");
    let ib = capture_file();
    let refused = |options: &[&str], reason: &str| {
        let mut command = run(options);
        command.arg("true");
        let outcome = finish(command);
        assert_eq!(outcome.status.code(), Some(1), "{}", outcome.output);
        let text = outcome.output.trim_end();
        assert!(text.contains(reason) && text.lines().count() == 1, "{text}");
    };
    let of = |file: &Path| file.to_str().expect("ASCII").to_owned();
    refused(
        &["--pcap", "/no/such/x"],
        "cannot write --pcap /no/such/x: No such file",
    );
    refused(&["--pcap", "/dev/null"], "it is no regular file");
    refused(&["--pcap", "/tmp"], "it is no regular file");
    refused(
        &["--pcap", &of(&other)],
        "something else than nanosecond-resolution packets of InfiniBand",
    );
    let mut command = run(&["--pcap", &of(&ib)]);
    command.arg("true");
    finish(command).expect_success("a new file");
    assert_eq!(std::fs::metadata(&ib).expect("a header").len(), 24);
    refused(
        &["--link", "roce", "--pcap", &of(&ib)],
        "packets of Ethernet",
    );
    for file in [other, ib] {
        std::fs::remove_file(file).expect("a temporary file");
    }
}
