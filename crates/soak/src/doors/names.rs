//! Questions to the relay, by UDP, as a client of names asks them: again and again until there is an answer.

use super::{Clients, book, domain, name};
use crate::exchange::Failure;
use crate::laws::{Door, Leg};
use crate::ledger::{Datagrams, Ledger};
use ekiden_model::rng::Rng;
use ekiden_testkit::names::question;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

/// Between two tries, and how many there are: longer than a link is cut or a relay is stopped.
const TRY: Duration = Duration::from_secs(2);
const TRIES: usize = 5;
/// Questions a second of a client at most.
const A_SECOND: u32 = 20;
/// The largest reply over UDP.
const LARGEST: usize = 1_232;
/// The largest reply to a client that shows no cookie (RFC 1035 section 2.3.4).
const PLAIN: u64 = 512;
/// Questions that are judged together, some seconds of a client's.
const TOGETHER: u64 = 20;

/// What a client asked and got for one name. The relay counts each question that it reads for the client's account, and
/// at most one reply to each.
#[derive(Debug, Clone, Copy, Default)]
struct Tries {
    asked: u64,
    replies: u64,
}

impl Tries {
    fn on_asked(&mut self, ledger: &Ledger, length: usize) {
        self.asked += 1;
        ledger.up(Door::Names).on_sent(length as u64);
    }

    /// A reply of so many bytes to a question of so many.
    fn on_reply(&mut self, ledger: &Ledger, question: usize, reply: usize) {
        self.replies += 1;
        ledger.up(Door::Names).on_compared(question as u64);
        ledger.down(Door::Names).on_sent(reply as u64);
        ledger.down(Door::Names).on_compared(reply as u64);
    }

    /// No reply is waited for any more. How large those were that got lost is not known.
    fn on_end(self, ledger: &Ledger) {
        ledger.down(Door::Names).on_sent(self.asked.saturating_sub(self.replies) * PLAIN);
    }
}

pub(super) async fn questions(clients: &Clients, leg: Leg, mut rng: Rng) {
    let ledger = &clients.ledger;
    let mut questions = Datagrams::none(Door::Names, leg);
    while !clients.is_over() {
        let name = name(&mut rng, leg);
        let live = ledger.begin(domain(&name));
        if questions.sent == 0 {
            questions.from = live.from;
        }
        let mut tries = Tries::default();
        let result = ask(clients, &name, rng.below(1 << 16) as u16, &mut tries).await;
        tries.on_end(ledger);
        questions.sent += 1;
        questions.unanswered += u64::from(tries.asked > 1);
        questions.to = ledger.now();
        if questions.sent == TOGETHER {
            ledger.on_questions(questions);
            questions = Datagrams::none(Door::Names, leg);
        }
        book(clients, (Door::Names, leg), &live, name.len() as u64, result).await;
        sleep(Duration::from_secs(1) / A_SECOND).await;
    }
    ledger.on_questions(questions);
}

/// Asks until an answer has come.
async fn ask(clients: &Clients, name: &str, id: u16, tries: &mut Tries) -> Result<(), Failure> {
    let socket = UdpSocket::bind((clients.proxy, 0)).await?;
    socket.connect((clients.relay.ip(), crate::relays::NAMES)).await?;
    let (question, mut buffer) = (question(id, name), [0; LARGEST]);
    let mut why = "no answer".to_owned();
    for _ in 0..TRIES {
        // a relay that is gone is soon there again
        if let Err(error) = socket.send(&question).await {
            why = error.to_string();
            sleep(TRY / 4).await;
            continue;
        }
        tries.on_asked(&clients.ledger, question.len());
        match timeout(TRY, socket.recv(&mut buffer)).await {
            Ok(Ok(length)) => {
                tries.on_reply(&clients.ledger, question.len(), length);
                let reply = buffer.get(..length).unwrap_or_default();
                match judge(&question, reply, clients.servers) {
                    Ok(None) => return Ok(()),
                    // as the libraries of clients do
                    Ok(Some(code)) => {
                        why = format!("the code {code}");
                        sleep(TRY).await;
                    }
                    Err(what) => {
                        return Err(Failure::Wrong(format!("the answer for {name}: {what}")));
                    }
                }
            }
            Ok(Err(error)) => {
                why = error.to_string();
                sleep(TRY / 4).await;
            }
            Err(_) => {}
        }
    }
    Err(Failure::Ended(format!("{TRIES} questions: {why}")))
}

/// Nothing where the reply has the address, or the code of a failure. Errors: a reply that is none to this question.
fn judge(question: &[u8], reply: &[u8], address: Ipv4Addr) -> Result<Option<u8>, String> {
    let same = |range: std::ops::Range<usize>| reply.get(range.clone()) == question.get(range);
    let Some(flags) = reply.get(2..4).filter(|flags| flags[0] & 0x80 != 0 && same(0..2)) else {
        return Err(format!("{reply:?}"));
    };
    match flags[1] & 15 {
        0 if !same(12..question.len()) => Err(format!("{reply:?}")),
        // the address of a record, whose length comes before
        0 if reply.windows(6).any(|six| six[..2] == [0, 4] && six[2..] == address.octets()) => {
            Ok(None)
        }
        0 => Err(format!("no address in {reply:?}")),
        code => Ok(Some(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_testkit::names::answer;

    #[test]
    fn questions_and_replies_are_booked_for_the_account() {
        let ledger = Ledger::new(std::time::Instant::now(), Duration::from_secs(9));
        let mut tries = Tries::default();
        (0..3).for_each(|_| tries.on_asked(&ledger, 40));
        tries.on_reply(&ledger, 40, 56);
        tries.on_end(&ledger);
        assert_eq!(ledger.up(Door::Names).read(), (120, 40));
        // two replies that did not come are as large as they may be
        assert_eq!(ledger.down(Door::Names).read(), (56 + 2 * 512, 56));
    }

    #[test]
    fn answers_have_the_question_and_the_address() {
        let (here, there) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let asked = question(7, "a.test");
        let mut reply = answer(&asked, here, 1);
        assert_eq!(judge(&asked, &reply, here), Ok(None));
        assert!(judge(&asked, &reply, there).is_err());
        assert!(judge(&question(8, "a.test"), &reply, here).is_err());
        assert!(judge(&question(7, "b.test"), &reply, here).is_err());
        assert!(judge(&asked, &asked, here).is_err());
        reply[3] |= 2;
        assert_eq!(judge(&asked, &reply, here), Ok(Some(2)));
    }
}
