//! Log-ins with wrong passwords, few enough that nobody else is to wait for them. They come from the address of most other
//! clients. Their bytes are not counted: the account that is guessed at is to have none.

use super::{Clients, book, target};
use crate::exchange::{Failure, patiently};
use crate::laws::{Door, Leg};
use crate::origin::{Head, Service};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ekiden_model::rng::Rng;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::sleep;

/// Who is guessed at: an account's user, and names that nobody has. A relay lets 30 wrong names pass from an address.
const USERS: [&str; 3] = [Door::Guesses.name(), "nobody", "root"];
/// Between two guesses of a client.
const GAP: Duration = Duration::from_secs(5);

/// What the summary counts.
const REFUSED: &str = "wrong log-ins: refused as wrong";
const HELD_BACK: &str = "wrong log-ins: told to wait";

pub(super) async fn tries(clients: &Clients, leg: Leg, mut rng: Rng) {
    let (ledger, door) = (&clients.ledger, Door::Guesses);
    while !clients.is_over() {
        let user = USERS[rng.below(USERS.len() as u64) as usize];
        let password = format!("a guess, {}", rng.next_u64());
        let (by_http, to) = (rng.below(2) == 0, target(&mut rng, leg, Service::Exchange, door));
        let live = ledger.begin(leg.domain(0));
        let refused = match by_http {
            true => by_connect(clients, user, &password, &to).await,
            false => by_socks(clients, user, &password).await,
        };
        let result = refused.map(|counted| ledger.on_count(counted));
        book(clients, (door, leg), &live, 0, result).await;
        sleep(GAP).await;
    }
}

/// Tries it by CONNECT. Errors: it was let in, or had no answer.
async fn by_connect(
    clients: &Clients,
    user: &str,
    password: &str,
    (name, port): &(String, u16),
) -> Result<&'static str, Failure> {
    let mut stream = clients.connect().await?;
    let credentials = STANDARD.encode(format!("{user}:{password}"));
    let head = format!(
        "CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\nProxy-Authorization: Basic {credentials}\r\n\r\n"
    );
    patiently("a wrong log-in", stream.write_all(head.as_bytes())).await?;
    judge_status(&Head::read(&mut BufReader::new(stream)).await?)
}

fn judge_status(head: &Head) -> Result<&'static str, Failure> {
    match head.word() {
        "407" => Ok(REFUSED),
        "429" | "503" => Ok(HELD_BACK),
        status if status.starts_with('2') => {
            Err(Failure::Wrong(format!("a wrong log-in was let in: {}", head.first)))
        }
        _ => Err(Failure::Ended(format!("a wrong log-in: {}", head.first))),
    }
}

/// Tries it by SOCKS5 (RFC 1929), whose verdict does not say why. Errors: it was let in, or had no answer.
async fn by_socks(clients: &Clients, user: &str, password: &str) -> Result<&'static str, Failure> {
    let mut stream = clients.connect().await?;
    let asking = async {
        stream.write_all(&[5, 1, 2]).await?;
        let mut method = [0; 2];
        stream.read_exact(&mut method).await?;
        if method != [5, 2] {
            return Err(io::Error::other(format!("the method is {method:?}")));
        }
        let (user, password) = (user.as_bytes(), password.as_bytes());
        let log_in = [&[1, user.len() as u8], user, &[password.len() as u8], password].concat();
        stream.write_all(&log_in).await?;
        let mut verdict = [0; 2];
        stream.read_exact(&mut verdict).await?;
        Ok(verdict)
    };
    judge_verdict(patiently("a wrong log-in by SOCKS5", asking).await?)
}

fn judge_verdict(verdict: [u8; 2]) -> Result<&'static str, Failure> {
    match verdict {
        [1, 0] => Err(Failure::Wrong("a wrong log-in was let in by SOCKS5".to_owned())),
        [1, _] => Ok(REFUSED),
        _ => Err(Failure::Ended(format!("the verdict is {verdict:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn judged(status: &str) -> Result<&'static str, Failure> {
        let head = format!("HTTP/1.1 {status}\r\nVia: 1.1 a\r\n\r\n");
        judge_status(&Head::read(&mut head.as_bytes()).await?)
    }

    #[tokio::test]
    async fn a_wrong_log_in_that_is_let_in_is_found() {
        assert_eq!(judged("407 Proxy Authentication Required").await.ok(), Some(REFUSED));
        for status in ["429 Too Many Requests", "503 Service Unavailable"] {
            assert_eq!(judged(status).await.ok(), Some(HELD_BACK), "{status}");
        }
        assert!(matches!(judged("200 OK").await, Err(Failure::Wrong(_))));
        assert!(matches!(judged("400 Bad Request").await, Err(Failure::Ended(_))));
        assert!(matches!(judge_verdict([1, 0]), Err(Failure::Wrong(_))));
        assert_eq!(judge_verdict([1, 1]).ok(), Some(REFUSED));
        assert!(matches!(judge_verdict([5, 0]), Err(Failure::Ended(_))));
    }
}
