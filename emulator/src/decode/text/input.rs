//! Reads the bytes of a command-line argument: hex in any common grouping, or a file.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum length of a file in bytes: more than any queue has.
const MAX_FILE: u64 = 64 << 20;

/// Reasons why an argument cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The argument is neither hex nor a file.
    #[error("'{argument}' is neither a file nor hex: {reason}")]
    Neither {
        /// The argument.
        argument: String,
        /// Why it is not hex.
        reason: HexError,
    },
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// The file is too long or endless.
    #[error("{path} has more than {limit} bytes: expected at most {limit}")]
    TooLarge {
        /// The file.
        path: String,
        /// The limit in bytes.
        limit: u64,
    },
}

/// Reasons why text is not hex.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HexError {
    /// There are no digits.
    #[error("no digits")]
    Empty,
    /// A character is neither a digit nor a separator.
    #[error("{0:?} is not a hex digit")]
    Digit(char),
    /// A word has an odd number of digits.
    #[error("'{0}' has an odd number of digits")]
    Odd(String),
}

/// Returns the bytes of an argument. If it names a file, these are the contents of the
/// file (decoded if they are hex); otherwise the argument itself is hex.
///
/// At most 64 MiB of a file are read, whatever its reported size, since pipes and device
/// files report none.
///
/// # Errors
/// Returns an error if the argument is neither, or the file cannot be read or is too
/// long.
pub fn bytes_of_argument(argument: &OsStr) -> Result<Vec<u8>, InputError> {
    bytes_up_to(argument, MAX_FILE)
}

fn bytes_up_to(argument: &OsStr, limit: u64) -> Result<Vec<u8>, InputError> {
    let path = Path::new(argument);
    let file_error = |source| InputError::File {
        path: shortened(&path.to_string_lossy()),
        source,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        // Hex of more than 255 digits is too long for a file name.
        Err(error) if is_not_a_file_name(&error) => {
            let text = argument.to_string_lossy();
            return bytes_of_hex(&text).map_err(|reason| InputError::Neither {
                argument: shortened(&text),
                reason,
            });
        }
        Err(error) => return Err(file_error(error)),
    };
    let mut content = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut content);
    read.map_err(file_error)?;
    if content.len() as u64 > limit {
        return Err(InputError::TooLarge {
            path: shortened(&path.to_string_lossy()),
            limit,
        });
    }
    let as_hex = std::str::from_utf8(&content)
        .ok()
        .and_then(|text| bytes_of_hex(text).ok());
    Ok(as_hex.unwrap_or(content))
}

/// Returns whether an error of `open` means that the argument is not a file name.
fn is_not_a_file_name(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        None | Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG)
    )
}

/// Decodes hex digits to bytes, with or without gaps; words may start with `0x` and are
/// separated by white space, commas, colons, dots, dashes or bars. Words are read in the
/// order written, as libmlx5 and the kernel print big-endian dumps.
///
/// # Errors
/// Returns an error for no digits, other characters, or an odd number of digits.
pub fn bytes_of_hex(text: &str) -> Result<Vec<u8>, HexError> {
    let mut bytes = Vec::new();
    let separates = |c: char| c.is_whitespace() || ",;:.-_|[]{}()".contains(c);
    for word in text.split(separates).filter(|word| !word.is_empty()) {
        let digits = word
            .strip_prefix("0x")
            .or(word.strip_prefix("0X"))
            .unwrap_or(word);
        if let Some(wrong) = digits.chars().find(|c| !c.is_ascii_hexdigit()) {
            return Err(HexError::Digit(wrong));
        }
        if digits.is_empty() || !digits.len().is_multiple_of(2) {
            return Err(HexError::Odd(shortened(word)));
        }
        for pair in digits.as_bytes().chunks_exact(2) {
            bytes.push(nibble(pair[0]) << 4 | nibble(pair[1]));
        }
    }
    if bytes.is_empty() {
        return Err(HexError::Empty);
    }
    Ok(bytes)
}

fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn shortened(argument: &str) -> String {
    if argument.chars().count() <= 40 {
        return argument.into();
    }
    argument.chars().take(40).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_is_read_up_to_the_limit() {
        let error = bytes_up_to(OsStr::new("/dev/zero"), 4096).expect_err("endless");
        assert!(
            matches!(error, InputError::TooLarge { limit: 4096, .. }),
            "{error}"
        );
        assert!(
            error.to_string().contains("more than 4096 bytes"),
            "{error}"
        );
    }
}
