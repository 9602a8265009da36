use super::*;

fn file(text: &str) -> File {
    File {
        path: "/some/dat.conf".into(),
        conf: Conf::parse(text.as_bytes()),
        read_error: None,
        unread: false,
    }
}

fn key(name: &str) -> Key<'_> {
    Key {
        name,
        major: 1,
        minor: 2,
        threadsafe: false,
        interface: VERSION,
    }
}

fn line(name: &str, library: &str, instance: &str) -> String {
    format!("{name} u1.2 nonthreadsafe default {library} d.1.2 \"{instance}\" \"\"\n")
}

fn devices(resolved: &Resolved) -> Vec<(&str, u8)> {
    let all = resolved.candidates.iter();
    all.map(|one| (one.device.as_str(), one.port)).collect()
}

#[test]
fn device_names_need_no_dat_conf_and_match_either_thread_safety() {
    for threadsafe in [false, true] {
        let asked = Key {
            threadsafe,
            ..key("mlx5_0-2")
        };
        let resolved = resolve_in(&file(""), asked).expect("could be a device");
        assert_eq!(devices(&resolved), [("mlx5_0-2", 1), ("mlx5_0", 2)]);
    }
}

#[test]
fn an_entry_precedes_a_device_if_its_whole_key_matches() {
    let file = file(&line("mlx5_0", "/usr/lib/libdat.so.1", "mlx5_7 2 gid=1"));
    let resolved = resolve_in(&file, key("mlx5_0")).expect("an entry");
    assert_eq!(devices(&resolved), [("mlx5_7", 2)]);
    assert_eq!(
        resolved.candidates[0].settings,
        [("gid".to_owned(), "1".to_owned())]
    );
    // The file does not have it as thread safe, so it is the device of that name.
    let asked = Key {
        threadsafe: true,
        ..key("mlx5_0")
    };
    let resolved = resolve_in(&file, asked).expect("could be a device");
    assert_eq!(devices(&resolved), [("mlx5_0", 1)]);
    for part in [
        "/some/dat.conf:1 has the name as nonthreadsafe",
        "write threadsafe in that line",
    ] {
        assert!(resolved.hint.contains(part), "{}", resolved.hint);
    }
}

#[test]
fn duplicate_entries_of_this_library_are_tried_in_order() {
    let text = line("ia", "libother.so", "x 1")
        + &line("ia", "libdat.so.1", "a 1")
        + &line("ia", "libdat2.so.2", "b 2");
    let resolved = resolve_in(&file(&text), key("ia")).expect("two entries");
    assert_eq!(devices(&resolved), [("a", 1), ("b", 2)]);
}

#[test]
fn foreign_libraries_and_invalid_instance_data_are_reported_with_their_line() {
    let cases = [
        (line("ia", "libother.so.1", "ib0 0"), "libother.so.1"),
        (line("ia", "libdat.so.1", "mlx5_0 x"), "invalid port number"),
        (line("ia", "libdat.so.1", ""), "DEVICE PORT"),
    ];
    for (text, cause) in cases {
        let error = resolve_in(&file(&text), key("ia")).expect_err("unusable");
        assert_eq!(error.code(), not_found(String::new()).code());
        assert!(error.cause().contains(cause), "{error}");
        assert!(error.cause().contains("/some/dat.conf:1"), "{error}");
    }
}

#[test]
fn another_version_is_not_found() {
    for (major, minor) in [(1, 1), (1, 3), (2, 0), (0, 0), (u32::MAX, u32::MAX)] {
        let asked = Key {
            major,
            minor,
            ..key("mlx5_0")
        };
        let error = resolve_in(&file(""), asked).expect_err("exact match");
        assert_eq!(error.code(), not_found(String::new()).code());
        assert!(error.cause().contains("1.2"), "{error}");
    }
}

#[test]
fn names_are_at_most_255_bytes_long() {
    let long = "n".repeat(256);
    let error = resolve(key(&long)).expect_err("too long");
    let code = error.code();
    assert_eq!(code.kind(), Some(ReturnType::InvalidParameter));
    assert_eq!(code.subtype(), Some(Subtype::InvalidArg1));
    assert!(resolve_in(&file(""), key(&long[1..])).is_ok());
}

#[test]
fn the_hint_says_what_is_wrong_with_dat_conf() {
    let resolved = resolve_in(&file("rubbish\n"), key("mlx5_0")).expect("a device");
    assert!(
        resolved
            .hint
            .contains("/some/dat.conf:1 is ignored: 1 field found, 8 expected"),
        "{}",
        resolved.hint
    );
    let missing = File {
        read_error: Some("/x cannot be read: gone".to_owned()),
        ..File::default()
    };
    let resolved = resolve_in(&missing, key("mlx5_0")).expect("a device");
    assert!(resolved.hint.contains("gone"));
    // A file that could not be read may contain the name.
    let unread = File {
        unread: true,
        ..missing
    };
    let refused = resolve_in(&unread, key("mlx5_0")).expect_err("unknown");
    let (kind, subtype) = (ReturnType::InsufficientResources, Subtype::ResourceDevice);
    assert_eq!(refused.code(), crate::DatReturn::error(kind, subtype));
    assert!(refused.cause().contains("gone"));
}

