//! A lock around work: claimed, renewed meanwhile, released.

use std::future::Future;
use std::time::{Duration, Instant};

use redis::{Client, Cmd, Value, cmd};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until, timeout};

use crate::errors::{Code, LockError};
use crate::held::{Lock, Why};
use crate::options::{Options, Steal};
use crate::wire::Wire;

/// Claims the lock, does the work, releases the lock; gives what the work gave.
///
/// When the lock is lost meanwhile the work is dropped at its next await, as any future that is cancelled, and the error is
/// [`Code::Lost`]. Work that must not be dropped runs in a task of its own and asks [`Lock::check`]. If the lock can't be had,
/// the error says why, and the work didn't run. Dropping this future releases the lock, too, in the background.
pub async fn with_lock<T, W>(
    client: &Client,
    key: impl AsRef<[u8]>,
    options: &Options,
    work: impl FnOnce(Lock) -> W,
) -> Result<T, LockError>
where
    W: Future<Output = T>,
{
    let mut claim = Claim::new(client, key.as_ref(), options)?;
    let (fence, proven_at) = claim.granted().await?;
    let grant = claim.into_grant(fence, proven_at);
    let lock = grant.lock.clone();
    let done = tokio::select! {
        biased;
        done = work(lock.clone()) => Ok(done),
        _ = lock.lost() => Err(lock.lost_error()),
    };
    grant.release().await;
    done
}

/// At a process's start: frees what an earlier life of this holder left behind, and says how many locks. Locks of others
/// stay.
pub async fn revoke(client: &Client, holder: impl AsRef<[u8]>) -> Result<i64, LockError> {
    let command = "PRLOCK.REVOKE";
    let limit = Some(Duration::from_secs(5));
    match Wire::new(client).call(command, cmd(command).arg(holder.as_ref()), limit).await? {
        Value::Int(freed) => Ok(freed),
        _ => Err(strange(command)),
    }
}

/// The commands of one lock.
#[derive(Clone)]
struct Commands {
    key: Vec<u8>,
    token: Vec<u8>,
    options: Options,
}

impl Commands {
    fn claim(&self, wait: Option<Duration>) -> Cmd {
        let mut command = cmd("PRLOCK.CLAIM");
        command.arg(&self.key).arg("PX").arg(ms(self.options.ttl)).arg("TOKEN").arg(&self.token);
        if let Some(holder) = &self.options.holder {
            command.arg("HOLDER").arg(holder);
        }
        if let Some(linger) = self.options.linger {
            command.arg("LINGER").arg(ms(linger));
        }
        match (self.options.steal, wait) {
            (Steal::FromAnyone, _) => command.arg("STEAL"),
            (Steal::FromGrant(fence), _) => command.arg("STEALIF").arg(fence),
            (Steal::No, None) => command.arg("BLOCK").arg(0),
            (Steal::No, Some(Duration::ZERO)) => &mut command,
            // BLOCK 0 waits without limit, so the least is 1.
            (Steal::No, Some(wait)) => command.arg("BLOCK").arg(ms(wait).max(1)),
        };
        command
    }

    fn renew(&self, fence: i64) -> Cmd {
        let mut command = cmd("PRLOCK.RENEW");
        command.arg(&self.key).arg(&self.token).arg("PX").arg(ms(self.options.ttl)).arg("FENCE").arg(fence);
        command
    }

    fn release(&self, fence: Option<i64>) -> Cmd {
        let mut command = cmd("PRLOCK.RELEASE");
        command.arg(&self.key).arg(&self.token);
        if let Some(fence) = fence {
            command.arg("FENCE").arg(fence);
        }
        command
    }
}

/// A claim under way. If it is given up, what it may have got unheard is released.
struct Claim {
    commands: Commands,
    wire: Option<Wire>,
    over: bool,
}

impl Claim {
    fn new(client: &Client, key: &[u8], options: &Options) -> Result<Self, LockError> {
        if options.ttl < Duration::from_millis(1) {
            return Err(LockError::new(Code::Argument, false, "The lifetime must be at least a millisecond."));
        }
        if options.steal != Steal::No && options.wait != Some(Duration::ZERO) {
            let text = "A lock that is stolen is not waited for: leave the wait out.";
            return Err(LockError::new(Code::Argument, false, text));
        }
        let token = match &options.token {
            Some(token) => token.clone(),
            None => random_token()?,
        };
        let commands = Commands { key: key.to_vec(), token, options: options.clone() };
        Ok(Self { commands, wire: Some(Wire::new(client)), over: false })
    }

