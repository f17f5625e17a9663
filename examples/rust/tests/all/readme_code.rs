// As in the README.
use std::time::Duration;
use prlock_client::{LockError, Options, revoke, with_lock};

pub async fn work(client: &redis::Client) -> Result<(), LockError> {
    revoke(client, "worker-7").await?; // what an earlier life of worker-7 left behind, and nothing else

    let options = Options::new(Duration::from_secs(30)).wait(Duration::from_secs(10)).holder("worker-7");
    with_lock(client, "invoice:17", &options, |lock| async move {
        let invoice = load(17).await;
        lock.check()?; // an error if the lock is lost, by the clock of this moment
        store(invoice, lock.fence()).await
    })
    .await?
}
