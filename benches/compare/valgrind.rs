//! A server whose instructions callgrind counts.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::profile::Profile;
use crate::support::{Conn, PATIENCE, module_path, server_kind, wait_until};

/// What is counted.
#[derive(Clone, Copy)]
pub enum Count {
    Instructions,
    /// Reads and writes that reach the memory behind a last cache of 2 MB, as large as what a core has for itself. Callgrind
    /// plays the caches, so that they are the same on every machine.
    Misses,
}

impl Count {
    const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Instructions => &[],
            Self::Misses => &["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=2097152,16,64"],
        }
    }

    /// In callgrind's names.
    const fn events(self) -> &'static [&'static str] {
        match self {
            Self::Instructions => &["Ir"],
            Self::Misses => &["DLmr", "DLmw"],
        }
    }
}

pub struct Valgrind {
    child: Child,
    count: Count,
    port: u16,
    folder: PathBuf,
}

impl Valgrind {
    pub fn start(has_module: bool, count: Count) -> Self {
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("prlock-valgrind-{}-{port}", std::process::id()));
        fs::create_dir(&folder).expect("make a folder for the server");
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--instr-atstart=no"]).args(count.options());
        command.arg(format!("--callgrind-out-file={}", folder.join("counts").display()));
        command.arg(server_kind().program());
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--enable-debug-command", "yes"]).arg("--dir").arg(&folder);
        if has_module {
            command.arg("--loadmodule").arg(module_path());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("start valgrind");
        wait_until("the server in valgrind to serve", PATIENCE, || {
            assert!(child.try_wait().expect("look after the server").is_none(), "the server in valgrind has ended");
            Conn::open(port, Conn::resp2()).ok()?.call(("PING",)).ok()
        });
        Self { child, count, port, folder }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn conn(&self) -> Conn {
        Conn::open(self.port, Conn::resp2()).expect("connect to the server")
    }

    /// Counts while `work` is done, and ends the server.
    pub fn profile_of(mut self, work: impl FnOnce()) -> Profile {
        self.control("on");
        work();
        self.control("off");
        kill(self.pid(), Signal::SIGTERM).expect("end the server");
        wait_until("the server in valgrind to end", PATIENCE, || self.child.try_wait().expect("look after it"));
        let counts = fs::read_to_string(self.folder.join("counts")).expect("read what callgrind has counted");
        let profile = Profile::read(&counts, self.count.events());
        if let Count::Instructions = self.count {
            // The line `summary` is 0 where the counting was switched.
            let total = counts.lines().find_map(|line| line.strip_prefix("totals: "));
            let total: f64 = total.and_then(|text| text.trim().parse().ok()).expect("a total in what callgrind wrote");
            assert_eq!(profile.total, total, "the sum of what callgrind wrote is not its total");
        }
        profile
    }

    fn control(&self, state: &str) {
        let mut command = Command::new("callgrind_control");
        command.args(["-i", state, &self.child.id().to_string()]);
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("run callgrind_control");
        assert!(status.success(), "callgrind_control -i {state}: {status}");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }
}

impl Drop for Valgrind {
    fn drop(&mut self) {
        // Both fail only where there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("the listener's address").port()
}
