//! The script for browsers, out of the proxy's own port. It needs no log-in: browsers have none when they
//! fetch it.

use super::own::OwnRequest;
use crate::observe::registry::Protocol;
use crate::session::Session;
use crate::wire::http::head::Request;
use crate::wire::http::pac::{TYPE, is_asked_for, script};

/// The answer, if the request asks for the script.
pub(super) fn answer(
    session: &Session,
    request: &Request,
    own: &OwnRequest<'_>,
) -> Option<Vec<u8>> {
    let settings = &session.config.settings.pac;
    let OwnRequest { target, proxy, .. } = own;
    if !settings.serve || !is_asked_for(target) {
        return None;
    }
    let name = &session.config.settings.name;
    let (status, answer) = match own.offered(session) {
        // by a script browsers would ask a proxy that refuses all of it
        None => {
            let failure = session.check_password_path(false).err()?;
            (failure.status(), failure.response(name, request.method == "HEAD"))
        }
        Some(offered) => {
            let body = script(&offered.proxy, offered.tls, settings);
            let mut answer = format!(
                "HTTP/1.1 200 OK\r\nVia: 1.1 {name}\r\nContent-Type: {TYPE}\r\nContent-Length: {}\r\n\
                 Cache-Control: private, max-age=300\r\nConnection: close\r\n\r\n",
                body.len()
            );
            if request.method == "GET" {
                answer.push_str(&body);
            }
            (200, answer.into_bytes())
        }
    };
    let mut entry = session.new_entry(Protocol::Http);
    entry.method = Some(request.method.clone());
    entry.target = Some(format!("http://{proxy}{}", target.split('?').next()?));
    entry.status = Some(status);
    session.log(&mut entry, "answered by the relay");
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbound::http::page;
    use crate::policy::accounts::Directory;
    use crate::policy::accounts::testing::OneAccount;
    use crate::session::tests::fixture;
    use crate::settings::Settings;
    use crate::wire::http::head::{Field, Version};
    use ekiden_testkit::Certificate;
    use std::sync::Arc;

    /// The page and the script, as a client at this address gets them by `http://10.77.0.1:28128`.
    async fn read(client: &str, cleartext: bool, subjects: &[&str]) -> [String; 2] {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.accounts.cleartext = cleartext;
        if !subjects.is_empty() {
            let made = Certificate::self_signed(folder.path(), "own", subjects);
            settings.tls.certificate = Some(made.certificate);
            settings.tls.key = Some(made.key);
        }
        let known = OneAccount { name: "home", at: [192, 0, 2, 7].into() };
        let directory = Arc::new(known) as Arc<dyn Directory>;
        let reached = fixture(client, Some(directory), settings).await;
        let session = &reached.session;
        let request = |target: &str| Request {
            method: "GET".to_owned(),
            target: target.to_owned(),
            version: Version::Http11,
            fields: vec![Field { name: "Host".to_owned(), value: b"10.77.0.1:28128".to_vec() }],
        };
        let asked = request("/");
        let own = OwnRequest::of(session, &asked).unwrap();
        let page = page::answer(session, &asked, &own).await.unwrap();
        let asked = request("/proxy.pac");
        let own = OwnRequest::of(session, &asked).unwrap();
        let script = answer(session, &asked, &own).unwrap();
        [page, script].map(|answer| String::from_utf8(answer).unwrap())
    }

    #[tokio::test]
    async fn over_http_clients_that_must_log_in_are_told_of_tls_where_passwords_need_it() {
        let (none, name): (&[&str], &[&str]) = (&[], &["relay.example", "localhost"]);
        let address: &[&str] = &["10.77.0.1"];
        for (client, cleartext, subjects, proxy) in [
            ("192.0.2.1", false, name, "HTTPS relay.example"),
            ("192.0.2.1", false, address, "HTTPS 10.77.0.1"),
            ("192.0.2.1", true, name, "PROXY 10.77.0.1"),
            ("192.0.2.1", true, none, "PROXY 10.77.0.1"),
            // an account's own device, and one on the relay's machine
            ("192.0.2.7", false, name, "PROXY 10.77.0.1"),
            ("127.0.0.1", false, name, "PROXY 10.77.0.1"),
        ] {
            let [page, script] = read(client, cleartext, subjects).await;
            let told = format!("return \"{proxy}:28128; DIRECT\";");
            assert!(script.contains(&told), "{client} {cleartext} {subjects:?}: {script}");
            let (kind, host) = proxy.split_once(' ').unwrap();
            let (scheme, with) = match kind {
                "HTTPS" => ("https", ", with TLS (HTTPS proxy)"),
                _ => ("http", ""),
            };
            for part in [
                format!("<code>{host}</code>, port <code>28128</code>{with}</p>"),
                format!("<code>{scheme}://{host}:28128/proxy.pac</code>"),
            ] {
                assert!(page.contains(&part), "{part}\n{page}");
            }
        }
    }

    #[tokio::test]
    async fn no_proxy_is_offered_where_none_would_serve_the_client() {
        let cases: [&[&str]; 2] = [&[], &["localhost"]];
        for subjects in cases {
            let [page, script] = read("192.0.2.1", false, subjects).await;
            assert!(page.contains("no setting can be shown here"), "{page}");
            assert!(!page.contains("proxy.pac") && !page.contains("28128"), "{page}");
            assert!(script.starts_with("HTTP/1.1 403 "), "{script}");
            assert!(script.contains("this relay requires an account"), "{script}");
        }
    }
}
