//! The whole program, in a pseudo-terminal, beside a real server with the module.

mod support;

use std::path::PathBuf;

use prlock_top::client::{Client, Freed};
use prlock_top::options::Options;
use redis::Value;
use support::{Screen, Server, free_port, wait_until};

fn held(server: &Server, key: &str) -> Option<(String, u64)> {
    match server.call(&["PRLOCK.INFO", key]) {
        Value::Array(flat) => {
            let lock: std::collections::HashMap<String, redis::Value> =
                redis::from_redis_value(Value::Array(flat)).expect("a map");
            let holder = redis::from_redis_value(lock["holder"].clone()).expect("a holder");
            let fence = redis::from_redis_value(lock["fence"].clone()).expect("a fence");
            Some((holder, fence))
        }
        _ => None,
    }
}

#[test]
fn locks_come_go_and_are_found() {
    let server = Server::start();
    let mut screen = Screen::open(80, 24, &[&server.address(), "--every", "0.2"]);
    screen.shows(&["no locks are held in database 0", "primary", "live"]);
    for number in 1..=5 {
        let holder = format!("worker-{}", number % 2);
        server.call(&["PRLOCK.CLAIM", &format!("order:{number}"), "EX", "600", "TOKEN", "t", "HOLDER", &holder]);
    }
    screen.shows(&["5 locks", "order:1", "order:5", "worker-1", "claims granted 5"]);
    server.call(&["PRLOCK.RENEW", "order:3", "t", "EX", "700"]);
    screen.shows(&["renewals done 1"]);

    screen.press("horder");
    screen.press("\x15worker-0\r");
    let text = screen.shows(&["2 locks", "holder worker-0"]);
    assert!(text.contains("order:2") && !text.contains("order:3 "), "{text}");
    screen.press("\x1b");
    screen.shows(&["5 locks"]);
    screen.press("/order:[12]\r");
    screen.shows(&["2 locks", "keys like order:[12]"]);
    screen.press("\x1b");
    screen.shows(&["5 locks"]);

    screen.press("s");
    screen.shows(&["by holder ↑"]);
    screen.press("r");
    screen.shows(&["by holder ↓"]);

    screen.resize(200, 50);
    screen.shows(&["LINGER", "KEY"]);
    screen.resize(40, 8);
    screen.shows(&["too small: 40x8"]);
    screen.resize(80, 24);
    screen.shows(&["5 locks", "HOLDER"]);

    screen.press("q");
    assert!(screen.ends());
}

#[test]
fn a_lock_is_freed_after_a_question_and_goes_to_who_waits() {
    let server = Server::start();
    server.call(&["PRLOCK.CLAIM", "order:1", "EX", "600", "HOLDER", "worker-1"]);
    let mut screen = Screen::open(80, 24, &[&server.address(), "--every", "0.2"]);
    screen.shows(&["order:1", "worker-1"]);
    let waiting = {
        let mut conn = server.conn();
        std::thread::spawn(move || -> Value {
            let mut claim = redis::cmd("PRLOCK.CLAIM");
            claim.arg("order:1").arg("EX").arg(600).arg("HOLDER").arg("worker-2").arg("BLOCK").arg(30_000);
            claim.query(&mut conn).expect("a grant")
        })
    };
    screen.shows(&["waiting 1"]);
    screen.press("f");
    screen.shows(&["free this lock?", "One client waits for it"]);
    screen.press("n");
    screen.hides("free this lock?");
    assert_eq!(held(&server, "order:1").map(|(holder, _)| holder).as_deref(), Some("worker-1"));
    screen.press("f");
    screen.shows(&["free this lock?"]);
    screen.press("y");
    screen.shows(&["freed order:1: the next who waited has it now"]);
    assert!(matches!(waiting.join(), Ok(Value::Array(_))));
    screen.shows(&["worker-2"]);

    screen.press("f");
    screen.shows(&["free this lock?", "Nobody waits for it"]);
    // The lock goes to somebody else while the question is asked.
    server.call(&["PRLOCK.CLAIM", "order:1", "EX", "600", "HOLDER", "worker-3", "STEAL"]);
    screen.press("y");
    screen.shows(&["left alone: order:1 has a newer grant", "worker-3"]);
    assert_eq!(held(&server, "order:1").map(|(holder, _)| holder).as_deref(), Some("worker-3"));
}

