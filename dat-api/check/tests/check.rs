//! What `dat-check` shows of names, as a user runs it on the emulated device: files with every kind
//! of error, both forms of output, help and manual. What it shows of the host is in `host.rs`.

use std::fs;

use crate::common::{CONF, Folder, check, emulated, emulated_with, finish, json};

#[test]
fn every_entry_shows_what_it_opens_or_why_not_and_what_to_do() {
    let folder = Folder::new("entries");
    let conf = folder.file("dat.conf", CONF);
    let mut command = emulated_with(&["--no-rdma-cm"], "--json");
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
            .contains("3 fields found, 8 expected")
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
            "no adapter \\\"gone\\\" (dat.conf:4): cannot open mlx5_7: there is no RDMA device",
            "write mlx5_0 instead of mlx5_7",
        ),
        (
            "noport",
            Some(5),
            "problem",
            "mlx5_0 has 1 port, and no port 3",
            "write port 1 instead of 3",
        ),
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
        (
            "safe",
            Some(12),
            "problem",
            "dat.conf:12 has the name as threadsafe",
            "write nonthreadsafe instead of threadsafe in line 12",
        ),
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
        (
            "ended",
            Some(21),
            "problem",
            "invalid wait policy",
            "line 21",
        ),
        ("ended", Some(22), "unused", "", ""),
        ("mlx5_0", Some(23), "unused", "", ""),
        ("fast", Some(24), "unused", "", ""),
        ("eighth", Some(25), "ok", "", ""),
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
        adapters[13]["notes"].to_string().contains("uDAPL 2.0"),
        "{}",
        adapters[13]
    );
    for (at, note) in [
        (1, "line 2 has the same name and is used"),
        (14, "line 20 has the same name and is used"),
        (17, "not reached"),
        (18, "opens the device of this name"),
        (19, "opens another line of this name"),
        (20, "write sl=3 in field 7"),
        (20, "it has no setting colour=red"),
    ] {
        let notes = adapters[at]["notes"].to_string();
        assert!(notes.contains(note), "{}", adapters[at]);
    }
    // Nothing is said of an adapter that programs do not get.
    for at in [10, 14, 17, 18, 19] {
        let notes = adapters[at]["notes"].to_string();
        assert!(!notes.contains("its address"), "{}", adapters[at]);
    }
    // Eleven names and a line.
    assert_eq!(
        (&report["problems"], &report["status"]),
        (&12.into(), &2.into())
    );
}

/// The result of a name is that of `dat_ia_open`, or with `--threadsafe` of `dat_ia_openv` with
/// DAT_TRUE.
#[test]
fn the_thread_safety_that_a_program_requests_decides() {
    let folder = Folder::new("safety");
    let conf = folder.file("dat.conf", CONF);
    let result = |words: &str, status| {
        let mut command = emulated(&format!("--json {words}"));
        command.env("DAT_OVERRIDE", &conf);
        let report = json(finish(command, status));
        let of = |one: &serde_json::Value| (one["line"].as_u64(), one["result"].to_string());
        let adapters = report["adapters"].as_array().expect("a list");
        (
            adapters.iter().map(of).collect::<Vec<_>>(),
            report["adapters"].to_string(),
        )
    };
    let is = |line, result: &str| (line, format!("\"{result}\""));
    let (found, text) = result("safe", 2);
    assert_eq!(found, [is(Some(12), "problem")]);
    assert!(text.contains("check with --threadsafe"), "{text}");
    let (found, text) = result("mlx5_0", 2);
    assert_eq!(found, [is(Some(23), "unused"), is(None, "ok")]);
    assert!(!text.contains("\"wait\":\"block\""), "{text}");

    assert_eq!(result("--threadsafe safe", 2).0, [is(Some(12), "ok")]);
    let (found, text) = result("--threadsafe mlx5_0", 2);
    assert_eq!(found, [is(Some(23), "ok")]);
    assert!(text.contains("\"wait\":\"block\""), "{text}");
    let (found, _) = result("--threadsafe fast", 2);
    assert_eq!(
        found,
        [
            is(Some(2), "unused"),
            is(Some(3), "unused"),
            is(Some(24), "ok")
        ]
    );
    let (found, text) = result("--threadsafe eighth", 2);
    assert_eq!(found, [is(Some(25), "problem")]);
    assert!(
        text.contains("write threadsafe instead of nonthreadsafe"),
        "{text}"
    );
}

