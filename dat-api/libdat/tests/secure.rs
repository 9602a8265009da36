//! A program that runs with more rights than its caller (setuid, file
//! capabilities) uses nothing from the caller's environment: no dat.conf, no
//! library, no output destination. Of `/etc/dat.conf` it loads nothing from the
//! folder that the caller runs it in.
//!
//! Needs root, to create such programs, and a file system that honours them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// User id of the caller: `nobody`.
const CALLER: u32 = 65534;
const NAME: &str = "of_the_caller";

/// A folder that every user can read, deleted when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    /// Creates the program, the library, and the files that the caller's
    /// environment names.
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("libdat-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a folder can be made");
        let folder = Self(path);
        folder.set_mode("", 0o755);
        let tests = std::env::current_exe().expect("this binary has a path");
        let library = tests.parent().expect("a folder").join("libdat.so");
        for name in ["libdat.so", "libdat.so.1"] {
            fs::copy(&library, folder.at(name)).expect("a file can be copied");
            folder.set_mode(name, 0o755);
        }
        folder.build();
        folder.write_conf("callers.conf", &folder.at("callers.so"));
        folder
    }

    /// Writes a dat.conf whose only entry is in this library.
    fn write_conf(&self, name: &str, library: &Path) {
        let library = library.display();
        let conf = format!("{NAME} u1.2 nonthreadsafe default {library} own.1.2 \"\" \"\"\n");
        fs::write(self.at(name), conf).expect("a file can be written");
        self.set_mode(name, 0o644);
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode))
            .expect("the mode can be set");
    }

    fn build(&self) {
        // Such a program ignores LD_LIBRARY_PATH, also for the libraries that
        // libdat needs.
        let mut places = format!("-Wl,--disable-new-dtags,-rpath,{}", self.0.display());
        if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
            for place in std::env::split_paths(&path).filter(|place| place.is_absolute()) {
                places += &format!(":{}", place.display());
            }
        }
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut program = Command::new("cc");
        program
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(here.join("include"))
            .arg("-o")
            .arg(self.at("program"))
            .arg(here.join("tests/support/secure.c"))
            .arg("-L")
            .arg(&self.0)
            .args(["-ldat", &places]);
        run(&mut program);
        let source = self.at("callers.c");
        let code = "#include <stdio.h>\n\
                    __attribute__((constructor)) static void loaded(void)\n\
                    { puts(\"loaded\"); fflush(stdout); }\n";
        fs::write(&source, code).expect("a file can be written");
        let mut library = Command::new("cc");
        library
            .args(["-shared", "-fPIC", "-o"])
            .arg(self.at("callers.so"))
            .arg(&source);
        run(&mut library);
        self.set_mode("callers.so", 0o755);
        self.set_mode("program", 0o755);
    }

    /// Returns what the program prints when an unprivileged user runs it.
    fn printed(&self) -> String {
        let output = Command::new(self.at("program"))
            .arg(NAME)
            .env("DAT_OVERRIDE", self.at("callers.conf"))
            .env("DAT_DBG_TYPE", "1")
            .current_dir(&self.0)
            .uid(CALLER)
            .gid(CALLER)
            .output()
            .expect("the program can be run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", output.status);
        String::from_utf8(output.stdout).expect("text")
    }

    /// As [`Self::printed`], without that environment, but with an `/etc/dat.conf` whose entry
    /// is in this library. Returns the reason if this system cannot show the program another
    /// `/etc`.
    fn printed_with_etc(&self, library: &Path) -> Result<String, String> {
        fs::create_dir_all(self.at("etc")).expect("a folder can be made");
        self.set_mode("etc", 0o755);
        self.write_conf("etc/dat.conf", library);
        let with = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c"]);
            command.arg(format!("mount --bind etc /etc && {script}"));
            command.args(["sh", NAME]).current_dir(&self.0);
            command.output().map_err(|error| error.to_string())
        };
        let tried = with("exec true")?;
        if !tried.status.success() {
            return Err(String::from_utf8_lossy(&tried.stderr).into_owned());
        }
        let caller = format!("setpriv --reuid={CALLER} --regid={CALLER} --clear-groups");
        let output = with(&format!("exec {caller} ./program \"$1\""))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", output.status);
        Ok(String::from_utf8(output.stdout).expect("text"))
    }

    /// Checks that the program uses nothing from its environment. Skipped if it
    /// got no rights because the system gives no program any.
    fn ignores_environment(&self) {
        let printed = self.printed();
        if printed.contains("secure 0") && is_without_new_rights(&self.0) {
            eprintln!("SKIPPED: no program gets rights here (nosuid or no_new_privs)");
            return;
        }
        assert!(printed.contains("secure 1\n"), "{printed}");
        assert!(printed.contains("open DAT_PROVIDER_NOT_FOUND"), "{printed}");
        for what in [NAME, "loaded", "libdat:"] {
            assert!(!printed.contains(what), "{what}: {printed}");
        }
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("the program can be run");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
}

/// Returns whether files cannot raise rights, because of their file system or of
/// this process.
fn is_without_new_rights(folder: &Path) -> bool {
    let folder = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: plain memory that the call fills.
    let mut about: libc::statvfs = unsafe { core::mem::zeroed() };
    // SAFETY: a C string, and a writable result.
    let answer = unsafe { libc::statvfs(folder.as_ptr(), &raw mut about) };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    answer == 0 && about.f_flag & libc::ST_NOSUID != 0 || status.contains("NoNewPrivs:\t1")
}

fn is_root() -> bool {
    // SAFETY: geteuid cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("SKIPPED: only root can make programs with more rights");
    }
    is_root
}

#[test]
fn a_setuid_program_takes_nothing_from_its_environment() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("setuid");
    // The same program without the setuid bit follows the environment.
    let printed = folder.printed();
    assert!(printed.contains("secure 0\n"), "{printed}");
    for what in [&format!("name {NAME}"), "loaded", "libdat:"] {
        assert!(printed.contains(what), "{what}: {printed}");
    }
    folder.set_mode("program", 0o4755);
    folder.ignores_environment();
}

#[test]
fn a_program_with_file_capabilities_takes_nothing_from_its_environment() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("capable");
    let given = Command::new("setcap")
        .arg("cap_net_raw+ep")
        .arg(folder.at("program"))
        .output();
    match given {
        Ok(output) if output.status.success() => folder.ignores_environment(),
        Ok(output) => eprintln!(
            "SKIPPED: setcap: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ),
        Err(error) => eprintln!("SKIPPED: setcap (libcap2-bin): {error}"),
    }
}

#[test]
fn a_setuid_program_loads_no_library_by_a_relative_path() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("relative");
    let relative = Path::new("./callers.so");
    // The same program without the setuid bit loads it.
    let loaded = match folder.printed_with_etc(relative) {
        Ok(printed) => printed,
        Err(reason) => return eprintln!("SKIPPED: {reason}"),
    };
    assert!(loaded.contains("secure 0\n"), "{loaded}");
    assert!(loaded.contains("loaded\n"), "{loaded}");
    folder.set_mode("program", 0o4755);
    if is_without_new_rights(&folder.0) {
        return eprintln!("SKIPPED: no program gets rights here (nosuid or no_new_privs)");
    }
    for (library, is_loaded) in [(relative, false), (&folder.at("callers.so"), true)] {
        let printed = folder.printed_with_etc(library).expect("as before");
        assert!(printed.contains("secure 1\n"), "{printed}");
        // The entry was read.
        assert!(printed.contains(&format!("name {NAME}\n")), "{printed}");
        assert_eq!(printed.contains("loaded\n"), is_loaded, "{printed}");
    }
}
