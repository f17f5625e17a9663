//! Which server the suite runs against, and what that server can do.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The four servers that the module supports, one of each line. The tests ask for abilities, not for versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// The system's own server, and the default: Redis 7.0 on Debian 12, which is the oldest; a later one elsewhere.
    Redis7,
    /// Redis 8.2.
    Redis8,
    /// Valkey 8.1.
    Valkey8,
    /// Valkey 9.1.
    Valkey9,
}

/// The server chosen by `PRLOCK_SERVER`: `redis7` (default), `redis8`, `valkey8` or `valkey9`.
pub fn server_kind() -> ServerKind {
    match std::env::var("PRLOCK_SERVER").as_deref() {
        Err(_) | Ok("" | "redis7") => ServerKind::Redis7,
        Ok("redis8") => ServerKind::Redis8,
        Ok("valkey8") => ServerKind::Valkey8,
        Ok("valkey9") => ServerKind::Valkey9,
        Ok(other) => {
            panic!("PRLOCK_SERVER is {other:?}; it can be redis7, redis8, valkey8 or valkey9")
        }
    }
}

impl ServerKind {
    pub fn is_valkey(self) -> bool {
        matches!(self, Self::Valkey8 | Self::Valkey9)
    }

    /// Has the module API of Redis 7.2, as all but the oldest do.
    pub fn at_least_7_2(self) -> bool {
        static SYSTEM_HAS_IT: OnceLock<bool> = OnceLock::new();
        self != Self::Redis7 || *SYSTEM_HAS_IT.get_or_init(|| version_of(&self.program()) >= (7, 2))
    }

    /// Lets a module put its commands into ACL categories.
    pub fn has_module_acl_categories(self) -> bool {
        self.at_least_7_2()
    }

    /// Has `CLUSTER MIGRATESLOTS`.
    pub fn moves_slots_in_one_step(self) -> bool {
        self == Self::Valkey9
    }

    /// The program to run: named by `PRLOCK_REDIS7`, `PRLOCK_REDIS8`, `PRLOCK_VALKEY8` or `PRLOCK_VALKEY9`; else
    /// `redis-server` of the PATH for Redis 7, and what `make servers` has fetched for the others.
    pub fn program(self) -> PathBuf {
        let (variable, fetched) = match self {
            Self::Redis7 => ("PRLOCK_REDIS7", None),
            Self::Redis8 => ("PRLOCK_REDIS8", Some("redis8/redis-server")),
            Self::Valkey8 => ("PRLOCK_VALKEY8", Some("valkey8/valkey-server")),
            Self::Valkey9 => ("PRLOCK_VALKEY9", Some("valkey9/valkey-server")),
        };
        if let Some(named) = std::env::var_os(variable) {
            return named.into();
        }
        let Some(fetched) = fetched else {
            return "redis-server".into();
        };
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".cache/servers").join(fetched);
        assert!(path.exists(), "{} is missing: run `make servers` first", path.display());
        path
    }
}

/// Major and minor version, from the line that the program prints: `Redis server v=7.0.15 sha=...`.
fn version_of(program: &Path) -> (u32, u32) {
    let output = Command::new(program).arg("--version").output();
    let output = output.unwrap_or_else(|error| panic!("{} can't be run: {error}", program.display()));
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = line.split_whitespace().find_map(|word| word.strip_prefix("v="));
    let mut numbers = version.into_iter().flat_map(|version| version.split('.')).map_while(|part| part.parse().ok());
    numbers.next().zip(numbers.next()).unwrap_or_else(|| panic!("{} says: {line}", program.display()))
}
