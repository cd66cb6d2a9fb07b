//! Keys of households: `[households]`, `[[household]]`.

use super::draft::HouseholdDraft;
use super::key::{Key, keys};
use super::keys::name;
use super::kind::Kind;
use super::value::{STRANGERS, WHEN_SPENT};
use ekiden_model::units::{Bytes, Rate, Span};
use ekiden_proxy::settings::Households;

const SLOWEST: Kind = Kind::Rate(Rate::from_bits_per_second(8_000));
const DAY: Span = Span::from_secs(86_400);
const TIB: u64 = 1 << 20;

/// `[households]`.
pub(super) static HOUSEHOLDS: &[Key<Households>] = keys! { Households;
    uplink = uplink: SLOWEST, Some("none"),
        "What all clients together may send, as payload. Where it is full, households take turns by weight, however many connections each has.",
        "A rate above what the line carries shares nothing: the queue is then in somebody else's router.",
        "Whoever shares a thin line: 95 % of what it carries.";
    downlink = downlink: SLOWEST, Some("none"),
        "What all clients together may receive, as payload.", "As uplink.", "As uplink.";
    strangers = strangers: Kind::Choice(STRANGERS), None,
        "What becomes of clients that a [[rule]] lets in and no household claims: \"allow\" serves them, all together as one household of weight 1; \"refuse\" does not.",
        "None.", "Whoever serves known households alone.";
};

/// `[[household]]`.
pub(super) static HOUSEHOLD: &[Key<HouseholdDraft>] = keys! { HouseholdDraft;
    name = name: Kind::Text("a name", name), Some(""),
        "What it is called in the status. Needed.", "None.", "-";
    addresses = addresses: Kind::Nets, None,
        "Where its devices are: clients from there are its own; of several households that match, the longest prefix decides. Who may come in at all is said by [[rule]].",
        "Behind an address translator that others share, they all are this household.", "-";
    relays = relays: Kind::Words("names of `ekiden relay list`", name), None,
        "Relays whose tunnels are its own: what comes out of them is this household's.", "None.", "-";
    rate_down = rate_down: SLOWEST, Some("none"),
        "What it may receive, all its connections together, as payload; 200 ms of it may come at once.", "None.", "-";
    rate_up = rate_up: SLOWEST, Some("none"),
        "What it may send.", "None.", "-";
    connection_rate_down = connection_rate_down: SLOWEST, Some("none"),
        "What each of its connections may receive.", "Slows single transfers also when nothing else moves.", "Rarely anybody.";
    connection_rate_up = connection_rate_up: SLOWEST, Some("none"),
        "What each of its connections may send.", "As connection_rate_down.", "Rarely anybody.";
    weight = weight: Kind::Number(1, 1_000), None,
        "Its part where [households] uplink or downlink is full: one of weight 3 gets three times what one of weight 1 gets.", "None.", "-";
    connections = connections: Kind::Number(1, 1_000_000), Some("none"),
        "Connections and UDP associations at once; more are refused (429, or SOCKS's error).", "Browsers open dozens.", "-";
    connects_per_second = connects_per_second: Kind::Number(1, 1_000_000), Some("none"),
        "Connections begun a second; five seconds' worth may come at once.", "A page with many hosts begins dozens.", "-";
    quota = quota: Kind::Size(Bytes::mib(1), Bytes::mib(1024 * TIB)), Some("none"),
        "Bytes in a period, both directions together. Counted from the start of ekiden.", "None.", "-";
    period = period: Kind::Span(Span::from_secs(1), DAY.saturating_mul(366)), None,
        "How long a period of `quota` is; the first begins when ekiden starts.", "None.", "-";
    when_spent = when_spent: Kind::Choice(WHEN_SPENT), None,
        "What comes when the quota is used up, until the period ends: \"slower\", at the rate `slower`; \"cut\", connections end and none is admitted.", "None.", "-";
    slower = slower: SLOWEST, None,
        "The rate in each direction once the quota is used up.", "None.", "-";
};
