//! What `dat-check` shows, as a user runs it on the emulated device: files of names with every kind
//! of error, both forms of output, help and manual.

mod common;

use std::fs;
use std::os::unix::process::CommandExt;

use common::{CONF, Folder, check, emulated, emulated_with, finish, json};

#[test]
fn every_entry_shows_what_it_opens_or_why_not_and_what_to_do() {
    let folder = Folder::new("entries");
    let conf = folder.file("dat.conf", CONF);
    let mut command = emulated("--json");
    command.env("DAT_OVERRIDE", &conf);
    let report = json(finish(command, 2));
    assert_eq!(report["schema"], "dat-check/1");
    let file = &report["dat_conf"];
    assert_eq!(file["path"], conf.to_str().expect("text"));
    assert_eq!(
        (&file["overridden"], &file["exists"]),
        (&true.into(), &true.into())
    );
    assert_eq!(file["invalid_lines"][0]["line"], 18);
    assert!(
        file["invalid_lines"][0]["cause"]
            .to_string()
            .contains("expected 8")
    );
    let ignored = file["ignored_lines"].as_array().expect("a list");
    let ignored: Vec<_> = ignored
        .iter()
        .map(|line| (line["line"].as_u64(), line["name"].as_str()))
        .collect();
    assert_eq!(
        ignored,
        [(Some(16), Some("kernel")), (Some(17), Some("off"))]
    );

    // The name, line and result of each, and words of the reason and of the next step.
    let expected = [
        ("fast", Some(2), "ok", "", ""),
        ("fast", Some(3), "unused", "", ""),
        (
            "gone",
            Some(4),
            "problem",
            "no RDMA device of that name",
            "mlx5_0 instead of mlx5_7",
        ),
        ("noport", Some(5), "problem", "no port 3", "1 to 1"),
        (
            "badkey",
            Some(6),
            "problem",
            "unknown key \\\"colour\\\"",
            "line 6",
        ),
        (
            "badvalue",
            Some(7),
            "problem",
            "invalid wait policy",
            "line 7",
        ),
        (
            "rcm",
            Some(8),
            "problem",
            "rdma_cm cannot be used",
            "modprobe rdma_ucm",
        ),
        ("gid", Some(9), "problem", "no GID 200", "gid"),
        ("address", Some(10), "problem", "192.0.2.77", "address"),
        (
            "interface",
            Some(11),
            "problem",
            "no network interface noif0",
            "ip link",
        ),
        ("safe", Some(12), "ok", "", ""),
        (
            "missing",
            Some(13),
            "problem",
            "cannot open shared object file",
            "libdat.so.1",
        ),
        ("other", Some(14), "foreign", "", ""),
        ("newer", Some(15), "ignored", "", ""),
        (
            "second",
            Some(19),
            "unused",
            "no RDMA device of that name",
            "",
        ),
        ("second", Some(20), "ok", "", ""),
        ("mlx5_0", None, "ok", "", ""),
    ];
    let adapters = report["adapters"].as_array().expect("a list");
    assert_eq!(adapters.len(), expected.len());
    for (adapter, (name, line, result, problem, next)) in adapters.iter().zip(expected) {
        assert_eq!(adapter["name"], name);
        assert_eq!(adapter["line"].as_u64(), line, "{name}");
        assert_eq!(adapter["result"], result, "{adapter}");
        assert!(
            adapter["problem"].to_string().contains(problem),
            "{adapter}"
        );
        assert!(adapter["next"].to_string().contains(next), "{adapter}");
        assert_eq!(
            adapter["problem"].is_null(),
            problem.is_empty(),
            "{adapter}"
        );
    }
    let fast = &adapters[0];
    assert_eq!(
        (&fast["device"], &fast["port"]),
        (&"mlx5_0".into(), &1.into())
    );
    assert_eq!(fast["transport"], "InfiniBand");
    assert_eq!(
        (&fast["link_layer"], &fast["port_state"]),
        (&"InfiniBand".into(), &"active".into())
    );
    assert_eq!(
        (&fast["connection_manager"], &fast["path"]),
        (&"socket".into(), &"direct".into())
    );
    assert_eq!(fast["address"], "127.0.0.1");
    assert_eq!(fast["attributes"]["wait"], "poll");
    let other = &adapters[12];
    assert!(
        other["library_path"]
            .to_string()
            .contains("/libibverbs.so.1"),
        "{other}"
    );
    assert!(
        adapters[13]["notes"].to_string().contains("DAT 2.0"),
        "{}",
        adapters[13]
    );
    // Nine names and a line.
    assert_eq!(
        (&report["problems"], &report["status"]),
        (&10.into(), &2.into())
    );
}

