//! Other providers in this library's registry, and this library in another
//! registry: C programs and a provider library that the tests compile. Each
//! program runs in its own process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::emulator::{fabric, launcher};

const NOT_FOUND: &str = "DAT_PROVIDER_NOT_FOUND DAT_NAME_NOT_REGISTERED";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("registry")
}

/// Compiles a file. Other tests do the same at the same time, so the result is
/// renamed into place.
fn compile(name: &str, arguments: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support");
    let program = folder().join(name.replace(".c", if name == "foreign.c" { ".so" } else { "" }));
    let mine = program.with_extension(std::process::id().to_string());
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-pthread",
            "-I",
        ])
        .arg(source.join("../../include"))
        .arg("-o")
        .arg(&mine)
        .arg(source.join(name))
        .args(arguments)
        .current_dir(folder())
        .output()
        .expect("cc can be run");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {stderr}");
    fs::rename(mine, program).expect("the file can be renamed");
}

/// Creates a link that other tests may create at the same time or use already.
fn link(to: &Path, name: &str) {
    if fs::read_link(folder().join(name)).is_ok_and(|is| is == to) {
        return;
    }
    let mine = folder().join(format!("{name}.{}", std::process::id()));
    let _ = fs::remove_file(&mine);
    std::os::unix::fs::symlink(to, &mine).expect("the link can be created");
    fs::rename(mine, folder().join(name)).expect("the file can be renamed");
}

/// Compiles all programs with the library of this test.
fn built() -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        // Called first: it may have to rebuild the library.
        launcher();
        fs::create_dir_all(folder()).expect("the folder can be created");
        let tests = std::env::current_exe().expect("this binary has a path");
        let library = tests.parent().expect("a folder").join("libdat.so");
        // The last name is for a registry that has its own libdat.so.1.
        for name in ["libdat.so", "libdat.so.1", "libguest.so"] {
            link(&library, name);
        }
        // The registry functions that it calls exist when it is loaded.
        compile("foreign.c", &["-shared", "-fPIC"]);
        compile("consumer.c", &["-L.", "-ldat", "-ldl"]);
        compile("host.c", &["-rdynamic", "-ldl"]);
        compile("ofed.c", &["-ldl"]);
    });
    folder()
}

/// Writes a dat.conf with these lines; `FOREIGN` and `GUEST` stand for the
/// libraries.
fn conf(lines: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = built().join(format!("{}-{number}.conf", std::process::id()));
    let place = |name: &str| built().join(name).display().to_string();
    let text = lines
        .replace("FOREIGN", &place("foreign.so"))
        .replace("GUEST", &place("libguest.so"));
    fs::write(&path, text).expect("a file can be written");
    path
}

fn printed(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{:?}\n{text}{stderr}",
        output.status
    );
    text.lines().map(str::to_owned).collect()
}

/// Returns what a consumer program prints with this dat.conf.
fn consumer(lines: &str, arguments: &[&str]) -> Vec<String> {
    let conf = conf(lines);
    let output = Command::new("timeout")
        .arg("60")
        .arg(built().join("consumer"))
        .args(arguments)
        .env("LD_LIBRARY_PATH", built())
        .env("DAT_OVERRIDE", &conf)
        .output()
        .expect("timeout can be run");
    let _ = fs::remove_file(conf);
    printed(&output)
}

/// Returns an entry of the foreign library for a name.
fn entry(name: &str, behaviour: &str) -> String {
    format!("{name} u1.2 nonthreadsafe default FOREIGN theirs.1.0 \"{behaviour}\" \"\"\n")
}

#[test]
fn a_foreign_provider_is_loaded_used_and_unloaded() {
    let printed = consumer(
        &entry("other", "good"),
        &[
            "loaded",
            "foreign.so",
            "open",
            "other",
            "calls",
            "graceful",
            "abrupt",
            "loaded",
            "foreign.so",
        ],
    );
    let wanted = [
        "loaded 0",
        "init other 1.2 0 'good'",
        "add DAT_SUCCESS",
        "again DAT_PROVIDER_ALREADY_REGISTERED",
        "open other 8",
        "opened DAT_SUCCESS",
        // Each of the 68 entries except opening and closing.
        "calls 66",
        "close 1",
        // As the provider says.
        "closed DAT_INVALID_STATE DAT_INVALID_STATE_IA_IN_USE",
        "close 0",
        "fini other",
        "remove DAT_SUCCESS",
        "closed DAT_SUCCESS",
        "stale DAT_INVALID_HANDLE DAT_INVALID_HANDLE_IA",
        "loaded 0",
    ];
    assert_eq!(printed, wanted);
}

