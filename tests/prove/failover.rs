//! A primary with two replicas: another is made primary by hand, by the FAILOVER command, and by three sentinels, under
//! load and with waiters, while one link stands still.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::time::Duration;

use rand::RngExt as _;
use redis::Value;

use crate::call::{Answer, Ask, Call, Mode};
use crate::history::rules;
use crate::link::{Direct, Link};
use crate::load::{Load, Settings, Target};
use crate::run::Run;
use crate::support::{Conn, PATIENCE, Server, bytes, find_info, grant, int, items, map, text, wait_until};

pub fn failover(run: &Run) -> String {
    let trio = Trio::start();
    let settings = Settings { ttl_ms: (600_000, 900_000), block_ms: 300, ..Settings::default() };
    let load = Load::start(run, 0, &settings, &trio.target());
    let (mut by_hand, mut by_command, mut waiters, mut waits) = (0, 0, 0, 0);
    let mut last_fence = 0;
    while run.goes_on() || by_hand == 0 || by_command == 0 {
        let mut rng = run.rng(by_hand + by_command);
        std::thread::sleep(Duration::from_millis(rng.random_range(100..500)));
        let old = trio.primary();
        let new = trio.other(&[old]);
        let third = trio.other(&[old, new]);
        waits += i64::from(wait_tells_that_a_grant_arrived(old, third));

        // Somebody waits who must be told, and somebody holds who must find its lock, or a greater fence, on the new one.
        let name = format!("kept-{by_hand}-{by_command}");
        let kept = grant(&old.conn().ok(("PRLOCK.CLAIM", &name, "PX", 600_000, "TOKEN", "kept"))).expect("a grant");
        let mut waiter = old.waiter(("PRLOCK.CLAIM", &name, "PX", 1_000, "BLOCK", 0));
        assert!(kept.fence > last_fence, "the fence went back over a failover");
        let arrived = old.conn().ok(("WAIT", 2, 10_000));

        // One link stands still meanwhile.
        third.sigstop();
        if rng.random() {
            hand_over_by_hand(old, new);
            by_hand += 1;
        } else {
            let answer = old.conn().ok(("FAILOVER", "TO", "127.0.0.1", new.port(), "TIMEOUT", 10_000));
            assert_eq!(answer, Value::Okay);
            wait_until("the failover to be over", PATIENCE, || (new.is_primary() && !old.is_primary()).then_some(()));
            by_command += 1;
        }
        trio.now.store(new.port(), SeqCst);
        third.sigcont();
        third.conn().ok(("REPLICAOF", "127.0.0.1", new.port()));

        let told = waiter.reply(PATIENCE).expect_err("no grant on a replica");
        assert!(told.starts_with("UNBLOCKED") || told.starts_with("READONLY"), "the waiter was told: {told}");
        waiters += 1;
        let mut conn = new.conn();
        if arrived == Value::Int(2) {
            assert_eq!(conn.ok(("PRLOCK.RENEW", &name, "kept", "PX", 600_000, "FENCE", kept.fence)), Value::Int(1));
        }
        let stolen = grant(&conn.ok(("PRLOCK.CLAIM", &name, "PX", 600_000, "TOKEN", "new", "STEAL"))).expect("a grant");
        assert!(stolen.fence > kept.fence, "the fence went back over a failover");
        last_fence = stolen.fence;
        assert_eq!(
            conn.ok(("PRLOCK.RENEW", &name, "kept", "PX", 600_000)),
            Value::Int(0),
            "the old holder has lost it"
        );
        wait_until("the replicas to follow", PATIENCE, || {
            [old, third].iter().all(|replica| is_linked_to(replica, new)).then_some(())
        });
        run.progress(|| format!("{by_hand} by hand, {by_command} by FAILOVER"));
    }
    let calls = load.finish();
    trio.all_hold_the_same();
    let grants = fences_rise_per_key(&calls, &settings);
    let told = calls.iter().filter(|call| is_told(call)).count();
    format!(
        "{by_hand} failovers by hand, {by_command} by FAILOVER, one link stopped in each; {waiters} waiters were told, and {told} calls of the load; {grants} fences of {} calls rise; {waits} grants were on a replica after WAIT; LIST and data are the same on all three in the end",
        calls.len()
    )
}