#[test]
fn the_text_has_the_same_results_and_ends_in_a_summary() {
    let folder = Folder::new("text");
    let conf = folder.file("dat.conf", CONF);
    let mut command = emulated("");
    command.env("DAT_OVERRIDE", &conf);
    let ended = finish(command, 2);
    // Where this line is folded depends on the length of the path.
    ended.says(&["named by DAT_OVERRIDE): 16 entries"]);
    for said in [
        "line 18 is invalid: 3 fields: expected 8",
        "line 17 (off) is ignored: it is nondefault",
        "fast          ok       dat.conf, line 2",
        "  device      mlx5_0, port 1: InfiniBand, active, MTU 4096",
        "  connects    by socket, as 127.0.0.1",
        "gone          PROBLEM  dat.conf, line 4",
        "mlx5_0        ok       a device; needs no entry",
        "EMULATED by mlx5-emu",
    ] {
        assert!(
            ended.stdout.contains(said),
            "'{said}' is missing in:\n{}",
            ended.stdout
        );
    }
    let summary = ended.stdout.lines().last().expect("a line");
    assert_eq!(
        summary,
        "17 names: 4 ok, 1 of other libraries, 1 ignored, 2 unused, 9 cannot be used; 10 PROBLEMS"
    );
}

#[test]
fn many_entries_of_another_version_are_one_line_of_text() {
    let folder = Folder::new("stock");
    let entry = |at: usize| {
        format!(
            "ofa-v2-{at} u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"ib{at} 0\" \"\"\n"
        )
    };
    let conf: String = (0..60).map(entry).collect();
    let mut command = emulated("");
    command.env("DAT_OVERRIDE", folder.file("dat.conf", &conf));
    let ended = finish(command, 0);
    ended.says(&[
        "60 entries are for other versions of DAT",
        "ofa-v2-0 (line 1) to ofa-v2-59 (line 60)",
        "61 names: 1 ok, 60 ignored; no problems",
    ]);
    assert!(ended.stdout.lines().count() < 25, "{}", ended.stdout);
}

#[test]
fn without_a_file_devices_are_opened_by_their_names() {
    let folder = Folder::new("none");
    let mut command = emulated("--json mlx5_0 mlx5_0-1");
    // An empty file: the default one may exist on this host.
    command.env("DAT_OVERRIDE", folder.file("dat.conf", ""));
    let report = json(finish(command, 0));
    for (at, name) in ["mlx5_0", "mlx5_0-1"].into_iter().enumerate() {
        assert_eq!(report["adapters"][at]["name"], name);
        assert_eq!(report["adapters"][at]["result"], "ok");
    }
}

#[test]
fn a_file_that_dat_override_names_has_to_exist() {
    let folder = Folder::new("absent");
    let mut command = emulated("");
    command.env("DAT_OVERRIDE", folder.at("no.conf"));
    finish(command, 2).says(&["no such file", "1 PROBLEM"]);
}

#[test]
fn an_unknown_name_is_a_problem_that_names_the_devices() {
    let ended = finish(emulated("mlx5_9"), 2);
    ended.says(&["mlx5_9        PROBLEM", "mlx5_0", "1 cannot be used"]);
}

