//! Which replies are believed, and what is learned of a server.

use super::capabilities::*;
use super::cookie::{ClientCookie, Cookie, ServerCookie};
use crate::testing::*;

const OWN: ClientCookie = [1; 8];
const FORMAT_ERROR: u16 = 1;
const BAD_COOKIE: u16 = 23;

fn cookie(client: ClientCookie, server: Option<u8>) -> Cookie {
    Cookie { client, server: server.and_then(|byte| ServerCookie::new(&[byte; 16])) }
}

fn reply(spelling: Spelling, cookie: Option<Cookie>, code: u16) -> ReplyProof {
    let cookie = cookie.map_or(ReplyCookie::Absent, ReplyCookie::Present);
    ReplyProof { spelling, cookie, code }
}

fn replies() -> impl Strategy<Value = ReplyProof> {
    let spelling = prop_oneof![Just(Spelling::Same), Just(Spelling::Other), Just(Spelling::Absent)];
    let cookie = prop_oneof![
        Just(ReplyCookie::Absent),
        Just(ReplyCookie::Malformed),
        (any::<bool>(), proptest::option::of(0_u8..3)).prop_map(|(own, server)| {
            ReplyCookie::Present(cookie(if own { OWN } else { [2; 8] }, server))
        }),
    ];
    let code = prop_oneof![Just(0_u16), Just(FORMAT_ERROR), Just(2), Just(3), Just(BAD_COOKIE)];
    (spelling, cookie, code).prop_map(|(spelling, cookie, code)| ReplyProof {
        spelling,
        cookie,
        code,
    })
}

/// Asks at this time and gets this one reply.
fn ask(server: &mut Capabilities, now: Time, reply: &ReplyProof) -> Verdict {
    let sent = server.sending(now, Some(OWN));
    server.on_reply(now, &sent, reply)
}

proptest! {
    #[test]
    fn only_a_reply_with_all_that_was_sent_is_believed(
        questions in proptest::collection::vec(
            (0_u64..2_000, proptest::collection::vec(replies(), 1..9)), 1..40,
        ),
    ) {
        let mut server = Capabilities::default();
        let mut now = at(0);
        for (seconds, replies) in questions {
            now += Span::from_secs(seconds);
            let mut sent = server.sending(now, Some(OWN));
            let mut repeats = 0;
            for reply in replies {
                let verdict = server.on_reply(now, &sent, &reply);
                let wrong = match reply.cookie {
                    ReplyCookie::Absent => false,
                    ReplyCookie::Malformed => true,
                    ReplyCookie::Present(cookie) => {
                        sent.cookie.is_none_or(|own| own.client != cookie.client)
                    }
                };
                let missing = reply.cookie == ReplyCookie::Absent
                    && sent.cookie.is_some_and(|own| own.server.is_some());
                prop_assert_eq!(verdict == Verdict::Drop, wrong);
                if verdict == Verdict::Believe {
                    prop_assert!(reply.spelling != Spelling::Other && !missing);
                    prop_assert!(reply.spelling == Spelling::Same || reply.cookie != ReplyCookie::Absent);
                }
                match verdict {
                    Verdict::Drop => {}
                    Verdict::Repeat(next) => {
                        prop_assert!(next != sent);
                        prop_assert!(reply.spelling != Spelling::Other && !missing);
                        (sent, repeats) = (next, repeats + 1);
                    }
                    _ => break,
                }
            }
            prop_assert!(repeats <= 2, "once with a new cookie, once without EDNS");
        }
    }

    #[test]
    fn forged_replies_teach_nothing_of_cookies(replies in proptest::collection::vec(replies(), 0..40)) {
        let mut server = Capabilities::default();
        let true_reply = reply(Spelling::Same, Some(cookie(OWN, Some(9))), 0);
        prop_assert_eq!(ask(&mut server, at(0), &true_reply), Verdict::Believe);
        for mut reply in replies {
            if reply.cookie == ReplyCookie::Absent {
                reply.cookie = ReplyCookie::Malformed;
            }
            if let ReplyCookie::Present(cookie) = &mut reply.cookie {
                cookie.client = [2; 8];
            }
            prop_assert_eq!(ask(&mut server, at(0), &reply), Verdict::Drop);
        }
        prop_assert_eq!(server.sending(at(0), Some(OWN)).cookie, Some(cookie(OWN, Some(9))));
    }
}

