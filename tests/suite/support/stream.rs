//! What a primary tells its replicas, command by command.

use std::time::{Duration, Instant};

use redis::Value;

use super::wait::{PATIENCE, wait_until};
use super::{Raw, Server, bytes};

/// A command as it was replicated: its name and arguments.
pub type Command = Vec<Vec<u8>>;

/// A replica by hand: it takes the data set and then shows the stream.
#[derive(Debug)]
pub struct ReplicationStream {
    raw: Raw,
    port: u16,
    /// The primary's offset up to which the stream was taken.
    offset: i64,
    /// The data set that the primary sent first.
    pub rdb: Vec<u8>,
}

/// What every stream has beside the commands of interest.
pub const NOISE: &[&str] = &["PING", "REPLCONF", "SELECT"];

impl Server {
    /// Attaches to the replication stream: it shows what the server does from now on.
    #[track_caller]
    pub fn replication_stream(&self) -> ReplicationStream {
        ReplicationStream::attach(self)
    }
}

impl ReplicationStream {
    #[track_caller]
    fn attach(server: &Server) -> Self {
        let mut raw = server.raw();
        // Nothing listens there; the primary lists its replicas by this number.
        let own_port = raw.local_port();
        for (setting, value) in [("listening-port", &*own_port.to_string()), ("capa", "eof"), ("capa", "psync2")] {
            assert_eq!(raw.call(("REPLCONF", setting, value)), Ok(Value::Okay));
        }
        raw.send_command(("PSYNC", "?", -1));
        let offset = full_resync_offset(&line_after_keepalives(&mut raw));
        let rdb = take_rdb(&mut raw);
        wait_until("the stream to be online", PATIENCE, || is_online(server, own_port).then_some(()));
        // A primary that has sent the data set without a file begins the stream at an acknowledgement, and hears none
        // before the replica is online to it.
        raw.send_command(("REPLCONF", "ACK", offset));
        Self { raw, port: server.port(), offset, rdb }
    }

    /// The next command; panics when none comes in time.
    #[track_caller]
    pub fn next(&mut self, timeout: Duration) -> Command {
        let frame = self.raw.reply_bytes(timeout);
        self.offset += i64::try_from(frame.len()).expect("a length");
        decode(&frame)
    }

    /// All that was replicated up to now and not yet taken.
    #[track_caller]
    pub fn drain(&mut self) -> Vec<Command> {
        let due = self.primary_offset();
        let mut commands = Vec::new();
        while self.offset < due {
            commands.push(self.next(PATIENCE));
        }
        commands
    }

    /// The same without the commands named: `stream.drain_without(NOISE)`.
    #[track_caller]
    pub fn drain_without(&mut self, names: &[&str]) -> Vec<Command> {
        let mut commands = self.drain();
        commands.retain(|command| !is_one_of(command, names));
        commands
    }

    /// Takes commands until `count` have come that are not named in `names`.
    #[track_caller]
    pub fn take_without(&mut self, names: &[&str], count: usize, timeout: Duration) -> Vec<Command> {
        let deadline = Instant::now() + timeout;
        let mut commands = Vec::new();
        while commands.len() < count {
            let command = self.next(deadline.saturating_duration_since(Instant::now()));
            if !is_one_of(&command, names) {
                commands.push(command);
            }
        }
        commands
    }

    fn primary_offset(&self) -> i64 {
        let mut conn = Raw::connect(self.port);
        let info = bytes(&conn.call(("INFO", "replication")).expect("INFO"));
        super::info::find(&String::from_utf8_lossy(&info), "master_repl_offset")
            .and_then(|offset| offset.parse().ok())
            .expect("the primary's offset in INFO")
    }
}

/// Whether the primary counts the replica that says that it listens on `port` as online.
fn is_online(server: &Server, port: u16) -> bool {
    let info = bytes(&server.conn().ok(("INFO", "replication")));
    let mark = format!(",port={port},state=online,");
    String::from_utf8_lossy(&info).contains(&mark)
}

/// A line of the handshake; before it the primary may send bare newlines to keep the connection alive.
#[track_caller]
fn line_after_keepalives(raw: &mut Raw) -> Vec<u8> {
    let line = raw.take_line(PATIENCE);
    line.trim_ascii_start().to_vec()
}

#[track_caller]
fn full_resync_offset(line: &[u8]) -> i64 {
    let line = String::from_utf8_lossy(line);
    line.strip_prefix("+FULLRESYNC ")
        .and_then(|rest| rest.split_once(' '))
        .and_then(|(_id, offset)| offset.parse().ok())
        .unwrap_or_else(|| panic!("no full resync but: {line:?}"))
}

/// The data set: with its length in front where the primary sends a file, between two marks where it does not.
#[track_caller]
fn take_rdb(raw: &mut Raw) -> Vec<u8> {
    let header = String::from_utf8(line_after_keepalives(raw)).expect("a header in ASCII");
    if let Some(mark) = header.strip_prefix("$EOF:") {
        let mut rdb = raw.take_through(mark.as_bytes(), PATIENCE);
        rdb.truncate(rdb.len() - mark.len());
        return rdb;
    }
    let length = header
        .strip_prefix('$')
        .and_then(|length| length.parse().ok())
        .unwrap_or_else(|| panic!("no data set but: {header:?}"));
    raw.take_bytes(length, PATIENCE)
}

#[track_caller]
fn decode(frame: &[u8]) -> Command {
    match redis::parse_redis_value(frame) {
        Ok(Value::Array(parts)) => parts.iter().map(bytes).collect(),
        other => panic!("no command in the stream but: {other:?}"),
    }
}

fn is_one_of(command: &Command, names: &[&str]) -> bool {
    let name = command.first().map(Vec::as_slice).unwrap_or_default();
    names.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}
