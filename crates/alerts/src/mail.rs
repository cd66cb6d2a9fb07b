//! Mail by SMTP: within TLS, or without to this machine alone.

use crate::AlertSettings;
use crate::message::AlertMessage;
use ekiden_config::{MailServer, MailTls};
use ekiden_linux::host::clock;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The longest wait for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(30);

/// A mail server, and who gets mail by it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Mail {
    server: MailServer,
    password: Option<String>,
    authorities: Option<PathBuf>,
    from: String,
    to: Vec<String>,
}

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mail").field("to", &self.to).finish_non_exhaustive()
    }
}

impl Mail {
    pub(crate) fn of(settings: &AlertSettings) -> Option<Self> {
        let alerts = &settings.alerts;
        let server = MailServer::read(alerts.mail_server.as_deref()?).ok()?;
        let from = alerts.mail_from.clone().or_else(|| alerts.mail_to.first().cloned())?;
        Some(Self {
            server,
            password: settings.secrets.mail_password.clone(),
            authorities: alerts.authorities.clone(),
            from,
            to: alerts.mail_to.clone(),
        })
    }

    /// Sends a message in one mail to all. Returns what the server answered. Errors: in words, which name the server.
    pub(crate) async fn send(&self, message: &AlertMessage) -> Result<String, String> {
        let MailServer { host, port, .. } = &self.server;
        let failed = |why: String| format!("{host}:{port}: {why}");
        let mail = self.write(message).map_err(failed)?;
        let this = self.clone();
        // it reads the system's authorities
        let tls = tokio::task::spawn_blocking(move || this.tls()).await;
        let tls = tls.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
        let mut transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(host.as_str())
            .port(*port)
            .timeout(Some(PATIENCE))
            .tls(tls);
        if let (Some(user), Some(password)) = (&self.server.user, &self.password) {
            transport = transport.credentials(Credentials::new(user.clone(), password.clone()));
        }
        let sent = transport.build().send(mail).await;
        let answer = sent.map_err(|error| failed(words(&error)))?;
        let said = answer.first_line().unwrap_or_default();
        Ok(format!("{host}:{port} answered {} {said}", answer.code()))
    }

    fn write(&self, message: &AlertMessage) -> Result<Message, String> {
        let mailbox = |address: &String| {
            address.parse::<Mailbox>().map_err(|error| format!("{address}: {error}"))
        };
        let domain = self.from.rsplit_once('@').map_or("localhost", |(_, domain)| domain);
        let id = format!("<{}.{}@{domain}>", clock::wall(), std::process::id());
        let mut mail = Message::builder().from(mailbox(&self.from)?);
        for to in &self.to {
            mail = mail.to(mailbox(to)?);
        }
        let mail = mail.subject(message.headline()).message_id(Some(id));
        let mail = mail.header(ContentType::TEXT_PLAIN).body(message.text.clone());
        let mut mail = mail.map_err(|error| error.to_string())?;
        // so that no answering machine replies (RFC 3834)
        let name = HeaderName::new_from_ascii_str("Auto-Submitted");
        mail.headers_mut().insert_raw(HeaderValue::new(name, "auto-generated".to_owned()));
        Ok(mail)
    }

    /// Errors: in words, where the authorities cannot be read.
    fn tls(&self) -> Result<Tls, String> {
        if self.server.tls == MailTls::Local {
            return Ok(Tls::None);
        }
        let mut parameters = TlsParameters::builder(self.server.host.clone());
        if let Some(file) = &self.authorities {
            let shown = file.display();
            let pem =
                std::fs::read(file).map_err(|error| format!("{shown} cannot be read: {error}"))?;
            let authority = Certificate::from_pem(&pem)
                .map_err(|error| format!("{shown} contains no certificate: {error}"))?;
            parameters = parameters
                .certificate_store(CertificateStore::None)
                .add_root_certificate(authority);
        }
        let parameters = parameters.build().map_err(|error| words(&error))?;
        Ok(match self.server.tls {
            MailTls::Implicit => Tls::Wrapper(parameters),
            MailTls::Upgraded | MailTls::Local => Tls::Required(parameters),
        })
    }
}

/// An error with its causes.
fn words(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(why) = cause {
        let why_text = why.to_string();
        if !text.contains(&why_text) {
            text = format!("{text}: {why_text}");
        }
        cause = why.source();
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::AlertMessage;
    use ekiden_config::{AlertSecrets, Alerts};

    fn mail(server: &str) -> Mail {
        let alerts = Alerts {
            mail_server: Some(server.to_owned()),
            mail_to: vec!["you@example.org".to_owned(), "me@example.org".to_owned()],
            ..Alerts::default()
        };
        let secrets = AlertSecrets::default();
        Mail::of(&AlertSettings { alerts, secrets, relay: "h".to_owned() }).unwrap()
    }

    #[test]
    fn a_mail_has_its_fields_and_letters_of_any_language() {
        let mail = mail("smtp://localhost:25");
        let written = mail.write(&AlertMessage::trial("港", 1_790_000_000)).unwrap();
        let text = String::from_utf8(written.formatted()).unwrap();
        for field in [
            "From: you@example.org",
            "To: you@example.org, me@example.org",
            "Auto-Submitted: auto-generated",
            "Message-ID: <",
            "@example.org>",
            "Date: ",
            "Subject: [ekiden =?utf-8?b?",
        ] {
            assert!(text.contains(field), "{field}\n{text}");
        }
        assert!(matches!(mail.tls(), Ok(Tls::None)));
    }

    #[test]
    fn a_server_elsewhere_is_not_spoken_to_without_tls() {
        assert!(matches!(mail("smtp://mail.example").tls(), Ok(Tls::Required(_))));
        assert!(matches!(mail("smtps://mail.example").tls(), Ok(Tls::Wrapper(_))));
        let mut lost = mail("smtps://mail.example");
        lost.authorities = Some("/none.pem".into());
        assert!(lost.tls().err().unwrap().contains("/none.pem cannot be read"));
    }
}
