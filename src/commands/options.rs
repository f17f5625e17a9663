//! Options in any order, each once at most, and the numbers and lengths behind them.

use super::error::CommandError;
use crate::locks::number::parse_i64;
use crate::locks::token::{HOLDER_BYTES_MAX, TOKEN_BYTES};
use crate::server::args::Args;
use crate::server::{clock, config};

/// A cursor over the arguments behind the fixed ones.
pub struct Options<'a> {
    args: Args<'a>,
    next: usize,
}

impl<'a> Options<'a> {
    /// Starts at the argument `first`.
    pub fn new(args: Args<'a>, first: usize) -> Self {
        Self { args, next: first }
    }

    /// The next option's word, or `None` at the end.
    pub fn word(&mut self) -> Option<&'a [u8]> {
        let word = self.args.bytes(self.next)?;
        self.next = self.next.saturating_add(1);
        Some(word)
    }

    /// The value behind an option's word, and its index; put into `slot`, which an earlier one must not have filled.
    pub fn value(&mut self, slot: &mut Option<Value<'a>>) -> Result<(), CommandError> {
        let index = self.next;
        let bytes = self.word().ok_or(CommandError::Syntax)?;
        match slot.replace(Value { bytes, index }) {
            None => Ok(()),
            Some(_) => Err(CommandError::Syntax),
        }
    }

    /// An option that is its word alone.
    pub fn flag(slot: &mut bool) -> Result<(), CommandError> {
        if std::mem::replace(slot, true) { Err(CommandError::Syntax) } else { Ok(()) }
    }
}

/// Whether an argument is this option's word, in any case.
pub fn is(word: &[u8], option: &str) -> bool {
    // As it is mostly written, it is compared at once and not letter by letter.
    word == option.as_bytes() || word.eq_ignore_ascii_case(option.as_bytes())
}

/// A value as it was typed, and where.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    /// What was typed.
    pub bytes: &'a [u8],
    /// Which argument it is, the command's name being 0.
    pub index: usize,
}

/// An integer.
pub fn integer(value: Value<'_>) -> Result<i64, CommandError> {
    parse_i64(value.bytes).ok_or(CommandError::NotAnInteger)
}

/// A fence. One that no grant can have (negative, or beyond 2^53) is an integer all the same, and equals none.
pub fn fence(value: Value<'_>) -> Result<u64, CommandError> {
    integer(value).map(|fence| u64::try_from(fence).unwrap_or(0))
}

/// A length of time in ms that is 0 or more.
pub fn duration_ms(value: Value<'_>, negative: CommandError) -> Result<i64, CommandError> {
    let ms = integer(value)?;
    if ms < 0 { Err(negative) } else { Ok(ms) }
}

/// A TTL that no clock of this age makes too long to store: Unix time is far below the other half.
const SURELY_STORABLE_MS: i64 = i64::MAX / 2;

/// The one of `EX seconds` and `PX milliseconds` that is given.
#[derive(Clone, Copy, Debug)]
pub struct Ttl<'a> {
    value: Value<'a>,
    unit_ms: i64,
}

impl<'a> Ttl<'a> {
    /// Exactly one of the two must be given.
    pub fn one_of(ex: Option<Value<'a>>, px: Option<Value<'a>>) -> Result<Self, CommandError> {
        match (ex, px) {
            (Some(value), None) => Ok(Self { value, unit_ms: 1_000 }),
            (None, Some(value)) => Ok(Self { value, unit_ms: 1 }),
            _ => Err(CommandError::Syntax),
        }
    }

    /// The TTL in ms, such that now plus it is a deadline that the server can store. `command` is for the error.
    #[inline]
    pub fn ms(self, command: &'static str) -> Result<i64, CommandError> {
        let count = integer(self.value)?;
        let ttl_ms = count.checked_mul(self.unit_ms).filter(|ms| *ms > 0);
        let ttl_ms = ttl_ms.ok_or(CommandError::InvalidExpire(command))?;
        // The clock is asked only where it matters: a refusal needs none otherwise.
        if ttl_ms > SURELY_STORABLE_MS && ttl_ms.checked_add(clock::command().ms()).is_none() {
            return Err(CommandError::InvalidExpire(command));
        }
        match config::max_ttl_ms() {
            Some(cap_ms) if ttl_ms > cap_ms => Err(CommandError::AboveCap(command, cap_ms)),
            _ => Ok(ttl_ms),
        }
    }
}

/// A token of a length that is allowed.
pub fn token(bytes: &[u8]) -> Result<&[u8], CommandError> {
    if TOKEN_BYTES.contains(&bytes.len()) { Ok(bytes) } else { Err(CommandError::TokenLength) }
}

/// A holder label of a length that is allowed.
pub fn holder(bytes: &[u8]) -> Result<&[u8], CommandError> {
    if bytes.len() <= HOLDER_BYTES_MAX { Ok(bytes) } else { Err(CommandError::HolderLength) }
}
