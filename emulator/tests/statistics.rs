//! Counters of the ports, as programs find them in `/sys` and by RDMA netlink.

use crate::common::{await_listener, fabric, find, finish, free_port, run, start};
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
