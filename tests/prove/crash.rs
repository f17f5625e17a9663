//! The server is ended at random moments, and started again from its AOF.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::call::{Answer, Ask, Call, Mode, now_us, zero_us};
use crate::history::{self, State, rules};
use crate::load::{self, Load, Settings};
use crate::run::Run;
use crate::support::{Builder, Server, compile_c};

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

/// With `appendfsync everysec`: kill -9, and power cuts, which leave of the file what was synced and perhaps a part of the
/// rest. What docs/operations.md says is lost then is all that is lost, and no fence comes again, not even one whose grant
/// was lost.
pub fn everysec(run: &Run) -> String {
    let server = everysec_server().start();
    let settings = Settings { think_us: 4_000, ..Settings::default() };
    let target = load::one_server(&server);
    let (mut kills, mut cuts, mut calls, mut lost_bytes, mut lost_us) = (0, 0, Vec::new(), 0, [0, 0]);
    while run.goes_on() || cuts == 0 {
        let mut rng = run.rng(kills + cuts);
        let bytes_before = newest_aof(&server).metadata().expect("look at the AOF").len();
        let start_us = now_us();
        let load = Load::start(run, kills + cuts, &settings, &target);
        pause(&mut rng, 1_200..3_200);
        let file = newest_aof(&server);
        let kill_us = now_us();
        server.kill9();
        load.tell_to_stop();
        let seen = load.finish();
        let syncs = Syncs::of(&server);
        let is_cut = rng.random_ratio(3, 4);
        let safe_us = if is_cut {
            let bytes = file.metadata().expect("look at the AOF").len();
            let kept = rng.random_range(syncs.synced_bytes.max(bytes_before)..=bytes);
            // It may end in the middle of a command.
            file.set_len(kept).expect("cut the AOF");
            lost_bytes += bytes - kept;
            cuts += 1;
            syncs.synced_written_us
        } else {
            kills += 1;
            syncs.written_us
        };
        let safe_us = safe_us.max(start_us);
        // Two seconds, as documented, and as long as the disk or the machine kept the server from its work.
        let window_us = kill_us.saturating_sub(safe_us);
        let stall_us = syncs.longest_sync_us + longest_us(&seen);
        assert!(
            window_us <= LOST_US + stall_us,
            "the last {window_us} us are lost, though nothing took longer than {stall_us} us; cut: {is_cut}, {syncs:?}"
        );
        lost_us[usize::from(is_cut)] = lost_us[usize::from(is_cut)].max(window_us);
        server.restart();
        let looks = load::audit(server.port(), &settings);
        for look in &looks {
            safe_part_is_there(&seen, look, safe_us);
        }
        calls.extend(seen);
        run.progress(|| format!("{kills} kills, {cuts} power cuts, {} calls, {lost_bytes} bytes lost", calls.len()));
    }
    let grants = rules::fences_rise(&calls);
    format!(
        "{kills} kills, at the worst of which the last {} ms could be lost; {cuts} power cuts with {lost_bytes} bytes lost, at the worst the last {} ms; every answer before that holds, of {} calls; {grants} fences rise, the lost ones too",
        lost_us[0] / 1_000,
        lost_us[1] / 1_000,
        calls.len()
    )
}

/// So much may be lost with `everysec`, says docs/operations.md.
const LOST_US: u64 = 2_000_000;

fn everysec_server() -> Builder {
    Server::builder()
        .env("LD_PRELOAD", &compile_c("syncs.c").display().to_string())
        .config("appendonly", "yes")
        .config("appendfsync", "everysec")
        .config("aof-load-truncated", "yes")
        .config("auto-aof-rewrite-percentage", "0")
}

/// What the library noted in the server's last life, in microseconds since the run began.
#[derive(Debug)]
struct Syncs {
    /// All that was answered before is in the file.
    written_us: u64,
    synced_bytes: u64,
    /// All that was answered before is on the disk.
    synced_written_us: u64,
    longest_sync_us: u64,
}

impl Syncs {
    #[track_caller]
    fn of(server: &Server) -> Self {
        let bytes = std::fs::read(server.folder().join("syncs")).expect("what syncs.c noted");
        let number = |index: usize| {
            let bytes = bytes.get(8 * index..8 * index + 8).expect("four numbers");
            u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
        };
        let since_begin = |at_us: u64| at_us.saturating_sub(zero_us());
        assert!(number(0) > 0, "the server wrote nothing that syncs.c saw");
        Self {
            written_us: since_begin(number(0)),
            synced_bytes: number(1),
            synced_written_us: since_begin(number(2)),
            longest_sync_us: number(3),
        }
    }
}

/// The longest call that did not have to wait for another.
fn longest_us(calls: &[Call]) -> u64 {
    let is_block = |call: &&Call| matches!(call.ask, Ask::Claim { mode: Mode::Block, .. });
    calls.iter().filter(|call| !is_block(call)).map(|call| call.end_us - call.start_us).max().unwrap_or_default()
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
