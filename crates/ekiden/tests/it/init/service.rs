//! Root sets up the service of another user, where clients are on a network of their own.

use super::machine::Machine;

/// Two relays on one machine: the far one has the service's user, a network for clients and a daemon of that user; the
/// shore is root's.
const SCRIPT: &str = r#"
device lan0 192.168.7.1/24
ip route add default via 11.0.0.2
mkdir -p /run/shore
shore="env XDG_CONFIG_HOME=/run/shore XDG_RUNTIME_DIR=/run/shore STATE_DIRECTORY=/run/shore/state $ekiden"
line=$($shore init --yes shore --address 11.0.0.1:4433 --name ship --send '20 Mbit/s' --receive '2 Mbit/s')
trap 'kill $first $second $page 2>/dev/null' EXIT
$shore serve & first=$!
answers $shore
$ekiden ${line#ekiden } --yes 2>&1 | sed 's/^/JOIN /'
stat -c 'FILE %n %u:%g %a' /etc/ekiden /etc/ekiden/config.toml /var/lib/ekiden /var/lib/ekiden/*
mkdir /run/ekiden && chown 4711 /run/ekiden
setpriv --reuid 4711 --regid 4712 --clear-groups env XDG_RUNTIME_DIR=/run/ekiden HOME=/ STATE_DIRECTORY=/var/lib/ekiden $ekiden serve & second=$!
answers $ekiden
serve_page
echo "PAGE $(curl -sS -m 20 -p -x http://192.168.7.1:3128 http://11.0.0.2:8000/)"
$ekiden ${line#ekiden } --yes 2>&1 | sed 's/^/AGAIN /'
setpriv --reuid 4711 --regid 4712 --clear-groups env HOME=/ STATE_DIRECTORY=/var/lib/ekiden $ekiden peer list | sed 's/^/PEER /'
"#;

#[test]
fn the_service_gets_its_files_and_its_clients_network() {
    let Some(machine) = Machine::run(SCRIPT) else { return };
    let all = machine.all();
    assert_eq!(machine.lines("PAGE"), ["page"], "{all}");
    let files = machine.lines("FILE");
    assert!(files.contains(&"/etc/ekiden/config.toml 0:4712 640"), "{files:?}");
    assert!(files.contains(&"/etc/ekiden 0:4712 750"), "{files:?}");
    let state: Vec<_> = files.iter().filter(|file| file.starts_with("/var/lib/ekiden")).collect();
    assert!(state.len() > 2 && state.iter().all(|file| file.contains(" 4711:4712 ")), "{files:?}");
    let again = machine.lines("AGAIN");
    assert!(again.iter().any(|line| line.contains("nothing to do")), "{all}");
    // the private network, and not the one of the default route
    let joined = machine.lines("JOIN");
    assert!(joined.contains(&"http://192.168.7.1:3128"), "{all}");
    let peers = machine.lines("PEER");
    assert!(peers.iter().any(|line| line.starts_with("shore  this relay sends 2 Mbit/s")), "{all}");
}

/// A router: the static program, a configuration of the machine, and no user of a service.
const ROUTER: &str = r#"
sed -i '/^ekiden:/d' /etc/passwd
mkdir -p /etc/ekiden /run/root
echo '# mine' > /etc/ekiden/config.toml
export HOME=/run/root
$ekiden init modem --rate '4 Mbit/s' --listen 127.0.0.1:3129 --yes 2>&1 | sed 's/^/SAID /'
echo "HOME $(find /run/root -mindepth 1 | wc -l)"
sed 's/^/FILE /' /etc/ekiden/config.toml
trap 'kill $first 2>/dev/null' EXIT
$ekiden serve & first=$!
answers $ekiden
$ekiden status | sed 's/^/STATUS /'
"#;

#[test]
fn the_daemon_of_root_reads_what_was_set_up_without_a_user_of_the_service() {
    let Some(machine) = Machine::run(ROUTER) else { return };
    let all = machine.all();
    assert_eq!(machine.lines("HOME"), ["0"], "{all}");
    let file = machine.lines("FILE");
    assert!(file.contains(&"# mine") && file.contains(&"rate = \"4 Mbit/s\""), "{all}");
    let status = machine.lines("STATUS").join("\n");
    assert!(status.contains("127.0.0.1:3129"), "{all}");
}
