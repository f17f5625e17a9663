//! The command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use redis::{Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo as _, ProtocolVersion, TlsCertificates};

/// A live view of the locks of a server with the PRLOCK module.
#[derive(Debug, Parser)]
#[command(version, about, after_help = "Press ? in the program for its keys.")]
pub struct Options {
    /// The server: redis://[user:password@]host[:port][/database], rediss:// for TLS, or host[:port]
    #[arg(default_value = "redis://127.0.0.1:6379")]
    pub address: String,
    /// The ACL user; also possible in the address
    #[arg(long, short)]
    pub user: Option<String>,
    /// The password; better given by the environment, since others can see a command line
    #[arg(long, env = "REDISCLI_AUTH", hide_env_values = true)]
    pub pass: Option<String>,
    /// The database
    #[arg(long, short = 'n')]
    pub db: Option<i64>,
    /// Only keys that match this glob, as in KEYS
    #[arg(long, short = 'm', value_name = "GLOB")]
    pub r#match: Option<String>,
    /// Only locks of exactly this holder
    #[arg(long)]
    pub holder: Option<String>,
    /// Seconds from one look to the next
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub every: f64,
    /// A file with the certificates (PEM) to trust instead of the system's
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// A file with this client's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// A file with the key (PEM) of that certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
}

/// The server to connect to.
#[derive(Clone)]
pub struct Target {
    pub client: Client,
    /// For people: `127.0.0.1:6379`.
    pub address: String,
    pub user: String,
    pub db: i64,
}

impl Options {
    pub fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.every)
    }

    pub fn target(&self) -> Result<Target, String> {
        let address = match self.address.contains("://") {
            true => self.address.clone(),
            false => format!("redis://{}", self.address),
        };
        // The text of the error could hold the password.
        let info = address.into_connection_info().map_err(|error| {
            let why = error.detail().map_or_else(|| error.category().to_owned(), str::to_owned);
            format!("the address is not of the form redis://[user:password@]host[:port][/database]: {why}")
        })?;
        let mut settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(pass) = &self.pass {
            settings = settings.set_password(pass);
        }
        if let Some(db) = self.db {
            settings = settings.set_db(db);
        }
        let (user, db) = (settings.username().unwrap_or("default").to_owned(), settings.db());
        let info = info.set_redis_settings(settings);
        let (address, is_tls) = match info.addr() {
            ConnectionAddr::TcpTls { host, port, .. } => (format!("{host}:{port}"), true),
            ConnectionAddr::Tcp(host, port) => (format!("{host}:{port}"), false),
            ConnectionAddr::Unix(path) => (path.display().to_string(), false),
            _ => return Err("addresses of this kind are not supported".to_owned()),
        };
        let is_tls_wanted = self.cacert.is_some() || self.cert.is_some();
        if is_tls_wanted && !is_tls {
            return Err("--cacert and --cert are for an address that begins with rediss://".to_owned());
        }
        let client = match is_tls {
            true => Client::build_with_tls(info, self.certificates()?),
            false => Client::open(info),
        };
        let client = client.map_err(|error| format!("TLS settings: {error}"))?;
        Ok(Target { client, address, user, db })
    }

    fn certificates(&self) -> Result<TlsCertificates, String> {
        let client_tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
            _ => None,
        };
        let root_cert = self.cacert.as_deref().map(read).transpose()?;
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3_600.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds from 0.1 to 3600".to_owned()),
    }
}
