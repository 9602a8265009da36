//! The environment variables of the library.

use std::env;
use std::ffi::OsString;

use dat_api::options::{self, Options};

use crate::problem::Problem;
use crate::report::Variable;

/// Other variables of this library and its tools, which need no check.
const OTHERS: [&str; 5] = [
    "DAT_OVERRIDE",
    "DAT_DBG_DEST",
    "DAT_DBG_TYPE",
    "DAT_DEBUG_NO_BF",
    "DAT_DEBUG_NO_INLINE",
];

/// Returns every variable of the environment whose name begins with `DAT_`, sorted.
pub(crate) fn examine() -> Vec<Variable> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    let all = env::vars_os().map(|(name, value)| (text(name), text(value)));
    let mut ours = Vec::from_iter(all.filter(|(name, _)| name.starts_with("DAT_")));
    ours.sort();
    Vec::from_iter(ours.into_iter().map(|(name, value)| of(name, value)))
}

fn of(name: String, value: String) -> Variable {
    let key = options::variables().find(|(known, _)| *known == name);
    let (mut problem, mut note) = (None, None);
    match key {
        _ if value.is_empty() => note = Some("empty: counts as not set".to_owned()),
        Some((_, key)) => {
            problem = Options::default().set(key, &value).err().map(|cause| {
                let next = format!("correct {name}, or `unset {name}`: no adapter opens with it");
                Problem::new(cause, next)
            });
        }
        None if OTHERS.contains(&name.as_str()) || name.starts_with("DAT_BENCH_") => {}
        None => {
            let names = options::variables().map(|(name, _)| name).chain(OTHERS);
            note = Some(format!(
                "not a variable of this library, which has {}",
                names.collect::<Vec<_>>().join(", ")
            ));
        }
    }
    Variable {
        name,
        value,
        problem,
        note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examined(name: &str, value: &str) -> Variable {
        of(name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_wrong_value_is_a_problem_and_an_unknown_name_a_note() {
        let good = examined("DAT_WAIT", "poll");
        assert!(good.problem.is_none() && good.note.is_none(), "{good:?}");
        let wrong = examined("DAT_WAIT", "sleep")
            .problem
            .expect("no such policy");
        assert!(wrong.problem.contains("sleep"), "{wrong:?}");
        assert!(wrong.next.contains("unset DAT_WAIT"), "{wrong:?}");
        let unknown = examined("DAT_WIAT", "poll");
        assert!(unknown.problem.is_none());
        assert!(unknown.note.expect("a note").contains("DAT_WAIT"));
        let other = examined("DAT_DBG_TYPE", "1");
        assert!(other.problem.is_none() && other.note.is_none(), "{other:?}");
        let empty = examined("DAT_PATH", "");
        assert!(empty.problem.is_none() && empty.note.is_some(), "{empty:?}");
    }

    #[test]
    fn every_variable_of_the_library_is_known() {
        for (name, _) in options::variables() {
            assert!(examined(name, "no such value").problem.is_some(), "{name}");
        }
    }
}