/// The entry of another version is not what a program of uDAPL 1.2 opens by the name.
#[test]
fn a_name_of_another_version_is_opened_as_programs_open_it() {
    let folder = Folder::new("version");
    let conf = folder.file("dat.conf", CONF);
    let mut command = emulated("newer");
    command.env("DAT_OVERRIDE", &conf);
    finish(command, 2).says(&[
        "newer         ignored  dat.conf, line 15",
        "newer         PROBLEM  no entry of dat.conf for uDAPL 1.2",
        "dat.conf:15 has the name for DAT version 2.0",
    ]);
    let clash = CONF
        .replace("newer", "mlx5_0")
        .replace("mlx5_0 u1.2 threadsafe", "x u1.2 threadsafe");
    let mut command = emulated("mlx5_0");
    command.env("DAT_OVERRIDE", folder.file("clash.conf", &clash));
    finish(command, 2).says(&[
        "mlx5_0        ignored  dat.conf, line 15",
        "mlx5_0        ok       a device; needs no entry",
    ]);
}

#[test]
fn the_text_has_the_same_results_and_ends_in_a_summary() {
    let folder = Folder::new("text");
    let conf = folder.file("dat.conf", CONF);
    let mut command = emulated("");
    command.env("DAT_OVERRIDE", &conf);
    let ended = finish(command, 2);
    // Where this line is folded depends on the length of the path.
    ended.says(&["named by DAT_OVERRIDE): 21 entries"]);
    for said in [
        "line 18 is invalid and ignored: 3 fields found, 8 expected",
        "line 17 (off) is ignored: it is nondefault",
        "fast          ok       dat.conf, line 2",
        "  device      mlx5_0, port 1: InfiniBand, active, MTU 4096",
        "  connects    by rdma_cm, as 127.0.0.1",
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
        "22 names: 5 ok, 1 of other libraries, 1 ignored, 5 unused, 10 cannot be used; 11 PROBLEMS"
    );
}

/// Names for programs of uDAPL 2.0, as in Debian's dat.conf, and wrong ones.
const CONF_2: &str = "\
newer u2.0 nonthreadsafe default libdat2.so.2 dapl.2.0 \"mlx5_0 1 wait=poll\" \"\"
ofa-v2-mlx5_0-1s u2.0 nonthreadsafe default libdaploscm-9.so.2 dapl.2.0 \"mlx5_0 1\" \"\"
ofa-v2-mlx5_0-1u u2.0 nonthreadsafe default /nowhere/libdaploucm.so.2 dapl.2.0 \"mlx5_0 1\" \"\"
ofa-v2-none u2.0 nonthreadsafe default /nowhere/libdaploucm.so.2 dapl.2.0 \"mlx5_9 1\" \"\"
older u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"mlx5_0 1\" \"\"
between u2.1 nonthreadsafe default libdat2.so.2 dapl.2.0 \"mlx5_0 1\" \"\"
broken 2.0 nonthreadsafe default libdat2.so.2 dapl.2.0 \"mlx5_0 1\" \"\"
";