#[test]
fn names_are_listed_once_with_those_of_dat_conf_first() {
    let text = line("ia", "libdat.so.1", "a 1")
        + &line("ia", "libdat.so.1", "b 1")
        + &line("mlx5_1-2", "other.so", "");
    let names = names_of("mlx5_0", 1)
        .into_iter()
        .chain(names_of("mlx5_1", 2))
        .chain(names_of("gone", 0));
    let all = listed(&file(&text).conf, names, VERSION);
    let names: Vec<_> = all.iter().map(|one| one.provider.name.as_str()).collect();
    assert_eq!(names, ["ia", "mlx5_1-2", "mlx5_0", "mlx5_1-1"]);
    assert!(all.iter().all(|one| {
        let Provider {
            major,
            minor,
            threadsafe,
            ..
        } = one.provider;
        (major, minor, threadsafe) == (1, 2, false)
    }));
}

/// An entry for another version is another name.
#[test]
fn an_entry_of_another_version_does_not_hide_the_device_of_its_name() {
    let text = "mlx5_0 u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"ib0 0\" \"\"\n";
    let all = listed(&file(text).conf, ["mlx5_0".to_owned()].into_iter(), VERSION);
    let found: Vec<_> = all
        .iter()
        .map(|one| (one.provider.major, one.is_served))
        .collect();
    assert_eq!(found, [(2, false), (1, true)]);
}

/// For a caller with room for a part of the list.
#[test]
fn names_that_this_library_serves_can_come_first() {
    let text = line("theirs", "libother.so.1", "ib0 0")
        + "new u2.0 nonthreadsafe default libdat2.so.2 d.2.0 \"a 1\" \"\"\n"
        + &line("both", "libother.so.1", "ib0 0")
        + &line("ours", "libdat.so.1", "a 1")
        + &line("both", "libdat.so.1", "a 1");
    let all = listed(
        &file(&text).conf,
        ["mlx5_0".to_owned()].into_iter(),
        VERSION,
    );
    let names: Vec<_> = served_first(all).into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["both", "ours", "mlx5_0", "theirs", "new"]);
}

/// Debian's dat.conf has names of OFED's providers for DAT 2.0.
#[test]
fn a_name_of_another_version_is_explained_with_a_remedy() {
    let text = "ofa u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"ib0 0\" \"\"\n";
    let resolved = resolve_in(&file(text), key("ofa")).expect("could be a device");
    for part in [
        "/some/dat.conf:1 ",
        "version 2.0",
        "add a line with u1.2 and libdat.so.1",
    ] {
        assert!(resolved.hint.contains(part), "{}", resolved.hint);
    }
}

/// The interface of DAT 2.0 serves entries of its version, and devices by their names.
#[test]
fn each_interface_serves_its_own_version() {
    let newer = |name, major, minor| Key {
        major,
        minor,
        interface: (2, 0),
        ..key(name)
    };
    let text = line("old", "libdat.so.1", "a 1")
        + "new u2.0 nonthreadsafe default libdat2.so.2 dapl.2.0 \"b 2\" \"\"\n";
    let file = file(&text);
    let resolved = resolve_in(&file, newer("new", 2, 0)).expect("an entry");
    assert_eq!(devices(&resolved), [("b", 2)]);
    let resolved = resolve_in(&file, newer("mlx5_0", 2, 0)).expect("a device");
    assert_eq!(devices(&resolved), [("mlx5_0", 1)]);
    let resolved = resolve_in(&file, newer("old", 2, 0)).expect("could be a device");
    let remedy = "add a line with u2.0 and libdat2.so.2";
    assert!(resolved.hint.contains(remedy), "{}", resolved.hint);
    for (name, major, minor, cause) in [
        ("old", 1, 2, "link programs that include <dat/udat.h> with"),
        (
            "mlx5_0",
            1,
            2,
            "of DAT version 1.2: libdat2.so.2 has 2.0; link programs",
        ),
        ("new", 2, 1, "libdat2.so.2 has 2.0; "),
    ] {
        let error = resolve_in(&file, newer(name, major, minor)).expect_err("another version");
        assert!(error.cause().contains(cause), "{error}");
    }
    // Nor does the older interface open an entry of the newer version.
    let error = resolve_in(
        &file,
        Key {
            interface: VERSION,
            ..newer("new", 2, 0)
        },
    )
    .expect_err("another version");
    for words in ["u1.2 and libdat.so.1", "<dat2/udat.h>"] {
        assert!(error.cause().contains(words), "{error}");
    }
    let all = listed(&file.conf, ["mlx5_0".to_owned()].into_iter(), (2, 0));
    let served: Vec<_> = all.iter().map(|one| one.is_served).collect();
    assert_eq!(served, [false, true, true]);
    assert_eq!(all[2].provider.major, 2);
}

