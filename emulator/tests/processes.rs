//! Descriptors and processes: closing, duplicating, forking and exec with an open
//! device. The test binary runs itself again under the launcher.

use std::ffi::{CString, c_int, c_void};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{eventually, fabric, finish, run};

/// libibverbs, loaded at run time, since this package does not link to it.
struct Verbs {
    library: *mut c_void,
}

type Device = *mut c_void;
type Context = *mut c_void;
type Pd = *mut c_void;

impl Verbs {
    fn load() -> Self {
        // SAFETY: loading libibverbs runs its constructors, which are plain.
        let library = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "libibverbs.so.1 is not installed");
        Self { library }
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the library is loaded and `name` a C string.
        let found = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        assert!(!found.is_null(), "libibverbs has no {name:?}");
        found
    }

    fn open(&self) -> Context {
        // SAFETY: the types of `ibv_get_device_list` and `ibv_open_device`.
        let (list, open) = unsafe {
            (
                std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_int) -> *mut Device>(
                    self.symbol("ibv_get_device_list"),
                ),
                std::mem::transmute::<*mut c_void, extern "C" fn(Device) -> Context>(
                    self.symbol("ibv_open_device"),
                ),
            )
        };
        let mut count = 0;
        let devices = list(&mut count);
        assert_eq!(count, 1);
        // SAFETY: the list has one entry.
        open(unsafe { devices.read() })
    }

    fn alloc_pd(&self, context: Context) -> Pd {
        // SAFETY: the type of `ibv_alloc_pd`.
        let alloc: extern "C" fn(Context) -> Pd =
            unsafe { std::mem::transmute(self.symbol("ibv_alloc_pd")) };
        alloc(context)
    }

    fn close(&self, context: Context) -> c_int {
        // SAFETY: the type of `ibv_close_device`.
        let close: extern "C" fn(Context) -> c_int =
            unsafe { std::mem::transmute(self.symbol("ibv_close_device")) };
        close(context)
    }
}

/// Returns `cmd_fd` of `struct ibv_context`.
fn command_descriptor(context: Context) -> c_int {
    let dir = std::fs::read_dir("/proc/self/fd").unwrap();
    let open = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        let is_uverbs = target.to_str()?.contains("mlx5-emu-uverbs");
        is_uverbs.then(|| entry.file_name().to_str().unwrap().parse().unwrap())
    };
    // The application's descriptor is the one that fstat shows as a device.
    let mut found = dir
        .filter_map(|entry| open(entry.unwrap()))
        .filter(|fd| is_device(*fd));
    assert!(!context.is_null());
    found.next().expect("an open device")
}

fn is_device(fd: c_int) -> bool {
    // SAFETY: an all-zero `stat` is valid, and the call fills it.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFCHR
    }
}

fn errno() -> Option<c_int> {
    std::io::Error::last_os_error().raw_os_error()
}

/// Runs one of the ignored tests below under the launcher.
fn under_the_launcher(test: &str) {
    if let Some(command) = launch(test, &fabric()) {
        let output = finish(command).expect_success(test);
        assert!(output.contains("1 passed"), "{output}");
    }
}

/// Returns the command that runs one of the ignored tests below under the launcher.
/// Prints why the test is skipped if libibverbs is missing.
fn launch(test: &str, fabric: &str) -> Option<Command> {
    // SAFETY: a C string and a flag; the library is only looked for.
    if unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_LAZY) }.is_null() {
        crate::common::skipped("libibverbs.so.1 is not installed (apt-get install libibverbs1)");
        return None;
    }
    let mut command: Command = run(&["--fabric", fabric]);
    command.arg(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        &format!("processes::{test}"),
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    Some(command)
}

/// Returns the directory of a fabric of this user.
fn fabric_directory(fabric: &str) -> PathBuf {
    // SAFETY: geteuid(2) cannot fail.
    let user = unsafe { libc::geteuid() };
    ["/dev/shm", "/tmp"]
        .map(|base| PathBuf::from(format!("{base}/mlx5emu-{user}/{fabric}")))
        .into_iter()
        .find(|path| path.exists())
        .expect("the fabric has a directory")
}

#[test]
fn a_program_executed_by_the_child_can_open_devices() {
    under_the_launcher("exec_again");
}

#[test]
#[ignore = "run by the test above, under the launcher"]
fn exec_again() {
    let verbs = Verbs::load();
    let context = verbs.open();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "processes::opens_and_closes", "--ignored"]);
    assert!(child.status().unwrap().success());
    assert_eq!(verbs.close(context), 0);
}

#[test]
#[ignore = "run by the test above, under the launcher"]
fn opens_and_closes() {
    let verbs = Verbs::load();
    let context = verbs.open();
    assert!(!verbs.alloc_pd(context).is_null());
    assert_eq!(verbs.close(context), 0);
}

