use proptest::prelude::*;

use super::*;

const LINE: &str = r#"OpenIB-cma u1.2 nonthreadsafe default libdaplcma.so.1 dapl.1.2 "ib0 0" """#;

fn only(text: &str) -> Entry {
    let conf = Conf::parse(text.as_bytes());
    assert_eq!(conf.line_errors, [], "{text}");
    match <[Entry; 1]>::try_from(conf.entries) {
        Ok([entry]) => entry,
        Err(entries) => panic!("{} entries in {text}", entries.len()),
    }
}

fn line_error(text: &str) -> LineError {
    let conf = Conf::parse(text.as_bytes());
    assert_eq!(conf.entries, [], "{text}");
    match <[LineError; 1]>::try_from(conf.line_errors) {
        Ok([line_error]) => line_error,
        Err(line_errors) => panic!("{} errors in {text}", line_errors.len()),
    }
}

#[test]
fn the_example_of_the_specification_is_parsed() {
    let entry = only(LINE);
    let expected = Entry {
        line: 1,
        name: "OpenIB-cma".to_owned(),
        major: 1,
        minor: 2,
        threadsafe: false,
        library: "libdaplcma.so.1".to_owned(),
        provider: ProviderVersion {
            id: "dapl".to_owned(),
            major: 1,
            minor: 2,
        },
        instance_data: "ib0 0".to_owned(),
        platform_data: String::new(),
    };
    assert_eq!(entry, expected);
}

#[test]
fn comments_blank_lines_tabs_and_crlf_change_nothing() {
    let tabs = LINE.replacen(' ', "\t \t", 5);
    for text in [
        format!("# {LINE}\n\n \t \n{LINE}"),
        format!("\n\n\n  {LINE}   # and so on\n#\n"),
        format!("\r\n#\r\n\r\n{LINE}\r\n"),
        format!("\n\n\n{tabs}\n"),
    ] {
        let entry = only(&text);
        assert_eq!(entry.line, 4, "{text}");
        assert_eq!(Entry { line: 1, ..entry }, only(LINE));
    }
}

