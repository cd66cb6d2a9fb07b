//! Clients' questions for names.

use crate::print::clean;
use ekiden_proxy::observe::status::DnsStatus;

/// A few lines: what became of questions, and each server. Where only names of destinations were refused, one line.
pub(crate) fn render(dns: &DnsStatus) -> String {
    let above = dns.names_limited;
    let questions = [dns.questions_udp, dns.questions_tcp, dns.questions_peers];
    if dns.listen.is_empty() && questions == [0; 3] && dns.asked == 0 {
        return match above {
            0 => String::new(),
            above => format!("names: {above} questions for destinations above the rate\n"),
        };
    }
    let listen: Vec<String> = dns.listen.iter().map(ToString::to_string).collect();
    let at = if listen.is_empty() { "peers alone".to_owned() } else { listen.join(", ") };
    let mut out = format!(
        "names: {} questions over UDP, {} over TCP, {} of peers; for {at}\n  {} from memory, {} past their end, {} failed; {} asked, {} of them early; {} answers in {} of {} KiB\n",
        dns.questions_udp,
        dns.questions_tcp,
        dns.questions_peers,
        dns.cached,
        dns.stale,
        dns.failed,
        dns.asked,
        dns.prefetched,
        dns.entries,
        dns.bytes.div_ceil(1024),
        dns.memory / 1024,
    );
    for port in &dns.unavailable {
        out.push_str(&format!(
            "  not at {}: {}; tried again in {} s\n",
            port.address,
            clean(&port.error),
            port.retry_in_seconds
        ));
    }
    let dropped = [dns.malformed, dns.refused, dns.limited, dns.lies, dns.left_out];
    if dropped.iter().any(|count| *count > 0) {
        let [malformed, refused, limited, lies, left_out] = dropped;
        out.push_str(&format!(
            "  dropped: {malformed} malformed, {refused} of clients that may not ask, {limited} above the rate; of servers {lies} messages and {left_out} records\n"
        ));
    }
    if above > 0 {
        out.push_str(&format!("  {above} questions for destinations above the rate\n"));
    }
    for server in &dns.servers {
        let state = match (&server.last_error, server.available) {
            (Some(why), false) => format!("does not answer: {}", clean(why)),
            _ => "answers".to_owned(),
        };
        let (name, answered, asked) = (clean(&server.server), server.answered, server.asked);
        out.push_str(&format!("  {name}: {answered} of {asked} answered; {state}"));
        if server.changes_case {
            out.push_str("; changes the case of names, and is asked over TCP");
        }
        if server.lacks_edns {
            out.push_str("; is asked without EDNS");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_proxy::observe::status::DnsServerStatus;

    #[test]
    fn says_what_became_of_questions_and_which_server_is_silent() {
        let server = |server: &str, available, last_error: Option<&str>| DnsServerStatus {
            server: server.to_owned(),
            available,
            asked: 12,
            answered: 10,
            last_error: last_error.map(str::to_owned),
            ..DnsServerStatus::default()
        };
        let status = DnsStatus {
            listen: vec!["192.168.1.1:53".parse().unwrap()],
            questions_udp: 900,
            questions_tcp: 3,
            cached: 800,
            stale: 20,
            failed: 1,
            asked: 90,
            prefetched: 7,
            entries: 60,
            bytes: 20_000,
            memory: 8 << 20,
            limited: 4,
            names_limited: 5,
            servers: vec![
                server("tls://192.0.2.1:853#dns.example", true, Some("no reply in time")),
                server("192.0.2.2:53", false, Some("no reply in time")),
                DnsServerStatus {
                    changes_case: true,
                    lacks_edns: true,
                    ..server("192.0.2.3:53", true, None)
                },
            ],
            ..DnsStatus::default()
        };
        // of peers' questions alone, and of names of destinations that plain servers were asked for
        let of_peers = DnsStatus { questions_peers: 1, ..DnsStatus::default() };
        let of_destinations = DnsStatus { names_limited: 6, ..DnsStatus::default() };
        insta::assert_snapshot!(render(&status) + &render(&of_peers) + &render(&of_destinations));
        assert_eq!(render(&DnsStatus::default()), "", "nothing was asked, and nothing refused");
    }
}
