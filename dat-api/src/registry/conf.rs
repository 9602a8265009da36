//! Parsing dat.conf.
//!
//! A line is an entry of eight fields, separated by blanks:
//!
//! | # | field | for example |
//! | --- | --- | --- |
//! | 1 | name of the IA, at most 255 bytes | `mlx5_0-1` |
//! | 2 | `u` or `k`, and the DAT version | `u1.2` |
//! | 3 | `threadsafe` or `nonthreadsafe` | `nonthreadsafe` |
//! | 4 | `default` or `nondefault` | `default` |
//! | 5 | library | `libdat.so.1` |
//! | 6 | version of the provider | `dapl.1.2` |
//! | 7 | instance data | `"mlx5_0 1"` |
//! | 8 | platform data, not used ([`Entry::unused_platform_data`]) | `""` |
//!
//! `#` where a field could begin starts a comment. A field in quotes may contain blanks and be
//! empty; a backslash in it makes the next character literal. An invalid line is reported and
//! ignored; the other lines are used.

use core::fmt::{self, Write as _};

use crate::options;

/// What to do about a line with too few or too many fields.
const FORM: &str = "8 expected, as in: NAME u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \
                    \"DEVICE PORT\" \"\"; write double quotes around blanks, \"\" for an empty field, and \
                    # before a comment";

/// The maximum length of a name, in bytes.
pub const MAX_NAME: usize = 255;
/// The maximum number of line errors that are kept, so that an invalid file does not fill memory.
pub(super) const MAX_LINE_ERRORS: usize = 32;

/// A line of dat.conf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The line number, from 1.
    pub line: usize,
    /// The name of the IA.
    pub name: String,
    /// The major DAT version.
    pub major: u32,
    /// The minor DAT version.
    pub minor: u32,
    /// Whether several threads may use one object of the library at a time.
    pub threadsafe: bool,
    /// The file name or path of the library.
    pub library: String,
    /// The provider and its version.
    pub provider: ProviderVersion,
    /// The instance data, for the library.
    pub instance_data: String,
    /// The platform data, which are not used.
    pub platform_data: String,
}

/// `ID.MAJOR.MINOR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderVersion {
    /// The provider; not empty, without a dot.
    pub id: String,
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// The line number, from 1.
    pub line: usize,
    /// What is wrong.
    pub cause: String,
}

/// A valid line that [`Conf::entries`] does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredLine {
    /// The line number, from 1.
    pub line: usize,
    /// The name of the IA.
    pub name: String,
    /// Why the line is ignored.
    pub cause: &'static str,
}

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// The entries for user space (`u`) that are `default`, in order. Duplicates are kept, and
    /// tried in order.
    pub entries: Vec<Entry>,
    /// The lines for the kernel (`k`) and those that are `nondefault`, in order.
    pub ignored: Vec<IgnoredLine>,
    /// What is wrong with lines, in order; only the first ones.
    pub line_errors: Vec<LineError>,
    /// The number of further line errors.
    pub more_line_errors: usize,
}

impl Entry {
    /// Returns whether the library is this one, by its file name.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        super::is_ours(&self.library)
    }

    /// Returns a sentence about the platform data of an entry of this library, which does not use
    /// them: what they contain, and where it belongs. `None` if there are none, or the entry is for
    /// another library.
    #[must_use]
    pub fn unused_platform_data(&self) -> Option<String> {
        let mut words = self.platform_data.split_ascii_whitespace().peekable();
        if !self.is_ours() || words.peek().is_none() {
            return None;
        }
        let (known, unknown): (Vec<&str>, Vec<&str>) = words.partition(|word| {
            word.split_once('=')
                .is_some_and(|(key, _)| options::is_key(key))
        });
        let mut text = format!(
            "field 8 (platform data) is \"{}\", which this library does not use",
            self.platform_data
        );
        // Writing to a string cannot fail.
        if !known.is_empty() {
            let _ = write!(
                text,
                ": write {} in field 7 (instance data)",
                known.join(" ")
            );
        }
        if !unknown.is_empty() {
            let separator = if known.is_empty() { ":" } else { ";" };
            let _ = write!(
                text,
                "{separator} it has no setting {}: leave that out, as \"\"",
                unknown.join(" ")
            );
        }
        Some(text)
    }
}

impl Conf {
    /// Parses the bytes of a file. Accepts any bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let mut conf = Self::default();
        // Editors of other systems begin a file with a byte-order mark.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            match entry(number + 1, line) {
                Ok(Line::Entry(entry)) => conf.entries.push(entry),
                Ok(Line::Ignored(line)) => conf.ignored.push(line),
                Ok(Line::Empty) => {}
                Err(cause) => conf.add_line_error(number + 1, cause),
            }
        }
        conf
    }

    pub(super) fn add_line_error(&mut self, line: usize, cause: String) {
        if self.line_errors.len() < MAX_LINE_ERRORS {
            self.line_errors.push(LineError { line, cause });
        } else {
            self.more_line_errors += 1;
        }
    }
}

/// A valid line.
enum Line {
    Empty,
    Ignored(IgnoredLine),
    Entry(Entry),
}

