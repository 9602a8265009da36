//! The options that both sides must have in common. Each side sends them by
//! name, and refuses a difference with the name of the option.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::frame::text;

/// Options as texts, by name.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(from = "BTreeMap<String, String>")]
pub(crate) struct Options(BTreeMap<String, String>);

impl Options {
    pub(crate) fn set(&mut self, name: &str, value: impl AsRef<str>) {
        self.0.insert(text(name), text(value.as_ref()));
    }

    /// Returns one line per difference; none if both sides agree.
    pub(super) fn differences(&self, theirs: &Self) -> Vec<String> {
        let names: BTreeSet<_> = self.0.keys().chain(theirs.0.keys()).collect();
        let difference = |name| {
            let [here, there] = [self, theirs].map(|it| it.0.get(name));
            let shown = |it: Option<&String>| it.map_or("(unknown)".to_owned(), String::clone);
            (here != there).then(|| format!("{name}: here {}, there {}", shown(here), shown(there)))
        };
        names.into_iter().filter_map(difference).collect()
    }
}

impl From<BTreeMap<String, String>> for Options {
    fn from(pairs: BTreeMap<String, String>) -> Self {
        let mut options = Self::default();
        for (name, value) in pairs {
            options.set(&name, value);
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Options {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        BTreeMap::from_iter(pairs).into()
    }

    #[test]
    fn a_difference_is_named_by_its_option() {
        let ours = options(&[("-o", "send"), ("-s", "2")]);
        let theirs = options(&[("-o", "send"), ("-s", "64")]);
        assert_eq!(ours.differences(&theirs), ["-s: here 2, there 64"]);
    }

    #[test]
    fn an_option_of_only_one_side_is_a_difference() {
        let (one, two) = (options(&[("-o", "send")]), options(&[]));
        assert_eq!(one.differences(&two).len(), 1);
        assert_eq!(two.differences(&one).len(), 1);
    }

    #[test]
    fn control_characters_become_spaces_because_differences_are_printed() {
        let theirs: Options = serde_json::from_str(r#"{"-o\n": "\u001b[2J"}"#).unwrap();
        let said = options(&[]).differences(&theirs);
        assert_eq!(said, ["-o : here (unknown), there  [2J"]);
    }
}
