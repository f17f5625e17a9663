//! Redis Cluster: three primaries and three replicas, made by redis-cli, under load of clients that follow redirections,
//! in Rust and in TypeScript, while slots move, primaries hand over, and one is lost. At no time has a lock two holders.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::call::{Answer, Ask, Call, now_us};
use crate::history::{self, rules};
use crate::link::{Library, Link, Reply, Router};
use crate::load::{self, Load, Settings, Target};
use crate::run::Run;
use crate::support::{
    Builder, Cluster, PATIENCE, Server, bytes, int, items, map, server_kind, slot_owner, text, wait_until,
};

use crate::worker::{Record, Section, Worker};

/// Locks that are held all through, to be moved and listed.
const KEPT: usize = 60;
/// The client libraries of TypeScript, each in a process of its own, and its clients for each of the loads.
const LIBRARIES: [&str; 2] = ["ioredis 6 cluster", "node-redis 6 cluster"];
const LIBRARIES_CLIENTS: usize = 2;
/// So many locks on all nodes they claim under one label, and revoke, in each round.
const REVOKED: usize = 30;
/// For four node timeouts a node that took over still counts the votes of then, and would take over again by them, though
/// they are for an epoch that is past: then two nodes serve the same slots for a moment. (Redis; Valkey forgets the votes.)
const VOTES: Duration = Duration::from_secs(7);
/// By so much a holder may think longer that it holds the lock than the server does, which counts in ms.
const SLACK_US: u64 = 3_000;

pub fn cluster(run: &Run) -> String {
    let cluster = make();
    let nodes = &cluster.nodes;
    let ports: Vec<u16> = nodes.iter().map(Server::port).collect();
    routes(nodes, &ports);
    let mut typescript = Typescript::start(&ports);

    let mut rng = run.rng(0);
    let far = Settings { prefix: "far-".to_owned(), ..Settings::default() };
    let near = Settings { prefix: "near-".to_owned(), ttl_ms: (20, 400), clients: 4, ..Settings::default() };
    let (mut tally, mut takeovers) = (Tally::default(), Takeovers::new());
    let mut calls = 0;
    let mut before = [BTreeMap::new(), BTreeMap::new()];
    let mut all = Vec::new();
    while run.goes_on() || !tally.missing().is_empty() {
        let round = tally.rounds + 1;
        let target = target(&ports);
        let loads = [&far, &near].map(|settings| Load::start(run, round, settings, &target));
        let keys: Vec<String> =
            (0..far.keys).map(|key| far.key(key)).chain((0..near.keys).map(|key| near.key(key))).collect();
        typescript.begin(&mut rng, &[&far, &near]);
        for _ in 0..3 {
            let missing = if run.goes_on() { None } else { tally.missing().choose(&mut rng).copied() };
            let what = missing.unwrap_or_else(|| What::any(&mut rng));
            disturb(&cluster, what, &keys, &mut rng, &mut tally, &mut takeovers);
            std::thread::sleep(Duration::from_millis(rng.random_range(0..100)));
        }
        loads.iter().for_each(Load::tell_to_stop);
        let mut seen = loads.map(Load::finish);
        typescript.finish(&mut seen);
        for ((settings, mut seen), before) in [&far, &near].into_iter().zip(seen).zip(&mut before) {
            let looks = looks(&ports, settings);
            seen.extend(looks.iter().cloned());
            calls += history::check(&seen, before);
            *before = history::seen(&looks, settings);
            all.extend(seen);
        }
        kept_are_listed_once(&cluster);
        tally.rounds = round;
        run.progress(|| format!("{tally:?}, {calls} calls"));
    }
    let grants = rules::fences_rise(&all);
    let shares = typescript.shares();
    let lost = lose_a_primary(run, &cluster, &ports, &mut typescript);
    format!(
        "{tally:?}; {calls} calls explained by one lock each, wherever it was, {shares}; {grants} fences rise; LIST and REVOKE saw each lock on all nodes once, in both languages; {lost}"
    )
}

