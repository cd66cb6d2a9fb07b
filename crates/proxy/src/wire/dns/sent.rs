//! A question as it goes over UDP, and what its reply has to repeat: the identifier, the question in the case that was
//! drawn for it (draft-vixie-dnsext-dns0x20), and the cookie (RFC 7873).

use super::answer::{Lie, ServerReply, judge};
use super::question::{Form, Question, cookie_in};
use super::{HEADER, end_of_name, number_at};
use ekiden_model::dns::{ReplyCookie, ReplyProof, Spelling};
use hickory_resolver::proto::ProtoError;
use hickory_resolver::proto::op::Message;

/// Bits for the letters of a name, which has 255 bytes at most (RFC 1035 §2.3.4).
pub type LetterBits = [u8; 32];

/// A question in a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentQuestion {
    id: u16,
    bytes: Vec<u8>,
    /// The question section before the case of its letters was drawn.
    spelled: Vec<u8>,
}

impl SentQuestion {
    /// The question with `id`. `letters`: random bits, one for each letter; 1 makes it a capital. Errors: the name
    /// cannot be written.
    pub fn new(
        question: &Question,
        id: u16,
        form: Form,
        letters: &LetterBits,
    ) -> Result<Self, ProtoError> {
        let mut bytes = question.message(id, form)?;
        let end = end_of_name(&bytes, HEADER, false).map_or(HEADER, |end| end + 4);
        let spelled = bytes.get(HEADER..end).unwrap_or_default().to_vec();
        draw_case(&mut bytes, letters);
        Ok(Self { id, bytes, spelled })
    }

    /// The datagram.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads a reply, in which the question's own spelling takes the place of the one that was drawn. Whether it is
    /// believed, the proof decides. Errors: it is about something else.
    pub fn read(
        &self,
        question: &Question,
        mut reply: Vec<u8>,
    ) -> Result<(ReplyProof, ServerReply), Lie> {
        let end = HEADER + self.spelled.len();
        let spelling = match (number_at(&reply, 4), reply.get_mut(HEADER..end)) {
            (Some(0), _) => Spelling::Absent,
            (_, Some(section)) if Some(&*section) == self.bytes.get(HEADER..end) => {
                // names in records that point here change with it
                section.copy_from_slice(&self.spelled);
                Spelling::Same
            }
            _ => Spelling::Other,
        };
        let message = Message::from_vec(&reply).map_err(|_| Lie::Unreadable)?;
        let cookie = match cookie_in(message.edns.as_ref()) {
            None => ReplyCookie::Absent,
            Some(None) => ReplyCookie::Malformed,
            Some(Some(cookie)) => ReplyCookie::Present(cookie),
        };
        let code = message.metadata.response_code.into();
        let reply = judge(question, self.id, message)?;
        Ok((ReplyProof { spelling, cookie, code }, reply))
    }
}

