//! `dat-api/install.sh`: what it installs suffices for a program, and removal
//! leaves nothing behind.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns the library that cargo built for the tests.
pub(crate) fn library() -> PathBuf {
    let tests = std::env::current_exe().expect("this binary has a path");
    tests.parent().expect("it is in a folder").join("libdat.so")
}

/// Creates an empty folder for one test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("install-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("the folder can be created");
    path
}

pub(crate) fn install(arguments: &[&str]) -> Output {
    Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../install.sh"))
        .args(arguments)
        .output()
        .expect("the script can be run")
}

pub(crate) fn succeed(arguments: &[&str]) {
    let output = install(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
}

/// Runs the script. Returns its exit status and its error message.
pub(crate) fn refusal(arguments: &[&str]) -> (Option<i32>, String) {
    let output = install(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), stderr)
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

/// Returns every path below a folder; symbolic links are not followed.
pub(crate) fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("a type").is_dir() {
            found.extend(below(&entry.path()));
        }
        found.push(entry.path());
    }
    found
}

/// Compiles a program with pkg-config's flags for the installed library, and runs
/// it with that library.
fn compile_and_run(prefix: &Path, source: &str) -> String {
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "dat"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .expect("pkg-config can be run");
    assert!(flags.status.success(), "pkg-config does not find it");
    let flags = String::from_utf8(flags.stdout).expect("flags are text");
    let (code, program) = (prefix.join("program.c"), prefix.join("program"));
    fs::write(&code, source).expect("the source can be written");
    let compiled = Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .args([&program, &code])
        // Linked even if the program calls nothing.
        .arg("-Wl,--no-as-needed")
        .args(flags.split_whitespace())
        .output()
        .expect("gcc can be run");
    let stderr = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{stderr}");
    let run = Command::new(&program)
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .output()
        .expect("the program can be run");
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{stderr}");
    fs::remove_file(code).expect("the file existed");
    fs::remove_file(program).expect("the file existed");
    String::from_utf8(run.stdout).expect("text")
}

/// Returns the text of an installed manual page, which is compressed.
fn page_text(page: &Path) -> Vec<u8> {
    let unpacked = Command::new("gzip").arg("-dc").arg(page).output();
    let unpacked = unpacked.expect("gzip can be run");
    assert!(unpacked.status.success(), "{}", page.display());
    unpacked.stdout
}

/// Checks that `man NAME` finds the page below the prefix.
fn shows(prefix: &Path, name: &str) {
    let manual = Command::new("man")
        .args(["-w", name])
        .env("MANPATH", prefix.join("share/man"))
        .output();
    match manual {
        Ok(manual) => {
            let found = String::from_utf8_lossy(&manual.stdout).into_owned();
            assert!(found.starts_with(text(prefix)), "man {name}: {found}");
        }
        Err(error) => eprintln!("SKIPPED: man {name}: {error}"),
    }
}

