//! The options that both sides must have in common. Each side sends them by
//! name, and refuses a difference with the name of the option.

/// Options as (name, value) texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options(Vec<(String, String)>);

impl Options {
    pub(crate) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn get(&self, wanted: &str) -> Option<&str> {
        self.iter()
            .find(|&(name, _)| name == wanted)
            .map(|(_, value)| value)
    }

    /// Returns one line per difference; none if both sides agree.
    pub(super) fn differences(&self, theirs: &Self) -> Vec<String> {
        let ours = self
            .iter()
            .filter(|&(name, value)| theirs.get(name) != Some(value))
            .map(|(name, value)| {
                let other = theirs.get(name).unwrap_or("(unknown there)");
                format!("{name}: here {value}, there {other}")
            });
        let unknown = theirs
            .iter()
            .filter(|&(name, _)| self.get(name).is_none())
            .map(|(name, value)| format!("{name}: here (unknown), there {value}"));
        ours.chain(unknown).collect()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Options {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a str)>>(pairs: T) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Options {
        pairs.iter().copied().collect()
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
    fn order_does_not_matter() {
        let one = options(&[("-o", "send"), ("-s", "2")]);
        let two = options(&[("-s", "2"), ("-o", "send")]);
        assert!(one.differences(&two).is_empty());
    }
}
