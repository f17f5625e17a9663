//! A server process that belongs to one test.

use std::fs::File;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::RedisConnectionInfo;

use super::builder::{Builder, StartFailure};
use super::conn::Conn;
use super::folder::Folder;
use super::memcheck::{self, stretched};
use super::ports::Port;
use super::raw::Raw;
use super::wait::{PATIENCE, wait_until};

/// How often another port is tried when something else was quicker to take it.
const PORT_ATTEMPTS: usize = 5;

/// How many lines of the log a failed test shows.
const LOG_TAIL: usize = 40;

/// What a server writes into its log when it crashes.
const CRASH_MARKS: [&str; 3] = ["BUG REPORT START", "ASSERTION FAILED", "panicked at"];

/// A running server, ended when it is dropped. A test whose server dies or crashes unasked fails.
#[derive(Debug)]
pub struct Server {
    port: Port,
    state: Mutex<State>,
    // Dropped last: the process is ended before its folder goes.
    folder: Folder,
}

#[derive(Debug)]
struct State {
    plan: Builder,
    child: Child,
    /// The test has ended it, or has said that it will end.
    end_is_expected: bool,
    /// The test has said that it will crash.
    crash_is_expected: bool,
}

impl Server {
    /// A server of the chosen kind with the module, nothing persistent.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(super) fn launch(plan: Builder) -> Result<Self, StartFailure> {
        for _ in 1..PORT_ATTEMPTS {
            match Self::launch_once(plan.clone()) {
                Err(failure) if failure.log.contains("Address already in use") => {}
                outcome => return outcome,
            }
        }
        Self::launch_once(plan)
    }

    fn launch_once(plan: Builder) -> Result<Self, StartFailure> {
        let port = Port::take();
        let folder = Folder::new();
        let child = spawn(&plan, port.number, folder.path());
        let server = Self {
            port,
            folder,
            state: Mutex::new(State { plan, child, end_is_expected: false, crash_is_expected: false }),
        };
        match server.wait_ready() {
            Ok(()) => Ok(server),
            Err(why) => {
                server.state().end_is_expected = true;
                let log = server.log();
                Err(StartFailure { why, log })
            }
        }
    }

    /// A connection in RESP2.
    #[track_caller]
    pub fn conn(&self) -> Conn {
        self.conn_with(Conn::resp2())
    }

    /// A connection in RESP3.
    #[track_caller]
    pub fn conn3(&self) -> Conn {
        self.conn_with(Conn::resp3())
    }

    /// A connection with a user, a database or a protocol: `server.conn_with(Conn::resp3().set_db(3))`.
    #[track_caller]
    pub fn conn_with(&self, settings: RedisConnectionInfo) -> Conn {
        Conn::open(self.port(), settings).expect("connect to the server")
    }

    /// A plain socket.
    #[track_caller]
    pub fn raw(&self) -> Raw {
        Raw::connect(self.port())
    }

    pub fn port(&self) -> u16 {
        self.port.number
    }

    pub fn pid(&self) -> u32 {
        self.state().child.id()
    }

    /// The folder with its data, its `server.conf` and its `server.log`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// All that the server has written, over all its starts.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.folder().join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The settings that it was started with.
    pub fn plan(&self) -> Builder {
        self.state().plan.clone()
    }

    pub fn is_alive(&self) -> bool {
        self.state().exit_status().is_none()
    }

    /// Ends it as a power cut does to a process, and waits until it is gone.
    pub fn kill9(&self) {
        self.end_by(Signal::SIGKILL);
    }

    /// Ends it in order (SIGTERM), and waits until it is gone.
    pub fn stop(&self) -> ExitStatus {
        self.end_by(Signal::SIGTERM)
    }

    /// The process stands still, with all its connections, until `sigcont`.
    pub fn sigstop(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub fn sigcont(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Starts it again in the same folder and on the same port, after it was stopped in order if it still runs.
    #[track_caller]
    pub fn restart(&self) {
        self.restart_with(|plan| plan);
    }

    /// The same with other settings: `server.restart_with(Builder::without_module)`.
    #[track_caller]
    pub fn restart_with(&self, settings: impl FnOnce(Builder) -> Builder) {
        if let Err(StartFailure { why, log }) = self.try_restart_with(settings) {
            panic!("{why}\n{log}");
        }
    }

    /// The same for a server that must refuse to start.
    pub fn try_restart_with(&self, settings: impl FnOnce(Builder) -> Builder) -> Result<(), StartFailure> {
        if self.is_alive() {
            self.stop();
        }
        {
            let mut state = self.state();
            state.plan = settings(state.plan.clone());
            state.child = spawn(&state.plan, self.port(), self.folder());
            state.end_is_expected = false;
        }
        self.wait_ready().map_err(|why| {
            self.state().end_is_expected = true;
            let log = self.log();
            StartFailure { why, log }
        })
    }

    /// Says that the server will end by itself, by SHUTDOWN say; waits for it and returns how it ended.
    #[track_caller]
    pub fn wait_end(&self) -> ExitStatus {
        self.state().end_is_expected = true;
        wait_until("the server to end", PATIENCE, || self.state().exit_status())
    }

    /// Says that the log will show a crash and that this is no failure.
    pub fn expect_crash(&self) {
        let mut state = self.state();
        state.end_is_expected = true;
        state.crash_is_expected = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that failed in another thread is reported there.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, signal: Signal) {
        let state = self.state();
        let pid = Pid::from_raw(i32::try_from(state.child.id()).expect("a process id"));
        kill(pid, signal).unwrap_or_else(|error| panic!("{signal} to the server: {error}"));
    }

    fn end_by(&self, signal: Signal) -> ExitStatus {
        {
            let mut state = self.state();
            if let Some(status) = state.exit_status() {
                return status;
            }
            state.end_is_expected = true;
        }
        self.signal(signal);
        wait_until("the server to end", PATIENCE, || self.state().exit_status())
    }

    /// Lets the server end by itself, since memcheck looks for leaks at the end of a process; within a bound, since it
    /// may have been left in a state in which it doesn't end.
    fn end_in_order(&self) {
        if !self.is_alive() {
            return;
        }
        self.signal(Signal::SIGCONT);
        self.signal(Signal::SIGTERM);
        let start = Instant::now();
        while self.is_alive() && start.elapsed() < PATIENCE {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Waits until this very process serves, or says why it does not.
    fn wait_ready(&self) -> Result<(), String> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.state().exit_status() {
                return Err(format!("the server has ended with {status}"));
            }
            if self.serves() {
                return Ok(());
            }
            if start.elapsed() > stretched(PATIENCE) {
                return Err(format!("the server does not serve after {:?}", start.elapsed()));
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    fn serves(&self) -> bool {
        let Ok(mut conn) = Conn::open(self.port(), Conn::resp2()) else {
            return false;
        };
        match conn.call(("PING",)) {
            // Loading, or gone again: no answer of the server's own.
            Err(error) if error.starts_with("LOADING") || !has_code(&error) => return false,
            _ => {}
        }
        // Someone else's server on this port would answer as well. One that wants a password says nothing here.
        match conn.call(("INFO", "server")) {
            Ok(info) => {
                let text = String::from_utf8_lossy(&super::bytes(&info)).into_owned();
                super::info::find(&text, "process_id") == Some(self.pid().to_string())
            }
            Err(error) => has_code(&error),
        }
    }

    /// What speaks against the server at the end of its test.
    fn complaint(&self) -> Option<String> {
        let mut state = self.state();
        if let Some(status) = state.exit_status()
            && !state.end_is_expected
        {
            return Some(format!("the server has died: {status}"));
        }
        let may_crash = state.crash_is_expected;
        drop(state);
        let log = self.log();
        let mark = CRASH_MARKS.iter().find(|mark| log.contains(**mark))?;
        (!may_crash).then(|| format!("the server's log has {mark:?}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let complaint = self.complaint();
        if memcheck::is_on() && !std::thread::panicking() {
            self.end_in_order();
        }
        let mut state = self.state();
        // Fails if it has ended already, and then there is nothing to end.
        let _ = state.child.kill();
        let _ = state.child.wait();
        drop(state);
        if complaint.is_some() || std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(LOG_TAIL)..];
            eprintln!("the log of port {} ends:\n{}", self.port(), tail.join("\n"));
        }
        if let Some(complaint) = complaint
            && !std::thread::panicking()
        {
            panic!("{complaint}");
        }
    }
}

/// Whether an error is one that a server sent, and not the connection's: those begin with a code in capitals.
fn has_code(error: &str) -> bool {
    let code = error.split(' ').next().unwrap_or_default();
    !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase())
}

impl State {
    fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("look after the server")
    }
}

fn spawn(plan: &Builder, port: u16, folder: &Path) -> Child {
    let config = folder.join("server.conf");
    std::fs::write(&config, plan.config_text(port, folder)).expect("write the configuration");
    let log = File::options().create(true).append(true).open(folder.join("server.log")).expect("open the log");
    let program = plan.kind.program();
    memcheck::command(&program)
        .arg(&config)
        .envs(plan.env.iter().map(|(name, value)| (name, value)))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(log.try_clone().expect("open the log twice"))
        .stdout(log)
        .spawn()
        .unwrap_or_else(|error| panic!("start {}: {error}", program.display()))
}