#[test]
fn a_program_builds_with_what_is_installed_and_nothing_is_left_afterwards() {
    let folder = folder("whole");
    let prefix = folder.join("prefix");
    let library = library();
    // Twice: an older installation is replaced.
    for _ in 0..2 {
        succeed(&["--prefix", text(&prefix), "--library", text(&library)]);
    }
    let lib = prefix.join("lib");
    let link = |name: &str| fs::read_link(lib.join(name)).expect("a link");
    assert_eq!(link("libdat.so"), Path::new("libdat.so.1"));
    assert_eq!(link("libdat.so.1"), Path::new("libdat.so.1.2.0"));
    assert_eq!(link("libudapl.so.1"), Path::new("libdat.so.1.2.0"));
    assert_eq!(
        fs::read(lib.join("libdat.so")).expect("the library"),
        fs::read(library).expect("the library")
    );
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/dat");
    for header in below(&headers) {
        let name = header.file_name().expect("a file");
        let installed = prefix.join("include/dat").join(name);
        assert_eq!(
            fs::read(installed).expect("a header"),
            fs::read(&header).expect("a header")
        );
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = below(&source.join("man"));
    if lib.join("libdat2.so.2").exists() {
        pages.extend(below(&source.join("../libdat2/man")));
    }
    assert_eq!(
        below(&prefix.join("share/man")).len(),
        pages.len() + 4,
        "1, 3, 5, 7"
    );
    for page in pages {
        let name = page
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        let (_, section) = name.rsplit_once('.').expect("a section");
        let folder = prefix.join(format!("share/man/man{}", &section[..1]));
        // Not a symbolic link: another package may install the page that it
        // names.
        let installed = folder.join(format!("{name}.gz"));
        assert!(
            fs::symlink_metadata(&installed).is_ok_and(|file| file.is_file()),
            "{name}"
        );
        assert_eq!(page_text(&installed), fs::read(&page).expect("a page"));
    }
    for name in [
        "dat-check",
        "dat_evd_wait",
        "dat_ia_open",
        "dat.conf",
        "udapl",
    ] {
        shows(&prefix, name);
    }
    for path in below(&prefix) {
        let mode = fs::symlink_metadata(&path).expect("the file exists").mode();
        assert_eq!(mode & 0o444, 0o444, "{} is for all", path.display());
    }

    let program = r#"
        #include <dat/udat.h>
        #include <stdio.h>
        int main(void)
        {
            DAT_EP_ATTR attributes = {0};
            attributes.max_recv_dtos = 16;
            printf("%d.%d %d %zu\n", DAT_VERSION_MAJOR, DAT_VERSION_MINOR,
                   attributes.max_recv_dtos, sizeof(DAT_EVENT));
            return 0;
        }
    "#;
    assert_eq!(compile_and_run(&prefix, program), "1.2 16 48\n");

    succeed(&["--prefix", text(&prefix), "--uninstall"]);
    assert_eq!(below(&folder), <[PathBuf; 0]>::default());
}

#[test]
fn a_program_calls_the_installed_library() {
    let prefix = folder("calls").join("prefix");
    succeed(&["--prefix", text(&prefix), "--library", text(&library())]);
    let program = r#"
        #include <dat/udat.h>
        #include <stdio.h>
        int main(void)
        {
            const char *major, *minor;
            DAT_RETURN result = dat_ep_free(DAT_HANDLE_NULL);
            if (dat_strerror(result, &major, &minor) != DAT_SUCCESS)
                return 1;
            printf("%s %s\n", major, minor);
            return 0;
        }
    "#;
    let answer = "DAT_INVALID_HANDLE DAT_INVALID_HANDLE_EP\n";
    assert_eq!(compile_and_run(&prefix, program), answer);
    assert_eq!(compile_by_the_manual(&prefix, program), answer);
}

/// Compiles a program by the command in udapl(7), with a linker that drops
/// libraries which nothing before them needs, as some distributions do.
fn compile_by_the_manual(prefix: &Path, source: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/udapl.7");
    let page = fs::read_to_string(page).expect("the page");
    let command = page
        .lines()
        .find_map(|line| line.strip_prefix(".B cc "))
        .expect("the synopsis has a command")
        .replace("\\-", "-");
    let folder = prefix.join("by-the-manual");
    fs::create_dir(&folder).expect("a folder can be made");
    fs::write(folder.join("program.c"), source).expect("the source can be written");
    let compiled = Command::new("sh")
        .args(["-c", &format!("cc -Wl,--as-needed {command}")])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .current_dir(&folder)
        .output()
        .expect("sh can be run");
    let stderr = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "cc {command}: {stderr}");
    let run = Command::new(folder.join("a.out"))
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .output()
        .expect("the program can be run");
    fs::remove_dir_all(folder).expect("the file existed");
    String::from_utf8(run.stdout).expect("text")
}

#[test]
fn the_examples_build_with_what_is_installed() {
    let folder = folder("examples");
    let prefix = folder.join("prefix");
    succeed(&["--prefix", text(&prefix), "--library", text(&library())]);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/c");
    let mut programs = Vec::new();
    for entry in fs::read_dir(sources).expect("the examples") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.expect("a name");
        // Skips programs that a developer has built there.
        if name == "Makefile" || name.contains('.') {
            fs::copy(&path, folder.join(name)).expect("the file can be copied");
            programs.extend(name.strip_suffix(".c").map(str::to_owned));
        }
    }
    let made = Command::new("make")
        .arg("-C")
        .arg(&folder)
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .env_remove("MAKEFLAGS")
        .output()
        .expect("make can be run");
    let stderr = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{stderr}");
    assert_eq!(programs.len(), 5, "{programs:?}");
    for program in programs {
        let help = Command::new(folder.join(&program))
            .arg("--help")
            .env("LD_LIBRARY_PATH", prefix.join("lib"))
            .output()
            .expect("the program can be run");
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        assert!(help.starts_with(&format!("usage: {program} ")), "{help}");
    }
}

#[test]
fn dat_check_is_installed_as_a_program_and_removed() {
    let folder = folder("check");
    let (prefix, library) = (folder.join("prefix"), library());
    let check = folder.join("built");
    fs::write(&check, "#!/bin/sh\necho checked\n").expect("the file can be written");
    let arguments = ["--prefix", text(&prefix), "--library", text(&library)];
    succeed(&[&arguments[..], &["--check", text(&check)]].concat());
    let installed = prefix.join("bin/dat-check");
    let mode = fs::metadata(&installed).expect("it is there").mode();
    assert_eq!(mode & 0o777, 0o755);
    let printed = Command::new(&installed).output().expect("a program");
    assert_eq!(printed.stdout, b"checked\n");
    // Without a build of it, the rest is installed, and the older one removed.
    let output = install(&arguments);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("without dat-check"),
        "{stdout}"
    );
    assert!(!installed.exists());
    succeed(&["--prefix", text(&prefix), "--uninstall"]);
    assert_eq!(below(&folder), std::slice::from_ref(&check));
    let (status, stderr) = refusal(&["--prefix", text(&prefix), "--check", text(&check)]);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("--library"), "{stderr}");
}

