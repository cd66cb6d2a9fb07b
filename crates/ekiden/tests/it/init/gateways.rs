//! Root sets the router of a network up.

use super::machine::Machine;

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
