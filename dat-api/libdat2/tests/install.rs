//! `dat-api/install.sh`: what it installs of uDAPL 2.0 suffices for a program, and
//! removal leaves nothing behind. `libdat` has the other tests of the script.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::emulator::{artifact, fabric, launcher};

/// Runs a command, which must succeed, and returns its output.
fn output(command: &mut Command) -> String {
    let output = command.output().expect("the command can be run");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).expect("text")
}

fn install(arguments: &[&OsStr]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../install.sh");
    output(Command::new(script).args(arguments));
}

/// A program that prints the version of the adapter's library.
const PROGRAM: &str = r#"
#include <dat2/udat.h>
#include <dat2/dat_ib_extensions.h>
#include <stdio.h>

int main(void)
{
    DAT_EVD_HANDLE errors = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    DAT_PROVIDER_ATTR attr;
    DAT_RETURN code = dat_ia_open("mlx5_0", 8, &errors, &ia);
    if (code == DAT_SUCCESS)
        code = dat_ia_query(ia, &errors, 0, NULL, DAT_PROVIDER_FIELD_ALL, &attr);
    printf("%#x %d.%d\n", code, attr.dapl_version_major, attr.dapl_version_minor);
    return dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG) != DAT_SUCCESS;
}
"#;

#[test]
fn a_program_needs_only_what_is_installed() {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("install-dat2");
    let _ = fs::remove_dir_all(&prefix);
    let place = |below: &str| prefix.join(below);
    install(&[
        "--prefix".as_ref(),
        prefix.as_ref(),
        "--library".as_ref(),
        artifact("libdat.so").as_ref(),
    ]);
    let links = [
        ("libdat2.so", "libdat2.so.2"),
        ("libdat2.so.2", "libdat2.so.2.0.0"),
        ("libudapl2.so.2", "libdat2.so.2.0.0"),
    ];
    for (link, target) in links {
        let target = PathBuf::from(target);
        assert_eq!(fs::read_link(place("lib").join(link)).ok(), Some(target));
    }
    let flags = output(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "dat2"])
            .env("PKG_CONFIG_PATH", place("lib/pkgconfig")),
    );
    let (source, program) = (place("program.c"), place("program"));
    fs::write(&source, PROGRAM).expect("the source can be written");
    output(
        Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .args([&program, &source])
            .args(flags.split_whitespace()),
    );
    let printed = output(
        Command::new(launcher())
            .args(["run", "--fabric", &fabric(), "--"])
            .arg(&program)
            .env("LD_LIBRARY_PATH", place("lib")),
    );
    assert_eq!(printed, "0 2.0\n");
    fs::remove_file(source).expect("the source");
    fs::remove_file(program).expect("the program");
    install(&["--prefix".as_ref(), prefix.as_ref(), "--uninstall".as_ref()]);
    assert!(!prefix.exists(), "{}", prefix.display());
}
