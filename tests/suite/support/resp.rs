//! The frame of the protocol: where one value ends and the next begins. Decoding is left to the client crate.

/// The length of the first value in `buffer`, or none while it is incomplete.
pub fn frame_len(buffer: &[u8]) -> Option<usize> {
    let line = line_len(buffer)?;
    let count = || {
        let digits = std::str::from_utf8(&buffer[1..line - 2]).ok()?;
        digits.parse::<i64>().ok()
    };
    match buffer[0] {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Some(line),
        b'$' | b'=' | b'!' => match count()? {
            ..0 => Some(line),
            length => {
                let whole = line + usize::try_from(length).ok()? + 2;
                (buffer.len() >= whole).then_some(whole)
            }
        },
        b'*' | b'~' | b'>' => children(buffer, line, count()?),
        b'%' => children(buffer, line, count()? * 2),
        // An attribute goes before the value that it describes.
        b'|' => children(buffer, line, count()? * 2 + 1),
        other => panic!("no reply begins with byte {other:#x}: {buffer:?}"),
    }
}

/// The length of the first line with its CR LF, or none while it is incomplete.
pub fn line_len(buffer: &[u8]) -> Option<usize> {
    let end = buffer.windows(2).position(|pair| pair == b"\r\n")?;
    Some(end + 2)
}

/// The end of `count` values that begin at `start`.
fn children(buffer: &[u8], start: usize, count: i64) -> Option<usize> {
    let mut end = start;
    for _ in 0..count {
        end += frame_len(&buffer[end..])?;
    }
    Some(end)
}

/// The wire text of an error: `ERR syntax error`.
pub fn error_text(error: &redis::ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}
