//! Bytes from the command line: hex in any common grouping, or a file.

use std::path::Path;

/// More than any queue has.
const MAX_FILE: u64 = 64 << 20;

/// What keeps an argument from being bytes.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// Neither hex nor a file.
    #[error("'{argument}' is neither a file nor hex: {reason}")]
    Neither {
        /// The argument.
        argument: String,
        /// What is wrong with it as hex.
        reason: HexError,
    },
    /// A file that cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file that is certainly something else.
    #[error("{path} has {length} bytes; a dump of a queue has at most {MAX_FILE}")]
    TooLarge {
        /// The file.
        path: String,
        /// Its length in bytes.
        length: u64,
    },
}

/// What keeps text from being hex.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HexError {
    /// Nothing there.
    #[error("no digits")]
    Empty,
    /// A character that is no digit and separates nothing.
    #[error("'{0}' is not a hex digit")]
    Digit(char),
    /// Half a byte.
    #[error("'{0}' has an odd number of digits")]
    Odd(String),
}

/// The bytes that an argument names: a file's content if there is such a file
/// (text of hex is read as hex, anything else as it is), else its own hex.
///
/// # Errors
/// Neither; or the file cannot be read.
pub fn bytes_of_argument(argument: &str) -> Result<Vec<u8>, InputError> {
    let path = Path::new(argument);
    if !path.exists() {
        return bytes_of_hex(argument).map_err(|reason| InputError::Neither {
            argument: shortened(argument),
            reason,
        });
    }
    let file_error = |source| InputError::File {
        path: argument.into(),
        source,
    };
    let length = path.metadata().map_err(file_error)?.len();
    if length > MAX_FILE {
        return Err(InputError::TooLarge {
            path: argument.into(),
            length,
        });
    }
    let content = std::fs::read(path).map_err(file_error)?;
    let as_hex = std::str::from_utf8(&content)
        .ok()
        .and_then(|text| bytes_of_hex(text).ok());
    Ok(as_hex.unwrap_or(content))
}

/// Hex digits in bytes, words of any length or without gaps, each with or
/// without `0x`, separated by white space, commas, colons, dots, dashes or
/// bars. Words are read in the order written, as libmlx5 and the kernel print
/// big-endian dumps.
///
/// # Errors
/// No digits, other characters, or half a byte.
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
            return Err(HexError::Odd(word.into()));
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

/// The value of a hex digit.
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