/// The primary is lost, and three sentinels choose another.
pub fn sentinel(run: &Run) -> String {
    let trio = Trio::start();
    let sentinels = Sentinels::start(trio.primary().port());
    let settings = Settings { ttl_ms: (600_000, 900_000), block_ms: 300, ..Settings::default() };
    let load = Load::start(run, 0, &settings, &trio.target());
    let (mut losses, mut waiters, mut last_fence) = (0, 0, 0);
    while run.goes_on() || losses == 0 {
        sentinels.wait_ready();
        let name = format!("kept-{losses}");
        let (old, kept) = insist_on_primary(&trio, &sentinels, |conn| {
            let kept = conn.call(("PRLOCK.CLAIM", &name, "PX", 600_000, "TOKEN", "t"))?;
            match conn.call(("WAIT", 2, 20_000))? {
                Value::Int(2) => Ok(grant(&kept).expect("a grant")),
                fewer => Err(format!("the grant is not everywhere: {fewer:?}")),
            }
        });
        assert!(kept.fence > last_fence, "the fence went back over a failover");
        let mut waiter = old.waiter(("PRLOCK.CLAIM", &name, "PX", 1_000, "BLOCK", 0));
        old.kill9();
        let told = waiter.reply_within(PATIENCE).expect("the connection to close");
        assert!(told.is_err(), "no grant by a dead server");
        waiters += 1;
        let (new, renewed) = insist_on_primary(&trio, &sentinels, |conn| {
            conn.call(("PRLOCK.RENEW", &name, "t", "PX", 600_000, "FENCE", kept.fence))
        });
        assert_ne!(new.port(), old.port(), "another one");
        assert_eq!(renewed, Value::Int(1), "a grant that was on all replicas");
        let (_, next) = insist_on_primary(&trio, &sentinels, |conn| {
            conn.call(("PRLOCK.CLAIM", format!("next-{losses}"), "PX", 600_000, "TOKEN", "t"))
        });
        let next = grant(&next).expect("a grant");
        assert!(next.fence > kept.fence, "the fence went back over a failover");
        last_fence = next.fence;
        // The sentinels would see to that too, in their own time.
        old.restart_with(|plan| plan.replica_of(new));
        wait_until("the others to follow", PATIENCE * 2, || {
            let primary = trio.follow(&sentinels)?;
            let mut others = trio.servers.iter().filter(|server| server.port() != primary.port());
            others.all(|server| is_linked_to(server, primary)).then_some(())
        });
        losses += 1;
        run.progress(|| format!("{losses} primaries lost and replaced"));
    }
    let calls = load.finish();
    trio.follow(&sentinels);
    trio.all_hold_the_same();
    let grants = fences_rise_per_key(&calls, &settings);
    format!(
        "{losses} primaries lost and replaced by three sentinels; {waiters} waiters were told; {grants} fences of {} calls rise; a grant that WAIT saw on all replicas was renewed each time; LIST and data are the same on all three in the end",
        calls.len()
    )
}

/// Talks to a server whose connections the sentinels may end at any time.
#[track_caller]
fn insist<T>(server: &Server, mut talk: impl FnMut(&mut Conn) -> Result<T, String>) -> T {
    wait_until("an answer", PATIENCE, || {
        let mut conn = Conn::open(server.port(), Conn::resp2()).ok()?;
        talk(&mut conn).map_err(|error| eprintln!("   asked again, since: {error}")).ok()
    })
}