/// Gives each letter of the name that follows the header a case.
fn draw_case(message: &mut [u8], letters: &LetterBits) {
    let (mut at, mut nth) = (HEADER, 0);
    while let Some(length @ 1..=63) = message.get(at).copied() {
        let from = at + 1;
        at = from + usize::from(length);
        let Some(label) = message.get_mut(from..at) else { return };
        for byte in label.iter_mut().filter(|byte| byte.is_ascii_alphabetic()) {
            let bits = letters.get(nth / 8).copied().unwrap_or_default();
            *byte = match bits >> (nth % 8) & 1 {
                1 => byte.to_ascii_uppercase(),
                _ => byte.to_ascii_lowercase(),
            };
            nth += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClientQuestion, Reading, read_question};
    use super::*;
    use ekiden_model::dns::{Cookie, Outcome, ServerCookie};
    use ekiden_model::units::Span;
    use hickory_resolver::proto::op::{Edns, ResponseCode};
    use hickory_resolver::proto::rr::rdata::opt::EdnsOption;
    use hickory_resolver::proto::rr::rdata::{A, CNAME};
    use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
    use proptest::prelude::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn question(text: &str) -> Question {
        Question::new(name(text), RecordType::A)
    }

    /// A server's reply, which repeats the question as it came or in lower case.
    fn reply(sent: &SentQuestion, fold: bool) -> Message {
        let mut message = Message::from_vec(sent.as_bytes()).unwrap().into_response();
        if fold {
            let lower = message.queries[0].name().to_lowercase();
            message.queries[0].set_name(lower);
        }
        let owner = message.queries[0].name().clone();
        let target = name("Host").append_domain(&owner.base_name()).unwrap();
        let alias = RData::CNAME(CNAME(target.clone()));
        message.add_answer(Record::from_rdata(owner, 60, alias));
        message.add_answer(Record::from_rdata(target, 60, RData::A(A::new(192, 0, 2, 7))));
        message
    }

    proptest! {
        #[test]
        fn the_case_that_was_drawn_proves_a_reply_and_reaches_no_client(
            text in "[a-zA-Z0-9]{1,20}\\.[a-zA-Z]{1,9}\\.", letters: [u8; 32], id: u16,
        ) {
            let asked = question(&text);
            let sent = SentQuestion::new(&asked, id, Form::PLAIN, &letters).unwrap();
            let plain = asked.message(id, Form::PLAIN).unwrap();
            prop_assert!(sent.as_bytes().eq_ignore_ascii_case(&plain));
            let (proof, found) = sent.read(&asked, reply(&sent, false).to_vec().unwrap()).unwrap();
            prop_assert_eq!(proof.spelling, Spelling::Same);
            let ServerReply::Found(found, 0) = found else { panic!("{found:?}") };
            let upper = asked.name.to_ascii().to_ascii_uppercase();
            let mut out = Vec::new();
            client(&upper).reply(&Outcome::Fresh(found.answer, Span::from_secs(9)), 512, &mut out);
            let seen = Message::from_vec(&out).unwrap();
            prop_assert_eq!(seen.answers[0].name.to_ascii(), upper.clone());
            prop_assert_eq!(seen.queries[0].name().to_ascii(), upper);
            // in lower case it proves nothing, unless that was drawn
            let folded = reply(&sent, true).to_vec().unwrap();
            let same = folded[..HEADER + sent.spelled.len()][HEADER..]
                == sent.bytes[HEADER..HEADER + sent.spelled.len()];
            let (proof, _) = sent.read(&asked, folded).unwrap();
            prop_assert_eq!(proof.spelling == Spelling::Same, same);
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let sent = SentQuestion::new(&question("a.example."), 7, Form::PLAIN, &[0x5a; 32]).unwrap();
            let _ = sent.read(&question("a.example."), bytes);
        }
    }

    fn client(text: &str) -> ClientQuestion {
        match read_question(&question(text).message(1, Form::PLAIN).unwrap()) {
            Reading::Question(question) => *question,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_letter_takes_its_own_bit() {
        let sent =
            SentQuestion::new(&question("ab-c9.Example."), 7, Form::PLAIN, &[0b1010_0101; 32]);
        assert_eq!(&sent.unwrap().as_bytes()[13..18], b"Ab-C9");
    }

    #[test]
    fn cookies_are_sent_and_read() {
        let own = Cookie { client: [1; 8], server: ServerCookie::new(&[2; 16]) };
        let asked = question("a.example.");
        let form = Form { cookie: Some(own), ..Form::PLAIN };
        let sent = SentQuestion::new(&asked, 7, form, &[0; 32]).unwrap();
        let seen = Message::from_vec(sent.as_bytes()).unwrap();
        assert_eq!(cookie_in(seen.edns.as_ref()), Some(Some(own)));
        let with = |bytes: Vec<u8>| {
            let mut message = reply(&sent, false);
            let mut edns = Edns::new();
            edns.options_mut().insert(EdnsOption::Unknown(10, bytes));
            message.set_edns(edns);
            message.metadata.response_code = ResponseCode::BADCOOKIE;
            sent.read(&asked, message.to_vec().unwrap()).unwrap().0
        };
        let new = Cookie { client: [1; 8], server: ServerCookie::new(&[3; 32]) };
        let proof = with(new.to_vec());
        assert_eq!((proof.cookie, proof.code), (ReplyCookie::Present(new), 23));
        assert_eq!(with(vec![1; 15]).cookie, ReplyCookie::Malformed);
    }

    #[test]
    fn questions_within_tls_have_a_multiple_of_128_bytes() {
        for length in 1..=60 {
            let asked = question(&format!("{}.example.", "a".repeat(length)));
            let bytes = asked.message(0, Form::PADDED).unwrap();
            assert_eq!(bytes.len() % 128, 0, "{length}");
            assert!(bytes.len() - asked.message(0, Form::PLAIN).unwrap().len() < 132);
        }
        let bare = Form { edns: false, ..Form::PLAIN };
        let seen = Message::from_vec(&question("a.example.").message(0, bare).unwrap()).unwrap();
        assert!(seen.edns.is_none());
    }
}