#[test]
fn a_device_stays_open_until_the_last_duplicate_is_closed() {
    under_the_launcher("duplicates");
}

#[test]
#[ignore = "run by the test above, under the launcher"]
fn duplicates() {
    let verbs = Verbs::load();
    let context = verbs.open();
    let fd = command_descriptor(context);
    // SAFETY: plain calls on descriptors of this test.
    unsafe {
        let second = libc::dup(fd);
        let third = libc::fcntl(second, libc::F_DUPFD_CLOEXEC, 100);
        assert!(second > fd && third >= 100);
        assert!(is_device(third), "a duplicate is a device too");
        // The number is reused for another file and then for the device again.
        let other = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        assert_eq!(libc::dup2(other, second), second);
        assert_eq!(
            libc::write(second, c"x".as_ptr().cast(), 1),
            1,
            "/dev/null accepts it"
        );
        libc::close(second);
        libc::close(other);
        assert_eq!(libc::dup2(third, fd), fd);
        assert!(!verbs.alloc_pd(context).is_null(), "still the same device");
        libc::close(third);
    }
    assert!(!verbs.alloc_pd(context).is_null());
    assert_eq!(verbs.close(context), 0);
    assert!(!is_device(fd));
}

#[test]
fn a_descriptor_closed_without_libc_is_not_mistaken_for_a_device() {
    under_the_launcher("stale_number");
}

#[test]
#[ignore = "run by the test above, under the launcher"]
fn stale_number() {
    let verbs = Verbs::load();
    let fd = command_descriptor(verbs.open());
    // SAFETY: a system call on a descriptor of this test, bypassing libc.
    unsafe { libc::syscall(libc::SYS_close, fd) };
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors; one gets the number that was just closed.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    assert!(ends.contains(&fd), "the lowest free number is used");
    assert!(!is_device(fd));
    // SAFETY: an ioctl that writes one int.
    let asked = unsafe {
        let mut pending = -1;
        libc::ioctl(ends[0], libc::FIONREAD, &mut pending)
    };
    assert_eq!(asked, 0, "a pipe, not a device");
}

#[test]
fn a_truncated_fabric_is_a_device_error() {
    let fabric = fabric();
    let Some(command) = launch("looks_after_truncation", &fabric) else {
        return;
    };
    let output = finish(command).expect_success("the program is not killed");
    assert!(output.contains("1 passed"), "{output}");
    assert!(
        output.contains("another process has truncated it"),
        "{output}"
    );
}

#[test]
#[ignore = "run by the test above, under the launcher"]
fn looks_after_truncation() {
    let verbs = Verbs::load();
    let context = verbs.open();
    assert!(!verbs.alloc_pd(context).is_null());
    let directory = fabric_directory(&std::env::var("MLX5EMU_FABRIC").unwrap());
    let segment = std::fs::File::options()
        .write(true)
        .open(directory.join("segment"))
        .unwrap();
    segment.set_len(0).unwrap();
    eventually("the device fails", || {
        verbs.alloc_pd(context).is_null() && errno() == Some(libc::EIO)
    });
}

#[test]
fn after_a_killed_launcher_no_fabric_is_left() {
    let fabric = fabric();
    let Some(mut command) = launch("opens_and_waits", &fabric) else {
        return;
    };
    let mut launcher = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("open")));
    let directory = fabric_directory(&fabric);
    assert!(directory.join("segment").exists());
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    eventually("the fabric is removed", || !directory.exists());
    // All processes that had the output open have ended.
    assert!(lines.next().is_none());
}

#[test]
fn after_a_killed_program_no_fabric_is_left() {
    let fabric = fabric();
    let Some(command) = launch("opens_and_is_killed", &fabric) else {
        return;
    };
    let outcome = finish(command);
    assert_eq!(outcome.status.code(), Some(128 + 9), "{}", outcome.output);
    let directory = outcome.output.lines().find_map(|line| {
        let (_, directory) = line.split_once("open in ")?;
        Some(PathBuf::from(directory))
    });
    assert!(!directory.expect("the device was opened").exists());
}

#[test]
#[ignore = "run by the test above, under the launcher"]
fn opens_and_is_killed() {
    let verbs = Verbs::load();
    let context = verbs.open();
    assert!(!context.is_null());
    let fabric = std::env::var("MLX5EMU_FABRIC").expect("the launcher sets it");
    println!("open in {}", fabric_directory(&fabric).display());
    // SAFETY: ends this process.
    unsafe { libc::raise(libc::SIGKILL) };
}

#[test]
#[ignore = "run by the test above, under the launcher"]
fn opens_and_waits() {
    let verbs = Verbs::load();
    let context = verbs.open();
    assert!(!context.is_null());
    println!("open");
    std::thread::sleep(std::time::Duration::from_secs(600));
}
