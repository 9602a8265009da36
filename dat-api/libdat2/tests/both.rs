//! uDAPL 1.2 and 2.0 beside each other: both libraries in one process, and a program of
//! one connected to a program of the other (`both/both.c`).

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::emulator::{artifact, fabric, launcher};

/// A version of uDAPL: its number for `side.c`, the folder of its headers, its soname, and
/// the private data that its side sends.
struct Version {
    number: u32,
    include: &'static str,
    soname: &'static str,
    data: &'static str,
}

const V1: Version = Version {
    number: 1,
    include: "../libdat/include",
    soname: "libdat.so.1",
    data: "from 1.2",
};
const V2: Version = Version {
    number: 2,
    include: "include",
    soname: "libdat2.so.2",
    data: "from 2.0",
};

impl Version {
    /// Returns the path of the shared object of this version's side.
    fn side(&self) -> PathBuf {
        folder().join(format!("side{}.so", self.number))
    }
}

/// Returns the folder with the program, both sides, and both libraries.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let name = format!("both-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the folder can be created");
        let base = Path::new(env!("CARGO_MANIFEST_DIR"));
        let sources = base.join("tests/both");
        for (version, built) in [(&V1, "libdat.so"), (&V2, "libdat2.so")] {
            let library = folder.join(version.soname);
            symlink(artifact(built), &library).expect("the link can be created");
            compile(
                Command::new("cc")
                    .args(["-shared", "-fPIC", "-fvisibility=hidden", "-I"])
                    .arg(base.join(version.include))
                    .arg(format!("-DDAT_VERSION={}", version.number))
                    .arg("-o")
                    .arg(folder.join(format!("side{}.so", version.number)))
                    .arg(sources.join("side.c"))
                    .arg(&library),
            );
        }
        compile(
            Command::new("cc")
                .arg("-o")
                .arg(folder.join("both"))
                .arg(sources.join("both.c"))
                .arg("-ldl"),
        );
        fs::write(folder.join("empty.conf"), "").expect("the file can be written");
        folder
    })
}

fn compile(command: &mut Command) {
    let flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"];
    let output = command.args(flags).output().expect("cc can be run");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
}

/// How a program reaches its peer.
#[derive(Clone, Copy)]
struct Over {
    path: &'static str,
    manager: &'static str,
    options: &'static [&'static str],
}

const DIRECT: Over = Over {
    path: "direct",
    manager: "socket",
    options: &[],
};
const VERBS: Over = Over {
    path: "verbs",
    ..DIRECT
};
const RDMA_CM: Over = Over {
    manager: "rdma_cm",
    options: &["--link", "roce"],
    ..DIRECT
};

fn start(fabric: &str, over: Over, words: &[&str]) -> Child {
    Command::new("timeout")
        .arg("300")
        .arg(launcher())
        .args(["run", "--fabric", fabric])
        .args(over.options)
        .arg("--")
        .arg(folder().join("both"))
        .args(words)
        .env("LD_LIBRARY_PATH", folder())
        .env("DAT_OVERRIDE", folder().join("empty.conf"))
        .env("DAT_PATH", over.path)
        .env("DAT_CM", over.manager)
        .env("DAT_DBG_TYPE", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("timeout can be run")
}

/// Waits for the end of a program, and returns what it printed after `printed`, the part
/// that was read before.
fn finish(child: Child, printed: &str) -> String {
    let output = child
        .wait_with_output()
        .expect("the program can be waited for");
    let text = printed.to_owned()
        + &String::from_utf8_lossy(&output.stdout)
        + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("well\n"),
        "{}\n{text}",
        output.status
    );
    text
}

fn in_one_process(over: Over) {
    let sides = [V1.side(), V2.side()];
    let [first, second] = sides.each_ref().map(|side| side.to_str().expect("UTF-8"));
    let words = [first, second, "together", "mlx5_0"];
    let printed = finish(start(&fabric(), over, &words), "");
    // Each library prints why it refuses the handles of the other.
    for library in ["libdat", "libdat2"] {
        let refused = format!("{library}: dat_ep_post_send");
        let cause = printed.lines().find(|line| line.starts_with(&refused));
        let cause = cause.unwrap_or_else(|| panic!("{refused}: {printed}"));
        assert!(cause.contains("DAT_INVALID_HANDLE_EP"), "{cause}");
    }
}

/// Connects a program of the second version to one of the first.
fn in_two_processes(passive: &Version, active: &Version, over: Over) {
    let fabric = fabric();
    let side = passive.side();
    let words = [
        side.to_str().expect("UTF-8"),
        "listen",
        "mlx5_0",
        active.data,
    ];
    let mut server = start(&fabric, over, &words);
    let mut output = BufReader::new(server.stdout.take().expect("piped"));
    let mut qualifier = String::new();
    output.read_line(&mut qualifier).expect("text");
    let side = active.side();
    let words = [
        side.to_str().expect("UTF-8"),
        "connect",
        "mlx5_0",
        qualifier.trim(),
    ];
    let client = start(&fabric, over, &words);
    finish(client, "");
    let mut printed = String::new();
    // The end of the server's output is read before its end is waited for.
    output.read_to_string(&mut printed).expect("text");
    finish(server, &printed);
}

#[test]
fn both_libraries_move_data_in_one_process_and_refuse_handles_of_each_other() {
    in_one_process(DIRECT);
    in_one_process(VERBS);
}

#[test]
fn both_libraries_connect_over_rdma_cm_in_one_process() {
    in_one_process(RDMA_CM);
}

#[test]
fn programs_of_both_versions_share_a_connection() {
    for over in [DIRECT, VERBS, RDMA_CM] {
        in_two_processes(&V1, &V2, over);
        in_two_processes(&V2, &V1, over);
    }
}