#[test]
fn a_server_that_changes_case_four_times_is_asked_over_tcp_for_an_hour() {
    let mut server = Capabilities::default();
    let (same, other) = (reply(Spelling::Same, None, 0), reply(Spelling::Other, None, 0));
    for seen in [&other, &other, &other, &same, &other, &other, &other] {
        ask(&mut server, at(0), seen);
        assert!(!server.changes_case(at(0)), "not four in a row");
    }
    assert_eq!(ask(&mut server, at(0), &other), Verdict::Doubt);
    assert!(server.sending(at(3_599_999), None).tcp);
    // after that one more decides
    assert!(!server.sending(at(3_600_000), None).tcp);
    assert_eq!(ask(&mut server, at(3_600_000), &other), Verdict::Doubt);
    assert!(server.changes_case(at(3_600_000)));
    assert_eq!(ask(&mut server, at(7_200_000), &same), Verdict::Believe);
    assert_eq!(ask(&mut server, at(7_200_000), &other), Verdict::Doubt);
    assert!(!server.changes_case(at(7_200_000)));
}

#[test]
fn a_server_cookie_is_shown_again_and_replaced_when_it_is_refused() {
    let mut server = Capabilities::default();
    let first = server.sending(at(0), Some(OWN));
    assert_eq!(first.cookie, Some(cookie(OWN, None)));
    let refusal = |byte| reply(Spelling::Same, Some(cookie(OWN, Some(byte))), BAD_COOKIE);
    let Verdict::Repeat(second) = server.on_reply(at(0), &first, &refusal(5)) else { panic!() };
    assert_eq!(second.cookie, Some(cookie(OWN, Some(5))));
    assert_eq!(server.on_reply(at(0), &second, &refusal(6)), Verdict::Tcp);
    // kept all the same, for this cookie of the client's alone
    assert_eq!(server.sending(at(0), Some(OWN)).cookie, Some(cookie(OWN, Some(6))));
    assert_eq!(server.sending(at(0), Some([2; 8])).cookie, Some(cookie([2; 8], None)));
}

#[test]
fn a_server_that_no_longer_sends_cookies_is_believed_without_after_four_doubts() {
    let mut server = Capabilities::default();
    let with = reply(Spelling::Same, Some(cookie(OWN, Some(5))), 0);
    let without = reply(Spelling::Same, None, 0);
    assert_eq!(ask(&mut server, at(0), &with), Verdict::Believe);
    for _ in 0..4 {
        assert_eq!(ask(&mut server, at(0), &without), Verdict::Doubt);
    }
    assert_eq!(ask(&mut server, at(0), &without), Verdict::Believe);
    assert!(!server.has_cookie());
}

#[test]
fn a_server_without_edns_is_asked_without_for_an_hour() {
    let mut server = Capabilities::default();
    let first = server.sending(at(0), Some(OWN));
    for spelling in [Spelling::Same, Spelling::Absent] {
        let refused = server.on_reply(at(0), &first, &reply(spelling, None, FORMAT_ERROR));
        let Verdict::Repeat(second) = refused else { panic!("{refused:?}") };
        assert!(!second.edns && second.cookie.is_none());
        assert!(!server.lacks_edns(at(0)), "a refusal alone proves nothing");
        let answer = reply(Spelling::Same, None, 0);
        assert_eq!(server.on_reply(at(0), &second, &answer), Verdict::Believe);
        assert!(server.lacks_edns(at(3_599_999)) && !server.lacks_edns(at(3_600_000)));
        server = Capabilities::default();
    }
}
