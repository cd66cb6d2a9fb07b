//! Requests behind each other on one connection, with trailers and interim answers: what hyper's client does not speak.

use super::{Clients, book, credentials, domain, target};
use crate::exchange::{Failure, patiently};
use crate::laws::{Door, Leg};
use crate::ledger::{Ledger, Live};
use crate::origin::{Head, Message, Service};
use ekiden_model::rng::Rng;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncWriteExt as _, BufReader};
use tokio::time::sleep;

/// Requests in one write at most.
const TOGETHER: u64 = 4;
/// Between two connections of a client.
const GAP: Duration = Duration::from_secs(1);

pub(super) async fn batches(clients: &Clients, leg: Leg, mut rng: Rng) {
    let (ledger, door) = (&clients.ledger, Door::Messages);
    while !clients.is_over() {
        let to = target(&mut rng, leg, Service::Messages, door);
        let messages: Vec<Message> =
            (0..=rng.below(TOGETHER)).map(|_| Message::draw(&mut rng)).collect();
        // each is opened by itself: its server may be connected to anew
        let begin = |message: &Message| {
            let live = ledger.begin(domain(&to.0));
            ledger.expect(message.seed, &live);
            live
        };
        let lives: Vec<Arc<Live>> = messages.iter().map(begin).collect();
        let mut answered = 0;
        let result = batch(clients, &to, &messages, &lives, &mut answered).await;
        // of what broke, and where two relays write chunks anew
        if result.is_err() || leg == Leg::Upstream {
            for message in &messages {
                ledger.up(door).on_broken_chunks(message.up);
                ledger.down(door).on_broken_chunks(message.down);
            }
        }
        for (message, live) in messages.iter().zip(&lives).take(answered) {
            book(clients, (door, leg), live, message.up + message.down, Ok(())).await;
        }
        if let (Err(failure), Some(live)) = (result, lives.get(answered)) {
            book(clients, (door, leg), live, 0, Err(failure)).await;
        }
        sleep(GAP).await;
    }
}

/// Sends them in one write and reads their answers, one after another; how many came whole is in `answered`. A relay that
/// says with an answer that it is the last one may answer no further request.
async fn batch(
    clients: &Clients,
    (name, port): &(String, u16),
    messages: &[Message],
    lives: &[Arc<Live>],
    answered: &mut usize,
) -> Result<(), Failure> {
    let (ledger, door) = (&*clients.ledger, Door::Messages);
    let stream = clients.counted(clients.connect().await?, door);
    let (from, mut to) = tokio::io::split(stream);
    let mut from = BufReader::new(from);
    let authorization = credentials(door);
    let request = |message: &Message| message.request((&name[..], *port), &authorization);
    let requests = messages.iter().map(request).collect::<Vec<_>>().concat();
    let send = async {
        patiently("requests", to.write_all(&requests)).await?;
        patiently("requests", to.flush()).await
    };
    let receive = async {
        for (message, live) in messages.iter().zip(lives) {
            let is_last = answer(&mut from, message, live, ledger).await?;
            if *answered > 0 {
                ledger.on_count("messages: answers to requests behind others");
            }
            *answered += 1;
            if is_last {
                break;
            }
        }
        Ok::<(), Failure>(())
    };
    // where sending broke, what comes says how
    let (_sent, received) = tokio::join!(send, receive);
    received
}

/// Reads the answer to a message; whether the relay says that it is the last one. Errors: one to another message, one
/// without its interim answers or its trailer, or how it broke.
async fn answer(
    from: &mut (impl AsyncBufRead + Unpin),
    message: &Message,
    live: &Live,
    ledger: &Ledger,
) -> Result<bool, Failure> {
    let mut interim = 0;
    let head = loop {
        let head = Head::read(from).await?;
        match head.word() {
            "103" => {
                let link = head.field("link").unwrap_or_default();
                if link != message.link() {
                    let link = link.to_owned();
                    return Err(Failure::Wrong(format!("an interim answer with {link:?}")));
                }
                ledger.on_count("messages: interim answers");
                live.on_moved();
                interim += 1;
            }
            "200" => break head,
            // the relay's own: the message is not open by that
            _ => {
                let why = head.field("proxy-status").unwrap_or("no Proxy-Status");
                return Err(Failure::Ended(format!("{} ({why})", head.first)));
            }
        }
    };
    live.on_moved();
    if interim != message.interim {
        let due = message.interim;
        return Err(Failure::Wrong(format!("{interim} of {due} interim answers")));
    }
    if head.field("transfer-encoding") != Some("chunked") {
        return Err(Failure::Wrong(format!("an answer that is not in chunks: {head:?}")));
    }
    let (body, side) = ((message.downwards(), message.down), ledger.down(Door::Messages));
    message.compare(from, body, side, || live.on_moved()).await?;
    ledger.on_count("messages: trailers");
    Ok(head.field("connection").is_some_and(|said| said.eq_ignore_ascii_case("close")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const FIRST: Message = Message { seed: 1, up: 0, down: 900, interim: 1 };
    const SECOND: Message = Message { seed: 2, up: 0, down: 700, interim: 0 };

    /// What a client makes of these bytes as answers to both messages.
    async fn answers(bytes: &[u8]) -> Result<bool, Failure> {
        let ledger = Ledger::new(Instant::now(), Duration::from_secs(9));
        let (mut from, live) = (bytes, ledger.begin("direct.test"));
        answer(&mut from, &FIRST, &live, &ledger).await?;
        assert!(live.opened());
        answer(&mut from, &SECOND, &live, &ledger).await
    }

    fn is_wrong(result: &Result<bool, Failure>) -> bool {
        matches!(result, Err(Failure::Wrong(_)))
    }

    #[tokio::test]
    async fn answers_come_in_order_with_their_interim_ones() {
        let [interim, first, second] = [FIRST.interim_answers(), FIRST.answer(), SECOND.answer()];
        assert_eq!(answers(&[&interim[..], &first, &second].concat()).await.ok(), Some(false));
        for wrong in [
            [&first[..], &second, &interim].concat(),
            [&second[..], &interim, &first].concat(),
            [&interim[..], &interim, &first].concat(),
            [&interim[..], &first, &interim].concat(),
        ] {
            let result = answers(&wrong).await;
            assert!(is_wrong(&result), "{result:?}");
        }
    }

    #[tokio::test]
    async fn a_relay_may_say_that_an_answer_is_the_last() {
        let (interim, first) = (FIRST.interim_answers(), FIRST.answer());
        let second = String::from_utf8_lossy(&SECOND.answer()[..15]).into_owned();
        let closes = [second.as_bytes(), b"\r\nConnection: close", &SECOND.answer()[15..]].concat();
        assert_eq!(answers(&[&interim[..], &first, &closes].concat()).await.ok(), Some(true));
    }

    #[tokio::test]
    async fn a_relay_s_refusal_does_not_open_a_message() {
        let ledger = Ledger::new(Instant::now(), Duration::from_secs(9));
        let live = ledger.begin("direct.test");
        let mut refusal = &b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"[..];
        let result = answer(&mut refusal, &SECOND, &live, &ledger).await;
        assert!(matches!(result, Err(Failure::Ended(_))), "{result:?}");
        assert!(!live.opened());
    }
}
