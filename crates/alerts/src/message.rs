//! What receivers are told: a JSON document, and the text of a mail.

use crate::kind::AlertKind;
use ekiden_model::alerts::{Notice, State};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

/// The document that a webhook gets. Fields are only ever added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AlertMessage")]
pub struct AlertMessage {
    /// The relay's name.
    pub relay: String,
    /// All of them in words, as programs for chats show it.
    pub text: String,
    /// 1 to 100 alerts. One that is told again has the same `alert`, `subject` and `since`.
    pub alerts: Vec<AlertDocument>,
}

/// An alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Alert")]
pub struct AlertDocument {
    /// The kind: `line-down`, `quota-low`, `quota-used-up`, `certificate-ending`, `certificate-not-renewed`,
    /// `database-away`, `disk-full`, `not-saved`, `trial`. More may come.
    pub alert: String,
    /// `firing` or `resolved`.
    pub state: String,
    /// The peer, account, folder or certificate that it is about.
    pub subject: String,
    /// Since when it was so, RFC 3339.
    pub since: String,
    /// When it was seen to be over, RFC 3339; null while it is not.
    pub until: Option<String>,
    /// In words, for a person.
    pub text: String,
}

impl AlertMessage {
    /// The message of some notices.
    pub(crate) fn of(relay: &str, notices: &[Notice<AlertKind>]) -> Self {
        let document = |notice: &Notice<AlertKind>| AlertDocument {
            alert: notice.key.alert.word().to_owned(),
            state: match notice.state {
                State::Firing => "firing".to_owned(),
                State::Resolved => "resolved".to_owned(),
            },
            subject: notice.key.subject.clone(),
            since: time(notice.since),
            until: notice.until.map(time),
            text: notice.text.clone(),
        };
        Self::new(relay, notices.iter().map(document).collect())
    }

    /// A message that says only that messages arrive.
    pub(crate) fn trial(relay: &str, now: u64) -> Self {
        let trial = AlertDocument {
            alert: AlertKind::Trial.word().to_owned(),
            state: "firing".to_owned(),
            subject: relay.to_owned(),
            since: time(now),
            until: None,
            text: "this is a trial: alerts of this relay arrive here".to_owned(),
        };
        Self::new(relay, vec![trial])
    }

    fn new(relay: &str, alerts: Vec<AlertDocument>) -> Self {
        let new = Self { relay: relay.to_owned(), text: String::new(), alerts };
        Self { text: new.letter(), ..new }
    }

    /// A mail's subject, in one line.
    #[cfg(any(test, feature = "mail"))]
    pub(crate) fn headline(&self) -> String {
        let line = match self.alerts.as_slice() {
            [one] => format!("{} {}: {}", one.state, one.alert, one.subject),
            many => {
                let firing = many.iter().filter(|one| one.state == "firing").count();
                format!("{firing} firing, {} resolved", many.len() - firing)
            }
        };
        let line = format!("[ekiden {}] {line}", self.relay);
        line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
    }

    /// A paragraph for each alert.
    fn letter(&self) -> String {
        let paragraph = |one: &AlertDocument| {
            let until =
                one.until.as_ref().map_or_else(String::new, |until| format!(" until {until}"));
            let (state, since) = (one.state.to_uppercase(), &one.since);
            format!("{state} {}: {}\n{}\nsince {since}{until}\n", one.alert, one.subject, one.text)
        };
        let alerts: Vec<String> = self.alerts.iter().map(paragraph).collect();
        format!("{}\n-- \nekiden on {}\n", alerts.join("\n"), self.relay)
    }
}

fn time(seconds: u64) -> String {
    let at = i64::try_from(seconds).ok().and_then(|at| Timestamp::from_second(at).ok());
    at.map_or_else(|| seconds.to_string(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::alerts::Key;

    fn notice(state: State) -> Notice<AlertKind> {
        let key = Key { subject: "ship".to_owned(), alert: AlertKind::LineDown };
        let until = (state == State::Resolved).then_some(1_790_000_300);
        let text = "no tunnel to ship: it does not answer".to_owned();
        Notice { key, state, since: 1_790_000_000, until, text }
    }

    /// The schema is a checked-in copy: `UPDATE=1` renews it.
    #[test]
    fn the_document_is_what_its_schema_says() {
        let message =
            AlertMessage::of("harbour", &[notice(State::Firing), notice(State::Resolved)]);
        let schema = serde_json::to_value(schemars::schema_for!(AlertMessage)).unwrap();
        let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/book/src/reference/schema/alerts.json"
        );
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(kept, text, "UPDATE=1 cargo test -p ekiden-alerts");
        let value = serde_json::to_value(&message).unwrap();
        assert!(jsonschema::is_valid(&schema, &value), "{value:#}");
        let resolved = serde_json::json!({
            "alert": "line-down", "state": "resolved", "subject": "ship",
            "since": "2026-09-21T14:13:20Z", "until": "2026-09-21T14:18:20Z",
            "text": "no tunnel to ship: it does not answer",
        });
        assert_eq!(value["alerts"][1], resolved);
        for kind in AlertKind::ALL {
            assert!(text.contains(&format!("`{}`", kind.word())), "{kind:?} is not in the schema");
        }
    }

    #[test]
    fn a_mail_says_what_since_when_and_where() {
        let message = AlertMessage::of("harbour", &[notice(State::Resolved)]);
        assert_eq!(message.headline(), "[ekiden harbour] resolved line-down: ship");
        let letter = &message.text;
        assert!(letter.starts_with("RESOLVED line-down: ship\nno tunnel to ship: it"), "{letter}");
        assert!(
            letter.contains("since 2026-09-21T14:13:20Z until 2026-09-21T14:18:20Z\n"),
            "{letter}"
        );
        let many = AlertMessage::of("h", &[notice(State::Firing), notice(State::Resolved)]);
        assert_eq!(many.headline(), "[ekiden h] 1 firing, 1 resolved");
        let mut broken = notice(State::Firing);
        broken.key.subject = "a\r\nBcc: x".to_owned();
        assert!(!AlertMessage::of("h", &[broken]).headline().contains(['\r', '\n']));
    }
}
