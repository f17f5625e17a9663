//! Integers as the server itself reads them from a command's arguments.

/// So many digits fit 64 bits, whatever they are: nearly all numbers are read without a look at overflows.
const SHORT_DIGITS: usize = 18;

/// Reads a plain base-10 integer that fits 64 bits with sign: `-9223372036854775808` to `9223372036854775807`.
///
/// `None` for everything else: a sign `+`, a leading zero, spaces, a fraction, an exponent, hex, the empty string, `-0`.
/// These are the rules of SET and PEXPIRE (`string2ll` in the server's util.c).
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] => return if negative { None } else { Some(0) },
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    if digits.len() <= SHORT_DIGITS {
        let mut value: i64 = 0;
        for byte in digits {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value.wrapping_mul(10).wrapping_add(digit.into());
        }
        return Some(if negative { value.wrapping_neg() } else { value });
    }
    let mut value: i64 = 0;
    for byte in digits {
        let digit = match byte {
            b'0'..=b'9' => i64::from(byte.wrapping_sub(b'0')),
            _ => return None,
        };
        // Counted downwards, since the least number has no positive twin.
        value = value.checked_mul(10)?.checked_sub(digit)?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

#[cfg(test)]
mod tests {
    use super::parse_i64;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_plain_integer_is_none() {
        for text in [
            "",
            "-",
            "+5",
            " 5",
            "5 ",
            "1.5",
            "1e3",
            "0x10",
            "5abc",
            "05",
            "-0",
            "-05",
            "--1",
            "\u{0}",
            "5\0",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999999",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
        for value in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
        }
    }

    proptest! {
        #[test]
        fn every_integer_reads_back(value: i64) {
            prop_assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
        }

        #[test]
        fn any_bytes_agree_with_the_standard_library(text in "[-+0-9 a]{0,21}") {
            let plain = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
            prop_assert_eq!(parse_i64(text.as_bytes()), plain);
        }
    }
}
