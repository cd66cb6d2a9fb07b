//! Streams of clients and of peers, without a server around them.

use super::stream::{Limits, PEER, serve};
use super::*;
use crate::outbound::dns::pipe::{framed, take_message};
use crate::resources::Resources;
use crate::runtime::shared::Shared;
use crate::settings::Settings;
use hickory_resolver::proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

fn config(change: impl FnOnce(&mut Settings)) -> Arc<RuntimeConfig> {
    let mut settings = Settings::default();
    change(&mut settings);
    let (resources, _admitted) = Resources::new(&settings, false);
    let shared = Shared::new(&settings, resources, None);
    Arc::new(RuntimeConfig::new(Arc::new(settings), shared, None, None).unwrap())
}

/// A question that needs no server, behind its length.
fn question(id: u16) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    let name = Name::from_ascii("a.invalid.").unwrap();
    message.add_query(Query::query(name, RecordType::A));
    framed(&message.to_vec().unwrap()).unwrap()
}

#[tokio::test]
async fn bytes_of_a_message_do_not_keep_a_stream_open() {
    let config = config(|_| {});
    let limits = Limits { idle: Duration::from_millis(300), ..PEER };
    let client: IpAddr = [192, 0, 2, 1].into();
    // nothing of it is a whole message; neither are messages without a header
    for byte in [9, 0] {
        let (mut ours, theirs) = duplex(64);
        let of = (Origin::Tcp(client), Asker::at(client));
        let config = Arc::clone(&config);
        let serving = tokio::spawn(serve(move || Arc::clone(&config), of, limits, theirs));
        ours.write_all(&question(1)).await.unwrap();
        let mut sent = 0;
        while !serving.is_finished() && sent < 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let _ = ours.write_all(&[byte]).await;
            sent += 1;
        }
        assert!((3..200).contains(&sent), "{sent}");
    }
}

#[tokio::test]
async fn a_peer_has_a_rate_and_its_stream_goes_on() {
    let config = config(|settings| settings.dns.rate = 1);
    for peer in ["ship", "barge"] {
        let (mut ours, theirs) = duplex(1 << 16);
        let of = (Origin::Peer, Asker::Peer(peer.into()));
        let config = Arc::clone(&config);
        let serving = tokio::spawn(serve(move || Arc::clone(&config), of, PEER, theirs));
        for id in 0..200 {
            ours.write_all(&question(id)).await.unwrap();
        }
        ours.shutdown().await.unwrap();
        let mut received = Vec::new();
        ours.read_to_end(&mut received).await.unwrap();
        serving.await.unwrap();
        let mut codes = Vec::new();
        while let Some(reply) = take_message(&mut received) {
            codes.push(Message::from_vec(&reply).unwrap().response_code);
        }
        let known = codes.iter().filter(|code| **code == ResponseCode::NXDomain).count();
        let failed = codes.iter().filter(|code| **code == ResponseCode::ServFail).count();
        // 16 a second, twice that at once
        assert!((32..150).contains(&known) && known + failed == 200, "{known} and {failed}");
    }
    assert!(config.shared.dns.counts.limited.load(Relaxed) > 100);
}
