//! The examples in C: they compile without a warning, and the two of a pair
//! talk to each other, each on an emulated adapter of its own process; also
//! under valgrind, which finds neither errors nor leaks.

#[path = "support/emulator.rs"]
mod emulator;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use emulator::{fabric, launcher};

/// Seconds that one side may take.
const LIMIT: &str = "120";
const VALGRIND: [&str; 5] = [
    "valgrind",
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
];

struct Built {
    /// Has the library under the name that programs ask for.
    libraries: PathBuf,
    server: PathBuf,
    client: PathBuf,
    dispatch: PathBuf,
}

/// Compiles the examples with the library of this test.
fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples-c");
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        let tests = std::env::current_exe().expect("this binary has a path");
        let library = tests.parent().expect("a folder").join("libdat.so");
        for name in ["libdat.so", "libdat.so.1"] {
            let link = folder.join(name);
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(&library, &link).expect("a link can be made");
        }
        let base = Path::new(env!("CARGO_MANIFEST_DIR"));
        let compile = |name: &str, place: &str| {
            let program = folder.join(name);
            let source = base.join(place).join(name).with_extension("c");
            let output = Command::new("cc")
                // As in the examples' Makefile.
                .args(["-std=c99", "-D_DEFAULT_SOURCE", "-O2", "-g"])
                .args(["-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
                .arg(base.join("include"))
                .arg("-o")
                .args([&program, &source])
                .arg("-L")
                .arg(&folder)
                .arg("-ldat")
                .output()
                .expect("cc can be run");
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {complaint}");
            program
        };
        Built {
            server: compile("srq_server", "../../examples/c"),
            client: compile("srq_client", "../../examples/c"),
            dispatch: compile("dispatch", "tests/support"),
            libraries: folder,
        }
    })
}

/// A side on its way; ends within the limit.
fn start(fabric: &str, under: &[&str], program: &Path, arguments: &[&str]) -> Child {
    Command::new("timeout")
        .arg(LIMIT)
        .arg(launcher())
        .args(["run", "--fabric", fabric, "--"])
        .args(under)
        .arg(program)
        .args(arguments)
        .env("LD_LIBRARY_PATH", &built().libraries)
        .env("DAT_DBG_TYPE", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("timeout can be run")
}

/// What a side printed, and how it ended.
fn end(side: &str, mut child: Child, mut told: String) -> Result<String, String> {
    let mut complaint = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut told).expect("text");
    }
    if let Some(mut pipe) = child.stderr.take() {
        pipe.read_to_string(&mut complaint).expect("text");
    }
    let status = child.wait().expect("it was started");
    if status.success() {
        Ok(told)
    } else {
        Err(format!("{side}: {status}\n{told}{complaint}"))
    }
}

/// A qualifier that nobody listens on: of the size of a port, and free as one.
fn qualifier() -> String {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("bound").port().to_string()
}

fn both_sides(under: &[&str], count: &str) {
    let (fabric, qualifier) = (fabric(), qualifier());
    let common = ["-d", "mlx5_0", "-p", &qualifier, "-n", count];
    let mut server = start(&fabric, under, &built().server, &common);
    let mut output = BufReader::new(server.stdout.take().expect("a pipe"));
    let mut told = String::new();
    output.read_line(&mut told).expect("text");
    let mut arguments = common.to_vec();
    arguments.push("127.0.0.1");
    let client = start(&fabric, under, &built().client, &arguments);
    let client = end("client", client, String::new());
    output.read_to_string(&mut told).expect("text");
    let server = end("server", server, told);
    match (server, client) {
        (Ok(server), Ok(client)) => {
            assert!(
                server.contains(&format!("{count} messages, refilled")),
                "{server}"
            );
            assert!(
                client.contains(&format!("{count} messages sent")),
                "{client}"
            );
        }
        (server, client) => panic!("{server:?}\n{client:?}"),
    }
}

#[test]
fn a_server_on_a_shared_receive_queue_and_its_client() {
    both_sides(&[], "2000");
}

#[test]
fn the_redirection_macros_call_through_the_table() {
    let child = start(&fabric(), &[], &built().dispatch, &[]);
    let told = end("dispatch", child, String::new()).unwrap_or_else(|cause| panic!("{cause}"));
    assert_eq!(told, "all through the table\n");
}

#[test]
fn both_are_clean_under_valgrind() {
    let version = Command::new("valgrind").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED both_are_clean_under_valgrind: valgrind is not installed");
        return;
    }
    both_sides(&VALGRIND, "300");
}
