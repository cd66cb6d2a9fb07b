//! `ekiden doctor --apply --persist` in namespaces of its own: settings, the file that keeps them, and the default route.

use std::process::Command;

/// A machine with one device, a default route, and nothing kept so far; then the doctor, twice.
const SCRIPT: &str = r#"
set -e
mkdir -p /etc/sysctl.d && mount -t tmpfs tmpfs /etc/sysctl.d
ip link add name wan0 type veth peer name wan1
ip link set wan0 up && ip link set wan1 up
ip address add 100.64.0.1/24 dev wan0
ip route add default via 100.64.0.2 dev wan0 metric 7
echo 1 > /proc/sys/net/ipv4/tcp_slow_start_after_idle
echo READY
"$0" doctor --apply --persist || true
echo "IDLE $(cat /proc/sys/net/ipv4/tcp_slow_start_after_idle)"
echo "ROUTE $(ip route show default)"
sed 's/^/FILE /' /etc/sysctl.d/90-ekiden.conf
"$0" doctor --apply --persist > /dev/null || true
sed 's/^/AGAIN /' /etc/sysctl.d/90-ekiden.conf
"#;

#[test]
fn settings_and_routes_are_changed_and_settings_kept() {
    let ran = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", SCRIPT, env!("CARGO_BIN_EXE_ekiden")])
        .output();
    let said = match &ran {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => error.to_string(),
    };
    if !said.contains("READY") {
        assert!(std::env::var_os("CI").is_none(), "{ran:?}");
        return println!("SKIPPED: namespaces, tmpfs and devices take root: {ran:?}");
    }
    let lines = |mark: &str| -> Vec<&str> {
        said.lines().filter_map(|line| line.strip_prefix(mark)).collect()
    };
    assert_eq!(lines("IDLE "), ["0"], "{said}");
    assert!(lines("changed  net.ipv4.tcp_slow_start_after_idle").len() == 1, "{said}");
    assert!(lines("kept     /etc/sysctl.d/90-ekiden.conf has ").len() == 1, "{said}");
    assert!(lines("FILE ").contains(&"net.ipv4.tcp_slow_start_after_idle = 0"), "{said}");
    // nothing is left to change, and what was kept is still there
    assert_eq!(lines("FILE "), lines("AGAIN "), "{said}");
    let [route] = lines("ROUTE ")[..] else { panic!("{said}") };
    assert!(route.starts_with("default via 100.64.0.2 dev wan0 metric 7"), "{said}");
    // where a socket can have a longer time-out by itself the route is left alone
    let asked = said.contains("changed  rto_min of \"default via 100.64.0.2 dev wan0");
    assert_eq!(asked, route.contains("rto_min lock 500ms"), "{said}");
}
