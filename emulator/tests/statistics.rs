//! Counters of the ports, in `/sys` and by RDMA netlink, and the lists of objects.

use crate::common::{
    Running, await_listener, eventually, fabric, find, finish, free_port, run, start,
};
use crate::port::Watch;

/// A fabric on which 500 messages of 4 packets have gone in each direction.
struct Traffic {
    fabric: String,
    /// The counters last as long as the fabric has a process.
    _process: Watch,
}

impl Traffic {
    /// Returns `None` if the programs are not installed.
    fn new(link: &str) -> Option<Self> {
        let pingpong = find("ibv_rc_pingpong", "ibverbs-utils")?;
        let (fabric, port) = (fabric(), free_port().to_string());
        let options = ["--fabric", &fabric, "--link", link];
        let process = Watch::start(&options)?;
        let side = |peer: &[&str]| {
            let mut command = run(&options);
            command.arg(&pingpong).args(["-p", &port, "-g", "0"]);
            command.args(["-n", "500", "-s", "4096", "-m", "1024"]);
            command.args(peer);
            start(command)
        };
        let server = side(&[]);
        await_listener(port.parse().unwrap());
        side(&["127.0.0.1"]).finish().expect_success("client");
        server.finish().expect_success("server");
        Some(Self {
            fabric,
            _process: process,
        })
    }

    fn script(&self, link: &str, script: &str) -> String {
        let mut command = run(&["--fabric", &self.fabric, "--link", link]);
        command.args(["sh", "-ec", script]);
        finish(command).expect_success(script)
    }
}

#[test]
fn counters_in_sys_are_those_of_all_processes() {
    const PORT: &str = "/sys/class/infiniband/mlx5_0/ports/1";
    for link in ["ib", "roce"] {
        let Some(traffic) = Traffic::new(link) else {
            return;
        };
        let script = format!(
            "cat {PORT}/counters/port_xmit_packets
             cd {PORT}/counters; cat ../counters/port_xmit_data ./unicast_rcv_packets
             cat symbol_error; cd /
             cat {PORT}/hw_counters/lifespan {PORT}/hw_counters/out_of_buffer
             grep -rh . {PORT}/hw_counters | wc -l
             ls {PORT}/hw_counters | grep -c cnp || true
             cd {PORT}; grep -r . counters"
        );
        let shown = traffic.script(link, &script);
        let mut lines = shown.lines();
        let mut number = || lines.next().unwrap().parse::<u64>().unwrap();
        let packets = number();
        assert!(packets >= 2 * 500 * 4, "{shown}");
        assert!(number() >= 2 * 500 * (4096 + 4 * 24) / 4, "{shown}");
        assert!((2 * 500 * 4..=packets).contains(&number()), "{shown}");
        assert_eq!([number(), number(), number()], [0, 10, 0], "{shown}");
        let names = if link == "ib" { [19, 0] } else { [29, 4] };
        assert_eq!([number(), number()], names, "{shown}");
        let again = format!("counters/port_xmit_packets:{packets}");
        assert!(lines.any(|line| line == again), "no {again} in:\n{shown}");
    }
}

#[test]
fn rdma_shows_the_counters_of_a_link() {
    if find("rdma", "iproute2").is_none() {
        return;
    }
    for link in ["ib", "roce"] {
        let Some(traffic) = Traffic::new(link) else {
            return;
        };
        let script = "rdma statistic show link mlx5_0/1; rdma statistic qp show";
        let shown = traffic.script(link, script);
        let mut words = shown.split_whitespace();
        assert_eq!(
            [words.next(), words.next()],
            [Some("link"), Some("mlx5_0/1")]
        );
        for name in ["rx_write_requests", "out_of_buffer", "req_cqe_flush_error"] {
            let value = shown.split_whitespace().skip_while(|word| *word != name);
            assert_eq!(value.take(2).collect::<Vec<_>>(), [name, "0"], "{shown}");
        }
        assert_eq!(shown.contains("np_cnp_sent 0"), link == "roce", "{shown}");
        let shown = traffic.script(link, "rdma statistic qp mode link mlx5_0/1");
        assert!(shown.contains("qp auto off"), "{shown}");
    }
}

/// A program that runs until the end of the test.
struct Background(Option<Running>);

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(program) = self.0.take() {
            // The launcher forwards it to the program.
            // SAFETY: the child was not waited for, so its process id is not reused.
            unsafe { libc::kill(program.pid(), libc::SIGTERM) };
            program.finish();
        }
    }
}

#[test]
fn rdma_lists_the_objects_of_running_programs() {
    let (Some(pingpong), Some(rping), Some(_)) = (
        find("ibv_srq_pingpong", "ibverbs-utils"),
        find("rping", "rdmacm-utils"),
        find("rdma", "iproute2"),
    ) else {
        return;
    };
    let fabric = fabric();
    let options = ["--fabric", &fabric];
    let ports = [free_port(), free_port()].map(|port| port.to_string());
    let mut command = run(&options);
    command.arg(pingpong).args(["-p", &ports[0], "-q", "3"]);
    let _queues = Background(Some(start(command)));
    await_listener(ports[0].parse().unwrap());
    let mut command = run(&options);
    command
        .arg(rping)
        .args(["-s", "-a", "127.0.0.1", "-p", &ports[1]]);
    let _listener = Background(Some(start(command)));
    let script = |script: &str| {
        let mut command = run(&options);
        command.args(["sh", "-ec", script]);
        finish(command).expect_success(script)
    };
    let listening = format!("src-addr 127.0.0.1:{}", ports[1]);
    let mut shown = String::new();
    // A program binds its id before it listens.
    eventually("an id that listens", || {
        shown = script("rdma resource show cm_id");
        shown.contains(&listening) && shown.contains("state LISTEN")
    });
    for words in ["link mlx5_0/1 ", "state LISTEN ps TCP ", "comm rping"] {
        assert!(shown.contains(words), "no {words:?} in:\n{shown}");
    }
    let shown = script("rdma resource");
    let mut numbers = shown
        .split_whitespace()
        .map(|word| word.parse::<u32>().ok());
    let counts: Vec<u32> = numbers.by_ref().skip(2).flatten().collect();
    // Protection domains, CQs, QPs, ids, regions, contexts, SRQs.
    // librdmacm has a protection domain of its own.
    assert_eq!(counts, [2, 1, 3, 1, 1, 2, 1], "{shown}");
    let of_pingpong = "comm ibv_srq_pingpon";
    for (kind, words) in [
        ("qp", "type RC state INIT rq-psn 0 sq-psn 0"),
        ("cq", "cqe 511 users 6"),
        ("mr", "mrlen 4096"),
        ("pd", "users 5"),
        ("ctx", "ctxn"),
        // iproute2 6.1 shows the QPs in place of the command.
        ("srq", "type BASIC lqpn"),
    ] {
        let shown = script(&format!("rdma resource show {kind}"));
        let mut lines = shown.lines();
        let found =
            lines.any(|line| line.contains(words) && (kind == "srq" || line.contains(of_pingpong)));
        assert!(found, "{kind}: no {words:?} in:\n{shown}");
    }
    let all = script("rdma resource show qp");
    assert_eq!(all.matches("lqpn").count(), 3, "{all}");
    let mut words = all.split_whitespace().skip_while(|word| *word != "lqpn");
    let number = words.nth(1).unwrap();
    let one = script(&format!("rdma resource show qp lqpn {number}"));
    assert_eq!(one.matches("lqpn").count(), 1, "{one}");
}
