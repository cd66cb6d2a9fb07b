//! A telephone on the Internet: wireguard-go, from the text that is handed out.
//!
//! ```text
//! phone  p0 8.8.8.2 ── p1 8.8.8.1  up  u0 9.9.9.2 ── eth0 9.9.9.1  gateway, UDP port 51820
//! ```

use crate::network::Network;
use ekiden_linux::namespaces::netns::{Netns, place};
use ekiden_testkit::wait_for;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) const OFF: &str = "";
pub(crate) const DOOR: &str = "[accounts]\nenabled = true\n[dns]\nlisten = [\"127.0.0.1:5353\"]\nservers = [\"9.9.9.2\"]\n\
    [wireguard]\nlisten = [\"0.0.0.0\", \"[::]\"]\nendpoint = \"9.9.9.1:51820\"\n";

/// Where wireguard-go listens for its configuration.
const CONTROL: &str = "/var/run/wireguard";

/// The program, where it is installed.
pub(crate) fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin"));
    let folders = std::env::split_paths(&path).chain(home);
    let places = folders.flat_map(|at| ["wireguard-go", "wireguard"].map(|name| at.join(name)));
    let found = places.into_iter().find(|path| path.is_file());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "there is no wireguard-go");
        println!("SKIPPED: there is no wireguard-go (scripts/peers.sh --wireguard)");
    }
    found
}

pub(crate) struct Phone {
    pub(crate) netns: Netns,
    child: Child,
    pub(crate) device: String,
    /// The configuration's keys and values.
    pub(crate) given: BTreeMap<String, String>,
}

impl Phone {
    /// A telephone in a network of its own, with what was handed out.
    pub(crate) fn new(network: &Network, program: &PathBuf, text: &str) -> Self {
        let netns = Netns::new().unwrap();
        network.connect(("p0", &netns), ("p1", &network.up)).unwrap();
        let there =
            "ip link set lo up; ip addr add 8.8.8.2/24 dev p0; ip route add 9.9.9.1 via 8.8.8.1";
        network.shell(&netns, there).unwrap();
        let up = "ip addr add 8.8.8.1/24 dev p1; echo 1 >/proc/sys/net/ipv4/ip_forward";
        network.shell(&network.up, up).unwrap();
        network.on_gateway("ip route add 8.8.8.0/24 via 9.9.9.2");
        let device = format!("wgt{}", std::process::id() % 100_000);
        let mut command = Command::new(program);
        command.args(["-f", &device]).stdin(Stdio::null()).stdout(Stdio::null());
        place(&mut command, &netns).unwrap();
        let child = command.spawn().unwrap();
        let given = text.lines().filter_map(|line| line.split_once(" = "));
        let given = given.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let phone = Self { netns, child, device, given };
        wait_for("wireguard-go", || phone.control().is_ok());
        phone.configure();
        let mut script = format!("ip link set {0} mtu {1} up\n", phone.device, phone.given["MTU"]);
        for address in phone.given["Address"].split(", ") {
            script.push_str(&format!("ip addr add {address} dev {}\n", phone.device));
        }
        script.push_str(&format!(
            "ip route add default dev {0}; ip -6 route add default dev {0}",
            phone.device
        ));
        network.shell(&phone.netns, &script).unwrap();
        phone
    }

    fn control(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(format!("{CONTROL}/{}.sock", self.device))
    }

    /// By the protocol of `wg` (https://www.wireguard.com/xplatform/).
    fn configure(&self) {
        let hex = |key: &str| {
            use base64::Engine as _;
            let bytes = base64::engine::general_purpose::STANDARD.decode(&self.given[key]).unwrap();
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let mut text = format!(
            "set=1\nprivate_key={}\nreplace_peers=true\npublic_key={}\nendpoint={}\npersistent_keepalive_interval={}\n",
            hex("PrivateKey"),
            hex("PublicKey"),
            self.given["Endpoint"],
            self.given["PersistentKeepalive"],
        );
        for net in self.given["AllowedIPs"].split(", ") {
            text.push_str(&format!("allowed_ip={net}\n"));
        }
        let mut control = self.control().unwrap();
        control.write_all(format!("{text}\n").as_bytes()).unwrap();
        let mut answer = [0; 64];
        let n = control.read(&mut answer).unwrap();
        assert!(answer[..n].starts_with(b"errno=0"), "{}", String::from_utf8_lossy(&answer[..n]));
    }

    #[allow(dead_code)] // for benches
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn page(&self, network: &Network, args: &[&str]) -> String {
        let output = network.curl(&self.netns, args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Sends a datagram from an address of the telephone; what came back within so long.
    pub(crate) fn ask(
        &self,
        from: &str,
        to: SocketAddr,
        message: &[u8],
        patience: Duration,
    ) -> Option<Vec<u8>> {
        let from: IpAddr = from.parse().unwrap();
        let socket = self.netns.run(|| UdpSocket::bind((from, 0))).unwrap().unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(patience)).unwrap();
        socket.send(message).unwrap();
        let mut buffer = [0; 2_000];
        let n = socket.recv(&mut buffer).ok()?;
        Some(buffer[..n].to_vec())
    }

    pub(crate) fn own(&self) -> [String; 2] {
        let mut own =
            self.given["Address"].split(", ").map(|net| net.split('/').next().unwrap().to_owned());
        [own.next().unwrap(), own.next().unwrap()]
    }
}

impl Drop for Phone {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(format!("{CONTROL}/{}.sock", self.device));
    }
}
