//! Payloads of DUMP and RESTORE, made by hand: with the right footer, so that their bytes reach the module's decoder.

use super::{Conn, bytes};

/// The polynomial of the servers' CRC-64, its bits in reverse.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
/// RDB version and CRC-64.
const FOOTER_BYTES: usize = 10;
/// An object of a module.
const MODULE: u8 = 7;
/// What follows is a string that the module has written.
const STRING: u8 = 5;
/// The module has written no more.
const END: u8 = 0;
/// The bits of the type's id that are its encoding version.
const ENCODING_BITS: u64 = 0x3ff;

/// The encoding versions that the module reads, one for each form.
pub const ENCODINGS: [u64; 2] = [0, 1];
/// The one that it writes.
pub const LAST_ENCODING: u64 = 1;

/// The checksum at the end of payloads and RDB files.
pub fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 })
    })
}

/// Makes payloads that one server accepts.
#[derive(Clone, Copy, Debug)]
pub struct Dumper {
    rdb_version: [u8; 2],
    /// The type's name and encoding version, as a number.
    module_id: u64,
}

impl Dumper {
    /// Learns from a lock that it makes and removes.
    pub fn new(conn: &mut Conn) -> Self {
        conn.claim("sample");
        let dump = bytes(&conn.ok(("DUMP", "sample")));
        conn.ok(("DEL", "sample"));
        let version = &dump[dump.len() - FOOTER_BYTES..][..2];
        assert_eq!(dump[..2], [MODULE, 0x81], "a module's object, its id as 8 bytes");
        let module_id = u64::from_be_bytes(dump[2..10].try_into().expect("8 bytes"));
        assert_eq!(module_id & ENCODING_BITS, LAST_ENCODING);
        Self { rdb_version: version.try_into().expect("2 bytes"), module_id }
    }

    /// The type's name and an encoding version, as payloads and RDB files have them in front of each lock.
    pub fn id(&self, encoding: u64) -> [u8; 8] {
        (self.module_id & !ENCODING_BITS | encoding).to_be_bytes()
    }

    /// What RESTORE takes: the lock in the form of this encoding version.
    pub fn payload(&self, encoding: u64, stored: &Stored) -> Vec<u8> {
        self.sealed(&self.object(encoding, &stored.form(encoding)))
    }

    /// The object whose value is `value`, in the form of encoding version `encoding`, without a footer.
    pub fn object(&self, encoding: u64, value: &[u8]) -> Vec<u8> {
        let mut object = vec![MODULE, 0x81];
        object.extend(self.id(encoding));
        object.push(STRING);
        // Two bits and 14 bits of length: a string as it is, whatever the server would compress.
        let length = u16::try_from(value.len()).expect("a short value");
        assert!(length < 1 << 14);
        object.extend((length | 1 << 14).to_be_bytes());
        object.extend(value);
        object.push(END);
        object
    }

    /// What RESTORE takes: the object with its footer.
    pub fn sealed(&self, object: &[u8]) -> Vec<u8> {
        let mut payload = object.to_vec();
        payload.extend(self.rdb_version);
        let checksum = crc64(&payload);
        payload.extend(checksum.to_le_bytes());
        payload
    }

    /// A payload without its footer.
    pub fn unsealed(payload: &[u8]) -> &[u8] {
        &payload[..payload.len() - FOOTER_BYTES]
    }
}

/// A lock's value in the forms that the module stores, written without the module's own code.
#[derive(Clone, Debug)]
pub struct Stored {
    pub version: u8,
    pub change: u8,
    pub fence: u64,
    pub claimed_at_ms: i64,
    pub renewed_at_ms: i64,
    pub renewals: u32,
    pub linger_ms: i64,
    pub expires_at_ms: i64,
    pub token: Vec<u8>,
    pub holder: Vec<u8>,
}