/// Talks to whomever the sentinels take for the primary, who may be another one any time: on a busy machine they also
/// replace one that only stood still. Returns who answered.
#[track_caller]
fn insist_on_primary<'t, T>(
    trio: &'t Trio,
    sentinels: &Sentinels,
    mut talk: impl FnMut(&mut Conn) -> Result<T, String>,
) -> (&'t Server, T) {
    wait_until("an answer of the primary", PATIENCE * 2, || {
        let primary = trio.follow(sentinels)?;
        let mut conn = Conn::open(primary.port(), Conn::resp2()).ok()?;
        let answer = talk(&mut conn).map_err(|error| eprintln!("   asked again, since: {error}")).ok()?;
        Some((primary, answer))
    })
}

/// By REPLICAOF, as in a planned change: first nobody may write any more.
fn hand_over_by_hand(old: &Server, new: &Server) {
    old.conn().ok(("CLIENT", "PAUSE", 60_000, "WRITE"));
    new.wait_in_sync_with(old);
    new.conn().ok(("REPLICAOF", "NO", "ONE"));
    old.conn().ok(("REPLICAOF", "127.0.0.1", new.port()));
    old.conn().ok(("CLIENT", "UNPAUSE"));
}

/// As the documentation says: WAIT behind a claim says on how many replicas the grant is.
#[track_caller]
fn wait_tells_that_a_grant_arrived(primary: &Server, replica: &Server) -> bool {
    let mut conn = primary.conn();
    let granted = grant(&conn.ok(("PRLOCK.CLAIM", "waited", "PX", 600_000, "TOKEN", "t", "STEAL"))).expect("a grant");
    if conn.ok(("WAIT", 2, 10_000)) != Value::Int(2) {
        return false;
    }
    let info = map(&replica.conn().ok(("PRLOCK.INFO", "waited")));
    assert!(int(&info["fence"]) >= granted.fence, "WAIT said that the grant was here");
    true
}

fn is_told(call: &Call) -> bool {
    matches!(call.ask, Ask::Claim { mode: Mode::Block, .. })
        && matches!(&call.answer, Answer::Error(code) if code == "UNBLOCKED")
}

fn fences_rise_per_key(calls: &[Call], settings: &Settings) -> usize {
    (0..settings.keys)
        .map(|key| {
            let of_key: Vec<Call> = calls.iter().filter(|call| call.key == key).cloned().collect();
            rules::fences_rise(&of_key)
        })
        .sum()
}

fn is_linked_to(replica: &Server, primary: &Server) -> bool {
    let info = insist(replica, |conn| Ok(text(&conn.call(("INFO", "replication"))?)));
    find_info(&info, "master_port") == Some(primary.port().to_string())
        && find_info(&info, "master_link_status").as_deref() == Some("up")
}

/// A primary and two replicas, whichever is which now.
struct Trio {
    servers: Vec<Server>,
    /// The primary's port.
    now: Arc<AtomicU16>,
}

impl Trio {
    fn start() -> Self {
        let settings = |builder: crate::support::Builder| builder.aof().config("repl-timeout", "10");
        let primary = settings(Server::builder()).start();
        let replicas = [primary.replica_with(settings), primary.replica_with(settings)];
        let now = Arc::new(AtomicU16::new(primary.port()));
        let servers = [primary].into_iter().chain(replicas).collect();
        Self { servers, now }
    }

    fn primary(&self) -> &Server {
        let port = self.now.load(SeqCst);
        self.servers.iter().find(|server| server.port() == port).expect("the primary")
    }

    /// The primary of which the sentinels say so, to which the load goes from now on.
    fn follow(&self, sentinels: &Sentinels) -> Option<&Server> {
        self.now.store(sentinels.primary_port()?, SeqCst);
        Some(self.primary())
    }

    fn other(&self, than: &[&Server]) -> &Server {
        let is_other = |server: &&Server| than.iter().all(|not| not.port() != server.port());
        self.servers.iter().find(is_other).expect("another server")
    }

