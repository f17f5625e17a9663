//! A lock's stored forms: whatever bytes come, the answer is a lock that is written as the same bytes, or none; and what the
//! internal command carries besides.
#![no_main]
#![allow(dead_code, reason = "the files are compiled whole")]

#[path = "../../src/locks"]
mod locks {
    pub mod codec;
    pub mod fence;
    pub mod holders;
    pub mod lock;
    pub mod stored;
    pub mod token;

    pub type Bytes = smallvec::SmallVec<[u8; 256]>;
}

use libfuzzer_sys::fuzz_target;
use locks::lock::{Grant, Lock};
use locks::{Bytes, codec, holders::Holders, stored};

fuzz_target!(|bytes: &[u8]| {
    match codec::decode_said(bytes) {
        Some(codec::Said::Gone) => assert_eq!(bytes, codec::gone()),
        Some(codec::Said::Deadline(at_ms)) => assert_eq!(bytes, codec::deadline(at_ms)),
        Some(codec::Said::Lock(read)) => assert_eq!(Some(read), codec::decode(bytes)),
        None => assert_eq!(None, codec::decode(bytes)),
    }
    if let Some(read) = codec::decode(bytes) {
        let mut written = Bytes::new();
        codec::encode(read.change, &read.grant, read.expires_at_ms, &mut written);
        assert_eq!(&written[..], bytes);
        look_at(&read.grant);
    }
    if let Some(grant) = stored::decode(bytes, &mut Bytes::new()) {
        let mut written = Bytes::new();
        stored::encode(&grant, &mut written);
        assert_eq!(&written[..], bytes);
        look_at(&grant);
    }
});

/// In the last form and as it lies in memory, with its holder's label shared or not, a lock is the same.
fn look_at(grant: &Grant<'_>) {
    let (mut written, mut room) = (Bytes::new(), Bytes::new());
    stored::encode(grant, &mut written);
    assert_eq!(stored::decode(&written, &mut room).as_ref(), Some(grant));
    let mut holders = Holders::default();
    for _ in 0..2 {
        let lock = Lock::with_holder(b"key", grant, holders.share(grant.holder));
        let mut token = Bytes::new();
        lock.token_into(&mut token);
        assert_eq!(&lock.grant(&token), grant);
        assert_eq!(lock.key(), b"key");
    }
}
