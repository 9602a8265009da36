//! Tests of adapters that connect by rdma_cm. They need a device that the kernel's connection
//! manager serves, and a machine whose network interfaces may be changed:
//!
//! ```text
//! perf-scripts/vm run -- env DAT_TEST_DEVICE=rxe0 BINARY --ignored rdma_cm:: --test-threads 1
//! ```

mod choice;
mod removal;

/// Runs a program, which must succeed.
fn run(command: &str) {
    let mut words = command.split_whitespace();
    let mut program = std::process::Command::new(words.next().expect("a program"));
    let status = program.args(words).status().expect("the program is there");
    assert!(status.success(), "{command}: {status}");
}

/// Returns the network interface of the device, and its address.
fn interface() -> (String, std::net::IpAddr) {
    let address = dat_engine::cm::own_address(crate::fixture::name(), 1).expect("an address");
    let all = if_addrs::get_if_addrs().expect("the system's interfaces");
    let own = all.into_iter().find(|one| one.ip() == address);
    (own.expect("an interface").name, address)
}
