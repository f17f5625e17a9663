//! The clients of a page's sessions: real redis-cli processes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use super::page::{self, Block, Line, Page};
use crate::support::{PATIENCE, Server, stretched, wait_until};

/// How far a time in a reply may lie from the one on the page, in ms.
const TIME_LEEWAY_MS: u64 = 60_000;

/// Fields whose value a clock decides.
const TIMES: [&str; 3] = ["\"ttl-ms\"", "\"held-ms\"", "\"idle-ms\""];

/// Everybody who takes part in a page's sessions.
pub struct Talk<'s> {
    server: &'s Server,
    clients: HashMap<String, Client>,
    /// What stands on the page for a token or fence, and what the server has made instead.
    made: HashMap<String, String>,
}

struct Client {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
    /// It prints events, and takes no more commands.
    subscribed: bool,
    sent: usize,
}

impl<'s> Talk<'s> {
    pub fn with(server: &'s Server) -> Self {
        Self { server, clients: HashMap::new(), made: HashMap::new() }
    }

    /// Carries a session out; returns how many commands it had.
    pub fn hold(&mut self, page: &Page, block: &Block) -> usize {
        let lines: Vec<&str> = block.lines().collect();
        let mut commands = 0;
        let mut index = 0;
        while index < lines.len() {
            let place = format!("{}:{}", page.name, block.first_line + index);
            let replies =
                lines[index + 1..].iter().take_while(|text| matches!(page::line(text), Line::Reply(_))).count();
            let due = &lines[index + 1..index + 1 + replies];
            match page::line(lines[index]) {
                Line::Command { client, typed } => {
                    commands += 1;
                    self.send(client, typed);
                    if due.is_empty() {
                        self.wait_blocked(&place);
                    } else {
                        self.expect(client, typed, due, &place);
                    }
                }
                Line::Late { client } => self.expect(client, "", due, &place),
                Line::Reply(text) => panic!("{place}: whose reply is {text:?}?"),
            }
            index += 1 + replies;
        }
        commands
    }

    fn send(&mut self, client: &str, typed: &str) {
        let mut typed = self.made.iter().fold(typed.to_owned(), |typed, (shown, made)| typed.replace(shown, made));
        // A replica on a busy machine may take longer than the page's reader would wait.
        if let Some((replicas, _)) = typed.strip_prefix("WAIT ").and_then(|rest| rest.split_once(' ')) {
            typed = format!("WAIT {replicas} {}", PATIENCE.as_millis());
        }
        let server = self.server;
        let client = self.clients.entry(client.to_owned()).or_insert_with(|| Client::start(server));
        client.send(&typed);
    }

    fn wait_blocked(&self, place: &str) {
        let waits = || self.server.blocked_clients();
        wait_until(&format!("{place} to wait"), PATIENCE, || (waits() > 0).then_some(()));
    }

    fn expect(&mut self, client: &str, typed: &str, due: &[&str], place: &str) {
        let is_time = ["TTL", "PTTL"].contains(&typed.split(' ').next().unwrap_or_default());
        let client = self.clients.get_mut(client).unwrap_or_else(|| panic!("{place}: who is {client}?"));
        let due: Vec<_> = due.iter().copied().filter(|line| !is_notice(line)).collect();
        let mut got = client.reply(due.len(), place);
        got.retain(|line| !is_pause(line));
        let mut rest = got.iter();
        let mut before = "";
        let mut may_skip = false;
        for due in due {
            if due == "..." {
                may_skip = true;
                continue;
            }
            let is_time = is_time || TIMES.iter().any(|field| before.ends_with(field));
            let made = &mut self.made;
            let found = if may_skip {
                rest.any(|line| is_same(due, line, is_time, &mut made.clone()) && is_same(due, line, is_time, made))
            } else {
                rest.next().is_some_and(|line| is_same(due, line, is_time, made))
            };
            assert!(found, "{place}: not {due:?}; the reply is\n{}", got.join("\n"));
            may_skip = false;
            before = due;
        }
        assert!(may_skip || rest.next().is_none(), "{place}: there is more; the reply is\n{}", got.join("\n"));
    }
}