#[test]
fn freeing_hits_just_the_grant_that_was_meant() {
    let server = Server::start();
    let options = <Options as clap::Parser>::parse_from(["prlock-top", &server.address()]);
    let mut client = Client::open(&options.target().expect("a target")).expect("a connection");

    server.call(&["PRLOCK.CLAIM", "a", "EX", "600", "TOKEN", "t"]);
    let (_, fence) = held(&server, "a").expect("a lock");
    assert_eq!(client.free(b"a", fence), Ok(Freed::Free));
    assert_eq!(held(&server, "a"), None);
    assert_eq!(client.free(b"a", fence), Ok(Freed::WasFree));

    server.call(&["PRLOCK.CLAIM", "a", "EX", "600", "TOKEN", "t", "HOLDER", "w"]);
    let (_, newer) = held(&server, "a").expect("a lock");
    assert_eq!(client.free(b"a", fence), Ok(Freed::Newer { holder: b"w".to_vec(), fence: newer }));
    assert_eq!(held(&server, "a").map(|(_, fence)| fence), Some(newer));

    // A plain string is no lock, and stays.
    server.call(&["SET", "plain", "x"]);
    assert_eq!(client.free(b"plain", fence), Ok(Freed::WasFree));
    assert_eq!(server.call(&["GET", "plain"]), Value::BulkString(b"x".to_vec()));
    server.call(&["LPUSH", "list", "x"]);
    assert!(client.free(b"list", fence).is_err_and(|problem| problem.text.starts_with("WRONGTYPE")));
    // After all this the connection watches nothing.
    assert_eq!(client.free(b"a", newer), Ok(Freed::Free));
}

#[test]
fn fifty_thousand_locks_are_paged_and_the_server_has_time_for_others() {
    let server = Server::start();
    server.fill(50_000);
    server.call(&["CONFIG", "RESETSTAT"]);
    let mut screen = Screen::open(200, 50, &[&server.address(), "--every", "0.2"]);
    screen.shows(&["50,000 locks · rows 1–", "order:000000"]);
    screen.press("G");
    screen.shows(&["order:049999", "–50,000 "]);
    screen.press("\x1b[5~");
    screen.hides("order:049999");
    screen.press("g");
    screen.shows(&["order:000000"]);
    // What is on the screen stays fresh between two rounds.
    server.call(&["PRLOCK.RENEW", "order:000000", "t", "EX", "60"]);
    screen.shows(&["renewals done 1"]);
    wait_until("the renewed lock's new deadline", || {
        let text = screen.text();
        let row = text.lines().find(|line| line.contains(" order:000000 ")).unwrap_or_default().to_owned();
        if row.contains(" 59s ") || row.contains(" 1m00s ") { Ok(()) } else { Err(text) }
    });
    // No single call holds the others up: a page has at most 500 locks.
    let stats = server.call(&["INFO", "commandstats"]);
    let stats: String = redis::from_redis_value(stats).expect("a text");
    let line =
        stats.lines().find(|line| line.to_lowercase().starts_with("cmdstat_prlock.list")).expect("LIST was called");
    let mean: f64 =
        line.split("usec_per_call=").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok()).expect("a mean");
    assert!(mean < 50_000.0, "{line}");
}

#[test]
fn a_lost_server_is_waited_for() {
    let mut server = Server::start();
    server.call(&["PRLOCK.CLAIM", "order:1", "EX", "600"]);
    let mut screen = Screen::open(120, 24, &[&server.address(), "--every", "0.2"]);
    screen.shows(&["order:1", "live"]);
    server.stop();
    screen.shows(&["again in", "order:1"]);
    server.launch_again();
    screen.shows(&["connected again", "live", "no locks are held"]);
    server.call(&["PRLOCK.CLAIM", "order:2", "EX", "600"]);
    screen.shows(&["order:2"]);
    screen.press("q");
    assert!(screen.ends());
}