    /// The grant's fence, and since when it is surely ours.
    async fn granted(&mut self) -> Result<(i64, Instant), LockError> {
        let options = self.commands.options.clone();
        let wait_until = options.wait.and_then(|wait| Instant::now().checked_add(wait));
        let mut attempt = 0;
        loop {
            let error = match self.attempt(wait_until, &options).await {
                Ok(Some(grant)) => return Ok(grant),
                Ok(None) => {
                    self.over = true;
                    let key = String::from_utf8_lossy(&self.commands.key);
                    return Err(LockError::new(Code::Busy, true, format!("Another holder has the lock {key:?}.")));
                }
                Err(error) => error,
            };
            let pause = pause(attempt);
            attempt += 1;
            let late = wait_until.is_some_and(|until| Instant::now() + pause >= until + options.retry);
            if !error.passing || late {
                self.undo().await;
                return Err(error);
            }
            // The same token again: if only the reply was lost, this is granted with the same fence.
            sleep(pause).await;
        }
    }

    async fn attempt(
        &mut self,
        wait_until: Option<Instant>,
        options: &Options,
    ) -> Result<Option<(i64, Instant)>, LockError> {
        let Some(wire) = &mut self.wire else { unreachable!("only dropping takes it") };
        let sent_at = Instant::now();
        let wait = wait_until.map(|until| until.saturating_duration_since(sent_at));
        let claim = self.commands.claim(wait);
        let reply = wire.call("PRLOCK.CLAIM", &claim, wait.map(|wait| wait + options.reply)).await?;
        let Some(fence) = fence_of(&reply)? else { return Ok(None) };
        if sent_at.elapsed() < options.ttl / 6 {
            return Ok(Some((fence, sent_at)));
        }
        // A wait may have been granted at any time since, so a renewal must say so.
        let sent_at = Instant::now();
        let reply = wire.call("PRLOCK.RENEW", &self.commands.renew(fence), Some(options.reply)).await?;
        if yes_or_no("PRLOCK.RENEW", &reply)? {
            return Ok(Some((fence, sent_at)));
        }
        let text = "The lock was granted, but lapsed before it could be used: the server or the way to it is too slow for so \
                    short a lifetime.";
        Err(LockError::new(Code::Server, true, text))
    }

    async fn undo(&mut self) {
        if let Some(wire) = &mut self.wire
            && wire.told
        {
            let limit = self.commands.options.reply.min(Duration::from_secs(1));
            let _ = wire.call("PRLOCK.RELEASE", &self.commands.release(None), Some(limit)).await;
        }
        self.over = true;
    }

    fn into_grant(mut self, fence: i64, proven_at: Instant) -> Grant {
        self.over = true;
        let Some(wire) = self.wire.take() else { unreachable!("only dropping takes it") };
        let commands = self.commands.clone();
        let lock = Lock::new(&commands.key, fence, commands.options.ttl, proven_at);
        let renewals = tokio::spawn(renew(lock.clone(), commands.clone(), wire, proven_at));
        Grant { lock, commands, renewals: Some(renewals) }
    }
}

impl Drop for Claim {
    /// In a hurry (the future was dropped). The server drops a waiter whose connection closes; a claim that it hasn't read
    /// yet, or has just granted, is undone by what follows it on the same connection.
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let (Some(mut wire), Ok(runtime)) = (self.wire.take(), Handle::try_current()) else { return };
        if !wire.told {
            return;
        }
        let release = self.commands.release(None);
        let limit = self.commands.options.reply.min(Duration::from_secs(1));
        runtime.spawn(async move {
            if let Some(mut connection) = wire.hand_over() {
                let told = release.query_async::<Value>(&mut connection);
                // A claim that waits keeps this from being answered; then closing it is the answer.
                if !matches!(timeout(Duration::from_millis(50), told).await, Ok(Err(_))) {
                    return;
                }
            }
            // The connection broke before: the server may have granted what it broke with.
            let _ = wire.call("PRLOCK.RELEASE", &release, Some(limit)).await;
        });
    }
}

/// A lock that is held. Dropping it releases it in the background.
struct Grant {
    lock: Lock,
    commands: Commands,
    renewals: Option<JoinHandle<Wire>>,
}

