//! Forwarded ports: what is needed.

use crate::draft::{Draft, RuleDraft};
use crate::reader::Reader;
use ekiden_proxy::settings::SendProxy;

pub(super) fn forwards(reader: &mut Reader<'_>, draft: &Draft) {
    let admits = |rule: &RuleDraft| rule.action == "allow" && rule.peers.is_empty();
    let misread = reader.has_misread("rule[") || reader.has_misread("accounts.");
    let admitted = misread || draft.accounts.enabled || draft.rules.iter().any(admits);
    for (index, forward) in draft.forwards.iter().enumerate() {
        let path = format!("forward[{index}]");
        if forward.listen.is_empty() && !reader.spans.contains_key(&format!("{path}.listen")) {
            reader.error(&path, "this forward has no `listen`", "listen = [\"127.0.0.1:8080\"]");
        }
        if forward.to.is_empty() && !reader.spans.contains_key(&format!("{path}.to")) {
            reader.error(&path, "this forward has no `to`", "to = \"host.example:80\"");
        }
        if forward.send_proxy != SendProxy::Off && !forward.protocol.tcp() {
            let message = "`send_proxy` has no effect on datagrams";
            reader.warn(&format!("{path}.send_proxy"), message, "protocol = \"tcp\"");
        }
        for (nth, at) in forward.listen.iter().enumerate() {
            let here = format!("{path}.listen[{nth}]");
            if at.port() == 0 {
                reader.error(
                    &here,
                    "a forwarded port needs a number",
                    "listen = [\"127.0.0.1:8080\"]",
                );
            }
            if !admitted && !at.ip().to_canonical().is_loopback() {
                reader.error(
                    &here,
                    format!("no rule admits clients of other machines to {at}"),
                    "name your clients; for example, add:\n\
                     [[rule]]\n\
                     from = [\"192.168.0.0/16\"]\n\
                     action = \"allow\"",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{read, render_all};

    fn problems(text: &str) -> String {
        render_all(&read(text, "test.toml").problems)
    }

    #[test]
    fn finds_what_is_missing_and_what_clashes() {
        let fine = "[[forward]]\nlisten = [\"127.0.0.1:8080\"]\nto = \"a.example:80\"\n";
        assert_eq!(problems(fine), "");
        assert_eq!(read(fine, "f").settings.forwards[0].to.to_string(), "a.example:80");
        for (text, why) in [
            ("[[forward]]\nto = \"a.example:80\"\n", "no `listen`"),
            ("[[forward]]\nlisten = [\"127.0.0.1:8080\"]\n", "no `to`"),
            ("[[forward]]\nlisten = [\"127.0.0.1:0\"]\nto = \"a.example:80\"\n", "needs a number"),
            (
                "[[forward]]\nlisten = [\"127.0.0.1:8080\"]\nto = \"a.example\"\n",
                "is not host:port",
            ),
            ("[[forward]]\nlisten = [\"127.0.0.1:3128\"]\nto = \"a.example:80\"\n", "already"),
            ("[[forward]]\nlisten = [\"192.0.2.1:80\"]\nto = \"a.example:80\"\n", "no rule admits"),
            (&format!("{fine}{fine}"), "127.0.0.1:8080 is listened on for TCP already"),
        ] {
            let found = problems(text);
            assert!(found.contains(why), "{text}: {found}");
        }
        let udp = format!("{fine}protocol = \"udp\"\nsend_proxy = \"v2\"\n");
        assert!(problems(&udp).contains("no effect on datagrams"));
        assert_eq!(problems(&format!("{fine}{fine}protocol = \"udp\"\n")), "");
    }
}