#[test]
fn a_server_that_lost_the_module_shows_no_locks_and_the_reason() {
    let mut server = Server::start();
    server.call(&["PRLOCK.CLAIM", "order:1", "EX", "600"]);
    let mut screen = Screen::open(120, 24, &[&server.address(), "--every", "0.2"]);
    screen.shows(&["order:1", "live"]);
    server.lose_module();
    screen.shows(&["no locks to see", "no list", "this server has no PRLOCK module: load it with"]);
    screen.hides("order:1");
    let module = support::module().display().to_string();
    server.call(&["MODULE", "LOAD", &module]);
    server.call(&["PRLOCK.CLAIM", "order:2", "EX", "600"]);
    screen.shows(&["order:2", "live"]);
    screen.press("q");
    assert!(screen.ends());
}

#[test]
fn a_lock_that_cannot_be_freed_stays_and_the_reason_is_said() {
    let server = Server::start();
    server.call(&["PRLOCK.CLAIM", "order:1", "EX", "600"]);
    let replica = Server::with(&["--replicaof", "127.0.0.1", &server.port.to_string()]);
    let mut screen = Screen::open(120, 24, &[&replica.address(), "--every", "0.2"]);
    screen.shows(&["order:1", "replica", "live"]);
    screen.press("fy");
    screen.shows(&["not freed: this is a replica: a lock can be freed on its primary only"]);

    let mut screen = Screen::open(120, 24, &[&server.address(), "--every", "0.2"]);
    screen.shows(&["order:1", "primary", "live"]);
    server.call(&["CONFIG", "SET", "maxmemory", "1"]);
    screen.press("fy");
    screen.shows(&["not freed: the server is at maxmemory", "DEL frees it"]);
    assert!(held(&server, "order:1").is_some());
}

#[test]
fn it_speaks_resp3() {
    let server = Server::start();
    server.call(&["PRLOCK.CLAIM", "order:1", "EX", "600", "HOLDER", "worker-1"]);
    let screen = Screen::open(80, 24, &[&server.address(), "--every", "0.2"]);
    screen.shows(&["order:1", "worker-1", "live"]);
    let clients: String = redis::from_redis_value(server.call(&["CLIENT", "LIST"])).expect("a text");
    // Beside the connection that asked.
    let protocols: Vec<&str> = clients
        .lines()
        .filter(|line| !line.contains(" cmd=client"))
        .filter_map(|line| line.split(' ').find_map(|field| field.strip_prefix("resp=")))
        .collect();
    assert_eq!(protocols, ["3"], "{clients}");
}

/// What it says when it cannot even begin.
fn refusal(args: &[&str], env: &[(&str, &str)]) -> String {
    let mut screen = Screen::open_with(200, 24, args, env);
    assert!(!screen.ends(), "it was to fail: {}", screen.text());
    // The text may still be on its way.
    screen.shows(&["prlock-top: "])
}

#[test]
fn what_is_wrong_from_the_start_is_said_in_one_line() {
    let nobody = format!("127.0.0.1:{}", free_port());
    assert!(refusal(&[&nobody], &[]).contains(&format!("nothing listens on {nobody}")));

    let plain = Server::without_module();
    assert!(refusal(&[&plain.address()], &[]).contains("this server has no PRLOCK module: load it with"));

    let server = Server::with(&["--requirepass", "right"]);
    let none = refusal(&[&server.address()], &[]);
    assert!(none.contains("the server wants a password: set REDISCLI_AUTH"), "{none}");
    let wrong = refusal(&[&server.address()], &[("REDISCLI_AUTH", "wrong-one")]);
    assert!(wrong.contains("wrong user or password (user 'default')"), "{wrong}");
    assert!(!wrong.contains("wrong-one"), "{wrong}");
    Screen::open_with(80, 24, &[&server.address()], &[("REDISCLI_AUTH", "right")]).shows(&["live"]);

    let odd = refusal(&["http://127.0.0.1"], &[]);
    assert!(odd.contains("the address is not of the form"), "{odd}");
}

