//! Streams of clients and of peers, without a server around them.

use super::stream::{PEER, serve};
use super::*;
use crate::outbound::dns::pipe::{framed, take_message};
use crate::resources::Resources;
use crate::runtime::shared::Shared;
use crate::settings::Settings;
use hickory_resolver::proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
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
