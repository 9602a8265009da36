//! Checks the manual pages and shell completions that a program makes from the
//! definitions of its options.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes the files in an empty folder, and compares them with `--help` of each command.
#[track_caller]
pub(crate) fn check(program: &Path, commands: &[&str], folder: &Path) {
    let name = program
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a name");
    let _ = fs::remove_dir_all(folder);
    let made = output(program, &["generate", folder.to_str().expect("UTF-8")]);
    for file in [
        &format!("man/man1/{name}.1"),
        &format!("bash-completion/completions/{name}"),
        &format!("zsh/site-functions/_{name}"),
        &format!("fish/vendor_completions.d/{name}.fish"),
    ] {
        assert!(made.contains(file), "{file} in {made}");
        assert!(folder.join(file).is_file(), "{file}");
    }
    let pages = fs::read_dir(folder.join("man/man1"))
        .expect("pages")
        .count();
    assert_eq!(pages, commands.len() + 1, "a page for each command: {made}");
    let completions = [
        "bash-completion/completions/",
        "zsh/site-functions/_",
        "fish/vendor_completions.d/",
    ]
    .map(|file| {
        let suffix = if file.starts_with("fish") {
            ".fish"
        } else {
            ""
        };
        read(&folder.join(format!("{file}{name}{suffix}")))
    });
    for command in commands {
        let help = output(program, &[command, "--help"]);
        let page = folder.join(format!("man/man1/{name}-{command}.1"));
        let text = read(&page);
        for option in options(&help) {
            let escaped = option.replace('-', "\\-");
            assert!(text.contains(&escaped), "{option} in {}", page.display());
            for completion in &completions {
                let bare = option.trim_start_matches('-');
                assert!(
                    completion.contains(bare),
                    "{option} of {command} in {completion}"
                );
            }
        }
        renders(&page);
    }
    renders(&folder.join(format!("man/man1/{name}.1")));
    let syntax = Command::new("bash")
        .arg("-n")
        .arg(folder.join(format!("bash-completion/completions/{name}")))
        .output()
        .expect("bash can be run");
    assert!(
        syntax.status.success(),
        "{}",
        String::from_utf8_lossy(&syntax.stderr)
    );
    for hidden in ["worker", "generate"] {
        for text in completions
            .iter()
            .chain([&read(&folder.join(format!("man/man1/{name}.1")))])
        {
            assert!(!text.contains(hidden), "{hidden} in {text}");
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[track_caller]
fn output(program: &Path, words: &[&str]) -> String {
    let ended = Command::new(program)
        .args(words)
        .output()
        .expect("the program can be run");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(
        ended.status.success(),
        "{words:?}: {text}{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    text
}

/// Returns the long options that `--help` lists.
fn options(help: &str) -> Vec<&str> {
    let lines = help
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with('-'));
    lines
        .flat_map(str::split_whitespace)
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .map(|word| {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            &word[..word.find(|c| !is_name(c)).unwrap_or(word.len())]
        })
        .collect()
}

/// Fails the test if groff warns of a page.
fn renders(page: &Path) {
    let groff = Command::new("groff")
        .args(["-man", "-ww", "-z", "-Tutf8"])
        .arg(page)
        .output();
    match groff {
        Ok(groff) => {
            let said = String::from_utf8_lossy(&groff.stderr).into_owned();
            assert!(groff.status.success() && said.is_empty(), "{said}");
        }
        Err(error) => eprintln!(
            "SKIPPED: groff has not rendered {}: {error}",
            page.display()
        ),
    }
}