#[test]
fn a_user_s_rights_decide_what_is_seen_and_done() {
    let server = Server::start();
    for key in ["mine:1", "other:1"] {
        server.call(&["PRLOCK.CLAIM", key, "EX", "600", "HOLDER", "worker-1"]);
    }
    server.call(&["ACL", "SETUSER", "viewer", "on", ">pw", "~mine:*", "+prlock.list", "+prlock.info", "+info"]);
    server.call(&["ACL", "SETUSER", "nobody", "on", ">pw", "~*", "+info"]);
    server.call(&["ACL", "SETUSER", "lister", "on", ">pw", "~*", "+prlock.list"]);

    let nothing = refusal(&[&server.address(), "--user", "nobody"], &[("REDISCLI_AUTH", "pw")]);
    assert!(nothing.contains("ACL SETUSER nobody +prlock.list"), "{nothing}");

    let address = format!("redis://viewer:pw@127.0.0.1:{}", server.port);
    let mut screen = Screen::open(200, 24, &[&address, "--every", "0.2"]);
    let text = screen.shows(&["1 lock ", "mine:1", "held 2"]);
    assert!(!text.contains("other:1") && !text.contains(":pw@"), "{text}");
    screen.press("f");
    screen.shows(&["free this lock?"]);
    screen.press("y");
    screen.shows(&["not freed: user 'viewer' may not do this"]);
    assert!(held(&server, "mine:1").is_some());

    // The rights that the README names for freeing.
    let more = "+prlock.claim +prlock.release +watch +unwatch +multi +exec";
    let rules: Vec<&str> = ["ACL", "SETUSER", "viewer"].into_iter().chain(more.split(' ')).collect();
    server.call(&rules);
    screen.press("fy");
    screen.shows(&["freed mine:1"]);
    assert!(held(&server, "mine:1").is_none() && held(&server, "other:1").is_some());
    server.call(&["PRLOCK.CLAIM", "mine:1", "EX", "600", "HOLDER", "worker-1"]);

    let lister = Screen::open_with(200, 24, &[&server.address(), "-u", "lister"], &[("REDISCLI_AUTH", "pw")]);
    lister.shows(&["2 locks", "other:1", "no counters: user 'lister'"]);
}

/// The README's own lines, as they stand there.
#[test]
fn the_rights_that_the_readme_names_are_enough() {
    let readme = include_str!("../README.md");
    let lines: Vec<&str> = readme.lines().filter(|line| line.starts_with("ACL SETUSER looker ")).collect();
    let [to_look, to_free] = lines[..] else { panic!("{lines:?}") };
    let words =
        |line: &'static str| -> Vec<&str> { line.split('#').next().unwrap_or(line).split_whitespace().collect() };
    let server = Server::start();
    server.call(&words(to_look));
    let address = format!("redis://looker@127.0.0.1:{}/2", server.port);
    let mut screen = Screen::open_with(120, 24, &[&address, "--every", "0.2"], &[("REDISCLI_AUTH", "secret")]);
    screen.shows(&["no locks are held in database 2", "claims granted 0"]);
    server.call(&[
        "EVAL",
        "redis.call('SELECT', 2) return redis.call('PRLOCK.CLAIM', KEYS[1], 'EX', 600)",
        "1",
        "order:1",
    ]);
    screen.shows(&["1 lock ", "order:1"]);
    screen.press("fy");
    screen.shows(&["not freed: user 'looker' may not do this"]);
    server.call(&words(to_free));
    screen.press("fy");
    screen.shows(&["freed order:1", "no locks are held in database 2"]);
}

