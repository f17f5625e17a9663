//! What the README tells a reader to run, run as told, and what it tells him to write.

use std::process::Output;
use std::time::Duration;

use prlock_client::LockError;
use tokio::process::Command;
use tokio::time::timeout;

use crate::support::*;

const README: &str = include_str!("../../README.md");

fn block(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    let blocks = README.split(&begin).skip(1);
    blocks.map(|rest| rest.split("```").next().expect("an end")).collect()
}

async fn run(command: &str, url: &str) -> (Output, String) {
    let mut child = Command::new("bash");
    child.args(["-c", command]).current_dir(env!("CARGO_MANIFEST_DIR")).env("REDIS_URL", url).kill_on_drop(true);
    let output = timeout(Duration::from_secs(240), child.output()).await.expect("in time").expect("a shell");
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output, String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn the_commands() {
    let mut commands = block("sh").concat().lines().map(str::to_string).collect::<Vec<_>>();
    // The tests themselves, which are running.
    assert_eq!(commands.pop().as_deref(), Some("cargo test --locked"));
    assert_eq!(commands, ["cargo run --locked --example demo"]);
    let server = Server::start(&[]).await;
    let (output, text) = run(&commands[0], &server.url()).await;
    assert!(output.status.success(), "{text}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = said.lines().collect::<Vec<_>>();
    assert_eq!(said.len(), 4, "{text}");
    for (turn, lines) in said.chunks(2).enumerate() {
        let name = lines[0].split(' ').next().expect("a name");
        assert!(["first", "second"].contains(&name), "{turn}: {text}");
        assert!(lines[0].starts_with(&format!("{name} holds the lock, fence ")), "{text}");
        assert_eq!(lines[1], format!("{name} is done, the lock is still its own"));
    }
    assert_eq!(server.number(&["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn the_demo_says_what_is_wrong_in_one_line() {
    let bare = Server::without_module(free_port().await).await;
    let nowhere = format!("redis://127.0.0.1:{}", free_port().await);
    for (url, text) in [(bare.url(), "loadmodule"), (nowhere, "is it running")] {
        let (output, said) = run("cargo run --quiet --locked --example demo", &url).await;
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains(text), "{said}");
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }
}

async fn load(number: u32) -> String {
    format!("invoice {number}")
}

async fn store(invoice: String, fence: i64) -> Result<(), LockError> {
    assert_eq!(invoice, "invoice 17");
    assert!(fence > 0);
    Ok(())
}

/// The README's code as it stands there.
mod code {
    use super::{load, store};

    include!("readme_code.rs");
}

#[tokio::test]
async fn the_code() {
    let code = include_str!("readme_code.rs");
    assert_eq!(code.lines().skip(1).collect::<Vec<_>>(), block("rust").concat().lines().collect::<Vec<_>>());
    let server = Server::start(&[]).await;
    let client = redis::Client::open(server.url()).expect("a client");
    code::work(&client).await.expect("done");
    assert_eq!(server.number(&["DBSIZE"]).await, 0);
}