/// Clients in TypeScript, whose calls are checked together with the others, and who work under locks as applications do.
struct Typescript {
    workers: Vec<Worker>,
    answered: [usize; LIBRARIES.len()],
    sections: usize,
}

impl Typescript {
    fn start(ports: &[u16]) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/typescript/dist/test/prove.js");
        assert!(program.exists(), "the clients in TypeScript are not built: run scripts/build-typescript");
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let start = |(library, number)| {
            let mut node = Command::new("node");
            node.arg(&program).arg(library).arg(ports.join(","));
            Worker::start(node, number)
        };
        let mut workers: Vec<Worker> = LIBRARIES.into_iter().zip(1..).map(start).collect();
        workers.iter_mut().for_each(Worker::wait_ready);
        Self { workers, answered: [0; LIBRARIES.len()], sections: 0 }
    }

    fn begin(&mut self, rng: &mut StdRng, loads: &[&Settings]) {
        for worker in &mut self.workers {
            let with_few_clients = |load: &&Settings| Settings { clients: LIBRARIES_CLIENTS, ..(*load).clone() };
            worker.begin(rng.random(), loads.iter().map(with_few_clients).collect());
        }
    }

    /// Adds their calls to those of each load, and returns what they did under locks.
    #[track_caller]
    fn stop(&mut self, seen: &mut [Vec<Call>]) -> Vec<Section> {
        let mut sections = Vec::new();
        self.workers.iter_mut().for_each(Worker::tell_to_stop);
        for (worker, answered) in self.workers.iter_mut().zip(&mut self.answered) {
            for record in worker.finish() {
                match record {
                    Record::Call { load, call } => {
                        *answered += usize::from(call.answer != Answer::Lost);
                        seen[load].push(call);
                    }
                    Record::Section(section) => sections.push(section),
                    Record::Everywhere { listed, revoked } => {
                        assert_eq!((listed, revoked), (KEPT, REVOKED), "listed and revoked over all nodes");
                    }
                }
            }
        }
        sections
    }

    /// The same, and no two of them held one lock at a time.
    #[track_caller]
    fn finish(&mut self, seen: &mut [Vec<Call>]) {
        let mut sections = self.stop(seen);
        self.sections += sections.len();
        sections.sort_by(|one, other| (&one.key, one.enter_us).cmp(&(&other.key, other.enter_us)));
        for pair in sections.windows(2).filter(|pair| pair[0].key == pair[1].key) {
            let [first, second] = pair else { unreachable!("windows of two") };
            assert!(first.leave_us < second.enter_us + SLACK_US, "two holders at once: {first:?} and {second:?}");
            assert!(first.fence < second.fence, "the later holder has the lower fence: {first:?} and {second:?}");
        }
    }

    /// What each library has contributed.
    #[track_caller]
    fn shares(&self) -> String {
        let share = |(library, answered): (&str, &usize)| {
            assert!(*answered > 0, "{library} got no answer at all");
            format!("{answered} answers through {library}")
        };
        let shares: Vec<String> = LIBRARIES.into_iter().zip(&self.answered).map(share).collect();
        assert!(self.sections > 0, "nobody in TypeScript ever held a lock");
        format!("{}, and {} sections under its locks never two at a time", shares.join(", "), self.sections)
    }
}

/// What was done.
#[derive(Debug, Default)]
struct Tally {
    rounds: u64,
    slots_moved: u64,
    keys_migrated_alone: u64,
    reshards: u64,
    failovers: u64,
    atomic_migrations: u64,
    atomic_migrations_cancelled: u64,
}

impl Tally {
    /// What was not done yet: a run too short to have done everything once goes on until it has.
    fn missing(&self) -> Vec<What> {
        let done = [
            (What::MoveByHand, self.slots_moved),
            (What::Reshard, self.reshards),
            (What::MoveInOneStep, self.atomic_migrations),
            (What::HandOver, self.failovers),
        ];
        done.into_iter().filter(|(what, times)| what.is_known() && *times == 0).map(|(what, _)| what).collect()
    }
}

