//! The examples in Rust run: a server and its client, each on an emulated
//! adapter of its own process. (Those in C are run by the package `libdat`.)

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Seconds that one side may take.
const LIMIT: &str = "120";

/// The folder with the launcher and `examples`, built with the profile of
/// this test.
fn built() -> PathBuf {
    let tests = std::env::current_exe().expect("this binary has a path");
    let folder = tests.ancestors().nth(2).expect("deps is in a folder");
    let release = folder.file_name().is_some_and(|name| name == "release");
    for what in [&["-p", "mlx5-emulator"][..], &["-p", "udapl", "--examples"]] {
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--target-dir"])
            .arg(folder.parent().expect("the target folder"))
            .args(release.then_some("--release"))
            .args(what)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(status.success(), "{what:?} does not build");
    }
    folder.to_owned()
}

fn start(folder: &Path, fabric: &str, example: &str, arguments: &[&str]) -> Child {
    Command::new("timeout")
        .arg(LIMIT)
        .arg(folder.join("mlx5-emu"))
        .args(["run", "--fabric", fabric, "--"])
        .arg(folder.join("examples").join(example))
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("timeout can be run")
}

#[test]
fn srq_server_and_client_in_rust_talk_to_each_other() {
    let folder = built();
    let fabric = format!("udapl-examples-{}", std::process::id());
    // A qualifier that nobody listens on: of the size of a port, and free.
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let qualifier = socket.local_addr().expect("bound").port().to_string();
    drop(socket);

    let mut server = start(
        &folder,
        &fabric,
        "srq_server",
        &["mlx5_0", &qualifier, "1000"],
    );
    let mut told = BufReader::new(server.stdout.take().expect("a pipe"));
    let mut line = String::new();
    told.read_line(&mut line).expect("text");
    assert_eq!(line, format!("listening on {qualifier}\n"));
    let client = start(
        &folder,
        &fabric,
        "srq_client",
        &["127.0.0.1", "mlx5_0", &qualifier, "1000"],
    );
    let client = client.wait_with_output().expect("it was started");
    let mut rest = String::new();
    told.read_to_string(&mut rest).expect("text");
    let status = server.wait().expect("it was started");
    assert!(client.status.success(), "client: {}", client.status);
    assert!(status.success(), "server: {status}");
    assert_eq!(
        String::from_utf8_lossy(&client.stdout),
        "1000 messages sent\n"
    );
    assert!(rest.starts_with("1000 messages, refilled "), "{rest}");
}
