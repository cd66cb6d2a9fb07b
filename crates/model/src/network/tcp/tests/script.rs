//! A sender driven by lines of text.
//!
//! ```text
//! full window           `0 write 100` and `> 0-9`
//! sampled 100           `0 write 1`, `> 0` and `100 ack 1`: a round trip of 100 ms is known
//! 0 write 20            at 0 ms the application writes 20 segments (of 1,000 bytes; `20b`: bytes)
//! > 0-9                 these leave, by number: 3f for a fast retransmission, 3p after a partial
//!                       acknowledgement, 3s by SACK, 3t after a timeout, 3l a probe of the tail
//! 100 ack 1             all below segment 1 has arrived; `sack 3-4 6`; `twice 2`; `window 5`; `mark`
//! 100..102 ack 1        the same event at each millisecond
//! 1200 timer            the timer that is due at exactly this time fires
//! = cwnd 5 ssthresh 5   so it is now; `rto 1000`, `flight 4`, `spurious 1`, `next 0` (deadline: none)
//! ```

use crate::network::tcp::{Acknowledgement, Block, Blocks, Reason, Sender, SenderConfig};
use crate::testing::*;

const MSS: u64 = 1000;

/// A test for each name: its sender, and its script.
macro_rules! scripts {
    ($($name:ident: $config:expr, $script:literal;)*) => {$(
        #[test]
        fn $name() {
            crate::network::tcp::tests::script::run(&$config, $script);
        }
    )*};
}
pub(super) use scripts;

/// Runs the script from an open connection at 0 ms, whose handshake gave no sample.
pub(super) fn run(config: &SenderConfig, script: &str) {
    let mut sender = Sender::new(config, Time::ZERO);
    sender.on_open(Time::ZERO, 1_000_000, None, false);
    let mut window = 1_000_000;
    let mut sent = String::new();
    let script = script
        .replace("full window", "0 write 100\n> 0-9")
        .replace("sampled 100", "0 write 1\n> 0\n100 ack 1");
    for (number, line) in script.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default().trim();
        let at = |what: &str| format!("line {}: `{line}`: {what}", number + 1);
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let rest: Vec<&str> = words.collect();
        match first {
            ">" => {
                let expected = spelt_out(&rest.join(" "));
                assert_eq!(core::mem::take(&mut sent), expected, "{}", at("what was sent"));
                continue;
            }
            "=" => {
                check(&sender, &rest, &at);
                continue;
            }
            _ => {}
        }
        let (from, to) = first.split_once("..").unwrap_or((first, first));
        for ms in from.parse::<u64>().expect("a time")..=to.parse().expect("a time") {
            assert_eq!(sent, "", "{}", at("more was sent before"));
            let now = Time::ZERO + Span::from_millis(ms);
            match rest.as_slice() {
                ["write", amount] => sender.on_write(now, bytes(amount)),
                ["ack", rest @ ..] => sender.on_ack(now, &acknowledgement(rest, &mut window)),
                ["timer"] => {
                    assert_eq!(sender.deadline(), now, "{}", at("when the timer is due"));
                    sender.on_deadline(now);
                }
                other => panic!("{}", at(&format!("{other:?} is no event"))),
            }
            sent = poll(&mut sender, now);
        }
    }
    assert_eq!(sent, "", "more was sent at the end");
}

fn bytes(amount: &str) -> u64 {
    match amount.strip_suffix('b') {
        Some(bytes) => bytes.parse().expect("bytes"),
        None => amount.parse::<u64>().expect("segments") * MSS,
    }
}

fn poll(sender: &mut Sender, now: Time) -> String {
    let mut all = Vec::new();
    while let Some(segment) = sender.poll(now) {
        let letter = match segment.reason {
            Reason::New => "",
            Reason::Fast => "f",
            Reason::Partial => "p",
            Reason::Selective => "s",
            Reason::Timeout => "t",
            Reason::Probe => "l",
        };
        let short =
            if u64::from(segment.len) < MSS { format!(":{}", segment.len) } else { String::new() };
        let reduced = if segment.reduced { "!" } else { "" };
        let place = segment.start as f64 / MSS as f64;
        all.push(format!("{place}{letter}{short}{reduced}"));
        assert!(all.len() < 1000, "it never stops sending");
    }
    all.join(" ")
}

/// `0-2 4f` as `0 1 2 4f`.
fn spelt_out(ranges: &str) -> String {
    let mut all = Vec::new();
    for word in ranges.split_whitespace() {
        let ends = word.split_once('-').and_then(|(a, b)| {
            let letters = b.trim_start_matches(|c: char| c.is_ascii_digit());
            let b = b.strip_suffix(letters)?;
            Some((a.parse::<u64>().ok()?, b.parse::<u64>().ok()?, letters))
        });
        match ends {
            Some((a, b, letters)) => all.extend((a..=b).map(|n| format!("{n}{letters}"))),
            None => all.push(word.to_string()),
        }
    }
    all.join(" ")
}

fn block(word: &str) -> Block {
    let (a, b) = word.split_once('-').unwrap_or((word, word));
    let at = |n: &str| n.parse::<u64>().expect("a segment");
    Block { start: at(a) * MSS, end: (at(b) + 1) * MSS }
}

fn acknowledgement(words: &[&str], window: &mut u64) -> Acknowledgement {
    let (first, rest) = words.split_first().expect("what is acknowledged");
    let ack = (first.parse::<f64>().expect("a segment") * MSS as f64) as u64;
    let mut blocks = Blocks::default();
    let mut marked = false;
    let mut mode = "";
    for word in rest {
        match (*word, mode) {
            ("sack" | "twice" | "window", _) => mode = word,
            ("mark", _) => marked = true,
            (word, "window") => *window = word.parse::<u64>().expect("segments") * MSS,
            (word, _) => blocks.push(block(word)),
        }
    }
    Acknowledgement { ack, window: *window, blocks, echo: None, marked }
}

fn check(sender: &Sender, words: &[&str], at: &dyn Fn(&str) -> String) {
    let shown = sender.snapshot();
    for pair in words.chunks(2) {
        let [name, expected] = pair else { panic!("{}", at("a name without a value")) };
        let millis = |span: Span| span.as_nanos() as f64 / 1e6;
        let found = match *name {
            "cwnd" => shown.window,
            "ssthresh" => shown.threshold,
            "rto" => millis(shown.rto),
            "flight" => shown.outstanding as f64 / MSS as f64,
            "timeouts" => shown.count.timeouts as f64,
            "spurious" => shown.count.spurious as f64,
            "recoveries" => shown.count.recoveries as f64,
            "next" if sender.deadline() == Time::NEVER => 0.0,
            "next" => sender.deadline().as_nanos() as f64 / 1e6,
            other => panic!("{}", at(&format!("{other} is nothing that is shown"))),
        };
        let expected: f64 = expected.parse().expect("a number");
        let close = (found - expected).abs() < 0.005 || found == expected;
        assert!(close, "{}: {name} is {found}", at("so it is now"));
    }
}