impl Grant {
    /// Never fails: the deadline frees what can't be released, and the work's own end counts.
    async fn release(mut self) {
        self.lock.lose(Why::Released);
        if let Some(renewals) = self.renewals.take() {
            // In a task, so that it goes on if this future is dropped meanwhile.
            let _ = tokio::spawn(release(self.lock.clone(), self.commands.clone(), renewals)).await;
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.lock.lose(Why::Released);
        if let (Some(renewals), Ok(runtime)) = (self.renewals.take(), Handle::try_current()) {
            runtime.spawn(release(self.lock.clone(), self.commands.clone(), renewals));
        }
    }
}

/// Renews at a third of the lifetime until the lock is lost or released; gives the connection back.
async fn renew(lock: Lock, commands: Commands, mut wire: Wire, proven_at: Instant) -> Wire {
    let ttl = commands.options.ttl;
    let mut next_at = proven_at + ttl / 3;
    loop {
        tokio::select! {
            biased;
            _ = lock.lost() => return wire,
            _ = sleep_until(next_at.into()) => {}
        }
        let sent_at = Instant::now();
        let command = commands.renew(lock.fence());
        let limit = commands.options.reply.min(ttl / 3);
        let outcome = tokio::select! {
            biased;
            outcome = wire.call("PRLOCK.RENEW", &command, Some(limit)) => outcome,
            // A renewal under way when the lock ends: its connection owes a reply and is dropped.
            _ = lock.lost() => {
                wire.hand_over();
                return wire;
            }
        };
        match outcome.and_then(|reply| yes_or_no("PRLOCK.RENEW", &reply)) {
            Ok(true) => {
                lock.renewed(sent_at);
                next_at = sent_at + ttl / 3;
            }
            Ok(false) => {
                lock.lose(Why::Taken);
                return wire;
            }
            Err(error) => {
                // A server in trouble is not a lost lock: the next renewal, sooner, may still be in time.
                log::warn!("a lock was not renewed: {error}");
                next_at = (sent_at + ttl / 10).max(Instant::now() + Duration::from_millis(1));
            }
        }
    }
}

async fn release(lock: Lock, commands: Commands, renewals: JoinHandle<Wire>) {
    let Ok(mut wire) = renewals.await else { return };
    let options = &commands.options;
    let until = (Instant::now() + options.retry).min(lock.deadline());
    let command = commands.release(Some(lock.fence()));
    for attempt in 0.. {
        let Err(error) = wire.call("PRLOCK.RELEASE", &command, Some(options.reply)).await else { return };
        let pause = pause(attempt);
        if !error.passing || Instant::now() + pause >= until {
            log::warn!("a lock was not released, it lapses at its deadline: {error}");
            return;
        }
        sleep(pause).await;
    }
}

/// Only what has the shape of a grant is one.
fn fence_of(reply: &Value) -> Result<Option<i64>, LockError> {
    match reply {
        Value::Nil => Ok(None),
        Value::Array(parts) => match parts[..] {
            [Value::BulkString(_), Value::Int(fence)] => Ok(Some(fence)),
            _ => Err(strange("PRLOCK.CLAIM")),
        },
        _ => Err(strange("PRLOCK.CLAIM")),
    }
}

fn yes_or_no(command: &str, reply: &Value) -> Result<bool, LockError> {
    match reply {
        Value::Int(1) => Ok(true),
        Value::Int(0) => Ok(false),
        _ => Err(strange(command)),
    }
}

fn strange(command: &str) -> LockError {
    LockError::new(Code::Server, false, format!("{command}: a reply that makes no sense. What server is this?"))
}

fn random_token() -> Result<Vec<u8>, LockError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| LockError::new(Code::Argument, false, format!("no random token: {error}")))?;
    Ok(bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect())
}

/// Rounded up.
fn ms(time: Duration) -> u128 {
    time.as_nanos().div_ceil(1_000_000)
}

/// 25 ms, 50 ms, ... 1 s, each a half of it by chance, so that not all come back at the same moment.
fn pause(attempt: u32) -> Duration {
    let most = Duration::from_millis(25 * (1 << attempt.min(6))).min(Duration::from_secs(1));
    let chance = getrandom::u32().unwrap_or(u32::MAX);
    most.mul_f64(0.5 + 0.5 * f64::from(chance) / f64::from(u32::MAX))
}
