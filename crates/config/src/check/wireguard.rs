//! The WireGuard door: who could come in by it, and what it shares with others.

use crate::draft::Draft;
use crate::reader::Reader;

pub(super) fn wireguard(reader: &mut Reader<'_>, draft: &Draft) {
    let door = &draft.wireguard;
    if !door.is_on() {
        return;
    }
    if !draft.accounts.enabled {
        reader.error(
            "wireguard.listen",
            "no client can come in by WireGuard without accounts: a key belongs to one",
            "add:\n[accounts]\nenabled = true\nand run `ekiden account add NAME --wireguard`",
        );
    }
    if door.endpoint.is_none() {
        reader.warn(
            "wireguard.listen",
            "no configuration can be handed out without `endpoint`",
            "endpoint = \"relay.example.org:51820\"",
        );
    }
    if draft.gateway.devices.contains(&door.device) {
        reader.error(
            "wireguard.device",
            format!(
                "{} is in `devices` of [gateway], and stands there for another device",
                door.device
            ),
            "take it out there: the tunnel's device is diverted by itself",
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::{read, render_all};

    fn problems(text: &str) -> String {
        render_all(&read(text, "test.toml").problems)
    }

    const DOOR: &str = "[accounts]\nenabled = true\n[wireguard]\nlisten = \"0.0.0.0\"\n\
        endpoint = \"relay.example.org:51820\"\n";

    #[test]
    fn its_device_is_one_of_the_gateway_s() {
        let read = read(DOOR, "test.toml");
        assert_eq!(render_all(&read.problems), "");
        assert_eq!(read.settings.gateway.devices, ["ekiden-wg"]);
        assert_eq!(read.settings.wireguard.listen[0].port(), 51_820);
        assert!(read.draft.gateway.devices.is_empty());
    }

    #[test]
    fn finds_what_nobody_could_use() {
        let found = problems("[wireguard]\nlisten = \"0.0.0.0\"\n");
        assert!(
            found.contains("without accounts") && found.contains("without `endpoint`"),
            "{found}"
        );
        let both = format!("{DOOR}device = \"eth1\"\n[gateway]\ndevices = [\"eth1\"]\n");
        assert!(problems(&both).contains("stands there for another device"));
        for (key, bad) in [
            ("endpoint", "relay.example.org"),
            ("endpoint", "relay.example.org:0"),
            ("endpoint", "[192.0.2.1]:7"),
            ("endpoint", "a b:7"),
            ("network", "10.77.0.1/24"),
            ("network", "10.77.0.0/31"),
            ("network", "fd77::/64"),
            ("network_v6", "fd77::1/64"),
            ("network_v6", "fd77::/120"),
            ("dns", "one"),
            ("device", "a/b"),
        ] {
            let text =
                format!("{}{key} = \"{bad}\"\n", DOOR.replace("endpoint =", "mtu = 1400\n#"));
            assert!(
                problems(&text).contains(&format!("`{key}`")),
                "{key} = {bad}: {}",
                problems(&text)
            );
        }
    }
}