#[test]
fn programs_of_udapl_2_get_the_entries_of_their_version() {
    let folder = Folder::new("udapl2");
    let conf = folder.file("dat.conf", CONF_2);
    let mut command = emulated("--json --udapl 2.0");
    command.env("DAT_OVERRIDE", &conf);
    let report = json(finish(command, 2));
    assert_eq!(report["udapl"], "2.0");
    assert_eq!(report["system"]["libdat"]["name"], "libdat2.so.2");
    let adapters = report["adapters"].as_array().expect("a list");
    for (at, (name, result, library, said)) in [
        ("newer", "ok", "libdat2.so.2", ""),
        (
            "ofa-v2-mlx5_0-1s",
            "problem",
            "libdaploscm-9.so.2",
            "write libdat2.so.2 in the line",
        ),
        (
            "ofa-v2-mlx5_0-1u",
            "ok",
            "/nowhere/libdaploucm.so.2",
            "is not installed, so libdat2.so.2 opens the device",
        ),
        (
            "ofa-v2-none",
            "problem",
            "/nowhere/libdaploucm.so.2",
            "in line 4 of dat.conf, write",
        ),
        ("older", "ignored", "libdat.so.1", "dat-check --udapl 1.2"),
        (
            "between",
            "problem",
            "libdat2.so.2",
            "in line 6 of dat.conf, write u1.2 for programs that use libdat.so.1, or u2.0",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let adapter = &adapters[at];
        assert_eq!(
            (&adapter["name"], &adapter["result"], &adapter["library"]),
            (&name.into(), &result.into(), &library.into()),
            "{adapter}"
        );
        assert!(adapter.to_string().contains(said), "{said}: {adapter}");
    }
    assert_eq!(adapters[0]["attributes"]["wait"], "poll");
    assert_eq!(adapters[2]["device"], "mlx5_0");
    let invalid = &report["dat_conf"]["invalid_lines"][0];
    let cause = "invalid version \"2.0\" (field 2): expected u1.2 for libdat.so.1, u2.0 for \
                 libdat2.so.2";
    assert_eq!(
        (&invalid["line"], &invalid["cause"]),
        (&7.into(), &cause.into())
    );
    // A name that fills its column is still apart from the result.
    let mut command = emulated("--udapl 2.0 ofa-v2-mlx5_0-1u");
    command.env("DAT_OVERRIDE", &conf);
    finish(command, 2).says(&["ofa-v2-mlx5_0-1u ok       dat.conf, line 3"]);
    // The same file for programs of uDAPL 1.2.
    let mut command = emulated("--json");
    command.env("DAT_OVERRIDE", &conf);
    let report = json(finish(command, 2));
    assert_eq!(report["adapters"][0]["result"], "ignored");
    let notes = report["adapters"][0]["notes"].to_string();
    assert!(notes.contains("`dat-check --udapl 2.0` shows"), "{notes}");
    assert_eq!(report["adapters"][4]["result"], "ok");
    assert_eq!(report["adapters"][5]["result"], "problem");
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
fn an_unknown_name_is_a_problem_that_names_the_devices() {
    let ended = finish(emulated("mlx5_9"), 2);
    ended.says(&["mlx5_9        PROBLEM", "mlx5_0", "1 cannot be used"]);
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
    crate::common::fields(&report, &mut fields);
    // The names of attributes are those of dat_ia_query.
    fields.retain(|field| report["adapters"][0]["attributes"].get(field).is_none());
    for field in fields {
        assert!(
            page.contains(&field),
            "the field {field} is not in dat-check(1)"
        );
    }
}

/// The sample has a home folder and a name of the fabric that differ from host to host.
#[test]
fn the_sample_in_the_guide_is_what_is_printed() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide.md");
    let guide = fs::read_to_string(guide).expect("the guide");
    let sample = guide
        .split("```text\n")
        .find_map(|rest| {
            rest.starts_with("dat.conf ")
                .then(|| rest.split("```").next())
        })
        .flatten()
        .expect("the sample");
    let folder = Folder::new("sample");
    let mut command = emulated("mlx5_0");
    command.env("DAT_OVERRIDE", folder.file("dat.conf", ""));
    let printed = finish(command, 0).stdout;
    let of_adapter = sample
        .lines()
        .skip_while(|line| !line.starts_with("mlx5_0 "));
    let lines: Vec<&str> = of_adapter.filter(|line| line.trim() != "…").collect();
    assert!(lines.len() > 5, "{sample}");
    for line in lines {
        assert!(
            printed.lines().any(|one| one.starts_with(line)),
            "'{line}' is missing in:\n{printed}"
        );
    }
    // Each line before the adapters has a label that is printed.
    for line in sample.lines().take_while(|line| !line.is_empty()) {
        let label = line.split("  ").next().unwrap_or_default();
        assert!(
            printed.lines().any(|one| one.starts_with(label)),
            "'{label}' is missing in:\n{printed}"
        );
    }
    assert!(sample.contains("C programs    load /home/me/dat/lib/libdat.so.1 (this library)"));
}
