//! Who is told of alerts, and how; where traces go.

use crate::draft::{Draft, Traces};
use crate::reader::Reader;
use crate::value::receiver::{MailServer, WebhookUrl};
use std::net::IpAddr;

pub(super) fn alerts(reader: &mut Reader<'_>, draft: &Draft) {
    let alerts = &draft.alerts;
    // also where what is written is no URL
    let has = |reader: &Reader<'_>, key: &str| reader.spans.contains_key(&format!("alerts.{key}"));
    let needs = [
        ("mail_to", "mail_server", "mail_server = \"smtps://user@mail.example.org\""),
        ("mail_server", "mail_to", "mail_to = [\"you@example.org\"]"),
        ("mail_from", "mail_to", "mail_to = [\"you@example.org\"]"),
        ("mail_password_file", "mail_server", "mail_server = \"smtps://user@mail.example.org\""),
        ("webhook_authorization_file", "webhook", "webhook = \"https://alerts.example.org/\""),
    ];
    for (key, other, hint) in needs {
        if has(reader, key) && !has(reader, other) {
            reader.error(&format!("alerts.{key}"), format!("`{key}` needs `{other}`"), hint);
        }
    }
    if let Some(Ok(server)) = alerts.mail_server.as_deref().map(MailServer::read) {
        match (&server.user, &alerts.mail_password_file) {
            (Some(_), None) if !has(reader, "mail_password_file") => reader.error(
                "alerts.mail_server",
                "the user of `mail_server` needs a password",
                "mail_password_file = \"/etc/ekiden/mail-password\"",
            ),
            (None, Some(_)) => reader.error(
                "alerts.mail_password_file",
                "`mail_server` names no user for this password",
                "mail_server = \"smtps://user@mail.example.org\"",
            ),
            _ => {}
        }
    }
    if alerts.webhook_authorization_file.is_some() && is_open(alerts.webhook.as_deref()) {
        let text = "the value of `webhook_authorization_file` crosses the network unencrypted";
        reader.warn("alerts.webhook", text, "use https://");
    }
}

pub(super) fn traces(reader: &mut Reader<'_>, draft: &Draft) {
    let traces = &draft.traces;
    // a default may be written down
    let usual = Traces::default();
    let sets = [
        ("sample", traces.sample != usual.sample),
        ("service", traces.service != usual.service),
        ("authorization_file", true),
        ("ca", true),
    ];
    for (key, _) in sets.into_iter().filter(|(_, other)| *other) {
        let path = format!("traces.{key}");
        if reader.spans.contains_key(&path) && !reader.spans.contains_key("traces.endpoint") {
            let hint = "endpoint = \"http://collector:4318\"";
            reader.error(&path, format!("`{key}` needs `endpoint`"), hint);
        }
    }
    if traces.authorization_file.is_some() && is_open(traces.endpoint.as_deref()) {
        let text = "the value of `authorization_file` crosses the network unencrypted";
        reader.warn("traces.endpoint", text, "use https://");
    }
}

/// Whether what is sent to this URL crosses a network unencrypted.
fn is_open(url: Option<&str>) -> bool {
    let loopback =
        |host: &str| host.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback());
    let url = url.and_then(|url| WebhookUrl::read(url).ok());
    url.is_some_and(|url| !url.tls && !loopback(&url.host))
}

#[cfg(test)]
mod tests {
    use crate::{read, render_all, show, show_json};

    fn problems(text: &str) -> String {
        render_all(&read(&format!("[alerts]\n{text}"), "test.toml").problems)
    }

    #[test]
    fn keys_that_belong_together_are_asked_for() {
        let server = "mail_server = \"smtp://me@mail.example\"\n";
        let (to, password) = ("mail_to = \"you@example.org\"\n", "mail_password_file = \"/p\"\n");
        let local = "mail_server = \"smtp://127.0.0.1:25\"\n";
        for fine in [
            String::new(),
            "webhook = \"https://hooks.example/x\"\nafter = \"5 min\"\nrepeat = \"never\"\n"
                .to_owned(),
            format!("{to}{local}"),
        ] {
            assert_eq!(problems(&fine), "", "{fine}");
        }
        for (text, words) in [
            (to.to_owned(), "`mail_to` needs `mail_server`"),
            (local.to_owned(), "`mail_server` needs `mail_to`"),
            (password.to_owned(), "`mail_password_file` needs `mail_server`"),
            ("webhook_authorization_file = \"/a\"\n".to_owned(), "needs `webhook`"),
            ("mail_from = \"a@b\"\n".to_owned(), "`mail_from` needs `mail_to`"),
            (format!("{to}{server}"), "needs a password"),
            (format!("{to}{local}{password}"), "names no user for this password"),
            ("webhook = \"hooks.example\"\n".to_owned(), "begins with `https://`"),
            ("mail_to = \"you\"\n".to_owned(), "is not a mail address"),
        ] {
            assert!(problems(&text).contains(words), "{text}: {}", problems(&text));
        }
        let file = "webhook_authorization_file = \"/a\"\n";
        let clear = problems(&format!("webhook = \"http://192.0.2.1/\"\n{file}"));
        assert!(clear.contains("crosses the network unencrypted"), "{clear}");
        let local = problems(&format!("webhook = \"http://127.0.0.1:9/\"\n{file}"));
        assert!(!local.contains("unencrypted"), "{local}");
    }

    #[test]
    fn the_path_of_a_webhook_is_used_and_not_shown() {
        let reading = read("[alerts]\nwebhook = \"https://hooks.example/geheim\"\n", "t");
        assert_eq!(reading.alerts.webhook.as_deref(), Some("https://hooks.example/geheim"));
        let shown = format!("{}{:#}", show(&reading, None), show_json(&reading, None));
        assert!(
            shown.contains("https://hooks.example/***") && !shown.contains("geheim"),
            "{shown}"
        );
        let wrong = problems("webhook = \"https://hooks.example/geheim#x\"\n");
        assert!(
            wrong.contains("https://hooks.example/***") && !wrong.contains("geheim"),
            "{wrong}"
        );
    }

    #[test]
    fn the_path_of_a_collector_is_used_and_not_shown() {
        let reading = read("[traces]\nendpoint = \"https://otlp.example/geheim\"\n", "t");
        assert_eq!(reading.traces.endpoint.as_deref(), Some("https://otlp.example/geheim"));
        let shown = format!("{}{:#}", show(&reading, None), show_json(&reading, None));
        assert!(shown.contains("https://otlp.example/***") && !shown.contains("geheim"), "{shown}");
    }

    #[test]
    fn traces_need_a_collector() {
        let traces =
            |text: &str| render_all(&read(&format!("[traces]\n{text}"), "test.toml").problems);
        let endpoint = "endpoint = \"http://192.0.2.1:4318\"\n";
        assert_eq!(traces(&format!("{endpoint}sample = \"0.1%\"\n")), "");
        assert!(traces("sample = \"5%\"\n").contains("`sample` needs `endpoint`"));
        assert!(traces("endpoint = \"192.0.2.1:4318\"\n").contains("a collector's URL begins"));
        let open = traces(&format!("{endpoint}authorization_file = \"/a\"\n"));
        assert!(open.contains("crosses the network unencrypted"), "{open}");
    }
}