#[test]
fn an_entry_of_another_library_or_version_is_not_resolved() {
    let entry = |text: &str| Conf::parse(text.as_bytes()).entries.remove(0);
    let ours = entry(&line("ia", "/opt/lib/libdat.so.1", "mlx5_7 2"));
    assert!(ours.is_ours());
    let resolved = resolve_entry(&ours).expect("an entry of this library");
    assert_eq!(devices(&resolved), [("mlx5_7", 2)]);
    let foreign = entry(&line("ia", "libother.so.1", "ib0 0"));
    assert!(!foreign.is_ours());
    let newer = Entry {
        minor: 0,
        major: 2,
        ..ours
    };
    let resolved = resolve_entry(&newer).expect("an entry of this library for uDAPL 2.0");
    assert_eq!(devices(&resolved), [("mlx5_7", 2)]);
    let unknown = Entry { minor: 1, ..newer };
    for (entry, said) in [(foreign, "libother.so.1"), (unknown, "DAT 2.1")] {
        let error = resolve_entry(&entry).expect_err("not for this library");
        assert_eq!(error.code(), not_found(String::new()).code());
        assert!(error.cause().contains(said), "{error}");
    }
}

#[test]
fn the_hint_counts_entries_and_names_the_line_that_is_ignored() {
    let hint = |text: &str| {
        let resolved = resolve_in(&file(text), key("ia")).expect("could be a device");
        resolved.hint
    };
    let other = line("other", "libdat.so.1", "a 1");
    assert_eq!(hint(""), "/some/dat.conf has no entries");
    assert_eq!(
        hint(&other),
        "the only entry of /some/dat.conf has another name"
    );
    assert_eq!(
        hint(&other.repeat(2)),
        "none of the 2 entries of /some/dat.conf has this name"
    );
    let off = line("ia", "libdat.so.1", "a 1").replace(" default", " nondefault");
    assert_eq!(
        hint(&(other + &off)),
        "/some/dat.conf:2 has the name, but is ignored: it is nondefault"
    );
}

/// An entry of the requested version is nearer than one of another version.
#[test]
fn the_hint_for_the_other_thread_safety_says_what_to_write() {
    let newer = "ia u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"ib0 0\" \"\"\n";
    let safe = line("ia", "libdat.so.1", "a 1").replace("nonthreadsafe", "threadsafe");
    let file = file(&(newer.to_owned() + &safe));
    let resolved = resolve_in(&file, key("ia")).expect("could be a device");
    for part in [
        "/some/dat.conf:2 has the name as threadsafe",
        "write nonthreadsafe in that line",
        "dat_ia_openv",
    ] {
        assert!(resolved.hint.contains(part), "{}", resolved.hint);
    }
}

#[test]
fn platform_data_of_this_library_are_not_used_and_belong_elsewhere() {
    let entry = |library: &str, platform: &str| {
        let text = line("ia", library, "a 1").replace("\"\"", &format!("\"{platform}\""));
        Conf::parse(text.as_bytes()).entries.remove(0)
    };
    for none in [
        entry("libdat.so.1", ""),
        entry("libdat.so.1", " "),
        entry("other.so", "sl=3"),
    ] {
        assert_eq!(none.unused_platform_data(), None, "{none:?}");
    }
    let text = entry("libdat.so.1", "sl=3 colour=red traffic_class=106").unused_platform_data();
    let text = text.expect("data");
    for part in [
        "field 8",
        "\"sl=3 colour=red traffic_class=106\"",
        "write sl=3 traffic_class=106 in field 7",
        "it has no setting colour=red",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let text = entry("libdat.so.1", "ib0")
        .unused_platform_data()
        .expect("data");
    assert!(text.contains("it has no setting ib0"), "{text}");
}

#[test]
fn platform_data_are_reported_once_with_file_and_line() {
    use std::cell::RefCell;
    thread_local! {
        static PRINTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }
    let text = line("ia", "libdat.so.1", "a 1").replace("\"\"", "\"sl=3\"");
    let file = File {
        path: "/platform/dat.conf".into(),
        ..file(&text)
    };
    for _ in 0..2 {
        crate::warnings::collect(
            |line| PRINTED.with_borrow_mut(|printed| printed.push(line.to_owned())),
            || drop(resolve_in(&file, key("ia")).expect("an entry")),
        );
    }
    let printed = PRINTED.take();
    assert_eq!(printed.len(), 1, "{printed:?}");
    assert!(
        printed[0].starts_with("/platform/dat.conf:1: field 8 (platform data) is \"sl=3\""),
        "{printed:?}"
    );
}
