//! Keys of accounts: `[sharing]`, `[[account]]`.

use super::key::{Key, keys};
use crate::draft::{AccountDraft, Draft, QuotaAction};
use crate::keys::name;
use crate::value::Word as _;
use crate::value::kind::Kind;
use crate::value::quota;
use ekiden_model::units::Rate;
use ekiden_proxy::settings::Unclaimed;

const SLOWEST: Kind = Kind::Rate(Rate::from_bits_per_second(8_000));

pub(super) static SHARING: &[Key<Draft>] = keys! { Draft, |draft| draft.shared;
    uplink = uplink: SLOWEST, Some("none"),
        "Maximum payload rate from all clients together. When it is full, accounts share it by weight, regardless of their number of connections.",
        "A rate above the link's rate shares nothing, because the queue then builds in another router.",
        "To share a thin link: 95 % of its rate.";
    downlink = downlink: SLOWEST, Some("none"),
        "Maximum payload rate towards all clients together.", "As uplink.", "As uplink.";
    unclaimed = unclaimed: Kind::Choice(Unclaimed::WORDS), None,
        "How to treat clients that a [[rule]] admits and no account claims. \"allow\" serves them, together as one account of weight 1. \"refuse\" rejects them.",
        "None.", "To serve known accounts only.";
};

pub(crate) static ACCOUNT: &[Key<AccountDraft>] = keys! { AccountDraft, |account| account;
    name = name: Kind::Text("a name", name), Some(""),
        "The account's name in the status. Required.", "None.", "-";
    addresses = addresses: Kind::Nets, None,
        "Addresses of the account's devices. If several accounts match a client, the longest prefix decides. A [[rule]] still decides whether the client is admitted.",
        "Clients behind a shared address translator all count as this account.", "-";
    peers = peers: Kind::Words("names of `ekiden peer list`", name), None,
        "Peers of the account: connections through their tunnels belong to it.", "None.", "-";
    rate_down = rate_down: SLOWEST, Some("none"),
        "Maximum payload rate towards the account, all connections together, with a burst of 200 ms.", "None.", "-";
    rate_up = rate_up: SLOWEST, Some("none"),
        "Maximum payload rate from the account.", "None.", "-";
    connection_rate_down = connection_rate_down: SLOWEST, Some("none"),
        "Maximum payload rate towards each connection.", "Slows single transfers even on an idle link.", "Rarely needed.";
    connection_rate_up = connection_rate_up: SLOWEST, Some("none"),
        "Maximum payload rate from each connection.", "As connection_rate_down.", "Rarely needed.";
    weight = weight: Kind::Number(1, 1_000), None,
        "Share of a full [sharing] uplink or downlink: weight 3 gets three times the rate of weight 1.", "None.", "-";
    connections = connections: Kind::Number(1, 1_000_000), Some("none"),
        "Maximum number of connections and UDP associations; more are rejected (429, or a SOCKS error).", "Browsers open dozens.", "-";
    connects_per_second = connects_per_second: Kind::Number(1, 1_000_000), Some("none"),
        "Maximum number of new connections per second, with a burst of 5 s.", "A web page with many hosts opens dozens.", "-";
    quota = quota: Kind::Text("a size and a period (day, week, never, or a length of time), such as \"20 GB/day\" or \"100 GB/30 d\"", quota::check), Some("none"),
        "Bytes per period, both directions together, as `ekiden account --quota` takes them. The first period begins when ekiden starts. Without a period it does not begin anew.", "None.", "-";
    on_quota_exceeded = on_quota_exceeded: Kind::Choice(QuotaAction::WORDS), None,
        "Action when the quota is used up, until the period ends. \"throttle\" continues at `throttle_rate`. \"cut\" ends connections and rejects new ones.", "None.", "-";
    throttle_rate = throttle_rate: SLOWEST, None,
        "Rate in each direction after the quota is used up.", "None.", "-";
};