#[test]
fn programs_are_installed_with_the_pages_and_completions_that_they_make() {
    let folder = folder("programs");
    let (prefix, built) = (folder.join("prefix"), folder.join("built"));
    fs::create_dir(&built).expect("the folder can be created");
    let beside = built.join("libdat.so");
    fs::copy(library(), &beside).expect("the library can be copied");
    fs::write(built.join("libmlx5emu.so"), "a library").expect("the file can be written");
    for name in ["dat-bench", "mlx5-emu"] {
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = generate ] || exit 1\nmkdir -p \"$2/man/man1\" \"$2/zsh/site-functions\"\n\
             echo page >\"$2/man/man1/{name}.1\"\necho completion >\"$2/zsh/site-functions/_{name}\"\n"
        );
        let path = built.join(name);
        fs::write(&path, script).expect("the file can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its own file");
    }
    let arguments = ["--prefix", text(&prefix), "--library", text(&beside)];
    succeed(&arguments);
    for page in ["dat-bench.1.gz", "mlx5-emu.1.gz"] {
        let installed = prefix.join("share/man/man1").join(page);
        assert_eq!(page_text(&installed), b"page\n", "{page}");
    }
    for (path, content) in [
        ("share/zsh/site-functions/_mlx5-emu", "completion\n"),
        ("lib/mlx5-emu/libmlx5emu.so", "a library"),
    ] {
        let installed = fs::read_to_string(prefix.join(path));
        assert_eq!(installed.expect("it is installed"), content, "{path}");
    }
    for name in ["dat-bench", "mlx5-emu"] {
        let mode = fs::metadata(prefix.join("bin").join(name))
            .expect("it is there")
            .mode();
        assert_eq!(mode & 0o777, 0o755);
    }
    // A program that does not run here is installed without pages.
    let broken = built.join("dat-bench");
    fs::write(&broken, "#!/bin/sh\nexit 1\n").expect("the file can be written");
    let output = install(&arguments);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("without manual pages"),
        "{stdout}"
    );
    assert!(!prefix.join("share/man/man1/dat-bench.1.gz").exists());
    succeed(&[&arguments[..], &["--no-emulator"]].concat());
    for path in [
        "bin/mlx5-emu",
        "lib/mlx5-emu",
        "share/man/man1/mlx5-emu.1.gz",
    ] {
        assert!(!prefix.join(path).exists(), "{path}");
    }
    assert!(prefix.join("bin/dat-bench").exists());
    succeed(&["--prefix", text(&prefix), "--uninstall"]);
    assert!(!prefix.exists());
}

#[test]
fn packagers_stage_it_below_another_folder() {
    let staged = folder("staged");
    let arguments = ["--prefix=/opt/dat", "--destdir", text(&staged)];
    succeed(&[&arguments[..], &["--library", text(&library())]].concat());
    let root = staged.join("opt/dat");
    let dat_pc = fs::read_to_string(root.join("lib/pkgconfig/dat.pc")).expect("dat.pc");
    assert!(dat_pc.starts_with("prefix=/opt/dat\n"), "{dat_pc}");
    assert!(!dat_pc.contains(text(&staged)), "{dat_pc}");
    succeed(&[&arguments[..], &["--uninstall"]].concat());
    assert!(!root.exists());
}

#[test]
fn another_library_folder_and_stripped_files() {
    let folder = folder("libdir");
    let (prefix, library) = (folder.join("prefix"), library());
    let lib = prefix.join("lib64");
    let arguments = ["--prefix", text(&prefix), "--library", text(&library)];
    succeed(&[&arguments[..], &["--strip", "--libdir", text(&lib)]].concat());
    assert!(!prefix.join("lib").exists());
    let pc = fs::read_to_string(lib.join("pkgconfig/dat.pc")).expect("dat.pc");
    assert!(pc.contains("\nlibdir=${prefix}/lib64\n"), "{pc}");
    let size = |file: &Path| fs::metadata(file).expect("the library").len();
    assert!(size(&lib.join("libdat.so")) < size(&library));
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "dat.conf"] {
        assert!(prefix.join("share/doc/udapl").join(name).exists(), "{name}");
    }
    // Without the option, the files move.
    succeed(&arguments);
    assert!(prefix.join("lib/libdat.so.1").exists() && !lib.exists());
    succeed(&["--prefix", text(&prefix), "--uninstall"]);
    assert!(!prefix.exists());
}

#[test]
fn a_library_of_the_same_name_that_the_loader_takes_is_named() {
    let folder = folder("another");
    let prefix = folder.join("prefix");
    let other = folder.join("libdat.so.1");
    fs::copy(library(), &other).expect("the library can be copied");
    let with = |searched: &Path| {
        let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../install.sh"))
            .args(["--prefix", text(&prefix), "--library", text(&library())])
            .env("LD_LIBRARY_PATH", searched)
            .output()
            .expect("the script can be run");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let warning = format!("warning: programs get {} instead of", text(&other));
    let printed = with(&folder);
    assert!(printed.contains(&warning), "{printed}");
    let provider = prefix.join("lib/libudapl.so.1");
    assert!(printed.contains(text(&provider)), "{printed}");
    assert!(provider.exists());
    let printed = with(&prefix.join("lib"));
    assert!(!printed.contains("warning"), "{printed}");
}