impl Stored {
    /// A good one.
    pub fn new(fence: u64) -> Self {
        Self {
            version: 1,
            change: 0,
            fence,
            claimed_at_ms: 1,
            renewed_at_ms: 2,
            renewals: 3,
            linger_ms: -1,
            expires_at_ms: -1,
            token: b"token".to_vec(),
            holder: b"h".to_vec(),
        }
    }

    /// The form of one of [`ENCODINGS`].
    pub fn form(&self, encoding: u64) -> Vec<u8> {
        match encoding {
            0 => self.bytes(),
            1 => self.dense(),
            _ => panic!("no form of encoding version {encoding}"),
        }
    }

    /// The first form, which PRLOCK.APPLY carries too.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![self.version, self.change];
        out.extend(self.fence.to_le_bytes());
        out.extend(self.claimed_at_ms.to_le_bytes());
        out.extend(self.renewed_at_ms.to_le_bytes());
        out.extend(self.renewals.to_le_bytes());
        out.extend(self.linger_ms.to_le_bytes());
        out.extend(self.expires_at_ms.to_le_bytes());
        out.extend((self.token.len() as u16).to_le_bytes());
        out.extend((self.holder.len() as u16).to_le_bytes());
        out.extend(&self.token);
        out.extend(&self.holder);
        out
    }

    /// The second form, of which `src/locks/stored.rs` tells; it has no version, change and deadline.
    fn dense(&self) -> Vec<u8> {
        let digits: Vec<u8> = self.token.iter().filter_map(|byte| hex_value(*byte)).collect();
        let is_hex = !digits.is_empty() && digits.len() == self.token.len() && digits.len().is_multiple_of(2);
        let token =
            if is_hex { digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect() } else { self.token.clone() };
        let claimed_after_ms = self.claimed_at_ms.wrapping_sub((self.fence / 1_000) as i64);
        let renewed_after_ms = self.renewed_at_ms.wrapping_sub(self.claimed_at_ms);
        let (is_dated, is_renewed) = (claimed_after_ms != 0, renewed_after_ms != 0 || self.renewals != 0);
        let lingers = self.linger_ms != -1;
        let flags = [(60, is_renewed), (61, is_dated), (62, lingers), (63, is_hex)];
        let head = flags.iter().fold(self.fence, |head, (bit, is_set)| head | u64::from(*is_set) << bit);
        let mut out = head.to_le_bytes().to_vec();
        for part in [&token, &self.holder] {
            if part.len() >= 0x80 {
                out.push((part.len() >> 8) as u8 | 0x80);
            }
            out.push(part.len() as u8);
            out.extend(part);
        }
        let difference = |ms: i64| if ms < 0 { !(ms as u64) << 1 | 1 } else { (ms as u64) << 1 };
        let numbers = [
            (is_dated, difference(claimed_after_ms)),
            (is_renewed, difference(renewed_after_ms)),
            (is_renewed, self.renewals.into()),
            (lingers, self.linger_ms as u64),
        ];
        for (_, mut number) in numbers.into_iter().filter(|(is_there, _)| *is_there) {
            while number >= 0x80 {
                out.push(number as u8 | 0x80);
                number >>= 7;
            }
            out.push(number as u8);
        }
        out
    }

    /// Takes apart what PRLOCK.APPLY carries.
    #[track_caller]
    pub fn read(bytes: &[u8]) -> Self {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let length = |at: usize| usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes")));
        let (token_end, holder_end) = (50 + length(46), 50 + length(46) + length(48));
        assert_eq!(bytes.len(), holder_end);
        Self {
            version: bytes[0],
            change: bytes[1],
            fence: number(2),
            claimed_at_ms: number(10) as i64,
            renewed_at_ms: number(18) as i64,
            renewals: u32::from_le_bytes(bytes[26..30].try_into().expect("4 bytes")),
            linger_ms: number(30) as i64,
            expires_at_ms: number(38) as i64,
            token: bytes[50..token_end].to_vec(),
            holder: bytes[token_end..].to_vec(),
        }
    }
}

/// The value of a lowercase hex digit.
fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}
