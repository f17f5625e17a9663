//! The replies as the redis crate gives them, in RESP2 and RESP3 (CASES 59): a refusal is nil, 1 and 0 are integers.

use crate::support::*;
use redis::{ProtocolVersion, Value};

const FIELDS: [&str; 9] =
    ["key", "holder", "fence", "ttl-ms", "held-ms", "idle-ms", "renewals", "linger-ms", "waiters"];

/// A map's pairs: a map in RESP3, a flat array in RESP2.
fn pairs(protocol: ProtocolVersion, reply: Value) -> Vec<(String, Value)> {
    let pairs = match reply {
        Value::Map(pairs) if protocol == ProtocolVersion::RESP3 => pairs,
        Value::Array(flat) if protocol == ProtocolVersion::RESP2 => {
            flat.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
        }
        other => panic!("no map of {protocol:?}: {other:?}"),
    };
    pairs.into_iter().map(|(name, value)| (redis::from_redis_value(name).expect("a name"), value)).collect()
}

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

both! {

golden_replies(world) {
    let connection = world.client.get_multiplexed_async_connection().await.expect("connected");
    let send = async |command: &str| {
        let mut parts = command.split(' ');
        let mut cmd = redis::cmd(parts.next().expect("a name"));
        parts.for_each(|part| { cmd.arg(part); });
        cmd.query_async::<Value>(&mut connection.clone()).await.expect("a reply")
    };
    let Value::Array(grant) = send("PRLOCK.CLAIM k PX 60000 TOKEN a HOLDER w").await else { panic!("no array") };
    let [token, Value::Int(fence)] = &grant[..] else { panic!("{grant:?}") };
    assert_eq!(*token, text("a"));
    assert_eq!(send("PRLOCK.CLAIM k PX 60000 TOKEN a HOLDER w").await, Value::Array(grant.clone()));

    assert_eq!(send("PRLOCK.CLAIM k PX 60000 TOKEN b").await, Value::Nil);
    assert_eq!(send("PRLOCK.CLAIM k PX 60000 TOKEN b BLOCK 1").await, Value::Nil);
    assert_eq!(send("PRLOCK.CLAIM k PX 60000 TOKEN b STEALIF 1").await, Value::Nil);
    assert_eq!(send("PRLOCK.INFO free").await, Value::Nil);
    assert_eq!(send("PRLOCK.RENEW k a PX 60000").await, Value::Int(1));
    assert_eq!(send("PRLOCK.RENEW k b PX 60000").await, Value::Int(0));
    assert_eq!(send("PRLOCK.RELEASE k b").await, Value::Int(0));

    let info = pairs(world.protocol, send("PRLOCK.INFO k").await);
    assert_eq!(info.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), FIELDS);
    assert_eq!([&info[0].1, &info[1].1, &info[2].1], [&text("k"), &text("w"), &Value::Int(*fence)]);
    assert_eq!([&info[6].1, &info[7].1, &info[8].1], [&Value::Int(1), &Value::Int(-1), &Value::Int(0)]);
    let Value::Array(list) = send("PRLOCK.LIST").await else { panic!("no array") };
    let listed = list.into_iter().map(|lock| pairs(world.protocol, lock)).collect::<Vec<_>>();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0][0].1, text("k"));
    assert_eq!(send("PRLOCK.LIST MATCH none*").await, Value::Array(vec![]));

    assert_eq!(send("PRLOCK.REVOKE nobody").await, Value::Int(0));
    assert_eq!(send("PRLOCK.REVOKE w").await, Value::Int(1));
    assert_eq!(send("PRLOCK.RELEASE k a").await, Value::Int(0));
    send("PRLOCK.CLAIM k PX 60000 TOKEN a").await;
    assert_eq!(send("PRLOCK.RELEASE k a").await, Value::Int(1));
}

}
