//! What a server is to be started with.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::{Server, ServerKind, server_kind};

/// The settings of a server to come. Without any: the server of `PRLOCK_SERVER` with the module, nothing persistent.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(super) kind: ServerKind,
    /// The module's arguments, or none to start without it.
    module: Option<Vec<String>>,
    config: Vec<(String, String)>,
    pub(super) env: Vec<(String, String)>,
    primary_port: Option<u16>,
}

/// A server that did not come up.
#[derive(Debug)]
pub struct StartFailure {
    pub why: String,
    /// All that it wrote.
    pub log: String,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self { kind: server_kind(), module: Some(Vec::new()), config: Vec::new(), env: Vec::new(), primary_port: None }
    }

    /// A line of the configuration file; `value` is written as it is, so quote what needs quotes.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.config.push((name.to_owned(), value.to_owned()));
        self
    }

    /// An append-only file, written before each reply.
    pub fn aof(self) -> Self {
        self.config("appendonly", "yes").config("appendfsync", "always")
    }

    /// The arguments of `loadmodule`.
    pub fn module_args(mut self, args: &[&str]) -> Self {
        self.module = Some(args.iter().map(|arg| (*arg).to_owned()).collect());
        self
    }

    /// A plain server.
    pub fn without_module(mut self) -> Self {
        self.module = None;
        self
    }

    /// An environment variable of the server's process.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A replica of `primary`; see also `Server::replica`, which waits for it.
    pub fn replica_of(mut self, primary: &Server) -> Self {
        self.primary_port = Some(primary.port());
        self
    }

    pub(super) fn without_config(mut self) -> Self {
        self.config.clear();
        self
    }

    /// Starts the server and waits until it serves; panics if it does not.
    #[track_caller]
    pub fn start(self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(StartFailure { why, log }) => panic!("{why}\n{log}"),
        }
    }

    /// Starts the server and waits until it serves or has ended: for those that must refuse to start.
    pub fn try_start(self) -> Result<Server, StartFailure> {
        Server::launch(self)
    }

    /// The configuration file of a server on `port` that keeps its data in `folder`.
    pub(super) fn config_text(&self, port: u16, folder: &Path) -> String {
        let mut text = format!(
            "port {port}\n\
             bind 127.0.0.1\n\
             dir \"{}\"\n\
             save \"\"\n\
             appendonly no\n\
             enable-debug-command yes\n\
             enable-module-command yes\n\
             enable-protected-configs yes\n\
             repl-diskless-sync-delay 0\n",
            folder.display()
        );
        let mut line = |line: String| writeln!(text, "{line}").expect("write to a string");
        if let Some(args) = &self.module {
            let path = module_path();
            line(format!("loadmodule {} {}", path.display(), args.join(" ")));
        }
        if let Some(primary) = self.primary_port {
            line(format!("replicaof 127.0.0.1 {primary}"));
        }
        for (name, value) in &self.config {
            line(format!("{name} {value}"));
        }
        text
    }
}

/// The module: `PRLOCK_MODULE`, or what `make build` has built.
pub fn module_path() -> PathBuf {
    let path = match std::env::var_os("PRLOCK_MODULE") {
        Some(named) => PathBuf::from(named),
        None => target_folder().join("release/libprlock.so"),
    };
    assert!(path.exists(), "{} is missing: run `make build` first", path.display());
    std::path::absolute(&path).expect("the module's absolute path")
}

/// Cargo's target folder, wherever it is: this program is in its debug/deps.
pub(super) fn target_folder() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    let folder = program.ancestors().nth(3).expect("the target folder");
    folder.to_owned()
}
