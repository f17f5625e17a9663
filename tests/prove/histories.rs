//! What many clients are told, recorded and explained, while the server stands still, connections are killed, writes are
//! paused, clients stand still, and the wall clock jumps.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::call::{Attempt, now_us};
use crate::history::{self, rules};
use crate::load::{self, Load, Settings};
use crate::run::Run;
use crate::support::{Server, compile_c, text};
use crate::worker::{Record, Worker};

const ROUND: Duration = Duration::from_millis(1_200);
/// Client processes beside the prover's own clients, and the clients in each.
const WORKERS: u32 = 2;
const WORKERS_CLIENTS: usize = 3;

/// Every fault but those of the clock.
pub fn faults(run: &Run) -> String {
    let server = Server::start();
    let mut workers: Vec<Worker> = (1..=WORKERS).map(|number| Worker::of_this_program(server.port(), number)).collect();
    workers.iter_mut().for_each(Worker::wait_ready);
    let (mut rounds, mut faults, mut calls, mut all, mut pairs) = (0, Faults::default(), 0, Vec::new(), 0);
    while run.goes_on() {
        rounds += 1;
        let mut rng = run.rng(rounds);
        server.conn().ok(("FLUSHALL",));
        let far = rng.random();
        let settings = Settings {
            clients: 6,
            keys: 3,
            ttl_ms: if far { (600_000, 900_000) } else { (10, 400) },
            block_ms: 400,
            stalls_permille: 10,
            names_waits: true,
            ..Settings::default()
        };
        let watch = Watch::start(&server, &faults.pause_marks);
        let load = Load::start(run, rounds, &settings, &load::one_server(&server));
        for worker in &mut workers {
            worker.begin(rng.random(), vec![Settings { clients: WORKERS_CLIENTS, ..settings.clone() }]);
        }
        let start = std::time::Instant::now();
        while start.elapsed() < ROUND {
            faults.one(&server, &workers, &mut rng);
            std::thread::sleep(Duration::from_millis(rng.random_range(0..200)));
        }
        load.tell_to_stop();
        workers.iter_mut().for_each(Worker::tell_to_stop);
        let mut seen = load.finish();
        for worker in &mut workers {
            seen.extend(worker.finish().into_iter().filter_map(|record| match record {
                Record::Call { call, .. } => Some(call),
                Record::Section(_) | Record::Everywhere { .. } => None,
            }));
        }
        let waited = watch.finish();
        seen.extend(load::audit(server.port(), &settings));
        calls += history::check(&seen, &BTreeMap::new());
        pairs += rules::waiters_come_first(&seen, &waited);
        all.extend(seen);
        run.progress(|| format!("{rounds} histories, {calls} calls, {pairs} pairs in order, {faults:?}"));
    }
    assert!(pairs > 0, "nobody was seen waiting, so nothing was proved of their order");
    let grants = rules::fences_rise(&all);
    format!(
        "{rounds} histories of {calls} calls explained by one lock each; {pairs} times somebody seen waiting came before a later claim; {grants} fences rise; {faults:?}"
    )
}

/// What was done to the server and its clients.
#[derive(Debug, Default)]
struct Faults {
    server_stops: u64,
    client_stops: u64,
    kills: u64,
    pauses: u64,
    unblocks: u64,
    /// Odd during a pause, when who is blocked may only be put off.
    pause_marks: Arc<AtomicU64>,
}