/// What can be done to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    MoveByHand,
    Reshard,
    MoveInOneStep,
    HandOver,
}

impl What {
    fn any(rng: &mut StdRng) -> Self {
        let what = match rng.random_range(0..10) {
            0..5 => Self::MoveByHand,
            5 | 6 => Self::Reshard,
            7 | 8 => Self::MoveInOneStep,
            _ => Self::HandOver,
        };
        if what.is_known() { what } else { Self::MoveByHand }
    }

    /// Whether this server can do it.
    fn is_known(self) -> bool {
        self != Self::MoveInOneStep || server_kind().moves_slots_in_one_step()
    }
}

fn make() -> Cluster {
    let nodes: Vec<Server> = (0..6).map(|_| Builder::cluster_node(Server::builder()).aof().start()).collect();
    let mut create = Command::new("redis-cli");
    create.args(["--cluster", "create"]);
    create.args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())));
    create.args(["--cluster-replicas", "1", "--cluster-yes"]);
    run_tool(&mut create);
    let cluster = Cluster::of(nodes, 3);
    cluster.wait_ready();
    cluster
}

#[track_caller]
fn run_tool(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; is redis-tools installed?"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?} failed:\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// A client library for clusters finds every lock, LIST and REVOKE run on every node, and the sum is right.
#[track_caller]
fn routes(nodes: &[Server], ports: &[u16]) {
    let mut library = Library::new(ports);
    for (key, holder) in (0..KEPT).map(|number| (format!("kept-{number}"), number % 2)) {
        let mut claim = redis::cmd("PRLOCK.CLAIM");
        claim.arg(&key).arg("PX").arg(86_400_000).arg("TOKEN").arg("t").arg("HOLDER").arg(format!("keeper-{holder}"));
        let Reply::Value(grant) = library.call(&claim) else { panic!("no answer to a claim through the library") };
        assert_eq!(bytes(&items(&grant)[0]), b"t");
        let mut renew = redis::cmd("PRLOCK.RENEW");
        let Reply::Value(renewed) = library.call(renew.arg(&key).arg("t").arg("PX").arg(86_400_000)) else {
            panic!("no answer to a renewal through the library")
        };
        assert_eq!(int(&renewed), 1);
    }
    let mut revoked = 0;
    for node in nodes.iter().filter(|node| node.is_primary()) {
        revoked += int(&node.conn().ok(("PRLOCK.REVOKE", "keeper-0")));
    }
    assert_eq!(revoked, i64::try_from(KEPT / 2).expect("a number"), "revoked over all nodes");
    for number in (0..KEPT).step_by(2) {
        let mut claim = redis::cmd("PRLOCK.CLAIM");
        claim
            .arg(format!("kept-{number}"))
            .arg("PX")
            .arg(86_400_000)
            .arg("TOKEN")
            .arg("t")
            .arg("HOLDER")
            .arg("keeper-0");
        assert!(matches!(library.call(&claim), Reply::Value(_)), "a claim of what was revoked");
    }
}

/// Every lock that is held all through is in the LIST of exactly one primary, and in that of its replica.
#[track_caller]
fn kept_are_listed_once(cluster: &Cluster) {
    let due: BTreeSet<Vec<u8>> = (0..KEPT).map(|number| format!("kept-{number}").into_bytes()).collect();
    let list = |node: &Server| -> Vec<Vec<u8>> {
        let rows = items(&node.conn().ok(("PRLOCK.LIST", "MATCH", "kept-*")));
        rows.iter().map(|row| bytes(&map(row)["key"])).collect()
    };
    wait_until("every kept lock to be listed once", PATIENCE, || {
        for is_primary in [true, false] {
            let nodes = cluster.nodes.iter().filter(|node| node.is_primary() == is_primary);
            let listed: Vec<Vec<u8>> = nodes.flat_map(list).collect();
            let set: BTreeSet<Vec<u8>> = listed.iter().cloned().collect();
            (listed.len() == due.len() && set == due).then_some(())?;
        }
        Some(())
    });
}

fn target(ports: &[u16]) -> Target {
    let ports = ports.to_vec();
    Arc::new(move |client| -> Box<dyn Link> {
        if client % 4 == 3 { Box::new(Library::new(&ports)) } else { Box::new(Router::new(&ports)) }
    })
}

/// A look at every lock through the cluster.
fn looks(ports: &[u16], settings: &Settings) -> Vec<Call> {
    let mut link = Router::new(ports);
    (0..settings.keys)
        .map(|key| {
            let start_us = now_us();
            let Reply::Value(value) = link.call(redis::cmd("PRLOCK.INFO").arg(settings.key(key))) else {
                panic!("no answer to PRLOCK.INFO of {}", settings.key(key))
            };
            let answer = Answer::Seen(load::seen(&value));
            Call { key, ask: Ask::Look, start_us, end_us: now_us(), answer }
        })
        .collect()
}

/// When each node took over last, by its port.
type Takeovers = HashMap<u16, Instant>;

fn disturb(
    cluster: &Cluster,
    what: What,
    keys: &[String],
    rng: &mut StdRng,
    tally: &mut Tally,
    takeovers: &mut Takeovers,
) {
    let slot = cluster.nodes[0].slot(keys.choose(rng).expect("a key"));
    let source = cluster.owner(slot);
    let others: Vec<&Server> =
        cluster.nodes.iter().filter(|node| node.is_primary() && node.port() != source.port()).collect();
    let target = others.choose(rng).expect("another primary");
    match what {
        What::MoveByHand => move_by_hand(source, target, slot, keys, rng, tally),
        What::Reshard => {
            // Some slots, whichever redis-cli takes; among them those of kept locks.
            run_tool(Command::new("redis-cli").args([
                "--cluster",
                "reshard",
                &format!("127.0.0.1:{}", source.port()),
                "--cluster-from",
                &source.cluster_id(),
                "--cluster-to",
                &target.cluster_id(),
                "--cluster-slots",
                "150",
                "--cluster-yes",
            ]));
            tally.reshards += 1;
        }
        What::MoveInOneStep => {
            if move_in_one_step(source, target, slot, rng) {
                tally.atomic_migrations += 1;
            } else {
                tally.atomic_migrations_cancelled += 1;
            }
        }
        What::HandOver => {
            let replica = replica_of(cluster, source);
            if takeovers.get(&replica.port()).is_none_or(|last| last.elapsed() > VOTES) {
                hand_over(source, replica);
                takeovers.insert(replica.port(), Instant::now());
                tally.failovers += 1;
            }
        }
    }
    cluster.wait_ready();
}

/// Key by key, with pauses in which the slot is here and there.
fn move_by_hand(source: &Server, target: &Server, slot: u16, keys: &[String], rng: &mut StdRng, tally: &mut Tally) {
    source.begin_to_move_slot(slot, target);
    std::thread::sleep(Duration::from_millis(rng.random_range(0..150)));
    for key in keys.iter().filter(|key| source.slot(key) == slot) {
        source.migrate_key(key.as_bytes(), target);
        tally.keys_migrated_alone += 1;
        std::thread::sleep(Duration::from_millis(rng.random_range(0..150)));
    }
    source.finish_to_move_slot(slot, target);
    tally.slots_moved += 1;
}

/// The whole slot, copied while it is served, and handed over at once; or cancelled on the way, and still the source's.
/// Returns whether it was moved.
#[track_caller]
fn move_in_one_step(source: &Server, target: &Server, slot: u16, rng: &mut StdRng) -> bool {
    let mut conn = source.conn();
    // So slow that much changes while it is copied.
    conn.ok(("CONFIG", "SET", "rdb-key-save-delay", rng.random_range(0..40_000)));
    conn.ok(("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.cluster_id()));
    let cancels = rng.random_ratio(1, 3);
    if cancels {
        std::thread::sleep(Duration::from_millis(rng.random_range(0..100)));
        // It may be over already.
        let _ = conn.call(("CLUSTER", "CANCELSLOTMIGRATIONS"));
    }
    let is_moved = wait_until("the slot's migration", PATIENCE, || {
        let jobs = items(&conn.ok(("CLUSTER", "GETSLOTMIGRATIONS")));
        let last = map(jobs.first()?);
        match text(&last["state"]).as_str() {
            "success" => Some(true),
            "cancelled" | "canceled" if cancels => Some(false),
            "failed" | "cancelled" | "canceled" => panic!("the slot's migration: {last:?}\n{}", target.log()),
            _ => None,
        }
    });
    conn.ok(("CONFIG", "SET", "rdb-key-save-delay", 0));
    if !is_moved {
        return false;
    }
    for node in [source, target] {
        wait_until("the slot to be the target's", PATIENCE, || {
            (slot_owner(&mut node.conn(), slot)? == target.port()).then_some(())
        });
    }
    true
}

fn replica_of<'c>(cluster: &'c Cluster, primary: &Server) -> &'c Server {
    let id = primary.cluster_id();
    cluster
        .nodes
        .iter()
        .find(|node| {
            let nodes = text(&node.conn().ok(("CLUSTER", "NODES")));
            nodes.lines().any(|line| line.contains("myself,slave") && line.contains(&id))
        })
        .expect("a replica of every primary")
}

/// A replica takes over from its primary with its consent, so that nothing is lost.
fn hand_over(primary: &Server, replica: &Server) {
    wait_until("the replica to take over", PATIENCE, || {
        // It may time out under load; then it is asked again.
        let _ = replica.conn().call(("CLUSTER", "FAILOVER"));
        for _ in 0..200 {
            if replica.is_primary() {
                return Some(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    });
    wait_until("the old primary to follow", PATIENCE, || (!primary.is_primary()).then_some(()));
}

/// A primary ends without a word under load: its replica takes over, perhaps without the last grants, but with greater
/// fences, and comes back as a replica. All clients find the new primary.
fn lose_a_primary(run: &Run, cluster: &Cluster, ports: &[u16], typescript: &mut Typescript) -> String {
    let settings = Settings { prefix: "lost-".to_owned(), ..Settings::default() };
    let load = Load::start(run, u64::MAX, &settings, &target(ports));
    let mut rng = run.rng(u64::MAX);
    typescript.begin(&mut rng, &[&settings]);
    std::thread::sleep(Duration::from_millis(500));
    let slot = cluster.nodes[0].slot(&settings.key(0));
    let primary = cluster.owner(slot);
    primary.kill9();
    let rest: Vec<&Server> = cluster.nodes.iter().filter(|node| node.port() != primary.port()).collect();
    wait_until("a replica to take over from the lost node", PATIENCE, || {
        let owner = slot_owner(&mut rest[0].conn(), slot)?;
        let is_up = |node: &&Server| text(&node.conn().ok(("CLUSTER", "INFO"))).contains("cluster_state:ok");
        (owner != primary.port() && rest.iter().all(is_up)).then_some(())
    });
    std::thread::sleep(Duration::from_millis(500));
    primary.restart();
    cluster.wait_ready();
    let mut calls = [load.finish()];
    typescript.stop(&mut calls);
    let [calls] = calls;
    let mut grants = 0;
    for key in 0..settings.keys {
        let of_key: Vec<Call> = calls.iter().filter(|call| call.key == key).cloned().collect();
        grants += rules::fences_rise(&of_key);
    }
    kept_are_listed_once(cluster);
    typescript.answered = [0; LIBRARIES.len()];
    wait_until("all clients in TypeScript to be answered by the new primary", PATIENCE, || {
        typescript.begin(&mut rng, &[&Settings { keys: 1, ..settings.clone() }]);
        std::thread::sleep(Duration::from_millis(200));
        typescript.finish(&mut [Vec::new()]);
        typescript.answered.iter().all(|answered| *answered > 0).then_some(())
    });
    format!("a primary lost: {grants} fences rise from key to key, every kept lock is there, and all find the new one")
}
