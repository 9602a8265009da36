//! Widths of text without a font: estimates that are a little too wide, so that
//! text does not overlap in any of the usual sans-serif fonts.

pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(of_character).sum::<f64>() * size
}

/// Returns the width of a character, relative to the font's size.
fn of_character(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | 'I' | ' ' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.95,
        character if character.is_ascii_uppercase() => 0.74,
        character if character.is_ascii() => 0.61,
        _ => 1.0,
    }
}

/// Breaks a text into lines of at most `room`. A word that is longer than a line is
/// shortened.
pub(super) fn wrap(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = shorten(word, size, room);
        match lines.last_mut() {
            Some(line) if width(line, size) + width(" ", size) + width(&word, size) <= room => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Replaces the middle of a text that is too long by an ellipsis.
pub(super) fn shorten(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let characters: Vec<char> = text.chars().collect();
    let mut kept = characters.len();
    loop {
        let (head, tail) = (kept.div_ceil(2), kept / 2);
        let short: String = characters[..head]
            .iter()
            .chain(&['…'])
            .chain(&characters[characters.len() - tail..])
            .collect();
        if kept == 0 || width(&short, size) <= room {
            return short;
        }
        kept -= 1;
    }
}

/// Replaces the characters that have a meaning in SVG and HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML has no other control characters.
            '\t' | '\n' => out.push(' '),
            character if character.is_control() => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_no_longer_than_their_room_and_lose_no_short_word() {
        let text = "latency at 1000 messages per second, of an endpoint on mlx5_0";
        let lines = wrap(text, 12.0, 120.0);
        assert!(lines.len() > 2);
        assert!(lines.iter().all(|line| width(line, 12.0) <= 120.0));
        assert_eq!(lines.join(" "), text);
        assert!(wrap("", 12.0, 100.0).is_empty());
    }

    #[test]
    fn a_word_that_is_too_long_keeps_its_ends() {
        let short = shorten("before-the-change-of-2026-11-27-on-host-a", 12.0, 100.0);
        assert!(width(&short, 12.0) <= 100.0, "{short}");
        assert!(short.starts_with("before") && short.ends_with("-a") && short.contains('…'));
        assert_eq!(shorten("é", 12.0, 1.0), "…");
    }

    #[test]
    fn markup_and_control_characters_are_replaced() {
        assert_eq!(
            escape("<a href='x'>&\"\u{1}"),
            "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\u{fffd}"
        );
    }
}