#[test]
fn a_library_is_loaded_once_and_stays_until_its_last_adapter_is_closed() {
    let printed = consumer(
        &entry("other", "good"),
        &[
            "open",
            "other",
            "open",
            "other",
            "remove",
            "other",
            "abrupt",
            "loaded",
            "foreign.so",
            "abrupt",
            "open",
            "other",
        ],
    );
    let text = printed.join(", ");
    assert_eq!(
        text,
        "init other 1.2 0 'good', add DAT_SUCCESS, again DAT_PROVIDER_ALREADY_REGISTERED, open other 8, opened DAT_SUCCESS, \
         open other 8, opened DAT_SUCCESS, removed DAT_PROVIDER_IN_USE, close 0, closed DAT_SUCCESS, loaded 1, \
         close 0, fini other, remove DAT_SUCCESS, closed DAT_SUCCESS, stale DAT_INVALID_HANDLE DAT_INVALID_HANDLE_IA, \
         init other 1.2 0 'good', add DAT_SUCCESS, again DAT_PROVIDER_ALREADY_REGISTERED, open other 8, opened DAT_SUCCESS"
    );
}

#[test]
fn a_slot_that_is_null_is_not_implemented() {
    let printed = consumer(&entry("other", "bare"), &["open", "other", "null-slots"]);
    assert_eq!(
        printed.last().map(String::as_str),
        Some("calls 66"),
        "{printed:?}"
    );
}

#[test]
fn providers_that_do_not_serve_are_reported() {
    let cases = [
        // Registers nothing.
        (
            "mute",
            vec!["init other 1.2 0 'mute'", "fini other"],
            NOT_FOUND,
        ),
        // Returns an error.
        (
            "refuses",
            vec![
                "init other 1.2 0 'refuses'",
                "add DAT_SUCCESS",
                "again DAT_PROVIDER_ALREADY_REGISTERED",
                "open other 8",
                "fini other",
                "remove DAT_SUCCESS",
            ],
            "DAT_INSUFFICIENT_RESOURCES DAT_RESOURCE_TEP",
        ),
    ];
    for (behaviour, mut wanted, code) in cases {
        let printed = consumer(
            &entry("other", behaviour),
            &["open", "other", "loaded", "foreign.so"],
        );
        let opened = format!("opened {code}");
        wanted.extend([opened.as_str(), "loaded 0"]);
        assert_eq!(printed, wanted, "{behaviour}");
    }
    let missing = "other u1.2 nonthreadsafe default /nowhere/lib.so theirs.1.0 \"\" \"\"\n";
    let printed = consumer(missing, &["open", "other"]);
    assert_eq!(printed, [format!("opened {NOT_FOUND}")]);
}

/// Not in dat.conf: a registered provider is found by the same key.
#[test]
fn a_provider_of_the_program_itself_is_opened_by_its_name() {
    let printed = consumer(
        "",
        &[
            "open", "mine", "add", "mine", "add", "mine", "open", "mine", "remove", "mine",
            "graceful", "remove", "mine", "open", "mine",
        ],
    );
    let not_found = format!("opened {NOT_FOUND}");
    let wanted = [
        not_found.as_str(),
        "added DAT_SUCCESS",
        "added DAT_PROVIDER_ALREADY_REGISTERED",
        "own open mine 8",
        "opened DAT_SUCCESS",
        "removed DAT_PROVIDER_IN_USE",
        "own close 1 1",
        "closed DAT_SUCCESS",
        // Still registered, so it is asked.
        "own close 1 1",
        "stale DAT_INVALID_HANDLE DAT_INVALID_HANDLE_IA",
        "removed DAT_SUCCESS",
        &not_found,
    ];
    assert_eq!(printed, wanted);
}

/// An unusable entry of dat.conf does not hide a registered provider.
#[test]
fn a_provider_of_the_program_serves_where_dat_conf_cannot() {
    let missing = "mine u1.2 nonthreadsafe default /nowhere/lib.so theirs.1.0 \"\" \"\"\n";
    let printed = consumer(
        missing,
        &[
            "open", "mine", "add", "mine", "open", "mine", "graceful", "remove", "mine",
        ],
    );
    let not_found = format!("opened {NOT_FOUND}");
    let wanted = [
        not_found.as_str(),
        "added DAT_SUCCESS",
        "own open mine 8",
        "opened DAT_SUCCESS",
        "own close 1 1",
        "closed DAT_SUCCESS",
    ];
    assert_eq!(printed[..6], wanted);
}

