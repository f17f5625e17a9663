//! The server is ended at random moments, and started again from its AOF.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::call::{Answer, Ask, Call, now_us};
use crate::history::{self, State, rules};
use crate::load::{self, Load, Settings};
use crate::run::Run;
use crate::support::{Builder, Server};

/// With `appendfsync always`, kill -9: after each start the locks are what the answers before it allow, and nothing less.
pub fn always(run: &Run) -> String {
    let far = Settings { prefix: "far-".to_owned(), ..Settings::default() };
    let near = Settings { prefix: "near-".to_owned(), ttl_ms: (20, 400), ..Settings::default() };
    let mut lives = [Life::new(far), Life::new(near)];
    let server = Server::builder().aof().start();
    let target = load::one_server(&server);
    let (mut kills, mut calls) = (0, Vec::new());
    while run.goes_on() {
        kills += 1;
        let mut rng = run.rng(kills);
        let loads = lives.each_ref().map(|life| Load::start(run, kills, &life.settings, &target));
        pause(&mut rng, 20..600);
        if rng.random_ratio(1, 4) {
            // Killed in the middle of a rewrite, or just behind it.
            let preamble = if rng.random() { "yes" } else { "no" };
            let mut conn = server.conn();
            conn.ok(("CONFIG", "SET", "aof-use-rdb-preamble", preamble));
            conn.ok(("BGREWRITEAOF",));
            pause(&mut rng, 0..60);
        }
        server.kill9();
        loads.iter().for_each(Load::tell_to_stop);
        let seen = loads.map(Load::finish);
        server.restart();
        for (life, seen) in lives.iter_mut().zip(seen) {
            life.check(&server, seen, &mut calls);
        }
        run.progress(|| format!("{kills} kills, {} calls", calls.len()));
    }
    let grants = rules::fences_rise(&calls);
    format!(
        "{kills} kills; {} calls explained by one lock each, over all restarts; {grants} fences rise; LIST equals the keyspace",
        calls.len()
    )
}

/// The clients of some keys, through many lives of the server.
struct Life {
    settings: Settings,
    before: BTreeMap<usize, State>,
}

impl Life {
    fn new(settings: Settings) -> Self {
        Self { settings, before: BTreeMap::new() }
    }

    /// Looks at the locks, and checks that what the clients saw explains them.
    fn check(&mut self, server: &Server, mut seen: Vec<Call>, all: &mut Vec<Call>) {
        let looks = load::audit(server.port(), &self.settings);
        seen.extend(looks.iter().cloned());
        history::check(&seen, &self.before);
        self.before = history::seen(&looks, &self.settings);
        all.extend(seen);
    }
}

/// With `appendfsync everysec` and the power cut: what was on the disk before the last second is there, and no fence comes
/// again, not even one whose grant was lost.
pub fn everysec(run: &Run) -> String {
    // A file that ends in the middle of a command is what a power cut leaves.
    let server = everysec_server().start();
    let settings = Settings { think_us: 4_000, ..Settings::default() };
    let target = load::one_server(&server);
    let (mut cuts, mut calls, mut lost) = (0, Vec::new(), 0);
    while run.goes_on() {
        cuts += 1;
        let mut rng = run.rng(cuts);
        let load = Load::start(run, cuts, &settings, &target);
        pause(&mut rng, 100..500);
        let file = newest_aof(&server);
        let safe_us = now_us();
        let safe_bytes = file.metadata().expect("look at the AOF").len();
        pause(&mut rng, 0..1_000);
        server.kill9();
        load.tell_to_stop();
        let seen = load.finish();
        let bytes = file.metadata().expect("look at the AOF").len();
        let kept = rng.random_range(safe_bytes..=bytes);
        lost += bytes - kept;
        file.set_len(kept).expect("cut the AOF");
        server.restart();
        let looks = load::audit(server.port(), &settings);
        for look in &looks {
            safe_part_is_there(&seen, look, safe_us);
        }
        calls.extend(seen);
        run.progress(|| format!("{cuts} power cuts, {} calls, {lost} bytes of the AOF lost", calls.len()));
    }
    let grants = rules::fences_rise(&calls);
    format!(
        "{cuts} power cuts, {lost} bytes of the AOF lost; every answer older than the loss holds, of {} calls; {grants} fences rise, the lost ones too",
        calls.len()
    )
}

fn everysec_server() -> Builder {
    Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "everysec")
        .config("aof-load-truncated", "yes")
        .config("auto-aof-rewrite-percentage", "0")
}

/// What was answered before `safe_us` still shows in the lock that was found.
#[track_caller]
fn safe_part_is_there(calls: &[Call], look: &Call, safe_us: u64) {
    let calls: Vec<&Call> = calls.iter().filter(|call| call.key == look.key).collect();
    let is_safe = |call: &&&Call| call.end_us < safe_us;
    let Some((attempt, fence)) =
        calls.iter().filter(is_safe).filter_map(|call| call.grant()).max_by_key(|grant| grant.1)
    else {
        return;
    };
    match look.answer {
        Answer::Seen(None) => {
            // It, or a grant after it, was released, and the answer was not that it was another's.
            let fence_of =
                |of| calls.iter().filter_map(|call| call.grant()).find(|grant| grant.0 == of).map(|grant| grant.1);
            let freed = calls.iter().any(|call| match call.ask {
                Ask::Release { attempt: of } if of == attempt || fence_of(of).is_none_or(|later| later > fence) => {
                    matches!(call.answer, Answer::One | Answer::Lost)
                }
                _ => false,
            });
            assert!(freed, "the grant {fence} of attempt {attempt} was answered in time and is gone: {look:?}");
        }
        Answer::Seen(Some((found, found_fence))) => {
            assert!(found_fence >= fence, "grant {fence} was answered in time, but an older one is there: {look:?}");
            let released = |call: &&&Call| call.ask == Ask::Release { attempt: found } && call.answer == Answer::One;
            let undone = calls.iter().filter(is_safe).find(released);
            assert!(undone.is_none(), "the release {undone:?} was answered in time and is undone: {look:?}");
        }
        _ => panic!("not a look: {look:?}"),
    }
}

/// The file to which the server appends now.
fn newest_aof(server: &Server) -> File {
    let folder = server.folder().join("appendonlydir");
    let files = std::fs::read_dir(&folder).expect("the AOF's folder");
    let paths = files.map(|file| file.expect("a file of the AOF").path());
    let incremental = |path: &PathBuf| path.to_string_lossy().ends_with(".incr.aof");
    let newest = paths.filter(incremental).max_by_key(|path| {
        let number = path.to_string_lossy().split('.').rev().nth(2).and_then(|part| part.parse::<u64>().ok());
        number.expect("the number of an AOF file")
    });
    File::options().write(true).open(newest.expect("an incremental AOF file")).expect("open the AOF")
}

fn pause(rng: &mut StdRng, range_ms: std::ops::Range<u64>) {
    std::thread::sleep(Duration::from_millis(rng.random_range(range_ms)));
}
