//! Guests: clients with a log-in of their own at an address that belongs to another account.
use crate::accounts::{
    ANNA, ANNA_BASIC, Book, OTTO, WRONG_BASIC, asked, greeted, relay, served, socks_connect,
};
use crate::accounts_limits::quota;
use crate::common::wait_until;
use crate::common::wire::{Origin, Relay, get, ok};
use crate::connect_udp::{server, upgrade};
use crate::tls::{Shown, http2};
use ekiden_proxy::settings::ExceededAction;
use std::sync::Arc;
use tokio::task::block_in_place;

#[test]
fn a_log_in_counts_before_a_known_address() {
    let (book, origin) = (Arc::new(Book::default()), Origin::new());
    book.at_loopback(OTTO);
    let relay = relay(&book, |_| {});
    let mut client = relay.client();
    let account = || relay.status().connections.remove(0).account.unwrap();
    for (credentials, name) in [("", "otto's"), (ANNA_BASIC, "anna's"), ("", "otto's")] {
        served(&mut client, &origin, credentials, || assert_eq!(account(), name));
    }
    client.send(get(&origin, "/", WRONG_BASIC));
    assert!(client.until_end().starts_with("HTTP/1.1 407 "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_log_in_counts_before_a_known_address_by_http_2() {
    let (shown, book, origin) = (Shown::new(), Arc::new(Book::default()), Origin::new());
    book.at_loopback(OTTO);
    let relay = block_in_place(|| relay(&book, |settings| shown.settings(settings)));
    let (mut client, driving) = http2(&shown, &relay).await;
    for (credentials, name) in [("", "otto's"), (ANNA_BASIC, "anna's"), ("", "otto's")] {
        let mut request = crate::tls::asked("GET", format!("http://{}/", origin.name));
        if let Some((_, value)) = credentials.trim_end().split_once(": ") {
            request.headers_mut().insert("proxy-authorization", value.parse().unwrap());
        }
        client = client.ready().await.unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        block_in_place(|| {
            let mut server = origin.accept();
            server.head();
            // the stream before may still be listed
            let accounts = || relay.status().connections.into_iter().filter_map(|one| one.account);
            let only = || accounts().all(|account| account == name) && accounts().count() == 1;
            wait_until(only, || format!("{name}: {:?}", relay.status().connections));
            server.send(ok("1"));
        });
        assert_eq!(response.await.unwrap().status(), 200);
    }
    driving.abort();
    block_in_place(|| drop(relay));
}

#[test]
fn a_log_in_counts_before_a_known_address_by_connect_udp() {
    let (book, server) = (Arc::new(Book::default()), server());
    book.at_loopback(OTTO);
    let relay = relay(&book, |_| {});
    let to = server.local_addr().unwrap();
    for (credentials, name) in [("", "otto's"), (ANNA_BASIC, "anna's")] {
        let mut client = relay.client();
        client.send(upgrade(to, credentials));
        assert!(client.head().starts_with("HTTP/1.1 101 "));
        let account = relay.status().connections.remove(0).account;
        assert_eq!(account.as_deref(), Some(name));
        drop(client);
        relay.settles();
    }
    assert!(asked(&relay, upgrade(to, WRONG_BASIC)).starts_with("HTTP/1.1 407 "));
}

#[test]
fn a_log_in_of_a_spent_account_is_refused_at_an_address_of_another() {
    let (book, origin) = (Arc::new(Book::default()), Origin::new());
    book.at_loopback(OTTO);
    let relay = relay(&book, |_| {});
    let handle = relay.server.as_ref().unwrap().handle();
    handle.accounts().set("anna's", quota(1, ExceededAction::Cut));
    served(&mut relay.client(), &origin, "", || ());
    // the first request spends what there is
    for _ in 0..2 {
        let answer = asked(&relay, get(&origin, "/", ANNA_BASIC));
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("anna's"), "{answer}");
    }
    served(&mut relay.client(), &origin, "", || ());
}

/// A relay at whose loopback address an account lives that is barred, by each of the two ways, and what it says.
fn barred(test: impl Fn(&Relay, &Shown, &str)) {
    let origin = Origin::new();
    for (disabled, why) in [(true, "this account is disabled"), (false, "quota is used up")] {
        let (shown, book) = (Shown::new(), Arc::new(Book::default()));
        book.at_loopback(OTTO);
        let relay = relay(&book, |settings| shown.settings(settings));
        if disabled {
            book.disable(OTTO);
        } else {
            let handle = relay.server.as_ref().unwrap().handle();
            handle.accounts().set("otto's", quota(1, ExceededAction::Cut));
            // the first request spends what there is
            assert!(asked(&relay, get(&origin, "/", "")).starts_with("HTTP/1.1 403 "));
        }
        test(&relay, &shown, why);
    }
}

#[test]
fn a_barred_account_of_the_address_keeps_no_guest_out_of_http() {
    let udp = server();
    barred(|relay, _, why| {
        let origin = Origin::new();
        let name = &origin.name;
        let connect =
            |fields: &str| format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n{fields}\r\n");
        let to = udp.local_addr().unwrap();
        let mut client = relay.client();
        served(&mut client, &origin, ANNA_BASIC, || ());
        // the next request of the connection is the house's again
        client.send(get(&origin, "/", ""));
        assert!(client.until_end().starts_with("HTTP/1.1 403 "));
        for (message, status) in [(connect(ANNA_BASIC), "200"), (upgrade(to, ANNA_BASIC), "101")] {
            let mut client = relay.client();
            client.send(&message);
            let head = client.head();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{message}: {head}");
        }
        for message in [get(&origin, "/", ""), connect(""), upgrade(to, "")] {
            let answer = asked(relay, &message);
            assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains(why), "{answer}");
        }
        for message in [get(&origin, "/", WRONG_BASIC), connect(WRONG_BASIC)] {
            assert!(asked(relay, &message).starts_with("HTTP/1.1 407 "), "{message}");
        }
    });
}

#[test]
fn a_barred_account_of_the_address_keeps_no_guest_out_of_socks5() {
    let origin = Origin::new();
    barred(|relay, _, _| {
        let (mut client, method) = greeted(relay, &[0, 2]);
        assert_eq!(method, 2, "the address identifies nobody");
        client.send(b"\x01\x04anna\x0eright password");
        assert_eq!(client.exactly(2), [1, 0]);
        client.send(socks_connect(origin.port()));
        assert_eq!(client.exactly(10)[..2], [5, 0]);
        origin.accept();
        assert_eq!(greeted(relay, &[0]).1, 0xff);
        let mut client = relay.client();
        client.send([&[4, 1][..], &origin.port().to_be_bytes(), &[127, 0, 0, 1, 0]].concat());
        assert_eq!(client.exactly(8)[..2], [0, 91]);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_barred_account_of_the_address_keeps_no_guest_out_of_http_2() {
    let origin = Origin::new();
    let statuses = async |relay: &Relay, shown: &Shown| {
        let (mut client, driving) = http2(shown, relay).await;
        let mut statuses = Vec::new();
        for credentials in ["", ANNA_BASIC, WRONG_BASIC] {
            let mut request = crate::tls::asked("CONNECT", origin.name.clone());
            if let Some((_, value)) = credentials.trim_end().split_once(": ") {
                request.headers_mut().insert("proxy-authorization", value.parse().unwrap());
            }
            client = client.ready().await.unwrap();
            let (response, _open) = client.send_request(request, false).unwrap();
            statuses.push(response.await.unwrap().status().as_u16());
        }
        driving.abort();
        statuses
    };
    block_in_place(|| {
        barred(|relay, shown, why| {
            let found = tokio::runtime::Handle::current().block_on(statuses(relay, shown));
            assert_eq!(found, [403, 200, 407], "{why}");
        });
    });
}

#[test]
fn a_disabled_account_is_refused_without_a_log_in_where_that_is_optional() {
    let (book, origin) = (Arc::new(Book::default()), Origin::new());
    book.at_loopback(OTTO);
    book.disable(OTTO);
    let relay = relay(&book, |settings| settings.accounts.required = false);
    let answer = asked(&relay, get(&origin, "/", ""));
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("disabled"), "{answer}");
    assert_eq!(greeted(&relay, &[0]).1, 0xff);
    served(&mut relay.client(), &origin, ANNA_BASIC, || ());
    book.disable(ANNA);
    assert!(asked(&relay, get(&origin, "/", ANNA_BASIC)).starts_with("HTTP/1.1 403 "));
}