#[test]
fn entries_of_a_name_are_tried_in_order() {
    let missing = "other u1.2 nonthreadsafe default /nowhere/lib.so theirs.1.0 \"\" \"\"\n";
    let all = [missing, &entry("other", "mute"), &entry("other", "good")].concat();
    let printed = consumer(&all, &["open", "other"]);
    let text = printed.join(", ");
    assert_eq!(
        text,
        "init other 1.2 0 'mute', fini other, \
         init other 1.2 0 'good', add DAT_SUCCESS, again DAT_PROVIDER_ALREADY_REGISTERED, open other 8, opened DAT_SUCCESS"
    );
}

#[test]
fn only_an_entry_of_that_name_version_and_safety_is_loaded() {
    let lines = "other u1.1 nonthreadsafe default FOREIGN theirs.1.0 \"good\" \"\"\n\
                 other u2.0 nonthreadsafe default FOREIGN theirs.1.0 \"good\" \"\"\n\
                 other k1.2 nonthreadsafe default FOREIGN theirs.1.0 \"good\" \"\"\n\
                 other u1.2 threadsafe default FOREIGN theirs.1.0 \"good\" \"\"\n\
                 other u1.2 nonthreadsafe nondefault FOREIGN theirs.1.0 \"good\" \"\"\n";
    let printed = consumer(lines, &["open", "other", "loaded", "foreign.so"]);
    assert_eq!(
        printed,
        [format!("opened {NOT_FOUND}").as_str(), "loaded 0"]
    );
}

#[test]
fn entries_of_a_library_are_removed_with_it() {
    let printed = consumer(
        &entry("other", "stays"),
        &[
            "open",
            "other",
            "abrupt",
            "loaded",
            "foreign.so",
            "remove",
            "other",
        ],
    );
    assert_eq!(
        printed[printed.len() - 2..],
        ["loaded 0", "removed DAT_INVALID_PARAMETER DAT_INVALID_ARG2"],
        "{printed:?}"
    );
}

#[test]
fn a_library_cannot_open_an_adapter_while_it_is_loaded() {
    let printed = consumer(&entry("other", "nested"), &["open", "other"]);
    // Refused without a deadlock.
    assert!(
        printed.contains(&"nested DAT_INVALID_STATE".to_owned()),
        "{printed:?}"
    );
    assert_eq!(
        printed.last().map(String::as_str),
        Some("opened DAT_SUCCESS")
    );
}

#[test]
fn threads_open_and_close_foreign_adapters() {
    let printed = consumer(
        &entry("other", "good"),
        &["threads", "other", "loaded", "foreign.so"],
    );
    assert_eq!(
        printed[printed.len() - 2..],
        ["bad 0", "loaded 0"],
        "{printed:?}"
    );
}

/// Runs this library in the process of another registry.
fn guest(program: &str, arguments: &[&str]) -> Vec<String> {
    let conf = conf("guest u1.2 nonthreadsafe default GUEST udapl.1.0 \"mlx5_0 1\" \"\"\n");
    let output = Command::new("timeout")
        .arg("60")
        .arg(launcher())
        .args(["run", "--fabric", &fabric(), "--"])
        .arg(built().join(program))
        .args(arguments)
        .env("DAT_OVERRIDE", &conf)
        .output()
        .expect("timeout can be run");
    let _ = fs::remove_file(conf);
    printed(&output)
}

#[test]
fn libdat_serves_in_another_registry() {
    let library = built().join("libguest.so");
    let printed = guest("host", &[&library.to_string_lossy(), "serves"]);
    let wanted = [
        "add guest 1.2",
        "table guest",
        "adapter guest",
        "safe 0, version 1.2, async 1",
        "pointer 1",
        "remove guest 1",
        "well",
    ];
    assert_eq!(printed, wanted);
}

#[test]
fn a_registry_that_takes_no_entry_and_a_missing_device_are_handled() {
    let library = built().join("libguest.so");
    let printed = guest("host", &[&library.to_string_lossy(), "refuses"]);
    assert_eq!(printed, ["add guest 1.2", "well"]);
    let printed = guest("host", &[&library.to_string_lossy(), "unknown"]);
    let opened = printed.get(2).cloned().unwrap_or_default();
    assert!(
        opened.starts_with("open ") && opened.ends_with(" 1"),
        "{opened}"
    );
    let wanted = [
        "add guest 1.2",
        "table guest",
        &opened,
        "remove guest 1",
        "well",
    ];
    assert_eq!(printed, wanted);
}

#[test]
fn libdat_serves_in_the_registry_of_ofed() {
    const OFED: &str = "libdat2.so.2";
    let found = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
    ]
    .iter()
    .any(|folder| Path::new(folder).join(OFED).exists());
    if !found {
        eprintln!("SKIPPED: {OFED} is not installed (package libdat2)");
        return;
    }
    assert_eq!(guest("ofed", &[OFED]), ["pointer 1", "well"]);
}
