//! Two workers want the same lock; one waits until the other is done.

use std::process::ExitCode;
use std::time::Duration;

use prlock_client::{Lock, LockError, Options, revoke, with_lock};
use redis::Client;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> ExitCode {
    match demo().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line that says what is wrong and what to do.
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn demo() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::open(std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into()))?;
    let holder = format!("demo:{}", std::process::id());
    // What an earlier life of this process left behind; here there was none, since its label has the process's number.
    revoke(&client, &holder).await?;
    let options = Options::new(Duration::from_secs(2)).wait(Duration::from_secs(10)).holder(holder);
    tokio::try_join!(worker(&client, &options, "first"), worker(&client, &options, "second"))?;
    Ok(())
}

async fn worker(client: &Client, options: &Options, name: &str) -> Result<(), LockError> {
    with_lock(client, "demo:report", options, |lock: Lock| async move {
        println!("{name} holds the lock, fence {}", lock.fence());
        // Three seconds of work under a lock of two, which is renewed meanwhile.
        sleep(Duration::from_secs(3)).await;
        println!("{name} is done, the lock is {}", if lock.held() { "still its own" } else { "lost" });
    })
    .await
}
