//! Manual pages and shell completions, from the definitions of a program's options.
//!
//! The files are in the folders below `share` of an installation:
//!
//! ```text
//! man/man1/NAME.1, NAME-COMMAND.1        bash-completion/completions/NAME
//! zsh/site-functions/_NAME               fish/vendor_completions.d/NAME.fish
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// Where the completions of a shell are: its folder, and what the file's name has
/// before and after that of the program.
const SHELLS: [(Shell, &str, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "", ""),
    (Shell::Zsh, "zsh/site-functions", "_", ""),
    (Shell::Fish, "fish/vendor_completions.d", "", ".fish"),
];

/// Writes the files of a program below a folder, and returns their paths, relative to
/// it. Hidden commands and options are left out.
pub fn write(program: &Command, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let files = files(program)?;
    for (path, content) in &files {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, content)?;
    }
    Ok(files.into_iter().map(|(path, _)| path).collect())
}

/// Returns the files of a program: paths and contents.
pub fn files(program: &Command) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut program = shown(program).disable_help_subcommand(true);
    program.build();
    let name = program.get_name().to_owned();
    let mut files = Vec::new();
    pages(&program, &mut files)?;
    for (shell, folder, before, after) in SHELLS {
        let mut content = Vec::new();
        clap_complete::generate(shell, &mut program.clone(), &name, &mut content);
        files.push((
            Path::new(folder).join(format!("{before}{name}{after}")),
            content,
        ));
    }
    Ok(files)
}

/// Appends the manual pages of a command and of those below it.
fn pages(command: &Command, files: &mut Vec<(PathBuf, Vec<u8>)>) -> io::Result<()> {
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let mut content = Vec::new();
    Man::new(command.clone().name(name.clone()))
        .source(format!("{name} {}", command.get_version().unwrap_or_default()).trim_end())
        .render(&mut content)?;
    // groff reads its input as Latin-1, unless it is told otherwise.
    let text: String = String::from_utf8_lossy(&content)
        .chars()
        .map(|character| match character.is_ascii() {
            true => character.to_string(),
            false => format!("\\[u{:04X}]", u32::from(character)),
        })
        .collect();
    files.push((format!("man/man1/{name}.1").into(), text.into_bytes()));
    command
        .get_subcommands()
        .try_for_each(|below| pages(below, files))
}

/// Returns a command without what is hidden.
fn shown(command: &Command) -> Command {
    let mut copy = Command::new(command.get_name().to_owned())
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()))
        .groups(command.get_groups().cloned())
        .subcommands(
            command
                .get_subcommands()
                .filter(|below| !below.is_hide_set())
                .map(shown),
        )
        .subcommand_required(command.is_subcommand_required_set());
    if let Some(version) = command.get_version() {
        copy = copy.version(version.to_owned());
    }
    for (text, set) in [
        (
            command.get_about(),
            Command::about as fn(Command, String) -> Command,
        ),
        (command.get_long_about(), Command::long_about),
        (command.get_after_help(), Command::after_help),
        (command.get_after_long_help(), Command::after_long_help),
    ] {
        if let Some(text) = text {
            copy = set(copy, text.to_string());
        }
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn commands_and_options_are_in_the_files_and_hidden_ones_are_not() {
        let program = Command::new("tool")
            .version("1.2")
            .about("Does things")
            .subcommand(
                Command::new("run")
                    .about("Runs")
                    .long_about("Runs a thing.")
                    .after_long_help("Examples:\n  tool run --deep")
                    .arg(Arg::new("deep").long("deep").help("Goes deep…"))
                    .arg(Arg::new("worker").long("worker").hide(true)),
            )
            .subcommand(Command::new("secret").hide(true));
        let files = files(&program).unwrap();
        let names: Vec<_> = files
            .iter()
            .map(|(path, _)| path.display().to_string())
            .collect();
        assert_eq!(
            names,
            [
                "man/man1/tool.1",
                "man/man1/tool-run.1",
                "bash-completion/completions/tool",
                "zsh/site-functions/_tool",
                "fish/vendor_completions.d/tool.fish"
            ]
        );
        let text = |at: usize| String::from_utf8(files[at].1.clone()).unwrap();
        assert!(text(0).contains("Does things") && text(0).contains("tool 1.2"));
        for word in ["Runs a thing", "Goes deep", "Examples:"] {
            assert!(text(1).contains(word), "{word} in {}", text(1));
        }
        assert!(text(1).contains("deep\\[u2026]"), "{}", text(1));
        for at in 0..files.len() {
            assert!(
                !text(at).contains("secret") && !text(at).contains("worker"),
                "{}",
                text(at)
            );
        }
        for at in 2..files.len() {
            assert!(text(at).contains("deep"), "{}", text(at));
        }
    }
}
