//! Clients in processes of their own: other programs, or this one, which can then be stopped and killed apart from the
//! prover. A worker says `ready` on its standard output; is told on its standard input what to do, one line of JSON for each
//! round and the line `stop` at its end; and then tells what its clients were told, one line for each record and the line
//! `done`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::call::{Attempt, Call, count_from, zero_us};
use crate::load::{self, Load, Settings};
use crate::run::Run;
use crate::support::PATIENCE;

/// The argument with which this program is a worker.
pub const ARGUMENT: &str = "--worker";
/// So many attempts of a worker have numbers of their own.
const ATTEMPTS: Attempt = 20_000_000;

/// What a worker does in one round.
#[derive(Serialize, Deserialize)]
struct Job {
    seed: u64,
    /// Each with clients of its own.
    loads: Vec<Settings>,
}

/// What a worker tells.
#[derive(Debug, Serialize, Deserialize)]
pub enum Record {
    Call {
        load: usize,
        call: Call,
    },
    Section(Section),
    /// What the commands without a key said of a whole cluster, at the end of a round.
    Everywhere {
        listed: usize,
        revoked: usize,
    },
}

/// Work that a worker did while it knew that it held a lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Section {
    pub key: String,
    pub fence: u64,
    /// After the claim was answered.
    pub enter_us: u64,
    /// When it last asked its clock whether the lock is still its own, before the release.
    pub leave_us: u64,
}

/// A client process, ended when dropped.
pub struct Worker {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Worker {
    /// Starts `command` with two more arguments: the zero of the run's times in microseconds of the monotonic clock, and
    /// the number before its first attempt.
    pub fn start(mut command: Command, number: u32) -> Self {
        command.arg(zero_us().to_string()).arg((number * ATTEMPTS).to_string());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, input, lines }
    }

    /// This program as a worker on one server.
    pub fn of_this_program(port: u16, number: u32) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(ARGUMENT).arg(port.to_string());
        Self::start(command, number)
    }

    /// Waits until it could begin.
    #[track_caller]
    pub fn wait_ready(&mut self) {
        assert_eq!(self.line(), "ready", "a worker's first line");
    }

    pub fn begin(&mut self, seed: u64, loads: Vec<Settings>) {
        let job = serde_json::to_string(&Job { seed, loads }).expect("a job as JSON");
        writeln!(self.input, "{job}").expect("tell a worker what to do");
    }

    pub fn tell_to_stop(&mut self) {
        writeln!(self.input, "stop").expect("tell a worker to stop");
    }

    /// Waits for all that its clients were told, after it was told to stop.
    #[track_caller]
    pub fn finish(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        loop {
            let line = self.line();
            if line == "done" {
                return records;
            }
            let record = serde_json::from_str(&line);
            records.push(record.unwrap_or_else(|error| panic!("a worker said {line:?}: {error}")));
        }
    }

    #[track_caller]
    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a worker's next line")
    }

    pub fn sigstop(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub fn sigcont(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a pid"));
        kill(pid, signal).expect("signal a worker");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The life of this program as a worker: its arguments are a server's port and what [`Worker::start`] adds.
pub fn work(arguments: &[String]) -> Result<(), String> {
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<u64>().ok());
    let (Some(port), Some(zero_us), Some(first)) = (number(0), number(1), number(2)) else {
        return Err(format!("{ARGUMENT} is for this program's own use"));
    };
    count_from(zero_us);
    load::number_attempts_from(first.try_into().map_err(|_| "no attempt's number")?);
    let target = load::on_port(port.try_into().map_err(|_| "no port")?);
    println!("ready");
    let mut loads: Vec<Load> = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| error.to_string())?;
        if line != "stop" {
            let job: Job = serde_json::from_str(&line).map_err(|error| error.to_string())?;
            let run = Run::seeded("worker", Duration::ZERO, job.seed);
            loads = job.loads.iter().map(|settings| Load::start(&run, 0, settings, &target)).collect();
            continue;
        }
        let mut output = std::io::stdout().lock();
        loads.iter().for_each(Load::tell_to_stop);
        for (load, clients) in loads.drain(..).enumerate() {
            for call in clients.finish() {
                let record = serde_json::to_string(&Record::Call { load, call }).expect("a record as JSON");
                writeln!(output, "{record}").map_err(|error| error.to_string())?;
            }
        }
        writeln!(output, "done").map_err(|error| error.to_string())?;
        output.flush().map_err(|error| error.to_string())?;
    }
    Ok(())
}