/// Each line that the README types into a shell, with the test's server in place of its own; `cargo`'s are for
/// scripts/test-pages.
#[test]
fn the_command_lines_that_the_readme_names_run() {
    let readme = include_str!("../README.md");
    let block = readme.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block for a shell");
    let folder = Folder::new("lines");
    let (server, tls_port) = server_with_tls(&folder, "ca.pem");
    server.call(&["ACL", "SETUSER", "ops", "on", ">secret", "~*", "+prlock.list", "+prlock.info", "+info", "+select"]);
    for (key, holder) in [("order:1", "worker-7"), ("order:2", "worker-1"), ("other:1", "worker-7")] {
        server.call(&["PRLOCK.CLAIM", key, "EX", "600", "HOLDER", holder]);
    }
    let script = "redis.call('SELECT', 2) return redis.call('PRLOCK.CLAIM', KEYS[1], 'EX', 600)";
    server.call(&["EVAL", script, "1", "in-db-2"]);
    let address = format!("127.0.0.1:{}", server.port);

    let mut run = 0;
    for line in block.lines().filter(|line| line.starts_with("prlock-top")) {
        let (typed, comment) = line.split_once("  #").or(line.split_once(" # ")).unwrap_or((line, ""));
        let typed = typed.trim();
        let (typed, shown, hidden) = match typed {
            "prlock-top" => {
                let options = <Options as clap::Parser>::parse_from(["prlock-top"]);
                assert_eq!(options.target().expect("a target").address, comment.trim());
                (format!("{typed} {address}"), vec!["3 locks", "order:1", "other:1"], "in-db-2")
            }
            _ if typed.contains("redis://ops@") => {
                (typed.replace("locks.example.org:6380", &address), vec!["1 lock ", "in-db-2"], "order:1")
            }
            _ if typed.contains("rediss://") => {
                let there = format!("localhost:{tls_port}");
                (typed.replace("locks.example.org", &there), vec!["3 locks", "order:1"], "in-db-2")
            }
            _ if typed.contains("--match") => {
                (format!("{typed} {address}"), vec!["1 lock ", "order:1", "keys like order:*"], "other:1")
            }
            _ => panic!("no test for the README's line: {line}"),
        };
        assert!(!typed.contains("example.org"), "{typed}");
        let env: &[_] = if line.contains("REDISCLI_AUTH") { &[("REDISCLI_AUTH", "secret")] } else { &[] };
        let mut screen = Screen::type_in_shell(&typed, &folder.0, env);
        let text = screen.shows(&[&shown[..], &["live"]].concat());
        assert!(!text.contains(hidden), "{typed}: {text}");
        screen.press("q");
        assert!(screen.ends());
        run += 1;
    }
    assert_eq!(run, 4);
}

/// A folder of a test's own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("prlock-top-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("make a folder");
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that speaks TLS at the port that comes with it, by a certificate in this file that also is its authority.
fn server_with_tls(folder: &Folder, certificate: &str) -> (Server, u16) {
    let (certificate, key) = (folder.file(certificate), folder.file("key.pem"));
    let status = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &key, "-out", &certificate])
        .stderr(std::process::Stdio::null())
        .status()
        .expect("openssl");
    assert!(status.success());
    let port = free_port();
    let args = ["--tls-port", &port.to_string(), "--tls-cert-file", &certificate, "--tls-key-file", &key];
    (Server::with(&[&args[..], &["--tls-auth-clients", "no"]].concat()), port)
}

#[test]
fn tls_works_with_the_certificates_that_it_is_given() {
    let folder = Folder::new("tls");
    let (server, tls_port) = server_with_tls(&folder, "cert.pem");
    server.call(&["PRLOCK.CLAIM", "order:1", "EX", "600"]);
    let address = format!("rediss://localhost:{tls_port}");
    let mut screen = Screen::open(80, 24, &[&address, "--cacert", &folder.file("cert.pem")]);
    screen.shows(&["order:1", "live"]);
    screen.press("q");
    assert!(screen.ends());
    let distrust = refusal(&[&address], &[]);
    assert!(distrust.contains("certificate"), "{distrust}");
}
