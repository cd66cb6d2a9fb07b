//! A machine of its own for `init` as root: namespaces, empty system folders, and the service's user.

use std::process::Command;

/// What comes before each script. `$ekiden` is the program, where any user may run it; the script may use the functions.
/// The page's server is a machine of its own, at an address that is nobody's.
const MACHINE: &str = r#"
set -e
mount -t proc proc /proc
at=$(mktemp -d) && cp -r /etc/passwd /etc/group /etc/nsswitch.conf /etc/ssl "$at"
mount -t tmpfs tmpfs /etc && cp -r "$at"/* /etc && mount -t tmpfs tmpfs /var/lib && mount -t tmpfs tmpfs /run
rm -r "$at"
echo 'ekiden:x:4711:4712::/var/lib/ekiden:/usr/sbin/nologin' >> /etc/passwd
device() { ip link add name "$1" type veth peer name "$1p" && ip link set "$1" up && ip link set "$1p" up && ip address add "$2" dev "$1"; }
answers() { for _ in $(seq 100); do "$@" status >/dev/null 2>&1 && return; sleep 0.1; done; return 1; }
page_net="nsenter --net=/run/netns/page"
serve_page() {
    ip netns add page
    ip link set wan0p netns page
    $page_net ip link set wan0p up
    $page_net ip address add 11.0.0.2/24 dev wan0p
    $page_net perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalAddr => "11.0.0.2", LocalPort => 8000, Listen => 5, ReuseAddr => 1) or die; open F, ">", "/run/page"; while ($c = $s->accept) { sysread $c, $x, 4096; print $c "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\npage"; close $c }' & page=$!
    for _ in $(seq 100); do [ -e /run/page ] && return; sleep 0.1; done
}
ip link set lo up
device wan0 11.0.0.1/24
ekiden=/run/ekiden-program
cp "$0" $ekiden && chmod 755 $ekiden
unset XDG_CONFIG_HOME XDG_RUNTIME_DIR STATE_DIRECTORY
echo READY
"#;

/// What a script printed. Its lines begin with a word that says what they are.
pub(super) struct Machine {
    said: String,
    errors: String,
}

impl Machine {
    /// Runs a script as root of a machine of its own; `$1` is the repository. `None`, said aloud, where that takes rights
    /// that the test does not have.
    pub(super) fn run(script: &str) -> Option<Self> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let script = format!("{MACHINE}{script}");
        let ran = Command::new("unshare")
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child"])
            .args(["bash", "-c", &script, env!("CARGO_BIN_EXE_ekiden"), root])
            .output();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let machine = ran
            .as_ref()
            .ok()
            .map(|output| Self { said: text(&output.stdout), errors: text(&output.stderr) });
        let ready = machine.filter(|machine| machine.said.contains("READY"));
        if ready.is_none() {
            assert!(std::env::var_os("CI").is_none(), "{ran:?}");
            println!("SKIPPED: namespaces, tmpfs and devices take root: {ran:?}");
        }
        ready
    }

    /// The lines that begin with this word, without it.
    pub(super) fn lines(&self, word: &str) -> Vec<&str> {
        self.said.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).collect()
    }

    /// Everything, for a test that fails.
    pub(super) fn all(&self) -> String {
        format!("{}\n{}", self.said, self.errors)
    }
}