#[test]
fn quotes_hold_blanks_hashes_and_escaped_characters() {
    let entry = only(r#""a \"b\" \\ #c" u1.2 threadsafe default "l i b" d.0.0 "" x#y"#);
    assert_eq!(entry.name, r#"a "b" \ #c"#);
    assert_eq!(entry.library, "l i b");
    assert_eq!(
        (entry.instance_data.as_str(), entry.platform_data.as_str()),
        ("", "x#y")
    );
    assert!(entry.threadsafe);
}

#[test]
fn an_open_quote_invalidates_only_its_line() {
    let conf = Conf::parse(format!("{LINE}\na \"b\n{LINE}\n").as_bytes());
    assert_eq!(conf.entries.len(), 2);
    assert_eq!(conf.line_errors.len(), 1);
    assert_eq!(conf.line_errors[0].line, 2);
    assert!(conf.line_errors[0].cause.contains("quote"));
    // Also if the backslash escapes the last quote.
    assert!(
        line_error(r#"a u1.2 threadsafe default l d.1.2 "" "\""#)
            .cause
            .contains("quote")
    );
}

#[test]
fn the_end_of_the_file_ends_an_entry_and_duplicates_are_kept_in_order() {
    let other = LINE.replace("libdaplcma.so.1", "other.so");
    let conf = Conf::parse(format!("{LINE}\n{other}").as_bytes());
    let libraries: Vec<_> = conf
        .entries
        .iter()
        .map(|entry| entry.library.as_str())
        .collect();
    assert_eq!(libraries, ["libdaplcma.so.1", "other.so"]);
}

#[test]
fn only_the_beginning_of_fields_three_and_four_is_compared() {
    let text = LINE.replace("nonthreadsafe default", "threadsafely default-ish");
    assert!(only(&text).threadsafe);
    assert!(
        line_error(&LINE.replace(" default", " maybe"))
            .cause
            .contains("maybe")
    );
    assert!(
        line_error(&LINE.replace("nonthreadsafe", "safe"))
            .cause
            .contains("safe")
    );
}

#[test]
fn kernel_and_nondefault_entries_are_ignored_silently() {
    for text in [
        LINE.replace("u1.2", "k1.2"),
        LINE.replace(" default", " nondefault"),
    ] {
        let conf = Conf::parse(text.as_bytes());
        assert_eq!((conf.entries, conf.line_errors), (vec![], vec![]), "{text}");
        assert_eq!(conf.ignored.len(), 1, "{text}");
    }
}

#[test]
fn versions_must_be_complete_numbers() {
    for wrong in [
        "1.2",
        "u",
        "u1",
        "u1.",
        "u.2",
        "u-1.2",
        "u1.+2",
        "u1.2.3",
        "u1.2x",
        "u99999999999.2",
    ] {
        assert!(
            line_error(&LINE.replace("u1.2", wrong))
                .cause
                .contains(wrong),
            "{wrong}"
        );
    }
    for wrong in [
        "dapl",
        "dapl.1",
        "dapl.1.",
        ".1.2",
        "dapl..2",
        "dapl.1.2.3",
        "dapl.x.2",
    ] {
        let text = LINE.replace("dapl.1.2", wrong);
        assert!(line_error(&text).cause.contains(wrong), "{wrong}");
    }
}

#[test]
fn names_have_1_to_255_bytes() {
    let named = |length| LINE.replace("OpenIB-cma", &"n".repeat(length));
    assert_eq!(only(&named(255)).name.len(), 255);
    assert!(line_error(&named(256)).cause.contains("256"));
    assert!(
        line_error(&LINE.replace("OpenIB-cma", "\"\""))
            .cause
            .contains("name")
    );
}

#[test]
fn lines_with_wrong_field_counts_control_characters_or_encodings_are_ignored() {
    assert!(
        line_error("only four fields here")
            .cause
            .contains("4 fields")
    );
    // Without the last field, which is not used but must be there.
    let seven = LINE.strip_suffix(r#" """#).expect("the last field");
    assert!(line_error(seven).cause.contains("7 fields"));
    assert!(
        line_error(&format!("{LINE} more"))
            .cause
            .contains("9 fields")
    );
    assert!(
        line_error(&format!("{LINE} and many more of them"))
            .cause
            .contains("8 fields")
    );
    // In a name, in a field that is quoted in the cause, and one that is not an ASCII character.
    for (text, number) in [
        (LINE.replace("cma", "c\0ma"), "U+0000"),
        (LINE.replace("u1.2", "\u{1b}[2J"), "U+001B"),
        (LINE.replace("ib0", "ib0\u{9b}2J"), "U+009B"),
    ] {
        let cause = line_error(&text).cause;
        assert!(cause.contains(number), "{cause}");
        assert!(!cause.contains(char::is_control), "{cause:?}");
    }
    let mut bytes = LINE.as_bytes().to_vec();
    bytes[0] = 0xff;
    assert!(Conf::parse(&bytes).line_errors[0].cause.contains("UTF-8"));
}

#[test]
fn a_megabyte_of_garbage_keeps_few_complaints() {
    for seed in [
        b"\"".as_slice(),
        b"x \n",
        b"\\",
        b"\0\n",
        b"# \"",
        b"a b c d e f g h i ",
    ] {
        let bytes: Vec<u8> = seed.iter().copied().cycle().take(1 << 20).collect();
        let conf = Conf::parse(&bytes);
        assert_eq!(conf.entries, []);
        assert!(conf.line_errors.len() <= MAX_LINE_ERRORS);
    }
    let lines = "x\n".repeat(1000);
    let conf = Conf::parse(lines.as_bytes());
    assert_eq!(conf.line_errors.len() + conf.more_line_errors, 1000);
}

/// A field that can be written: without control characters but tabs.
fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9_.-]{1,12}",
        "[ \t#\"\\\\a-c]{0,12}",
        "\\P{Cc}{0,20}",
    ]
}

/// Plain at the beginning of a file, it would be skipped.
#[test]
fn a_name_that_begins_with_a_byte_order_mark_is_written_in_quotes() {
    let name = "\u{feff}x".to_owned();
    let entry = Entry { name, ..only(LINE) };
    assert_eq!(only(&entry.to_string()), entry);
}

fn entry() -> impl Strategy<Value = Entry> {
    let id = "[^\\p{Cc}.]{1,8}";
    let named = (field(), field()).prop_filter("not empty", |(name, library)| {
        !name.is_empty() && name.len() <= MAX_NAME && !library.is_empty()
    });
    let version = any::<(u32, u32, bool)>();
    let provider = (id, any::<u32>(), any::<u32>());
    let data = (field(), field());
    (named, version, provider, data).prop_map(
        |((name, library), (major, minor, threadsafe), (id, a, b), (i, p))| Entry {
            line: 1,
            name,
            major,
            minor,
            threadsafe,
            library,
            provider: ProviderVersion {
                id,
                major: a,
                minor: b,
            },
            instance_data: i,
            platform_data: p,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn written_entries_parse_back(entries in prop::collection::vec(entry(), 0..5), crlf: bool) {
        let end = if crlf { "\r\n" } else { "\n" };
        let text: String = entries.iter().map(|entry| format!("{entry}{end}")).collect();
        let conf = Conf::parse(text.as_bytes());
        prop_assert_eq!(&conf.line_errors, &[]);
        let expected: Vec<Entry> = entries
            .into_iter()
            .enumerate()
            .map(|(number, entry)| Entry { line: number + 1, ..entry })
            .collect();
        prop_assert_eq!(conf.entries, expected);
    }

    #[test]
    fn any_bytes_parse_without_panic_and_entries_round_trip(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..400),
            prop::collection::vec(prop::sample::select(b" \t\r\n\"\\#u1.2k\0\xffxdefaultnonthreadsafe".as_slice()), 0..400),
        ],
    ) {
        let conf = Conf::parse(&bytes);
        let lines = bytes.iter().filter(|&&byte| byte == b'\n').count() + 1;
        prop_assert!(conf.entries.len() + conf.line_errors.len() <= lines);
        for entry in conf.entries {
            let again = Conf::parse(entry.to_string().as_bytes());
            prop_assert_eq!(again.entries, [Entry { line: 1, ..entry }]);
        }
    }
}

#[test]
fn lines_for_the_kernel_and_nondefault_ones_are_kept_apart_with_the_reason() {
    let kernel = LINE.replacen("u1.2", "k1.2", 1);
    let nondefault = LINE.replacen(" default", " nondefault", 1);
    let conf = Conf::parse(format!("{kernel}\n#\n{nondefault}\n{LINE}\n").as_bytes());
    let ignored: Vec<_> = conf
        .ignored
        .iter()
        .map(|one| (one.line, one.name.as_str(), one.cause))
        .collect();
    assert_eq!(
        ignored,
        [
            (1, "OpenIB-cma", "it is for the kernel (k)"),
            (3, "OpenIB-cma", "it is nondefault"),
        ]
    );
    assert_eq!((conf.entries.len(), conf.line_errors.len()), (1, 0));
}
