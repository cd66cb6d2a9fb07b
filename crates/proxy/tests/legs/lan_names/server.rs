//! A name server over UDP, TCP and TLS that a script answers, and a client.

use crate::harness::loopback;
use hickory_resolver::proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, SOA};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Replies to a question; the second says whether it came on a stream.
type Script = dyn Fn(&Message, bool) -> Vec<Vec<u8>> + Send + Sync;

pub(crate) struct Server {
    pub(crate) at: SocketAddr,
    pub(crate) asked: Arc<AtomicUsize>,
    /// Streams that were opened.
    pub(crate) streams: Arc<AtomicUsize>,
    silent: Arc<AtomicBool>,
    /// Questions as they came.
    pub(crate) seen: Arc<Mutex<Vec<Message>>>,
}

/// A port of loopback that is free for both.
pub(crate) fn free_port() -> SocketAddr {
    loop {
        let at = TcpListener::bind(loopback(0)).unwrap().local_addr().unwrap();
        if UdpSocket::bind(at).is_ok() {
            return at;
        }
    }
}

impl Server {
    pub(crate) fn start(
        script: impl Fn(&Message, bool) -> Vec<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let (socket, listener) = loop {
            let listener = TcpListener::bind(loopback(0)).unwrap();
            if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()) {
                break (socket, listener);
            }
        };
        let server = Self {
            at: socket.local_addr().unwrap(),
            asked: Arc::default(),
            streams: Arc::default(),
            silent: Arc::default(),
            seen: Arc::default(),
        };
        let script: Arc<Script> = Arc::new(script);
        let answers = server.answers(&script);
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok((n, from)) = socket.recv_from(&mut buffer) {
                for reply in answers(&buffer[..n], false) {
                    let _ = socket.send_to(&reply, from);
                }
            }
        });
        let (answers, streams) = (server.answers(&script), Arc::clone(&server.streams));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                streams.fetch_add(1, Relaxed);
                let answers = answers.clone();
                std::thread::spawn(move || serve(stream.unwrap(), answers));
            }
        });
        server
    }

    /// The same within TLS, at another port.
    pub(crate) fn within_tls(&self, config: Arc<rustls::ServerConfig>) -> SocketAddr {
        let listener = TcpListener::bind(loopback(0)).unwrap();
        let (at, inner) = (listener.local_addr().unwrap(), self.at);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(connection) = rustls::ServerConnection::new(Arc::clone(&config)) else {
                    return;
                };
                let mut outer = rustls::StreamOwned::new(connection, stream.unwrap());
                std::thread::spawn(move || {
                    let mut inner = TcpStream::connect(inner).unwrap();
                    while let Some(message) = read_message(&mut outer) {
                        write_message(&mut inner, &message);
                        let Some(reply) = read_message(&mut inner) else { return };
                        write_message(&mut outer, &reply);
                    }
                });
            }
        });
        at
    }

    fn answers(
        &self,
        script: &Arc<Script>,
    ) -> impl Fn(&[u8], bool) -> Vec<Vec<u8>> + Clone + Send + 'static {
        let (asked, silent) = (Arc::clone(&self.asked), Arc::clone(&self.silent));
        let (seen, script) = (Arc::clone(&self.seen), Arc::clone(script));
        move |bytes, stream| {
            let message = Message::from_vec(bytes).unwrap();
            asked.fetch_add(1, Relaxed);
            let replies = if silent.load(Relaxed) { vec![] } else { script(&message, stream) };
            seen.lock().unwrap().push(message);
            replies
        }
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Relaxed)
    }

    /// From now on nothing is answered, as behind a link that is down.
    pub(crate) fn fall_silent(&self) {
        self.silent.store(true, Relaxed);
    }

    pub(crate) fn speak_again(&self) {
        self.silent.store(false, Relaxed);
    }
}

fn serve(mut stream: TcpStream, answers: impl Fn(&[u8], bool) -> Vec<Vec<u8>>) {
    while let Some(message) = read_message(&mut stream) {
        for reply in answers(&message, true) {
            write_message(&mut stream, &reply);
        }
    }
}

pub(crate) fn read_message(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message).ok()?;
    Some(message)
}

pub(crate) fn write_message(stream: &mut impl Write, message: &[u8]) {
    let mut framed = (message.len() as u16).to_be_bytes().to_vec();
    framed.extend_from_slice(message);
    let _ = stream.write_all(&framed);
}

pub(crate) fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

/// A reply to `query` with these records.
pub(crate) fn reply(query: &Message, code: ResponseCode, records: Vec<RData>, ttl: u32) -> Message {
    let mut reply = Message::response(query.id, OpCode::Query);
    reply.metadata.response_code = code;
    reply.metadata.recursion_available = true;
    reply.add_query(query.queries[0].clone());
    let owner = query.queries[0].name();
    for data in records {
        reply.add_answer(Record::from_rdata(owner.clone(), ttl, data));
    }
    reply
}

/// Addresses of a question's family.
pub(crate) fn addresses(query: &Message, list: &[&str], ttl: u32) -> Vec<Vec<u8>> {
    let kind = query.queries[0].query_type();
    let data = list.iter().filter_map(|text| match text.parse().unwrap() {
        IpAddr::V4(v4) if kind == RecordType::A => Some(RData::A(A(v4))),
        IpAddr::V6(v6) if kind == RecordType::AAAA => Some(RData::AAAA(AAAA(v6))),
        _ => None,
    });
    let mut reply = reply(query, ResponseCode::NoError, data.collect(), ttl);
    if reply.answers.is_empty() {
        let soa = SOA::new(name("ns."), name("root."), 1, 2, 3, 4, ttl);
        reply.add_authority(Record::from_rdata(name("example."), ttl, RData::SOA(soa)));
    }
    vec![reply.to_vec().unwrap()]
}

/// A client's question.
pub(crate) fn query(text: &str, kind: RecordType, edns: Option<u16>) -> Message {
    static NTH: AtomicUsize = AtomicUsize::new(1);
    let id = NTH.fetch_add(1, Relaxed) as u16;
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(text), kind));
    if let Some(size) = edns {
        let mut record = Edns::new();
        record.set_max_payload(size);
        message.set_edns(record);
    }
    message
}

/// Asks over UDP and waits for the reply, up to so long.
pub(crate) fn ask_within(at: SocketAddr, message: &Message, patience: Duration) -> Option<Message> {
    let socket = UdpSocket::bind(loopback(0)).unwrap();
    socket.connect(at).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.send(&message.to_vec().unwrap()).unwrap();
    let mut buffer = [0; 4_096];
    let n = socket.recv(&mut buffer).ok()?;
    let reply = Message::from_vec(&buffer[..n]).unwrap();
    assert_eq!((reply.id, &reply.queries), (message.id, &message.queries));
    Some(reply)
}

pub(crate) fn ask(at: SocketAddr, text: &str, kind: RecordType) -> Message {
    ask_within(at, &query(text, kind, Some(1_232)), Duration::from_secs(60)).unwrap()
}

/// The addresses in a reply, as text.
pub(crate) fn found(reply: &Message) -> Vec<String> {
    let text = |record: &Record| match &record.data {
        RData::A(address) => Some(address.0.to_string()),
        RData::AAAA(address) => Some(address.0.to_string()),
        _ => None,
    };
    reply.answers.iter().filter_map(text).collect()
}