impl Client {
    fn start(server: &Server) -> Self {
        let mut child = redis_cli(server)
            .arg("--no-raw")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start redis-cli");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, receiver) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, input, output: receiver, subscribed: false, sent: 0 }
    }

    /// Types a line, and a mark behind which no more of its reply can come.
    fn send(&mut self, typed: &str) {
        self.sent += 1;
        self.subscribed |= typed.to_ascii_uppercase().split(' ').next().is_some_and(|word| word.ends_with("SUBSCRIBE"));
        let mark = if self.subscribed { String::new() } else { format!("{}\n", self.mark()) };
        self.input.write_all(format!("{typed}\n{mark}").as_bytes()).expect("type into redis-cli");
    }

    /// No command of this name exists, and that is an error which every user may have.
    fn mark(&self) -> String {
        format!("end-of-reply-{}", self.sent)
    }

    /// The lines of the reply, up to the mark; to a subscriber just `due` lines, since more may come at any time.
    fn reply(&mut self, due: usize, place: &str) -> Vec<String> {
        let end = self.mark();
        let mut lines = Vec::new();
        while !self.subscribed || lines.len() < due {
            let line = self.output.recv_timeout(stretched(PATIENCE)).unwrap_or_else(|why| {
                panic!("{place}: {why} behind\n{}", lines.join("\n"));
            });
            if line.contains(&end) {
                break;
            }
            if !is_notice(&line) {
                lines.push(line);
            }
        }
        // redis-cli leaves an empty line behind the sections of INFO.
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command as a shell would, its redis-cli being that of `server`; panics if a reply is an error or a part fails.
pub fn run_in_shell(server: &Server, command: &str) {
    let script =
        format!("set -o pipefail\nredis-cli() {{ command redis-cli -e -p {} \"$@\"; }}\n{command}\n", server.port());
    let Output { status, stdout, stderr } =
        Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).output().expect("run bash");
    let said = [stdout, stderr].concat();
    assert!(status.success(), "{command}: {}", String::from_utf8_lossy(&said));
}

fn redis_cli(server: &Server) -> Command {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.port().to_string()]);
    command
}

/// Whether it is what redis-cli says to a subscriber at a terminal, and older ones to a pipe as well.
fn is_notice(line: &str) -> bool {
    line.starts_with("Reading messages...")
}

/// Whether it is how long the reply took, as redis-cli adds it to slow ones: `(0.58s)`.
fn is_pause(line: &str) -> bool {
    let seconds = line.strip_prefix('(').and_then(|rest| rest.strip_suffix("s)"));
    seconds.is_some_and(|seconds| seconds.parse::<f64>().is_ok())
}

/// Whether a line of a reply is the one on the page, but for what a clock or chance decides.
fn is_same(due: &str, line: &str, is_time: bool, made: &mut HashMap<String, String>) -> bool {
    if let Some(start) = due.strip_suffix(" ...") {
        return line.starts_with(start);
    }
    let (due, line) = (words(due), words(line));
    due.len() == line.len() && due.iter().zip(&line).all(|(due, found)| is_same_word(due, found, is_time, made))
}

fn is_same_word(due: &str, found: &str, is_time: bool, made: &mut HashMap<String, String>) -> bool {
    if is_time && let (Ok(due), Ok(found)) = (due.parse::<u64>(), found.parse::<u64>()) {
        return due.abs_diff(found) <= TIME_LEEWAY_MS;
    }
    if let Some(made) = made.get(due) {
        return made == found;
    }
    if (is_fence(due) && is_fence(found)) || (is_token(due) && is_token(found)) {
        made.insert(due.to_owned(), found.to_owned());
        return true;
    }
    due == found
}

/// A fence is the time in microseconds.
fn is_fence(word: &str) -> bool {
    word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// A token that the server makes.
fn is_token(word: &str) -> bool {
    word.len() == 32 && word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Runs of letters and digits, and each other character by itself.
fn words(line: &str) -> Vec<&str> {
    line.split_inclusive(|c: char| !c.is_ascii_alphanumeric())
        .flat_map(|part| {
            let end = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len();
            [&part[..end], &part[end..]]
        })
        .filter(|word| !word.is_empty())
        .collect()
}
