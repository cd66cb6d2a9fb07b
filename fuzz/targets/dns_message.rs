//! Messages of the DNS, from clients and from servers: what is believed stays within its question, and every reply fits.
#![no_main]

use ekiden_model::dns::Outcome;
use ekiden_model::units::Span;
use ekiden_proxy::wire::dns::{
    Answer, ClientQuestion, Nat64, Reading, ServerReply, UDP_MOST, read_answer, read_question,
    special,
};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// Replies to a client, in datagrams and on a stream: both are read as replies to its question.
fn reply(client: &ClientQuestion, outcome: &Outcome<Arc<Answer>>) {
    let mut out = vec![0; 3];
    for most in [client.udp_most(), usize::from(u16::MAX)] {
        client.reply(outcome, most, &mut out);
        assert!(out.len() <= most, "{} bytes of {most}", out.len());
        let id = u16::from_be_bytes([out[0], out[1]]);
        assert!(read_answer(&client.question, id, &out).is_ok());
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Reading::Question(client) = read_question(bytes) {
        assert!(client.udp_most() <= usize::from(UDP_MOST));
        reply(&client, &Outcome::Failed);
        if let Some(found) = special(&client.question) {
            reply(&client, &Outcome::Fresh(found.answer, found.ttl));
        }
    }
    // the same bytes as a server's reply to the question in them
    let mut asked = bytes.to_vec();
    let Some(header) = asked.get_mut(2..12) else { return };
    header.copy_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let Reading::Question(client) = read_question(&asked) else { return };
    let id = u16::from_be_bytes([bytes[0], bytes[1]]);
    let Ok(ServerReply::Found(found, _)) = read_answer(&client.question, id, bytes) else { return };
    reply(&client, &Outcome::Fresh(Arc::clone(&found.answer), found.ttl));
    reply(&client, &Outcome::Stale(Arc::clone(&found.answer)));
    let prefix = "64:ff9b::/96".parse().unwrap_or_default();
    if let Some(nat64) = Nat64::new(prefix)
        && let Some(found) = nat64.synthesize(&client.question, &found.answer, Span::ZERO, |_| true)
    {
        reply(&client, &Outcome::Stale(found.answer));
    }
});
