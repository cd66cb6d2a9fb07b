//! Questions and replies on one stream, in any order (RFC 7766 §6.2.1): each message behind its length.

use super::liveness::Liveness;
use super::random::random_id;
use crate::wire::dns::{Form, Lie, Messages, Question, ServerReply, framed, read_answer};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

/// A stream is closed when nothing was asked for so long, or a question has no reply for so long.
const SILENT: Duration = Duration::from_secs(15);
/// A message must be taken by the other side within this time.
const WRITING: Duration = Duration::from_secs(5);
/// Questions on their way on one stream: clients' and this relay's own, and some that nobody waits for any more.
const MOST: usize = 1_024;

struct Request {
    message: Vec<u8>,
    reply: oneshot::Sender<(u16, Vec<u8>)>,
}

/// Reads some bytes of messages; 0 at the end.
pub(crate) async fn read_some(
    from: &mut (impl AsyncRead + Unpin),
    into: &mut Messages,
) -> io::Result<usize> {
    from.read_buf(&mut into.room()).await
}

/// A stream to a server; its task ends with it, or when it is silent.
#[derive(Debug, Clone)]
pub(crate) struct Pipe {
    requests: mpsc::Sender<Request>,
    liveness: Arc<Liveness>,
    form: Form,
}

impl Pipe {
    /// `form`: how questions are written.
    pub(super) fn new(stream: impl AsyncRead + AsyncWrite + Send + 'static, form: Form) -> Self {
        let (requests, waiting) = mpsc::channel(16);
        let liveness = Arc::new(Liveness::default());
        tokio::spawn(run(stream, waiting, Arc::clone(&liveness)));
        Self { requests, liveness, form }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.requests.is_closed() && !self.liveness.is_dead()
    }

    /// The server's reply. Errors: the stream ended before it, or what came is no reply to this.
    pub(super) async fn ask(&self, question: &Question) -> io::Result<Result<ServerReply, Lie>> {
        let message = question.message(0, self.form).map_err(io::Error::other)?;
        let (reply, answered) = oneshot::channel();
        let _waiting = self.liveness.on_question();
        let closed = || io::Error::from(io::ErrorKind::UnexpectedEof);
        self.requests.send(Request { message, reply }).await.map_err(|_| closed())?;
        let (id, bytes) = answered.await.map_err(|_| closed())?;
        Ok(read_answer(question, id, &bytes))
    }
}

async fn run(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    waiting: mpsc::Receiver<Request>,
    liveness: Arc<Liveness>,
) {
    let (mut from, mut to) = tokio::io::split(stream);
    let mut asked: BTreeMap<u16, oneshot::Sender<(u16, Vec<u8>)>> = BTreeMap::new();
    let mut received = Messages::default();
    let mut until = Instant::now() + SILENT;
    // dropped before `asked`: where a reply does not come any more, the stream is seen to be closed
    let mut waiting = waiting;
    loop {
        tokio::select! {
            read = read_some(&mut from, &mut received) => {
                if !read.is_ok_and(|n| n > 0) {
                    return;
                }
                loop {
                    let message = match received.take() {
                        Ok(Some(message)) => message,
                        Ok(None) => break,
                        Err(_) => return,
                    };
                    until = Instant::now() + SILENT;
                    liveness.on_reply();
                    let id = u16::from_be_bytes([message[0], message[1]]);
                    // one that nobody waits for is left alone
                    if let Some(reply) = asked.remove(&id) {
                        let _ = reply.send((id, message));
                    }
                }
            }
            request = waiting.recv(), if asked.len() < MOST => {
                let Some(Request { mut message, reply }) = request else { return };
                // before those go that nobody waits for: a stream that left them unanswered gets no more time
                if asked.is_empty() {
                    until = Instant::now() + SILENT;
                }
                // whoever stopped waiting needs no place
                asked.retain(|_, reply| !reply.is_closed());
                let mut id = random_id();
                while asked.contains_key(&id) {
                    id = id.wrapping_add(1);
                }
                message[..2].copy_from_slice(&id.to_be_bytes());
                asked.insert(id, reply);
                let Some(framed) = framed(&message) else { return };
                if !matches!(timeout(WRITING, to.write_all(&framed)).await, Ok(Ok(()))) {
                    return;
                }
                if !matches!(timeout(WRITING, to.flush()).await, Ok(Ok(()))) {
                    return;
                }
            }
            () = sleep_until(until) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::proto::rr::{Name, RecordType};
    use tokio::io::duplex;
    use tokio::time::sleep;

    fn question() -> Question {
        Question::new(Name::from_ascii("a.example.").unwrap(), RecordType::A)
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_answers_nothing_is_given_up_with_its_first_question() {
        let (ours, _server) = duplex(4_096);
        let pipe = Pipe::new(ours, Form::PLAIN);
        // it gave way to others
        let asked = timeout(Duration::from_millis(900), pipe.ask(&question())).await;
        assert!(asked.is_err() && pipe.is_open());
        let asked = timeout(Duration::from_secs(5), pipe.ask(&question())).await;
        assert!(asked.is_err() && !pipe.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_stays_where_one_question_of_several_is_answered() {
        let (ours, mut server) = duplex(4_096);
        let pipe = Pipe::new(ours, Form::PLAIN);
        let (slow, first) = (pipe.clone(), pipe.clone());
        let slow = tokio::spawn(async move {
            timeout(Duration::from_secs(5), slow.ask(&question())).await.is_err()
        });
        sleep(Duration::from_secs(1)).await;
        let mut received = Vec::new();
        while received.len() < 12 {
            server.read_buf(&mut received).await.unwrap();
        }
        received.clear();
        let first = tokio::spawn(async move { first.ask(&question()).await.is_ok() });
        while received.len() < 12 {
            server.read_buf(&mut received).await.unwrap();
        }
        server.write_all(&received).await.unwrap();
        assert!(first.await.unwrap() && slow.await.unwrap() && pipe.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn questions_in_a_row_do_not_keep_a_stream_that_answers_nothing() {
        let (ours, _server) = duplex(4_096);
        let pipe = Pipe::new(ours, Form::PLAIN);
        let mut asked = 0;
        // each gives way too early to say something of the stream
        while !pipe.requests.is_closed() && asked < 100 {
            let _ = timeout(Duration::from_millis(500), pipe.ask(&question())).await;
            sleep(Duration::from_millis(500)).await;
            asked += 1;
        }
        assert!((14..=16).contains(&asked), "{asked}");
    }
}
