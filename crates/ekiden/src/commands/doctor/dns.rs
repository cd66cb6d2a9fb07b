//! What stands in the way of answering clients' questions for names.

use super::findings::finding;
use super::{Finding, Severity};
use crate::setup::ports::{Obstacle, Transport, taken};
use ekiden_proxy::observe::status::Status;
use std::net::SocketAddr;

/// Everything about names; `listen` is the configuration's.
pub(super) fn dns(listen: &[SocketAddr], running: Option<&Status>, found: &mut Vec<Finding>) {
    let own = running.map(|status| status.pid);
    let obstacles = listen.iter().filter_map(|at| {
        let both = [Transport::Udp, Transport::Tcp];
        both.into_iter().find_map(|transport| taken(*at, transport, own))
    });
    found.extend(obstacles.map(port));
    let servers = running.and_then(|status| status.dns.as_ref()).map(|dns| dns.servers.as_slice());
    let Some(servers) = servers.filter(|list| list.iter().all(|server| !server.available)) else {
        return;
    };
    let errors = servers
        .iter()
        .filter_map(|one| one.last_error.as_ref().map(|error| format!("{}: {error}", one.server)));
    let errors: Vec<String> = errors.collect();
    let what = match errors.as_slice() {
        [] => "there is no DNS server to ask for clients".to_owned(),
        errors => format!("no DNS server answers: {}", errors.join("; ")),
    };
    let why = "clients get answers from before; other names fail. `servers` in [dns] names others";
    found.push(finding("dns-servers", Severity::Warning, what, why));
}

/// A port that is not to be had, and how to have it.
fn port(obstacle: Obstacle) -> Finding {
    let mend = obstacle.mend();
    let why = "names are not answered there meanwhile, and the relay tries it again every minute at the latest; `listen` in [dns] names another address";
    Finding { mend, ..finding("dns-port", Severity::Problem, obstacle.why, why) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn says_who_has_the_port_and_how_to_have_it() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let mut found = Vec::new();
        dns(&[at], None, &mut found);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.id.as_str(), one.severity), ("dns-port", Severity::Problem));
        assert!(one.what.contains(&format!("UDP {at} is taken by")), "{}", one.what);
        // nothing else waits for it
        assert!(one.why.contains("tries it again"), "{}", one.why);
        let why = "UDP 0.0.0.0:53 is taken by dnsmasq, process 7".to_owned();
        let mend = port(Obstacle { why, is_taken: true }).mend.unwrap();
        assert!(mend.contains("port=0") && !mend.contains("disable"), "{mend}");
    }
}
