//! Flows as streams: resets, closes, and being shut from elsewhere.

use super::*;
use ekiden_model::units;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_passes_after_earlier_bytes() {
    let mut pair = pair(mbit(100));
    let (mut client, mut server) = flow(&mut pair).await;
    client.write_all(&[7; 200_000]).await.unwrap();
    client.reset_when_sent(Reason::Closed, "it broke");
    drop(client);
    let mut received = Vec::new();
    let error = server.read_to_end(&mut received).await.unwrap_err();
    assert_eq!((received.len(), error.kind()), (200_000, io::ErrorKind::ConnectionReset));
    assert_eq!(error.to_string(), "it broke");
}

/// Its end alone would pass for an empty answer of the destination.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_dropped_without_an_answer_is_refused() {
    let mut pair = pair(mbit(100));
    let flow = pair.near.open("far", opening(80), PATIENCE).await.unwrap();
    let incoming = pair.incoming.recv().await.unwrap();
    drop(incoming.flow.into_stream(|_, _, _| ()));
    let answered = tokio::time::timeout(Duration::from_secs(60), flow.answered()).await;
    let (reason, words) = answered.expect("it waits for ever").unwrap_err();
    assert_eq!((reason, words.as_str()), (Reason::Closed, "closed without an answer"));
    drop(flow);
    no_flow_is_left(&pair).await;
}

/// As the operator ends it, or a limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_that_is_ended_from_elsewhere_without_an_answer_is_refused() {
    let mut pair = pair(mbit(100));
    let flow = pair.near.open("far", opening(80), PATIENCE).await.unwrap();
    let incoming = pair.incoming.recv().await.unwrap();
    let stream = incoming.flow.into_stream(|_, _, _| ());
    stream.view().abort();
    let answered = tokio::time::timeout(Duration::from_secs(60), flow.answered()).await;
    let (reason, words) = answered.expect("it waits for ever").unwrap_err();
    assert_eq!((reason, words.as_str()), (Reason::Closed, "ended by the operator or by a limit"));
    drop((stream, flow));
    no_flow_is_left(&pair).await;
}

/// As a socket is closed: bytes that come for nobody are answered by a reset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_for_a_closed_stream_reset_the_flow() {
    let mut pair = pair(mbit(100));
    let (mut client, mut server) = flow(&mut pair).await;
    client.write_all(b"all of it").await.unwrap();
    drop(client);
    let mut received = Vec::new();
    server.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"all of it");
    server.write_all(b"nobody reads it").await.unwrap();
    let broken = tokio::time::timeout(Duration::from_secs(5), server.broken()).await;
    assert!(broken.is_ok() && server.write(b"more").await.is_err());
    drop(server);
    no_flow_is_left(&pair).await;
}

/// A writer waits for room, and a reader for bytes; both find the stream shut from elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_shut_from_elsewhere_ends_for_those_that_wait() {
    let mut pair = pair(mbit(10));
    let (mut client, server) = flow(&mut pair).await;
    let view = client.view();
    while let Ok(Ok(())) =
        tokio::time::timeout(Duration::from_millis(300), client.write_all(&[7; 65_536])).await
    {
        assert!(client.view().status().unwrap().sent < 64 << 20, "nobody reads, and all is taken");
    }
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        view.shut();
    });
    let (mut reader, mut writer) = tokio::io::split(client);
    let (mut none, more) = (Vec::new(), [7; 65_536]);
    let (read, written) = tokio::join!(reader.read_to_end(&mut none), writer.write_all(&more));
    assert_eq!((read.unwrap(), written.unwrap_err().kind()), (0, io::ErrorKind::BrokenPipe));
    drop((reader, writer, server));
    no_flow_is_left(&pair).await;
}

/// They fill the memory for bytes that wait; a flow that is read goes on, and so do they once they are read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_go_on_beside_streams_that_nobody_reads() {
    let limits = Limits { memory: units::Bytes::mib(1), ..Limits::default() };
    let mut pair = pair_within(limits, "127.0.0.1:0", mbit(10), |at| at);
    let (mut writers, mut unread) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let (mut client, server) = flow(&mut pair).await;
        unread.push(server);
        writers.push(tokio::spawn(async move {
            client.write_all(&[7; 1_500_000]).await.unwrap();
            client.shutdown().await.unwrap();
            client
        }));
    }
    let (mut client, mut server) = flow(&mut pair).await;
    let waiting = |pair: &Pair| pair.near.status()[0].tunnel.as_ref().unwrap().waiting;
    while waiting(&pair) < 300_000 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let all = async {
        let mut read = vec![0; 800_000];
        let (wrote, read) =
            tokio::join!(client.write_all(&[8; 800_000]), server.read_exact(&mut read));
        wrote.unwrap();
        read.unwrap();
        assert!(waiting(&pair) <= 512 * 1024 + 5 * 4_096);
        for server in &mut unread {
            let mut read = Vec::new();
            server.read_to_end(&mut read).await.unwrap();
            assert_eq!(read.len(), 1_500_000);
        }
        for writer in writers {
            writer.await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("a writer waits for ever");
}

async fn no_flow_is_left(pair: &Pair) {
    let flows = |peers: &Peers| peers.status()[0].tunnel.as_ref().unwrap().flows;
    let none = async {
        while flows(&pair.near) + flows(&pair.far) > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), none).await.expect("a flow is left");
}