#[test]
fn a_host_without_devices_is_a_problem_with_a_remedy() {
    let mut real = fs::read_dir("/sys/class/infiniband").into_iter().flatten();
    if real.next().is_some() {
        eprintln!("SKIPPED: this host has an RDMA device");
        return;
    }
    let folder = Folder::new("empty");
    let mut command = check("");
    command
        .env("DAT_OVERRIDE", folder.file("dat.conf", ""))
        // libibverbs finds its devices there.
        .env("SYSFS_PATH", &folder.0);
    let ended = finish(command, 2);
    ended.says(&["(any)         PROBLEM", "1 cannot be used"]);
}

#[test]
fn wrong_and_unknown_variables_are_shown() {
    let mut command = emulated("--json mlx5_0");
    command.env("DAT_WAIT", "sleep").env("DAT_WIAT", "poll");
    let report = json(finish(command, 2));
    let variables = report["variables"].as_array().expect("a list");
    let of = |name: &str| {
        let found = variables.iter().find(|one| one["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is missing"))
    };
    assert!(of("DAT_WAIT")["problem"].to_string().contains("sleep"));
    assert!(
        of("DAT_WAIT")["next"]
            .to_string()
            .contains("unset DAT_WAIT")
    );
    assert!(
        of("DAT_WIAT")["note"]
            .to_string()
            .contains("not a variable")
    );
    assert!(
        report["adapters"][0]["problem"]
            .to_string()
            .contains("DAT_WAIT")
    );
}

#[test]
fn a_setuid_program_ignores_the_variables() {
    let folder = Folder::new("setuid");
    let program = folder.file("program", "");
    let said = |mode| {
        folder.set_mode("program", mode);
        let mut command = emulated("mlx5_0");
        command
            .args(["--json", "--program"])
            .arg(&program)
            .env("DAT_WAIT", "poll");
        json(finish(command, 0))
    };
    assert_eq!(said(0o755)["adapters"][0]["attributes"]["wait"], "poll");
    let report = said(0o4755);
    assert_ne!(report["adapters"][0]["attributes"]["wait"], "poll");
    assert_eq!(report["variables"].as_array().map(Vec::len), Some(0));
    finish(emulated("--program /no/such/file"), 1).says(&["/no/such/file"]);
}

#[test]
fn too_little_locked_memory_is_named_with_the_remedies() {
    const LIMIT: u64 = 16 << 10;
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    let mut command = emulated_with(&["--memlock"], "mlx5_0");
    // SAFETY: both calls may be made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // Fails for ordinary users, who do not have the capability.
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
            let limit = libc::rlimit {
                rlim_cur: LIMIT,
                rlim_max: LIMIT,
            };
            match libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let ended = finish(command, 2);
    ended.says(&[
        "memlock       at most 16 KiB",
        "LimitMEMLOCK",
        "PROBLEM",
        "ulimit -l",
    ]);
}

#[test]
fn wrong_usage_is_refused_with_status_1() {
    for words in [
        "--listen --loopback",
        "--no-such-option",
        "--port 0",
        "--timeout 0",
    ] {
        finish(check(words), 1).says(&["error"]);
    }
    finish(check("--loopback a b"), 1).says(&["2 names were given"]);
    finish(check("--help"), 0).says(&["Examples:", "Exit status:", "--listen"]);
}

#[test]
fn the_manual_page_has_every_option_and_every_field() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../libdat/man/dat-check.1");
    let page = fs::read_to_string(page)
        .expect("the page")
        .replace("\\-", "-");
    let help = finish(check("--help"), 0).stdout;
    let options = help.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    for option in options.filter(|word| word.starts_with("--") && word.len() > 2) {
        assert!(page.contains(option), "{option} is not in dat-check(1)");
    }
    let folder = Folder::new("fields");
    let mut command = emulated("--loopback --json mlx5_0");
    command.env("DAT_OVERRIDE", folder.file("dat.conf", CONF));
    let report = json(finish(command, 2));
    let mut fields = Vec::new();
    common::fields(&report, &mut fields);
    // The names of attributes are those of dat_ia_query.
    fields.retain(|field| report["adapters"][0]["attributes"].get(field).is_none());
    for field in fields {
        assert!(
            page.contains(&field),
            "the field {field} is not in dat-check(1)"
        );
    }
}
