//! Root sets the router of a network up.

use super::machine::Machine;

/// A rule from before, of IPv4 alone, beside a device that has both.
const OLDER_RULE: &str = r#"
device lan0 192.168.7.1/24
ip address add fd12::1/64 dev lan0 nodad
mkdir -p /etc/ekiden
older() { printf '[[rule]]\nfrom = ["192.168.7.0/24"]\naction = "allow"\n' > /etc/ekiden/config.toml; }
older
$ekiden init gateway --device lan0 --yes >/dev/null 2>&1
grep '^from' /etc/ekiden/config.toml | sed 's/^/BOTH /'
older
$ekiden init gateway --device lan0 --from 192.168.7.0/24 --yes 2>&1 | sed 's/^/SAID /'
grep '^from' /etc/ekiden/config.toml | sed 's/^/GIVEN /'
"#;

/// The kernel diverts their connections, which would be reset.
#[test]
fn networks_of_the_device_that_no_rule_names_are_admitted_or_told_of() {
    let Some(machine) = Machine::run(OLDER_RULE) else { return };
    let all = machine.all();
    let (four, six) = ("from = [\"192.168.7.0/24\"]", "from = [\"fd12::/64\"]");
    assert_eq!(machine.lines("BOTH"), [four, six], "{all}");
    // who names the clients is told of the others
    assert_eq!(machine.lines("GIVEN"), [four], "{all}");
    let told = "- clients of fd12::/64 on lan0 are not admitted, their connections are reset: ekiden init gateway --from fd12::/64";
    assert!(machine.lines("SAID").contains(&told), "{all}");
}

/// One address is admitted, and everybody else refused.
const RESTRICTED: &str = r#"
device lan0 192.168.7.1/24
ip address add fd12::1/64 dev lan0 nodad
mkdir -p /etc/ekiden
printf '[[rule]]\nfrom = ["192.168.7.7"]\naction = "allow"\n\n[[rule]]\nfrom = ["0.0.0.0/0", "::/0"]\naction = "deny"\n' > /etc/ekiden/config.toml
$ekiden init gateway --device lan0 --yes 2>&1 | sed 's/^/SAID /'
grep '^from' /etc/ekiden/config.toml | sed 's/^/RULE /'
"#;

#[test]
fn a_network_of_which_some_clients_are_admitted_is_told_of_and_others_come_before_the_last_rule() {
    let Some(machine) = Machine::run(RESTRICTED) else { return };
    let all = machine.all();
    let rules =
        ["from = [\"192.168.7.7\"]", "from = [\"fd12::/64\"]", "from = [\"0.0.0.0/0\", \"::/0\"]"];
    assert_eq!(machine.lines("RULE"), rules, "{all}");
    let told = "- only some clients of 192.168.7.0/24 on lan0 are admitted, connections of others are reset: ekiden init gateway --from 192.168.7.0/24";
    assert!(machine.lines("SAID").contains(&told), "{all}");
}

const WITHOUT_IPV6: &str = r#"
device lan0 192.168.7.1/24
echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
$ekiden init gateway --device lan0 --wireguard relay.example --yes 2>/dev/null
grep '^listen' /etc/ekiden/config.toml | sed 's/^/LISTEN /'
"#;

#[test]
fn telephones_come_by_ipv4_alone_where_ipv6_is_off() {
    let Some(machine) = Machine::run(WITHOUT_IPV6) else { return };
    let listen = machine.lines("LISTEN");
    assert!(listen.contains(&"listen = [\"0.0.0.0:51820\"]"), "{}", machine.all());
}
