//! A machine as the package leaves it: the service runs with the defaults, and root sets it up by one command.

use super::machine::Machine;

/// The packaged configuration and unit, and in place of the service manager a program that starts the daemon as the
/// unit does. `/run/asked` has what it is asked for from then on.
const SERVICE: &str = r#"
mkdir -p /etc/systemd/system /run/bin
install -D -m 644 "$1/packaging/config.toml" /etc/ekiden/config.toml
install -m 644 "$1/packaging/ekiden.service" /etc/systemd/system/ekiden.service
install -d -o 4711 -g 4712 -m 700 /var/lib/ekiden
install -d -o 4711 -g 4712 /run/ekiden
install -d -o 4713 -g 4713 /run/home
cat > /run/bin/systemctl <<'END'
#!/bin/sh
echo "SYSTEMCTL $*" >> /run/asked
if [ "$1" = restart ]; then kill "$(cat /run/daemon)"; while /run/ekiden-program status >/dev/null 2>&1; do sleep 0.05; done; fi
setpriv --reuid 4711 --regid 4712 --clear-groups env RUNTIME_DIRECTORY=/run/ekiden STATE_DIRECTORY=/var/lib/ekiden \
    /run/ekiden-program serve --config /etc/ekiden/config.toml </dev/null >/dev/null 2>>/run/log & echo $! > /run/daemon
for _ in $(seq 100); do /run/ekiden-program status >/dev/null 2>&1 && exit; sleep 0.1; done
exit 1
END
chmod 755 /run/bin/systemctl
PATH=/run/bin:$PATH
trap 'kill $(cat /run/daemon) $page 2>/dev/null' EXIT
$ekiden status 2>&1 | sed 's/^/BARE /'
mkdir -p /run/systemd/system
for command in status doctor; do $ekiden $command 2>&1 | sed 's/^/DEAD /'; done
systemctl start ekiden
: > /run/asked
"#;

const SCRIPT: &str = r#"
serve_page
as_user() {
    code=0
    setpriv --reuid 4713 --regid 4713 --clear-groups env HOME=/run/home /run/ekiden-program "$@" >/run/out 2>&1 </dev/null || code=$?
    echo "USER $code $1 $2: $(head -n 1 /run/out)"
}
as_user peer invite --name x --address 11.0.0.1:4433 --send '1 Mbit/s' --receive '1 Mbit/s'
as_user peer list
as_user peer revoke x
as_user account add x --address 10.0.0.0/8
as_user account set x --weight 2
as_user account list
as_user token rotate
as_user token show
setpriv --reuid 4713 --regid 4713 --clear-groups env HOME=/run/home $ekiden doctor 2>&1 | sed 's/^/OTHER /'
echo "HOME $(find /run/home -mindepth 1 | wc -l)"
line=$(/run/ekiden-program init half-way --name localhost --yes 2>/run/said) || echo "FAILED $(cat /run/said)"
sed 's/^/SAID /' /run/said
cat /run/asked
echo "PAGE $(curl -sS -m 20 -p --noproxy '' --proxy-cacert /var/lib/ekiden/tls/certificate.pem -x "$line" http://11.0.0.2:8000/)"
mkdir -m 755 -p /sys/fs/bpf
/run/ekiden-program init modem --rate '4 Mbit/s' --yes 2>&1 | sed 's/^/MODEM /'
/run/ekiden-program init modem --rate '5 Mbit/s' --yes 2>&1 | sed 's/^/MODEM /'
grep -i 'congestion control hold' /run/log | sed 's/^/LOG /' || true
/run/ekiden-program bpf unload >/dev/null 2>&1 || true
sed 's/^/AUDIT /' /var/lib/ekiden/audit-changes.jsonl
"#;

#[test]
fn one_command_sets_the_running_service_up() {
    let Some(machine) = Machine::run(&format!("{SERVICE}{SCRIPT}")) else { return };
    let all = machine.all();
    let lines = |word: &str| machine.lines(word);
    // as in a container, where the package has brought the unit
    let bare = lines("BARE").join("\n");
    assert!(bare.contains("`ekiden serve`") && !bare.contains("systemctl"), "{all}");
    // no command calls a service that is not there fine, nor one that it could not ask
    let dead = lines("DEAD").join("\n");
    assert_eq!(dead.matches("the service does not answer").count(), 2, "{all}");
    assert_eq!(dead.matches("journalctl -u ekiden -n 20").count(), 2, "{all}");
    let other = lines("OTHER").join("\n");
    assert!(other.contains("the daemon was not asked: /run/ekiden/ekiden.sock"), "{all}");
    assert!(other.contains("$ sudo ekiden doctor"), "{all}");
    for said in [dead, other] {
        assert!(!said.contains("Everything works") && !said.contains("Passed"), "{all}");
    }
    // who is neither root nor the service changes nothing, and hears of it
    assert_eq!(lines("USER").len(), 8, "{all}");
    for line in lines("USER") {
        assert!(line.starts_with("1 ") && line.contains("run this with sudo"), "{line}: {all}");
    }
    assert_eq!(lines("HOME"), ["0"], "{all}");
    // one command, and a page comes through the service
    assert!(lines("FAILED").is_empty(), "{all}");
    assert_eq!(lines("SYSTEMCTL"), ["restart ekiden"], "{all}");
    assert_eq!(lines("PAGE"), ["page"], "{all}");
    let steps = lines("SAID").join("\n");
    for part in ["- restart the service", "the service was restarted", "sudo ekiden account add"] {
        assert!(steps.contains(part), "{part}: {all}");
    }
    let audit = lines("AUDIT");
    assert!(audit.len() == 1 && audit[0].contains("ekiden init half-way"), "{all}");
    // root loads what the service may not, before it takes the rate over
    let logged = lines("LOG").join("\n");
    let modem = lines("MODEM").join("\n");
    assert!(modem.contains("the running daemon took it over"), "{all}");
    if modem.contains("hold is not loaded") {
        assert!(std::env::var_os("CI").is_none(), "{all}");
        return println!("SKIPPED: this kernel loads no congestion control: {modem}");
    }
    assert!(logged.contains("pinned") && !logged.contains("no congestion control"), "{all}");
}

const GATEWAY: &str = r#"
device lan0 192.168.7.1/24
/run/ekiden-program init gateway --device lan0 --wireguard relay.example --yes 2>&1 | sed 's/^/SAID /'
cat /run/asked
"#;

/// Accounts begin at a start alone.
#[test]
fn a_gateway_for_telephones_restarts_the_running_service() {
    let Some(machine) = Machine::run(&format!("{SERVICE}{GATEWAY}")) else { return };
    let all = machine.all();
    assert_eq!(machine.lines("SYSTEMCTL"), ["restart ekiden"], "{all}");
    let said = machine.lines("SAID").join("\n");
    for part in ["- restart the service", "the service was restarted", "hand out a code"] {
        assert!(said.contains(part), "{part}: {all}");
    }
    assert!(!said.contains("took it over"), "{all}");
}
