//! Mail by SMTP: within TLS, or without to this machine alone.

mod starttls;

use crate::AlertSettings;
use crate::message::AlertMessage;
use ekiden_config::{MailServer, MailTls};
use ekiden_linux::host::clock;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, Certificate, CertificateStore, TlsParameters,
};
use lettre::transport::smtp::extension::ClientId;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The longest wait for a connection to each address of the server.
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
        let to = (host.as_str(), *port);
        let failed = |why: String| format!("{host}:{port}: {why}");
        let mail = self.write(message).map_err(failed)?;
        let this = self.clone();
        // it reads the system's authorities
        let tls = tokio::task::spawn_blocking(move || this.tls()).await;
        let tls = tls.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
        let mut connection = match tls {
            Some(tls) if self.server.tls == MailTls::Upgraded => {
                starttls::connect(to, PATIENCE, tls).await.map_err(failed)?
            }
            tls => {
                let (patience, name) = (Some(PATIENCE), ClientId::default());
                let begun =
                    AsyncSmtpConnection::connect_tokio1(to, patience, &name, tls, None).await;
                begun.map_err(|error| failed(words(&error)))?
            }
        };
        if let (Some(user), Some(password)) = (&self.server.user, &self.password) {
            let login = Credentials::new(user.clone(), password.clone());
            let welcome = connection.auth(DEFAULT_MECHANISMS, &login).await;
            welcome.map_err(|error| failed(words(&error)))?;
        }
        let sent = connection.send(mail.envelope(), &mail.formatted()).await;
        let answer = sent.map_err(|error| failed(words(&error)))?;
        connection.abort().await;
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

    /// Whom to trust; `None`: TLS is not spoken. Errors: in words, where the authorities cannot be read.
    fn tls(&self) -> Result<Option<TlsParameters>, String> {
        if self.server.tls == MailTls::Local {
            return Ok(None);
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
        parameters.build().map(Some).map_err(|error| words(&error))
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
        assert!(matches!(mail.tls(), Ok(None)));
    }

    #[test]
    fn a_server_elsewhere_is_not_spoken_to_without_tls() {
        for (server, tls) in [
            ("smtp://mail.example", MailTls::Upgraded),
            ("smtps://mail.example", MailTls::Implicit),
        ] {
            let mail = mail(server);
            assert!(mail.server.tls == tls && matches!(mail.tls(), Ok(Some(_))), "{server}");
        }
        // on this machine, and with nobody's password
        for host in ["localhost", "127.0.0.1", "[::1]"] {
            let local = mail(&format!("smtp://{host}"));
            assert!(
                local.server.tls == MailTls::Local && matches!(local.tls(), Ok(None)),
                "{host}"
            );
            let tls = |server: String| MailServer::read(&server).unwrap().tls;
            assert_eq!(tls(format!("smtp://me@{host}")), MailTls::Upgraded);
            assert_eq!(tls(format!("smtps://{host}")), MailTls::Implicit);
        }
        let mut lost = mail("smtps://mail.example");
        lost.authorities = Some("/none.pem".into());
        assert!(lost.tls().err().unwrap().contains("/none.pem cannot be read"));
    }
}
