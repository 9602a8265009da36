//! dat.conf: bytes in, entries and complaints out.
//!
//! One entry a line, eight fields between blanks:
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
//! | 8 | platform data, not used | `""` |
//!
//! `#` where a field could begin starts a comment. A field in quotes may hold
//! blanks and be empty; a backslash in it makes the next character literal. A
//! line that is wrong is left out, and said to be: the others count.

use core::fmt::{self, Write as _};

/// Bytes of a name, at most.
pub const MAX_NAME: usize = 255;
/// Complaints that are kept; a file of garbage has no use for more.
const MAX_COMPLAINTS: usize = 32;

/// A line of dat.conf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is, from 1.
    pub line: usize,
    /// The name of the IA.
    pub name: String,
    /// DAT version.
    pub major: u32,
    /// DAT version.
    pub minor: u32,
    /// Whether the library may be called by several threads for one object.
    pub threadsafe: bool,
    /// File name or path.
    pub library: String,
    /// Who made the library, and its version.
    pub provider: ProviderVersion,
    /// For the library.
    pub instance_data: String,
    /// Not used.
    pub platform_data: String,
}

/// `ID.MAJOR.MINOR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderVersion {
    /// Not empty, without a dot.
    pub id: String,
    /// Version.
    pub major: u32,
    /// Version.
    pub minor: u32,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Where it is, from 1.
    pub line: usize,
    /// What is wrong.
    pub cause: String,
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// The entries for user space (`u`) that are `default`, in order.
    /// Duplicates are kept: who looks for a name tries them in order.
    pub entries: Vec<Entry>,
    /// What is wrong with lines, in order; the first few.
    pub complaints: Vec<Complaint>,
    /// Complaints that are not kept.
    pub more_complaints: usize,
}

impl Conf {
    /// Reads a file's bytes, whatever they are.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let mut conf = Self::default();
        for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            match entry(number + 1, line) {
                Ok(Some(entry)) => conf.entries.push(entry),
                Ok(None) => {}
                Err(cause) => conf.complain(number + 1, cause),
            }
        }
        conf
    }

    /// Adds a complaint.
    pub(super) fn complain(&mut self, line: usize, cause: String) {
        if self.complaints.len() < MAX_COMPLAINTS {
            self.complaints.push(Complaint { line, cause });
        } else {
            self.more_complaints += 1;
        }
    }
}

/// A line as an entry, if it has one to be used.
fn entry(line: usize, bytes: &[u8]) -> Result<Option<Entry>, String> {
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
        Err(fields) if fields.is_empty() => return Ok(None),
        Err(fields) => return Err(format!("{} fields, not 8", fields.len())),
    };
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(format!(
            "a name of {} bytes; 1 to {MAX_NAME} are allowed",
            name.len()
        ));
    }
    let Some((user, (major, minor))) = api_version(&version) else {
        return Err(format!("\"{version}\" is no version such as u1.2"));
    };
    // Only the beginning counts: so it has always been read.
    let threadsafe = one_of(&safety, ["threadsafe", "nonthreadsafe"])?;
    let default = one_of(&default, ["default", "nondefault"])?;
    if library.is_empty() {
        return Err("no library".to_owned());
    }
    let Some(provider) = provider_version(&provider) else {
        return Err(format!(
            "\"{provider}\" is no provider version such as dapl.1.2"
        ));
    };
    if !(user && default) {
        return Ok(None);
    }
    Ok(Some(Entry {
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

/// The fields of a line.
fn fields(line: &[u8]) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let mut rest = line.trim_ascii_start();
    while let Some(&first) = rest.first() {
        let (field, after) = match first {
            b'#' => break,
            b'"' => quoted(&rest[1..])?,
            _ => bare(rest),
        };
        if field.contains(&0) {
            return Err("a byte 0 in a field".to_owned());
        }
        // A line can be as long as the file: do not keep all of it.
        if fields.len() > 8 {
            return Err("more than 8 fields".to_owned());
        }
        let field = String::from_utf8(field).map_err(|_| "a field that is not UTF-8".to_owned())?;
        fields.push(field);
        rest = after.trim_ascii_start();
    }
    Ok(fields)
}

/// A field up to the next blank, and what follows.
fn bare(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let end = text.iter().position(u8::is_ascii_whitespace);
    let (field, after) = text.split_at(end.unwrap_or(text.len()));
    (field.to_vec(), after)
}

/// A field whose first quote has been read, and what follows the second.
fn quoted(text: &[u8]) -> Result<(Vec<u8>, &[u8]), String> {
    let mut field = Vec::new();
    let mut bytes = text.iter();
    loop {
        match bytes.next() {
            Some(b'"') => return Ok((field, bytes.as_slice())),
            Some(b'\\') => field.extend(bytes.next()),
            Some(&byte) => field.push(byte),
            None => return Err("a quote that does not end".to_owned()),
        }
    }
}

/// Whether it is for user space, and the version.
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

/// Decimal digits only: `parse` would take a sign.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Whether the text begins with the first of two words, or the second.
fn one_of(text: &str, words: [&str; 2]) -> Result<bool, String> {
    let [yes, no] = words;
    if text.starts_with(yes) {
        Ok(true)
    } else if text.starts_with(no) {
        Ok(false)
    } else {
        Err(format!("\"{text}\" is neither {yes} nor {no}"))
    }
}

impl fmt::Display for Entry {
    /// As a line of dat.conf, without its end. A newline or a byte 0 in a
    /// field cannot be written: such an entry was not read from a file.
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
    let plain = |c: char| !c.is_ascii_whitespace() && !matches!(c, '"' | '#' | '\\');
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
