//! The program on its socket: clients that send anything, and sockets that cannot be used.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Returns a path in an empty folder of this test.
fn socket(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _absent = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder.join("nic")
}

fn program(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5-emu-pci"));
    let fabric = format!("serve-{}", std::process::id());
    command.arg(socket).arg("0").env("MLX5EMU_FABRIC", fabric);
    command
}

fn refused(socket: &Path) -> Output {
    program(socket).output().unwrap()
}

/// A program that serves, until it is dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

fn serve(socket: &Path) -> Serving {
    let serving = Serving(
        program(socket)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let limit = Instant::now() + Duration::from_secs(30);
    while UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < limit, "it does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    serving
}

/// The first message of a client: the version of the protocol, without capabilities.
fn version() -> Vec<u8> {
    let text = b"{\"capabilities\":{}}\0";
    let length = 20 + text.len() as u32;
    let head = [1_u32 << 16 | 7, length, 0, 0, 0];
    let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(text);
    bytes
}

#[test]
fn clients_that_send_anything_leave_the_device_to_the_next_one() {
    let socket = socket("anything");
    let mut serving = serve(&socket);
    let mut junk: Vec<Vec<u8>> = vec![
        vec![],
        vec![0; 3],
        vec![0xff; 4096],
        b"GET / HTTP/1.0\r\n\r\n".to_vec(),
    ];
    // Each command with a length that is too short, and one that is too long.
    for command in 0..20_u32 {
        for length in [0, 16, 17, 20, u32::MAX] {
            let head = [command << 16 | 1, length, 0, 0, 0, 0];
            junk.push(head.iter().flat_map(|word| word.to_le_bytes()).collect());
        }
    }
    // The version, cut at any byte.
    junk.extend((1..version().len()).map(|end| version()[..end].to_vec()));
    for bytes in junk {
        let mut client = UnixStream::connect(&socket).unwrap();
        // The device may end the connection before it has read everything.
        let _closed = client.write_all(&bytes);
    }
    let mut client = UnixStream::connect(&socket).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    client.write_all(&version()).unwrap();
    let mut reply = [0; 8];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..4], [7, 0, 1, 0], "a reply to the version");
    assert!(serving.0.try_wait().unwrap().is_none());
}

#[test]
fn a_socket_that_cannot_be_used_is_refused_by_name() {
    let socket = socket("refused");
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let serving = serve(&socket);
    let second = refused(&socket);
    assert_eq!(second.status.code(), Some(2));
    assert!(said(&second).contains("is in use"), "{}", said(&second));
    // What a killed process has left is replaced.
    drop(serving);
    assert!(socket.exists());
    let serving = serve(&socket);
    drop(serving);
    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, "a file").unwrap();
    let file = refused(&socket);
    assert_eq!(file.status.code(), Some(2));
    assert!(said(&file).contains("is not a socket"), "{}", said(&file));
    assert_eq!(std::fs::read(&socket).unwrap(), b"a file");
    let nowhere = refused(Path::new("/no/such/folder/nic"));
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(
        said(&nowhere).contains("/no/such/folder/nic"),
        "{}",
        said(&nowhere)
    );
}