    fn target(&self) -> Target {
        let now = self.now.clone();
        Arc::new(move |_| -> Box<dyn Link> {
            let now = now.clone();
            Box::new(Direct::new(move || now.load(SeqCst)))
        })
    }

    #[track_caller]
    fn all_hold_the_same(&self) {
        let primary = self.primary();
        wait_until("all three to hold the same", PATIENCE, || {
            let digests = self.servers.iter().map(|server| bytes(&server.conn().ok(("DEBUG", "DIGEST"))));
            let digests: BTreeSet<Vec<u8>> = digests.collect();
            let lists: BTreeSet<Vec<(Vec<u8>, i64)>> = self.servers.iter().map(listed).collect();
            (digests.len() == 1 && lists.len() == 1).then_some(())
        });
        assert!(primary.is_primary());
    }
}

fn listed(server: &Server) -> Vec<(Vec<u8>, i64)> {
    let rows = items(&server.conn().ok(("PRLOCK.LIST",)));
    rows.iter().map(|row| map(row)).map(|row| (bytes(&row["key"]), int(&row["fence"]))).collect()
}

/// Three sentinels, ended when dropped.
struct Sentinels {
    ports: Vec<u16>,
    children: Vec<Child>,
    folder: PathBuf,
    // Holds the ports.
    _reserved: Vec<Server>,
}

impl Sentinels {
    fn start(primary: u16) -> Self {
        // Their ports are those of servers that have ended.
        let reserved: Vec<Server> = (0..3).map(|_| Server::builder().without_module().start()).collect();
        reserved.iter().for_each(|server| _ = server.stop());
        let folder = reserved[0].folder().join("sentinels");
        fs::create_dir(&folder).expect("make a folder");
        let ports: Vec<u16> = reserved.iter().map(Server::port).collect();
        let children = ports
            .iter()
            .map(|port| {
                let config = folder.join(format!("{port}.conf"));
                let text = format!(
                    "port {port}\nbind 127.0.0.1\ndir {dir}\nlogfile {dir}/{port}.log\n\
                     sentinel monitor locks 127.0.0.1 {primary} 2\n\
                     sentinel down-after-milliseconds locks 1500\n\
                     sentinel failover-timeout locks 5000\n\
                     sentinel parallel-syncs locks 2\n",
                    dir = folder.display()
                );
                fs::write(&config, text).expect("write a sentinel's configuration");
                Command::new("redis-sentinel")
                    .arg(&config)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .spawn()
                    .unwrap_or_else(|error| panic!("redis-sentinel: {error}; it is in Debian's package of that name"))
            })
            .collect();
        let sentinels = Self { ports, children, folder, _reserved: reserved };
        sentinels.wait_ready();
        sentinels
    }

    /// Waits until all three know each other and both replicas, and see the primary up.
    fn wait_ready(&self) {
        for port in &self.ports {
            wait_until("the sentinels to know everybody", PATIENCE, || {
                let mut conn = Conn::open(*port, Conn::resp2()).ok()?;
                let master = map(&conn.call(("SENTINEL", "MASTER", "locks")).ok()?);
                let field = |name: &str| String::from_utf8(bytes(&master[name])).expect("text");
                let knows = field("num-other-sentinels") == "2" && field("num-slaves") == "2";
                (knows && field("flags") == "master").then_some(())
            });
        }
    }

    /// Which server all three take for the primary.
    fn primary_port(&self) -> Option<u16> {
        let mut named = self.ports.iter().map(|port| {
            let mut conn = Conn::open(*port, Conn::resp2()).ok()?;
            let address = conn.call(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks")).ok()?;
            String::from_utf8(bytes(&items(&address)[1])).ok()?.parse().ok()
        });
        let first: u16 = named.next()??;
        named.all(|port| port == Some(first)).then_some(first)
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            for port in &self.ports {
                let log = fs::read_to_string(self.folder.join(format!("{port}.log"))).unwrap_or_default();
                eprintln!("the log of sentinel {port}:\n{log}");
            }
        }
    }
}
