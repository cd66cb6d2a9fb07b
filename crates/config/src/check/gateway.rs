//! The gateway: who is admitted, and marks that must differ.

use super::NAME_CLIENTS;
use crate::draft::{Draft, RuleDraft};
use crate::reader::Reader;
use ekiden_proxy::settings::Quic;

pub(super) fn gateway(reader: &mut Reader<'_>, draft: &Draft) {
    let gateway = &draft.gateway;
    if gateway.devices.is_empty() {
        // the device of [wireguard] is one of them, but for tunnels of QUIC
        let is_alone = !draft.wireguard.is_on();
        let idle = [
            (gateway.keep_source && is_alone, "keep_source", "`keep_source`"),
            (gateway.quic == Quic::Block && is_alone, "quic", "`quic = \"block\"`"),
            (gateway.quic == Quic::Tunnel, "quic", "`quic = \"tunnel\"`"),
        ];
        for (_, key, what) in idle.into_iter().filter(|(set, ..)| *set) {
            let message = format!("{what} has no effect without `devices`");
            reader.warn(&format!("gateway.{key}"), message, "devices = [\"eth1\"]");
        }
    }
    let is_used =
        |name: &String| draft.routes.iter().any(|r| r.through.iter().flatten().any(|n| n == name));
    let mut tunnels = draft
        .upstreams
        .iter()
        .filter(|(name, upstream)| upstream.url.starts_with("tunnel:") && is_used(name));
    if gateway.quic == Quic::Tunnel && !gateway.devices.is_empty() && tunnels.next().is_none() {
        reader.warn(
            "gateway.quic",
            "no route leads through a tunnel: QUIC is relayed directly, or blocked where a route leads elsewhere",
            "join a peer and name it in a [[route]], or leave `quic` out",
        );
    }
    let admits = |rule: &RuleDraft| {
        rule.action == "allow" && (!rule.from.is_empty() || rule.peers.is_empty())
    };
    // the clients would be cut off: each connection would be reset
    let misread = reader.has_misread("rule[") || reader.has_misread("accounts.");
    let admitted = misread || draft.accounts.enabled || draft.rules.iter().any(admits);
    if !gateway.devices.is_empty() && !admitted {
        reader.error(
            "gateway.devices",
            "no rule admits the clients behind these devices: all their connections would be reset",
            format!(
                "{NAME_CLIENTS}\nor give them accounts (`ekiden account add NAME --address …`)"
            ),
        );
    }
    if !gateway.is_on() && !draft.wireguard.is_on() {
        return;
    }
    for (name, leg) in &draft.legs {
        if leg.leg.socket.mark == Some(gateway.mark) {
            reader.error(
                &format!("leg.{name}.mark"),
                format!(
                    "{} is the mark of [gateway]: connections of this leg would arrive at this machine",
                    gateway.mark
                ),
                "choose another `mark`, here or in [gateway]",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{read, render_all};

    const RULE: &str = "[[rule]]\nfrom = [\"192.168.0.0/16\"]\naction = \"allow\"\n";

    fn problems(text: &str) -> String {
        render_all(&read(text, "test.toml").problems)
    }

    #[test]
    fn clients_of_a_gateway_must_be_admitted() {
        let devices = "[gateway]\ndevices = [\"eth1\", \"wlan0\"]\n";
        let found = problems(devices);
        assert!(found.contains("all their connections would be reset"), "{found}");
        assert_eq!(problems(&format!("{devices}{RULE}")), "");
        assert_eq!(problems(&format!("{devices}[accounts]\nenabled = true\n")), "");
        assert_eq!(problems("[gateway]\nown_traffic = true\n"), "");
    }

    #[test]
    fn finds_marks_that_clash_and_keys_without_effect() {
        let clash = "[gateway]\ndevices = \"eth1\"\nmark = 300\n[leg.direct]\nmark = 300\n";
        let found = problems(&format!("{clash}{RULE}"));
        assert!(found.contains("300 is the mark of [gateway]"), "{found}");
        let idle = problems("[gateway]\nkeep_source = true\nquic = \"block\"\n");
        assert_eq!(idle.matches("has no effect without `devices`").count(), 2, "{idle}");
        // they act on the device of [wireguard]
        let door = "[accounts]\nenabled = true\n[wireguard]\nlisten = \"0.0.0.0\"\nendpoint = \"a.example:51820\"\n";
        for (keys, without_effect) in
            [("keep_source = true\nquic = \"block\"", 0), ("quic = \"tunnel\"", 1)]
        {
            let found = problems(&format!("[gateway]\n{keys}\n{door}"));
            let count = found.matches("has no effect without `devices`").count();
            assert_eq!(count, without_effect, "{found}");
        }
        for bad in ["eth*", "a/b", "sixteen-letters-", "a\\\"b", ""] {
            let found = problems(&format!("[gateway]\ndevices = [\"{bad}\"]\n{RULE}"));
            assert!(found.contains("is not the name of a network device"), "{bad}: {found}");
        }
    }
}
