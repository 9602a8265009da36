//! Programs that look for devices in `/sys` and `/dev`, by netlink, and by the PCI bus.

use crate::common::{find, finish, pair_with, run};

const DIAGS: &str = "infiniband-diags";
const UCX: &str = "ucx-utils";

/// Runs a script of `sh` on these devices. Returns its output.
fn script(options: &[&str], script: &str) -> String {
    let mut command = run(options);
    command.args(["sh", "-ec", script]);
    finish(command).expect_success(script)
}

#[test]
fn device_files_are_found_and_accessible() {
    let output = script(
        &["--devices", "2"],
        "ls /dev/infiniband
         for it in -e -c -r -w; do test $it /dev/infiniband/uverbs1; done
         for it in -f -d -x -L; do test ! $it /dev/infiniband/uverbs1; done
         test ! -e /dev/infiniband/uverbs2
         test ! -e /dev/infiniband/umad0
         stat -c '%F %t:%T' /dev/infiniband/uverbs1
         ls -l /dev/infiniband/ 2>&1 | grep -c '^crw-rw-rw-.*231, *19[23]'
         if ls -l /dev/infiniband/ 2>&1 | grep 'No such file'; then exit 1; fi
         realpath /dev/infiniband/uverbs0",
    );
    let expected =
        "rdma_cm\nuverbs0\nuverbs1\ncharacter special file e7:c1\n2\n/dev/infiniband/uverbs0\n";
    assert_eq!(output, expected);
}

#[test]
fn rdma_cm_is_a_device_unless_it_is_switched_off() {
    let found = script(
        &[],
        "ls /dev/infiniband
         stat -c '%F %t:%T' /dev/infiniband/rdma_cm
         test -w /dev/infiniband/rdma_cm
         cat /sys/class/misc/rdma_cm/abi_version /sys/class/misc/rdma_cm/dev
         realpath /sys/class/misc/rdma_cm
         cat $(realpath /sys/class/misc/rdma_cm)/uevent",
    );
    let expected = "rdma_cm\nuverbs0\ncharacter special file a:7a\n4\n10:122\n\
        /sys/devices/virtual/misc/rdma_cm\nMAJOR=10\nMINOR=122\nDEVNAME=infiniband/rdma_cm\n";
    assert_eq!(found, expected);
    script(
        &["--no-rdma-cm"],
        "for it in /dev/infiniband /sys/class/misc /sys/devices/virtual/misc; do
             test ! -e $it/rdma_cm
         done",
    );
}

#[test]
fn programs_that_name_sys_see_the_devices() {
    let output = script(
        &[],
        "ls /sys/class/infiniband /sys/class/infiniband_verbs
         cd /sys/class/infiniband/mlx5_0; cat node_type ports/1/state
         cd /; cat /sys/class/infiniband/mlx5_0/device/vendor
         readlink /sys/class/infiniband/mlx5_0
         realpath /sys/class/infiniband/mlx5_0/device
         cat $(realpath /sys/class/infiniband/mlx5_0/../..)/numa_node >&2
         cat /sys/bus/pci/devices/00e5:03:00.0/class
         test ! -e /sys/class/infiniband_mad
         if { echo x > /sys/class/infiniband/mlx5_0/device/vendor.new; } 2> /dev/null; then
             test -w /sys/class/infiniband
         fi
         find /sys/class/infiniband/ -maxdepth 2 -name mlx5_0",
    );
    for line in [
        "mlx5_0",
        "abi_version",
        "uverbs0",
        "1: CA",
        "4: ACTIVE",
        "0x15b3",
        "../../devices/pci00e5:00/00e5:00:01.0/00e5:03:00.0/infiniband/mlx5_0",
        "/sys/devices/pci00e5:00/00e5:00:01.0/00e5:03:00.0",
        "0x020700",
        "/sys/class/infiniband/mlx5_0",
    ] {
        let found = output.lines().any(|shown| shown == line);
        assert!(found, "no {line:?} in:\n{output}");
    }
    let plain = std::process::Command::new("ls")
        .arg("/sys/class/net")
        .output()
        .unwrap();
    assert_eq!(
        script(&[], "ls /sys/class/net").into_bytes(),
        plain.stdout,
        "the rest is the host's"
    );
}

#[test]
fn the_devices_are_near_the_node_that_is_chosen() {
    let node = |options: &[&str]| {
        let node = script(options, "cat /sys/class/infiniband/mlx5_0/device/numa_node");
        node.trim().to_owned()
    };
    let has_nodes = std::path::Path::new("/sys/devices/system/node/node0").exists();
    assert_eq!(node(&[]), if has_nodes { "0" } else { "-1" });
    assert_eq!(node(&["--numa-node", "none"]), "-1");
    let mut command = run(&["--numa-node", "999"]);
    command.args(["ls", "/sys/class/infiniband"]);
    let refused = finish(command);
    assert!(
        refused.output.contains("no NUMA node 999"),
        "{}",
        refused.output
    );
}

#[test]
fn c_functions_resolve_paths_of_devices() {
    if find("python3", "python3").is_none() {
        return;
    }
    const PROGRAM: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None)
