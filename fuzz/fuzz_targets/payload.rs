//! A lock's stored form: whatever bytes come, the answer is a lock that is written as the same bytes, or none; and what the
//! internal command carries besides.
#![no_main]
#![allow(dead_code, reason = "the files are compiled whole")]

#[path = "../../src/locks"]
mod locks {
    pub mod codec;
    pub mod fence;
    pub mod holders;
    pub mod lock;
    pub mod token;

    pub type Bytes = smallvec::SmallVec<[u8; 256]>;
}

use libfuzzer_sys::fuzz_target;
use locks::{Bytes, codec, holders::Holders, lock::Lock};

fuzz_target!(|bytes: &[u8]| {
    match codec::decode_said(bytes) {
        Some(codec::Said::Gone) => assert_eq!(bytes, codec::gone()),
        Some(codec::Said::Deadline(at_ms)) => assert_eq!(bytes, codec::deadline(at_ms)),
        Some(codec::Said::Lock(read)) => assert_eq!(Some(read), codec::decode(bytes)),
        None => assert_eq!(None, codec::decode(bytes)),
    }
    let Some(read) = codec::decode(bytes) else { return };
    let mut written = Bytes::new();
    codec::encode(read.change, &read.grant, read.expires_at_ms, &mut written);
    assert_eq!(&written[..], bytes);
    // As it lies in memory, it is the same too, with its holder's label shared or not.
    let mut holders = Holders::default();
    for _ in 0..2 {
        let lock = Lock::with_holder(b"key", &read.grant, holders.share(read.grant.holder));
        let mut token = Bytes::new();
        lock.token_into(&mut token);
        assert_eq!(lock.grant(&token), read.grant);
        assert_eq!(lock.key(), b"key");
    }
});
