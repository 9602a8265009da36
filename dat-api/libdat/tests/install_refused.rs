//! `dat-api/install.sh` where something stands in its way: it says what, and loses nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::install::{below, folder, library, refusal, succeed, text};

#[test]
fn files_of_others_are_neither_replaced_nor_removed() {
    let prefix = folder("others");
    let (other, own) = (prefix.join("lib/libdat.so.1"), prefix.join("lib/own"));
    fs::create_dir(prefix.join("lib")).expect("the folder can be created");
    fs::write(&other, "another").expect("the file can be written");
    let library = library();
    let arguments = ["--prefix", text(&prefix), "--library", text(&library)];
    let (status, stderr) = refusal(&arguments);
    assert_eq!(status, Some(2));
    assert!(stderr.contains("not from this script"), "{stderr}");
    assert_eq!(fs::read_to_string(&other).expect("it stays"), "another");
    assert_eq!(below(&prefix).len(), 2, "nothing was installed");

    fs::rename(&other, &own).expect("the file can be renamed");
    succeed(&arguments);
    succeed(&["--prefix", text(&prefix), "--uninstall"]);
    assert_eq!(below(&prefix), [own, prefix.join("lib")]);

    let page = prefix.join("share/man/man5/dat.conf.5");
    fs::create_dir_all(page.parent().expect("a folder")).expect("the folder can be created");
    fs::write(&page, "another").expect("the file can be written");
    let (status, stderr) = refusal(&arguments);
    assert_eq!(status, Some(2));
    assert!(stderr.contains("dat.conf.5"), "{stderr}");
    assert_eq!(fs::read_to_string(&page).expect("it stays"), "another");
}

#[test]
fn refused_installations_name_the_reason() {
    let folder = folder("refused");
    let (file, library) = (folder.join("file"), library());
    fs::write(&file, "").expect("the file can be written");
    let below_file = file.join("prefix");
    let cases: [(&[&str], i32, &str); 10] = [
        (&[], 1, "--prefix is missing"),
        (&["--prefix"], 1, "--prefix needs a value"),
        (&["--prefix", "/"], 1, "/usr is meant"),
        (&["--prefix", "/opt/dat", "--what"], 1, "--what"),
        (
            &["--prefix", text(&folder), "--uninstall"],
            2,
            "nothing is installed",
        ),
        (&["--prefix", "/opt/a b"], 2, "no spaces"),
        (
            &["--prefix", "/opt/dat", "--libdir", "/usr/lib64"],
            1,
            "--libdir /usr/lib64 is not below the prefix /opt/dat",
        ),
        (&["--prefix", "/opt/dat", "--libdir", "../lib"], 1, "below"),
        (
            &["--prefix", text(&folder), "--library", "/nowhere/libdat.so"],
            2,
            "is missing",
        ),
        (
            &["--prefix", text(&below_file), "--library", text(&library)],
            2,
            "is not a folder",
        ),
    ];
    for (arguments, status, reason) in cases {
        let (code, stderr) = refusal(arguments);
        assert_eq!(code, Some(status), "{arguments:?}: {stderr}");
        assert!(stderr.contains(reason), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("error: "), "{arguments:?}: {stderr}");
    }
    assert_eq!(below(&folder), [file]);
}

#[test]
fn an_unwritable_folder_is_named() {
    let (status, stderr) = refusal(&["--prefix", "/proc/dat", "--library", text(&library())]);
    // SAFETY: geteuid cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let reason = if root {
        // Root may write everywhere, but cannot create folders in /proc.
        "/proc/dat cannot be made"
    } else {
        "/proc is not writable"
    };
    assert_eq!(status, Some(2));
    assert!(stderr.contains(reason), "{stderr}");
}