path = b"/sys/class/infiniband/mlx5_0/device"
room = ctypes.create_string_buffer(4096)
libc.realpath.restype = ctypes.c_char_p
print(libc.realpath(path, room).decode())
libc.canonicalize_file_name.restype = ctypes.c_char_p
print(libc.canonicalize_file_name(path).decode())
root = os.open("/", os.O_RDONLY)
print(os.readlink("sys/class/infiniband/mlx5_0/device", dir_fd=root))
print(os.stat("sys/class/infiniband", dir_fd=root).st_mode & 0o40000 != 0)
print(os.access("/dev/infiniband/uverbs0", os.R_OK | os.W_OK, effective_ids=True))
print([entry.name for entry in os.scandir("/sys/class/infiniband")])
device = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
print(os.major(os.fstat(device).st_rdev), os.minor(os.fstat(device).st_rdev))
"#;
    let mut command = run::<&str>(&[]);
    command.args(["python3", "-c", PROGRAM]);
    let output = finish(command).expect_success("python3");
    let pci = "/sys/devices/pci00e5:00/00e5:00:01.0/00e5:03:00.0";
    let expected =
        format!("{pci}\n{pci}\n../../../00e5:03:00.0\nTrue\nTrue\n['mlx5_0']\n231 192\n");
    assert_eq!(output, expected);
}

#[test]
fn rdma_shows_devices_and_links() {
    let Some(program) = find("rdma", "iproute2") else {
        return;
    };
    let show = |options: &[&str], what: &str| {
        let mut command = run(options);
        command.arg(&program).args([what, "show"]);
        finish(command).expect_success(what)
    };
    for face in ["ioctl", "write"] {
        let shown = show(&["--face", face, "--devices", "2"], "dev");
        for words in ["0: mlx5_0:", "1: mlx5_1:", "node_type ca", "fw 22.0.0"] {
            assert!(shown.contains(words), "no {words:?} in:\n{shown}");
        }
        let ib = show(&["--face", face, "--ports", "2"], "link");
        for words in ["link mlx5_0/1", "link mlx5_0/2", "lid 65", "state ACTIVE"] {
            assert!(ib.contains(words), "no {words:?} in:\n{ib}");
        }
        let roce = show(&["--face", face, "--link", "roce"], "link");
        let words = "state ACTIVE physical_state LINK_UP netdev lo";
        assert!(roce.contains(words), "{roce}");
    }
}

#[test]
fn libibverbs_finds_devices_by_netlink_and_by_sysfs() {
    if find("ibv_devinfo", "ibverbs-utils").is_none() {
        return;
    }
    const PCI: &str = "devices/pci00e5:00/00e5:00:01.0/00e5:03:00.0";
    // The character device is known by netlink only.
    let hide = format!("cd $SYSFS_PATH; rm -r class/infiniband_verbs {PCI}/infiniband_verbs; ");
    for (face, prepare, expected) in [
        ("ioctl", hide.as_str(), "hca_id:\tmlx5_0"),
        ("write", hide.as_str(), "No IB devices found"),
        ("write", "", "hca_id:\tmlx5_0"),
    ] {
        let mut command = run(&["--face", face]);
        let listing = format!("{prepare} ibv_devinfo || true");
        command.args(["sh", "-ec", &listing]);
        let output = finish(command).expect_success(face);
        assert!(output.contains(expected), "{face} {prepare}: {output}");
    }
}

#[test]
fn ibstat_shows_the_device() {
    let Some(program) = find("ibstat", DIAGS) else {
        return;
    };
    for (link, layer) in [("ib", "InfiniBand"), ("roce", "Ethernet")] {
        let mut command = run(&["--link", link, "--ports", "2"]);
        command.arg(&program);
        let output = finish(command).expect_success("ibstat");
        for words in [
            "CA 'mlx5_0'",
            "Number of ports: 2",
            "Firmware version: 22.0.0",
            "State: Active",
            "Physical state: LinkUp",
            "Rate: 100",
            &format!("Link layer: {layer}"),
        ] {
            assert!(output.contains(words), "no {words:?} in:\n{output}");
        }
    }
}

#[test]
fn hwloc_places_the_device_on_the_pci_bus() {
    let Some(program) = find("lstopo-no-graphics", "hwloc-nox") else {
        return;
    };
    let mut command = run::<&str>(&[]);
    command.arg(program).args(["--of", "console", "--whole-io"]);
    let output = finish(command).expect_success("lstopo");
    assert!(output.contains("\"mlx5_0\""), "{output}");
}

#[test]
fn ucx_finds_the_device() {
    let Some(program) = find("ucx_info", UCX) else {
        return;
    };
    for link in ["ib", "roce"] {
        let mut command = run(&["--link", link]);
        command.arg(&program).arg("-d");
        let output = finish(command).expect_success("ucx_info");
        for words in ["rc_verbs", "rc_mlx5", "ud_verbs", "ud_mlx5"] {
            let line = format!("#      Transport: {words}");
            assert!(output.contains(&line), "no {line:?} in:\n{output}");
        }
        assert!(output.contains("Device: mlx5_0:1"), "{output}");
    }
}

/// UCX's own test of each of its transports, which checks no data, but ends only if every
/// message arrives.
#[test]
fn ucx_transports_carry_messages() {
    for (face, link, transport, test) in [
        ("ioctl", "ib", "rc_x", "tag_lat"),
        ("ioctl", "roce", "rc_x", "ucp_put_bw"),
        ("write", "ib", "rc_v", "tag_lat"),
        ("ioctl", "ib", "ud_x", "ucp_am_lat"),
        ("ioctl", "roce", "ud_v", "stream_lat"),
        ("ioctl", "ib", "rc_x", "ucp_get"),
    ] {
        let tls = format!("UCX_TLS={transport}");
        let through = ["env", tls.as_str(), "UCX_NET_DEVICES=mlx5_0:1"];
        let options = ["--face", face];
        let arguments = ["-t", test, "-n", "200", "-w", "20", "-s", "2000"];
        pair_with(&options, link, "ucx_perftest", UCX, &arguments, &through);
    }
}
