//! Bytes, times and numbers as people read them.

use std::fmt::Write as _;

/// Bytes of a key or label, with everything that could act on a terminal, or cannot be shown, escaped: whoever claims a
/// lock chooses its name, and must not paint on an operator's screen.
pub fn printable(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => shown.push_str("\\\\"),
                '\n' => shown.push_str("\\n"),
                '\r' => shown.push_str("\\r"),
                '\t' => shown.push_str("\\t"),
                letter if letter.is_ascii_control() => _ = write!(shown, "\\x{:02x}", u32::from(letter)),
                letter if letter.is_control() || is_invisible(letter) => {
                    _ = write!(shown, "\\u{{{:x}}}", u32::from(letter))
                }
                letter => shown.push(letter),
            }
        }
        for byte in chunk.invalid() {
            _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// Letters that change the direction of the text around them, or take no room: with them one name can look like another.
fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// What a person typed, with the escapes of [`printable`] taken back.
pub fn typed(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        if letter == '\\'
            && let Some((byte, length)) = escape(rest)
        {
            bytes.push(byte);
            rest = &rest[length..];
        } else {
            bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    bytes
}

/// The byte that follows a backslash, and how much of the text it takes.
fn escape(rest: &str) -> Option<(u8, usize)> {
    match rest.as_bytes() {
        [b'n', ..] => Some((b'\n', 1)),
        [b'r', ..] => Some((b'\r', 1)),
        [b't', ..] => Some((b'\t', 1)),
        [b'x', ..] => u8::from_str_radix(rest.get(1..3)?, 16).ok().map(|byte| (byte, 3)),
        _ => None,
    }
}

/// A time in at most six columns: `850ms`, `9.9s`, `59s`, `59m59s`, `23h59m`, `120d`.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0 => format!("{ms}ms"),
        1..10 => format!("{seconds}.{}s", ms % 1_000 / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A number with its thousands apart: `1,234,567`.
pub fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A count in at most five columns: `99999`, `1234k`, `12M`.
pub fn short_number(number: u64) -> String {
    match number {
        0..=99_999 => number.to_string(),
        100_000..=9_999_999 => format!("{}k", number / 1_000),
        10_000_000..=9_999_999_999 => format!("{}M", number / 1_000_000),
        _ => format!("{}G", number / 1_000_000_000),
    }
}

/// The beginning of a text that fits into `width` columns, with a sign where something is left out.
pub fn fit(text: &str, width: usize) -> String {
    use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};
    if text.width() <= width {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut used = 0;
    for letter in text.chars() {
        used += letter.width().unwrap_or(0);
        if used >= width {
            break;
        }
        shown.push(letter);
    }
    if width > 0 {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_key_holds_acts_on_the_terminal() {
        assert_eq!(printable(b"order:7"), "order:7");
        assert_eq!(printable(b"\x1b[2J\r\n\t\0\xff\\"), "\\x1b[2J\\r\\n\\t\\x00\\xff\\\\");
        assert_eq!(printable("\u{9b}31m\u{202e}\u{200b}".as_bytes()), "\\u{9b}31m\\u{202e}\\u{200b}");
        assert_eq!(printable("Schlüssel 鍵".as_bytes()), "Schlüssel 鍵");
    }

    #[test]
    fn typed_escapes_are_bytes_and_a_glob_s_backslash_stays() {
        assert_eq!(typed("a\\x00\\xff\\n"), b"a\0\xff\n");
        assert_eq!(typed("\\*\\xq\\"), b"\\*\\xq\\");
        assert_eq!(typed("é*"), "é*".as_bytes());
    }

    #[test]
    fn durations_take_six_columns() {
        let all = [(0, "0ms"), (999, "999ms"), (1_000, "1.0s"), (9_999, "9.9s"), (59_999, "59s"), (60_000, "1m00s")];
        for (ms, text) in all {
            assert_eq!(duration(ms), text);
        }
        assert_eq!(duration(3_599_999), "59m59s");
        assert_eq!(duration(86_399_999), "23h59m");
        assert_eq!(duration(120 * 86_400_000), "120d");
    }

    #[test]
    fn numbers_are_grouped_or_shortened() {
        assert_eq!(number(0), "0");
        assert_eq!(number(999), "999");
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(short_number(99_999), "99999");
        assert_eq!(short_number(1_234_567), "1234k");
        assert_eq!(short_number(12_345_678), "12M");
    }

    #[test]
    fn a_long_text_is_cut_by_columns_not_bytes() {
        assert_eq!(fit("order:7", 7), "order:7");
        assert_eq!(fit("order:77", 7), "order:…");
        assert_eq!(fit("鍵鍵鍵", 5), "鍵鍵…");
        assert_eq!(fit("鍵鍵鍵", 4), "鍵…");
        assert_eq!(fit("abc", 0), "");
    }
}