/// Parses a line.
fn entry(line: usize, bytes: &[u8]) -> Result<Line, String> {
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let fields = fields(bytes)?;
    let [
        name,
        version,
        safety,
        default,
        library,
        provider,
        instance,
        platform,
    ] = match <[String; 8]>::try_from(fields) {
        Ok(fields) => fields,
        Err(fields) if fields.is_empty() => return Ok(Line::Empty),
        Err(fields) => {
            let found = match fields.len() {
                1 => "1 field".to_owned(),
                count => format!("{count} fields"),
            };
            return Err(format!("{found} found, {FORM}"));
        }
    };
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(format!(
            "the name (field 1) has {} bytes: expected 1 to {MAX_NAME}",
            name.len()
        ));
    }
    let Some((user, (major, minor))) = api_version(&version) else {
        return Err(format!(
            "invalid version \"{version}\" (field 2): expected u1.2 for libdat.so.1, u2.0 for \
             libdat2.so.2"
        ));
    };
    // Only the beginning of the word is compared, as in other implementations.
    let threadsafe = one_of(3, &safety, ["threadsafe", "nonthreadsafe"])?;
    let default = one_of(4, &default, ["default", "nondefault"])?;
    if library.is_empty() {
        return Err(
            "the library (field 5) is empty: expected libdat.so.1, or libdat2.so.2 in a line with u2.0"
                .to_owned(),
        );
    }
    let Some(provider) = provider_version(&provider) else {
        return Err(format!(
            "invalid provider version \"{provider}\" (field 6): expected the form udapl.1.2"
        ));
    };
    let ignored = match (user, default) {
        (true, true) => None,
        (false, _) => Some("it is for the kernel (k)"),
        (true, false) => Some("it is nondefault"),
    };
    if let Some(cause) = ignored {
        return Ok(Line::Ignored(IgnoredLine { line, name, cause }));
    }
    Ok(Line::Entry(Entry {
        line,
        name,
        major,
        minor,
        threadsafe,
        library,
        provider,
        instance_data: instance,
        platform_data: platform,
    }))
}

/// Splits a line into fields.
fn fields(line: &[u8]) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let mut rest = line.trim_ascii_start();
    while let Some(&first) = rest.first() {
        let (field, after) = match first {
            b'#' => break,
            b'"' => quoted(&rest[1..])?,
            _ => bare(rest),
        };
        // A line can be as long as the file: do not keep all of its fields.
        if fields.len() > 8 {
            return Err(format!("more than 8 fields found, {FORM}"));
        }
        let field = String::from_utf8(field)
            .map_err(|_| "a field is not UTF-8: expected text".to_owned())?;
        // Names and causes are shown in terminals, which obey such characters.
        if let Some(control) = field.chars().find(|it| it.is_control() && *it != '\t') {
            let number = u32::from(control);
            return Err(format!(
                "a field has the control character U+{number:04X}: expected text"
            ));
        }
        fields.push(field);
        rest = after.trim_ascii_start();
    }
    Ok(fields)
}

/// Splits off a field that ends at the next blank.
fn bare(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let end = text.iter().position(u8::is_ascii_whitespace);
    let (field, after) = text.split_at(end.unwrap_or(text.len()));
    (field.to_vec(), after)
}

/// Splits off a quoted field, whose first quote has been read.
fn quoted(text: &[u8]) -> Result<(Vec<u8>, &[u8]), String> {
    let mut field = Vec::new();
    let mut bytes = text.iter();
    loop {
        match bytes.next() {
            Some(b'"') => return Ok((field, bytes.as_slice())),
            Some(b'\\') => field.extend(bytes.next()),
            Some(&byte) => field.push(byte),
            None => {
                return Err(
                    "a double quote is not closed: expected another one before the end of the line"
                        .to_owned(),
                );
            }
        }
    }
}

/// Parses `u` or `k` and a version; returns whether it is for user space, and the version.
fn api_version(text: &str) -> Option<(bool, (u32, u32))> {
    let user = match text.as_bytes().first()? {
        b'u' => true,
        b'k' => false,
        _ => return None,
    };
    let (major, minor) = text[1..].split_once('.')?;
    Some((user, (number(major)?, number(minor)?)))
}

fn provider_version(text: &str) -> Option<ProviderVersion> {
    let (id, version) = text.split_once('.')?;
    let (major, minor) = version.split_once('.')?;
    (!id.is_empty()).then_some(())?;
    Some(ProviderVersion {
        id: id.to_owned(),
        major: number(major)?,
        minor: number(minor)?,
    })
}

/// Parses decimal digits only; `parse` alone would accept a sign.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Returns whether the text begins with the first of two words, rather than the second.
fn one_of(field: usize, text: &str, words: [&str; 2]) -> Result<bool, String> {
    let [yes, no] = words;
    if text.starts_with(yes) {
        Ok(true)
    } else if text.starts_with(no) {
        Ok(false)
    } else {
        Err(format!(
            "invalid word \"{text}\" (field {field}): expected {yes} or {no}"
        ))
    }
}

impl fmt::Display for Entry {
    /// Writes a line of dat.conf, without its end. A control character in a field cannot be
    /// written, except a tab; such an entry was not read from a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        quote(f, &self.name)?;
        let safety = if self.threadsafe { "" } else { "non" };
        write!(
            f,
            " u{}.{} {safety}threadsafe default ",
            self.major, self.minor
        )?;
        quote(f, &self.library)?;
        f.write_char(' ')?;
        let ProviderVersion { id, major, minor } = &self.provider;
        quote(f, &format!("{id}.{major}.{minor}"))?;
        for data in [&self.instance_data, &self.platform_data] {
            f.write_str(" ")?;
            quote(f, data)?;
        }
        Ok(())
    }
}

/// Writes a field, in quotes where it needs them.
fn quote(f: &mut fmt::Formatter<'_>, field: &str) -> fmt::Result {
    let plain = |c: char| !c.is_ascii_whitespace() && !matches!(c, '"' | '#' | '\\' | '\u{feff}');
    if !field.is_empty() && field.chars().all(plain) {
        return f.write_str(field);
    }
    f.write_char('"')?;
    for c in field.chars() {
        if matches!(c, '"' | '\\') {
            f.write_char('\\')?;
        }
        f.write_char(c)?;
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests;