impl Faults {
    fn one(&mut self, server: &Server, workers: &[Worker], rng: &mut StdRng) {
        match rng.random_range(0..6) {
            0 => {
                server.sigstop();
                std::thread::sleep(Duration::from_millis(rng.random_range(1..200)));
                server.sigcont();
                self.server_stops += 1;
            }
            4 | 5 => {
                // Whatever its clients are at: before a call, behind it, or while it waits and is granted. Half of the
                // stops are longer than their deadlines, if those are near.
                let worker = workers.choose(rng).expect("a worker");
                worker.sigstop();
                std::thread::sleep(Duration::from_millis(rng.random_range(1..800)));
                worker.sigcont();
                self.client_stops += 1;
            }
            1 => {
                // A third of the connections, those that wait among them.
                let mut conn = server.conn();
                let clients = text(&conn.ok(("CLIENT", "LIST")));
                for id in clients.lines().filter_map(|line| line.split(' ').next()?.strip_prefix("id=")) {
                    if rng.random_ratio(1, 3) {
                        let _ = conn.call(("CLIENT", "KILL", "ID", id, "SKIPME", "yes"));
                    }
                }
                self.kills += 1;
            }
            2 => {
                let mode = if rng.random() { "WRITE" } else { "ALL" };
                let mut conn = server.conn();
                self.pause_marks.fetch_add(1, SeqCst);
                let pause_ms = rng.random_range(1..200);
                conn.ok(("CLIENT", "PAUSE", pause_ms, mode));
                std::thread::sleep(Duration::from_millis(pause_ms));
                conn.ok(("CLIENT", "UNPAUSE"));
                // Who was put off is served before these.
                conn.ok(("PING",));
                conn.ok(("PING",));
                self.pause_marks.fetch_add(1, SeqCst);
                self.pauses += 1;
            }
            _ => {
                let mut conn = server.conn();
                let clients = text(&conn.ok(("CLIENT", "LIST")));
                if let Some(id) =
                    clients.lines().filter_map(|line| line.split(' ').next()?.strip_prefix("id=")).next_back()
                {
                    let _ = conn.call(("CLIENT", "UNBLOCK", id));
                }
                self.unblocks += 1;
            }
        }
    }
}

/// Somebody who looks who waits.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<HashMap<Attempt, u64>>,
}

impl Watch {
    fn start(server: &Server, pause_marks: &Arc<AtomicU64>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, pause_marks, port) = (stop.clone(), pause_marks.clone(), server.port());
        let thread = std::thread::spawn(move || {
            let mut link = load::watcher(port);
            let mut seen = HashMap::new();
            while !stopped.load(Relaxed) {
                let mark = pause_marks.load(SeqCst);
                let clients = link();
                if let Some(clients) = clients.filter(|_| mark % 2 == 0 && pause_marks.load(SeqCst) == mark) {
                    let now_us = now_us();
                    for attempt in clients.lines().filter_map(waiting_attempt) {
                        seen.entry(attempt).or_insert(now_us);
                    }
                }
                std::thread::sleep(Duration::from_millis(3));
            }
            seen
        });
        Self { stop, thread }
    }

    fn finish(self) -> HashMap<Attempt, u64> {
        self.stop.store(true, Relaxed);
        self.thread.join().expect("the watcher")
    }
}

/// The attempt that a blocked client is named after, from its line of CLIENT LIST.
fn waiting_attempt(line: &str) -> Option<Attempt> {
    let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    if !field("flags")?.contains('b') || !field("cmd")?.eq_ignore_ascii_case("prlock.claim") {
        return None;
    }
    field("name")?.parse().ok()
}

/// The clock jumps ahead and back by up to some hours. Deadlines are then nobody's guess, but no fence comes twice or goes
/// back, nobody but the holder renews or releases, and waiters are served.
pub fn clock(run: &Run) -> String {
    let library = compile_c("clock.c");
    let server = Server::builder().env("LD_PRELOAD", &library.display().to_string()).start();
    let (mut rounds, mut jumps, mut calls, mut all) = (0, 0, 0, Vec::new());
    let settings = Settings { ttl_ms: (200_000, 400_000), ..Settings::default() };
    let mut before = BTreeMap::new();
    while run.goes_on() {
        rounds += 1;
        let mut rng = run.rng(rounds);
        let load = Load::start(run, rounds, &settings, &load::one_server(&server));
        for _ in 0..5 {
            let offset_s: i64 = if rng.random() { rng.random_range(-7_200..7_200) } else { 0 };
            let file = server.folder().join("clock");
            std::fs::write(file.with_extension("new"), offset_s.to_string()).expect("write the offset");
            std::fs::rename(file.with_extension("new"), file).expect("set the offset");
            jumps += 1;
            std::thread::sleep(Duration::from_millis(rng.random_range(50..400)));
        }
        let mut seen = load.finish();
        let looks = load::audit(server.port(), &settings);
        seen.extend(looks.iter().cloned());
        calls += history::check_without_deadlines(&seen, &before);
        before = history::seen(&looks, &settings);
        all.extend(seen);
        run.progress(|| format!("{jumps} jumps, {calls} calls"));
    }
    let grants = rules::fences_rise(&all);
    format!(
        "{jumps} jumps; {calls} calls explained by one lock each, whose deadline may pass any time; {grants} fences rise"
    )
}