#[test]
fn what_was_deleted_since_is_installed_again_or_removed() {
    let prefix = folder("half");
    let library = library();
    let arguments = ["--prefix", text(&prefix), "--library", text(&library)];
    succeed(&arguments);
    let all = below(&prefix);
    let delete = || {
        for path in ["lib/libdat.so.1", "include/dat/dat.h", "share/man/man7"] {
            let path = prefix.join(path);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    };
    delete();
    succeed(&arguments);
    assert_eq!(below(&prefix).len(), all.len());
    delete();
    succeed(&["--prefix", text(&prefix), "--uninstall"]);
    assert!(!prefix.join("lib").exists());
}

#[test]
fn a_refused_installation_leaves_the_older_one() {
    let prefix = folder("older");
    let library = library();
    let arguments = ["--prefix", text(&prefix), "--library", text(&library)];
    succeed(&arguments);
    let other = prefix.join("include/dat/own.h");
    fs::write(&other, "another").expect("the file can be written");
    let before = below(&prefix);
    let (status, stderr) = refusal(&arguments);
    assert_eq!(status, Some(2));
    assert!(stderr.contains("own.h exists and is not"), "{stderr}");
    assert_eq!(below(&prefix), before);

    // Without the manifest, no file is known.
    fs::remove_file(prefix.join("share/udapl/installed")).expect("the manifest exists");
    let (status, stderr) = refusal(&arguments);
    assert_eq!(status, Some(2));
    assert!(stderr.contains(" more files exist and are not"), "{stderr}");
}

#[test]
fn a_damaged_manifest_removes_nothing() {
    let prefix = folder("damaged");
    let library = library();
    let arguments = ["--prefix", text(&prefix), "--library", text(&library)];
    succeed(&arguments);
    let manifest = prefix.join("share/udapl/installed");
    let lines = fs::read_to_string(&manifest).expect("the manifest exists");
    for damage in ["\0\0", "file ../other", "file /etc/passwd", "folder"] {
        // The first line: the last to be removed.
        fs::write(&manifest, format!("{damage}\n{lines}")).expect("it can be written");
        let before = below(&prefix);
        for arguments in [&arguments[..], &["--prefix", text(&prefix), "--uninstall"]] {
            let (status, stderr) = refusal(arguments);
            assert_eq!(status, Some(2), "{damage}: {stderr}");
            assert!(
                stderr.contains("is damaged in line 1, nothing was changed"),
                "{damage}: {stderr}"
            );
            assert_eq!(below(&prefix), before);
        }
    }
}

#[test]
fn files_that_a_package_has_taken_over_are_kept() {
    let folder = folder("packaged");
    let (prefix, commands) = (folder.join("prefix"), folder.join("commands"));
    let library = library();
    let arguments = ["--prefix", text(&prefix), "--library", text(&library)];
    succeed(&arguments);
    let owned = prefix.join("lib/libdat.so.1.2.0");
    fs::create_dir(&commands).expect("the folder can be created");
    let dpkg = commands.join("dpkg-query");
    fs::write(
        &dpkg,
        format!("#!/bin/sh\necho libdat1: {}\n", text(&owned)),
    )
    .expect("the command can be written");
    fs::set_permissions(&dpkg, fs::Permissions::from_mode(0o755)).expect("it exists");
    let run = |arguments: &[&str]| {
        let path = std::env::var("PATH").expect("a search path");
        Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../install.sh"))
            .args(arguments)
            .env("PATH", format!("{}:{path}", text(&commands)))
            .output()
            .expect("the script can be run")
    };
    let before = below(&prefix);
    let output = run(&arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("(libdat1: "), "{stderr}");
    assert_eq!(below(&prefix), before);

    let output = run(&["--prefix", text(&prefix), "--uninstall"]);
    assert!(output.status.success());
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("libdat1: "), "{printed}");
    assert_eq!(below(&prefix), [owned, prefix.join("lib")]);
}

#[test]
fn a_read_only_file_system_is_named() {
    // A mount namespace of its own; user namespaces may be forbidden.
    let folder = folder("read-only");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../install.sh");
    let mounted = format!(
        "mount -t tmpfs -o ro none {0} && exec {script} --prefix {0} --library {1}",
        text(&folder),
        text(&library())
    );
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mounted])
        .output()
        .expect("unshare can be run");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("unshare") || stderr.contains("mount:") {
        println!("skipped: no user namespace here: {stderr}");
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("a read-only file system?"), "{stderr}");
}
