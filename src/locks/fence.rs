//! Fencing numbers: strictly greater at every grant, whatever happened to the data in between.

/// Fences are integers below this, so that every client language holds them exactly (2^53).
pub const FENCE_LIMIT: u64 = 1 << 53;

/// How far ahead of this server's clock the fence of a payload from a client may lie, in microseconds: one day.
pub const FOREIGN_LEAD_US: u64 = 24 * 60 * 60 * 1_000_000;

/// The source of fences: `max(last + 1, now in microseconds)`.
///
/// Time keeps the numbers rising when every trace of earlier grants is lost (an empty restart); `last` keeps them rising
/// within one microsecond, across a clock that is set back, and past every fence that was loaded or replicated.
#[derive(Debug, Default)]
pub struct Fences {
    last: u64,
}

impl Fences {
    /// The fence of a new grant at `now_us` (Unix time in microseconds), or `None` when 2^53 is used up, which only a
    /// clock in the year 2255 can do.
    pub fn next(&mut self, now_us: u64) -> Option<u64> {
        let fence = self.last.checked_add(1)?.max(now_us);
        if fence >= FENCE_LIMIT {
            return None;
        }
        self.last = fence;
        Some(fence)
    }

    /// Takes in a fence that was loaded, restored or replicated: later grants lie above it.
    pub fn seen(&mut self, fence: u64) {
        self.last = self.last.max(fence);
    }

    /// The greatest fence granted or seen; 0 before the first.
    pub fn last(&self) -> u64 {
        self.last
    }
}

/// Whether a payload from a client may carry `fence` at `now_us`: else one RESTORE could push all later fences away.
pub fn is_plausible(fence: u64, now_us: u64) -> bool {
    fence <= now_us.saturating_add(FOREIGN_LEAD_US)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_clock_carries_the_fence_and_a_clock_set_back_does_not() {
        let mut fences = Fences::default();
        assert_eq!(fences.next(1_000), Some(1_000));
        assert_eq!(fences.next(1_000), Some(1_001));
        assert_eq!(fences.next(5), Some(1_002));
        assert_eq!(fences.next(9_000), Some(9_000));
        fences.seen(20_000);
        fences.seen(10);
        assert_eq!(fences.next(9_001), Some(20_001));
        assert_eq!(fences.last(), 20_001);
    }

    #[test]
    fn the_limit_is_an_answer_and_not_a_wrap() {
        let mut fences = Fences::default();
        fences.seen(FENCE_LIMIT - 2);
        assert_eq!(fences.next(0), Some(FENCE_LIMIT - 1));
        assert_eq!(fences.next(0), None);
        fences.seen(u64::MAX);
        assert_eq!(fences.next(0), None);
    }

    #[test]
    fn a_day_ahead_is_plausible_and_more_is_not() {
        assert!(is_plausible(5 + FOREIGN_LEAD_US, 5));
        assert!(!is_plausible(6 + FOREIGN_LEAD_US, 5));
        assert!(is_plausible(u64::MAX, u64::MAX));
    }

    proptest! {
        #[test]
        fn fences_rise_strictly(steps in prop::collection::vec((any::<bool>(), 0u64..FENCE_LIMIT / 2), 1..200)) {
            let mut fences = Fences::default();
            let mut greatest = 0;
            for (grant, number) in steps {
                if grant {
                    let fence = fences.next(number).expect("below the limit");
                    prop_assert!(fence > greatest);
                    greatest = fence;
                } else {
                    fences.seen(number);
                    greatest = greatest.max(number);
                }
            }
        }
    }
}
