//! What can be said of a configuration only when all of it is there: names that must exist, what can
//! never be reached, and whether it is safe.

use super::draft::{At, Control, Draft, LegDraft, Spent};
use super::problem::Severity::{self, Error, Warning};
use super::reader::Reader;
use super::value::Value;
use super::{similar, url};
use ekiden_linux::bpf;
use ekiden_model::buffers::Scheme;
use ekiden_model::units::Bytes;
use ekiden_proxy::settings::{Cache, HostPattern, Pattern, UpstreamProtocol};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

/// Fills in inherited legs, and `client` and `direct`. Returns which keys were inherited: path to the
/// path they come from.
pub(super) fn inherit(reader: &mut Reader<'_>, draft: &mut Draft) -> BTreeMap<String, String> {
    let sets = std::mem::take(&mut reader.legs);
    let parent = |name: &str| {
        sets.get(name)?.iter().find_map(|(key, value)| match value {
            Value::Text(parent) if key.name == "inherit" => Some(parent.clone()),
            _ => None,
        })
    };
    let mut from = BTreeMap::new();
    let always = ["client", "direct"].map(str::to_owned);
    let names: BTreeSet<String> = sets.keys().cloned().chain(always).collect();
    for name in &names {
        let mut line = vec![name.clone()];
        while let Some(next) = line.last().and_then(|last| parent(last)) {
            let path = format!("leg.{name}.inherit");
            if line.contains(&next) {
                let round = line.iter().chain([&next]).cloned().collect::<Vec<_>>().join(" > ");
                // each leg of the circle would say the same
                if next == *name && line.iter().all(|other| name <= other) {
                    reader.error(
                        &path,
                        format!("legs inherit in a circle: {round}"),
                        "one of them must stand on its own",
                    );
                }
                break;
            }
            if !names.contains(&next) {
                if line.len() == 1 {
                    let known: Vec<&str> = names.iter().map(String::as_str).collect();
                    reader.error(
                        &path,
                        format!("there is no leg `{next}`"),
                        similar::hint("legs", &next, &known),
                    );
                }
                break;
            }
            line.push(next);
        }
        let mut leg = LegDraft::default();
        for ancestor in line.iter().rev() {
            for (key, value) in sets.get(ancestor).into_iter().flatten() {
                if ancestor == name || key.name != "inherit" {
                    (key.put)(&mut leg, value.clone());
                    from.insert(
                        format!("leg.{name}.{}", key.name),
                        format!("leg.{ancestor}.{}", key.name),
                    );
                }
            }
        }
        draft.legs.insert(name.clone(), leg);
    }
    from
}

/// All checks. `file_listens` says whether the listen addresses are those of the file.
pub(super) fn check(
    reader: &mut Reader<'_>,
    draft: &Draft,
    file_listens: bool,
) -> BTreeMap<String, url::UpstreamUrl> {
    let urls = upstreams(reader, draft);
    routes(reader, draft);
    tunnels(reader, draft, &urls);
    rules(reader, draft);
    legs(reader, draft);
    if draft.dns.min_ttl > draft.dns.max_ttl {
        reader.error("dns.min_ttl", "`min_ttl` is longer than `max_ttl`", "");
    }
    resources(reader, draft);
    households(reader, draft);
    tls(reader, draft);
    listen(reader, draft, file_listens);
    management(reader, draft);
    urls
}

/// A tunnel begins at this relay, so nothing can stand before it in a chain.
fn tunnels(reader: &mut Reader<'_>, draft: &Draft, urls: &BTreeMap<String, url::UpstreamUrl>) {
    let is_tunnel =
        |name: &String| urls.get(name).is_some_and(|url| url.protocol == UpstreamProtocol::Tunnel);
    for (index, route) in draft.routes.iter().enumerate() {
        for (number, chain) in route.through.iter().enumerate() {
            if let Some(name) = chain.iter().skip(1).find(|name| is_tunnel(name)) {
                reader.error(
                    &format!("route[{index}].through[{number}]"),
                    format!("upstream `{name}` is a tunnel and can only be the first of a chain"),
                    "the relay at its other end has routes of its own, which may go through other tunnels",
                );
            }
        }
    }
}

fn leg_exists(reader: &mut Reader<'_>, draft: &Draft, path: &str, name: &str) {
    if !draft.legs.contains_key(name) {
        let known: Vec<&str> = draft.legs.keys().map(String::as_str).collect();
        reader.error(
            path,
            format!("there is no leg `{name}`"),
            similar::hint("legs", name, &known),
        );
    }
}

fn upstreams(reader: &mut Reader<'_>, draft: &Draft) -> BTreeMap<String, url::UpstreamUrl> {
    let used: BTreeSet<&str> =
        draft.routes.iter().flat_map(|r| r.through.iter().flatten()).map(String::as_str).collect();
    let mut urls = BTreeMap::new();
    for (name, upstream) in &draft.upstreams {
        let path = format!("upstream.{name}");
        if name == "direct" {
            reader.error(
                &path,
                "an upstream cannot be named `direct`: in routes it means «without any»",
                "",
            );
        } else if !used.contains(name.as_str()) {
            reader.report(
                Warning,
                &path,
                format!("upstream `{name}` is used by no route"),
                format!("for all destinations: [[route]] with through = [\"{name}\"]"),
            );
        }
        leg_exists(reader, draft, &format!("{path}.leg"), &upstream.leg);
        let url_path = format!("{path}.url");
        if upstream.url.is_empty() {
            // a url that is there and wrong has been reported
            if !reader.spans.contains_key(&url_path) {
                reader.error(
                    &path,
                    format!("upstream `{name}` has no `url`"),
                    "such as url = \"http://host:3128\", \"socks5://host:1080\" or \"tunnel://name\"",
                );
            } else {
                reader.error(
                    &url_path,
                    "`url` is empty or no text",
                    "such as \"http://host:3128\", \"socks5://host:1080\" or \"tunnel://name\"",
                );
            }
            continue;
        }
        match url::read(&upstream.url) {
            Ok(url) => {
                let password = url.user.as_ref().map(|(_, password)| password.is_some());
                match (password, &upstream.password_file) {
                    (None, Some(_)) => reader.error(
                        &format!("{path}.password_file"),
                        "there is a password and no user",
                        "name the user in `url`: \"http://user@host:3128\"",
                    ),
                    (Some(true), Some(_)) => reader.error(
                        &format!("{path}.password_file"),
                        "the password stands in `url` already",
                        "remove it there",
                    ),
                    (Some(false), None) => reader.report(
                        Warning,
                        &url_path,
                        "there is a user and no password: the empty one is sent",
                        "set password_file",
                    ),
                    _ => {}
                }
                urls.insert(name.clone(), url);
            }
            Err(why) => reader.error(&url_path, format!("`url`: {why}"), ""),
        }
    }
    urls
}

/// Whether patterns match every destination.
fn matches_all(patterns: &[Pattern]) -> bool {
    let all_ports =
        |ports: Option<(u16, u16)>| ports.is_none_or(|(from, to)| from <= 1 && to == u16::MAX);
    patterns.is_empty() || patterns.iter().any(|p| p.host == HostPattern::Any && all_ports(p.ports))
}

/// Whether prefixes match every client.
fn matches_everybody(nets: &[IpNet]) -> bool {
    let whole =
        |v4: bool| nets.iter().any(|n| n.prefix_len() == 0 && matches!(n, IpNet::V4(_)) == v4);
    nets.is_empty() || (whole(true) && whole(false))
}

fn routes(reader: &mut Reader<'_>, draft: &Draft) {
    let known: Vec<&str> = draft.upstreams.keys().map(String::as_str).collect();
    let mut all_taken = false;
    for (index, route) in draft.routes.iter().enumerate() {
        let path = format!("route[{index}]");
        if all_taken {
            reader.report(
                Warning,
                &path,
                "this route is never reached: the one before it matches everything",
                "move it up",
            );
            break;
        }
        all_taken = matches_all(&route.to);
        if route.through.is_empty() {
            reader.error(
                &format!("{path}.through"),
                "`through` is empty: there is no way to go",
                "leave it off, or write [\"direct\"], to go without an upstream",
            );
        }
        let mut seen = BTreeSet::new();
        for (number, chain) in route.through.iter().enumerate() {
            let chain_path = format!("{path}.through[{number}]");
            for hop in chain.iter().filter(|hop| !draft.upstreams.contains_key(hop.as_str())) {
                if reader.problems.has_room() {
                    let hop = super::pattern::shorten(hop);
                    let direct = chain.len() == 1 && similar::closest(&hop, ["direct"]).is_some();
                    let hint = match direct {
                        true => "did you mean `direct`?".to_owned(),
                        false => similar::hint("upstreams", &hop, &known),
                    };
                    reader.error(&chain_path, format!("there is no upstream `{hop}`"), hint);
                }
            }
            if !seen.insert(chain) {
                reader.report(Warning, &chain_path, "this chain is in the list twice", "");
            }
        }
        leg_exists(reader, draft, &format!("{path}.leg"), &route.leg);
        leg_exists(reader, draft, &format!("{path}.client_leg"), &route.client_leg);
    }
}

fn rules(reader: &mut Reader<'_>, draft: &Draft) {
    let mut all_taken = false;
    let mut relays_left = false;
    for (index, rule) in draft.rules.iter().enumerate() {
        let path = format!("rule[{index}]");
        if !reader.spans.contains_key(&format!("{path}.action")) {
            reader.error(
                &path,
                "this rule has no `action`",
                "action = \"allow\" or action = \"deny\"",
            );
        }
        if all_taken && (!relays_left || rule.relays.is_empty()) {
            reader.report(
                Warning,
                &path,
                "this rule is never reached: the one before it matches everything",
                "move it up",
            );
            break;
        }
        let everybody = rule.from.is_empty() && rule.relays.is_empty();
        let clients = !rule.from.is_empty() && matches_everybody(&rule.from);
        relays_left = !everybody;
        all_taken = (everybody || clients) && matches_all(&rule.to);
        if rule.action == "deny" && !rule.allow_destinations.is_empty() {
            reader.report(
                Warning,
                &format!("{path}.allow_destinations"),
                "a rule that denies opens no destinations",
                "",
            );
        }
    }
}

/// A rate needs somebody who holds it, and whoever holds one needs a rate.
fn held(reader: &mut Reader<'_>, name: &str, leg: &LegDraft) {
    let holds = leg.leg.socket.congestion.iter().any(|word| word == bpf::Control::Hold.word());
    let path = |key: &str| format!("leg.{name}.{key}");
    if holds && leg.leg.socket.mptcp == Some(true) {
        reader.error(
            &path("mptcp"),
            "`hold` holds a rate for plain TCP, and this leg asks for Multipath TCP",
            "leave `mptcp` or `hold` out",
        );
    }
    match (holds, leg.leg.rate, leg.leg.line) {
        (true, None, _) => reader.error(
            &path("congestion"),
            "`hold` holds a rate, and none is set",
            "rate = \"4 Mbit/s\" in the same leg: what its connections together may send",
        ),
        (false, Some(_), _) => reader.report(
            Warning,
            &path("rate"),
            "`rate` has no effect: the leg's `congestion` does not name `hold`",
            "congestion = [\"hold\", \"bbr\"]: the first, or the next where it cannot be loaded",
        ),
        (_, None, Some(_)) => {
            reader.report(Warning, &path("line"), "`line` has no effect without `rate`", "");
        }
        (true, Some(rate), Some(line)) if line < rate => {
            reader.error(&path("line"), "the line is slower than what is to be sent over it", "");
        }
        _ => {}
    }
}

fn legs(reader: &mut Reader<'_>, draft: &Draft) {
    let connects: BTreeSet<&str> = std::iter::once("direct")
        .chain(draft.upstreams.values().map(|u| u.leg.as_str()))
        .chain(draft.routes.iter().map(|r| r.leg.as_str()))
        .chain(draft.legs.values().filter_map(|l| l.inherit.as_deref()))
        .collect();
    let accepts: BTreeSet<&str> = std::iter::once("client")
        .chain(draft.routes.iter().map(|r| r.client_leg.as_str()))
        .collect();
    let default = ekiden_proxy::settings::Leg::default();
    for (name, leg) in &draft.legs {
        let only_accepts = !connects.contains(name.as_str()) && accepts.contains(name.as_str());
        for (key, set) in [
            ("connect_timeout", leg.leg.connect_timeout != default.connect_timeout),
            ("establish_timeout", leg.leg.establish_timeout.is_some()),
            ("initial_rto", leg.leg.initial_rto != default.initial_rto),
            ("second_syn", leg.leg.second_syn != default.second_syn),
            ("source", leg.leg.socket.source.is_some()),
        ] {
            let path = format!("leg.{name}.{key}");
            if set && only_accepts && reader.spans.contains_key(&path) {
                reader.report(
                    Warning,
                    &path,
                    format!(
                        "`{key}` has no effect: leg `{name}` is for clients' connections alone"
                    ),
                    "set it on `direct`, or on the leg of an upstream",
                );
            }
        }
        if !connects.contains(name.as_str()) && !accepts.contains(name.as_str()) {
            reader.report(
                Warning,
                &format!("leg.{name}"),
                format!("leg `{name}` is used by no upstream, route or other leg"),
                "",
            );
        }
        if leg.leg.establish_timeout.is_some_and(|each| each >= leg.leg.connect_timeout)
            && !only_accepts
        {
            reader.report(
                Warning,
                &format!("leg.{name}.establish_timeout"),
                "`establish_timeout`, for each address, is not shorter than `connect_timeout`, for all of \
                 them, and never ends anything",
                "it still keeps `user_timeout` from ending handshakes; set it lower to try the next address \
                 sooner",
            );
        }
        held(reader, name, leg);
        let socket = &leg.leg.socket;
        if let (Some(min), Some(max)) = (socket.rto_min, socket.rto_max)
            && min > max
        {
            reader.error(&format!("leg.{name}.rto_min"), "`rto_min` is longer than `rto_max`", "");
        }
        for key in ["keepalive_idle", "keepalive_interval"] {
            let span = if key == "keepalive_idle" {
                socket.keepalive_idle
            } else {
                socket.keepalive_interval
            };
            if span.is_some_and(|span| !span.as_nanos().is_multiple_of(1_000_000_000)) {
                reader.error(
                    &format!("leg.{name}.{key}"),
                    format!("`{key}`: the kernel counts whole seconds"),
                    "",
                );
            }
        }
        if socket.keepalive_idle.is_none()
            && (socket.keepalive_interval.is_some() || socket.keepalive_count.is_some())
        {
            reader.report(
                Warning,
                &format!("leg.{name}"),
                "keep-alive probes are set and not switched on",
                "set keepalive_idle",
            );
        }
    }
}

/// Households are told apart by what they claim.
fn households(reader: &mut Reader<'_>, draft: &Draft) {
    let (mut names, mut claims) = (BTreeSet::new(), BTreeMap::new());
    for (index, household) in draft.households.iter().enumerate() {
        let path = format!("household[{index}]");
        let set =
            |reader: &Reader<'_>, key: &str| reader.spans.contains_key(&format!("{path}.{key}"));
        match &household.name {
            None => reader.error(&path, "this household has no `name`", "name = \"harbour\""),
            Some(name) if !names.insert(name) => {
                let message = format!("there are two households `{name}`");
                reader.error(
                    &format!("{path}.name"),
                    message,
                    "give one another name, or put their addresses together",
                );
            }
            Some(_) => {}
        }
        if household.addresses.is_empty() && household.relays.is_empty() {
            reader.error(
                &path,
                "this household claims nobody",
                "say where its devices are: addresses = [\"192.168.1.0/24\"], or relays = [\"island\"]",
            );
        }
        let addresses = household.addresses.iter().map(|net| net.to_string());
        for (what, claims_at) in
            [("addresses", addresses.collect::<Vec<_>>()), ("relays", household.relays.clone())]
        {
            for (number, claim) in claims_at.into_iter().enumerate() {
                let before = claims.insert((what, claim.clone()), index);
                if before.is_some_and(|before| before != index) {
                    reader.error(
                        &format!("{path}.{what}[{number}]"),
                        format!("another household claims {claim} already"),
                        "",
                    );
                }
            }
        }
        for key in ["period", "when_spent", "slower"] {
            if household.quota.is_none() && set(reader, key) {
                reader.report(
                    Warning,
                    &format!("{path}.{key}"),
                    format!("`{key}` has no effect without a `quota`"),
                    "quota = \"100 GiB\"",
                );
            }
        }
        if household.quota.is_some() && household.when_spent == Spent::Cut && set(reader, "slower")
        {
            reader.report(
                Warning,
                &format!("{path}.slower"),
                "`slower` has no effect where `when_spent` is \"cut\"",
                "",
            );
        }
        let least = [household.rate_down, household.rate_up].into_iter().flatten().min();
        if household.quota.is_some()
            && household.when_spent == Spent::Slower
            && least.is_some_and(|least| household.slower >= least)
        {
            reader.report(
                Warning,
                &format!("{path}.quota"),
                format!(
                    "`slower`, {}, is not slower than this household's own rate",
                    household.slower
                ),
                "",
            );
        }
    }
}

fn resources(reader: &mut Reader<'_>, draft: &Draft) {
    let (buffers, pressure) = (&draft.buffers, &draft.pressure);
    if pressure.low > pressure.high {
        reader.error(
            "pressure.low",
            "`low` is above `high`",
            "low = \"90 %\" with high = \"95 %\"",
        );
    }
    if buffers.initial > buffers.ceiling {
        reader.error("buffers.initial", "`initial` is larger than `ceiling`", "");
    }
    if buffers.budget.is_some_and(|budget| budget < buffers.initial) {
        reader.error("buffers.budget", "`budget` is smaller than the first buffer, `initial`", "");
    }
    // without it `equation` would do nothing at all
    if buffers.scheme == Scheme::Buffers && buffers.budget.is_none() {
        reader.report(
            Warning,
            "buffers.scheme",
            "`equation` has nothing to share out: there is no `budget`, so the kernel tunes",
            "set `budget`, such as \"64 MiB\"",
        );
    }
    cache(reader, &draft.cache, draft.budgets.memory);
    if draft.pool.per_destination > draft.pool.connections && draft.pool.connections > 0 {
        let default = ekiden_proxy::settings::Pool::default();
        if draft.pool.per_destination != default.per_destination {
            reader.report(
                Warning,
                "pool.per_destination",
                "`per_destination` is more than the pool's `connections`",
                "",
            );
        }
    }
}

/// Disk without a place, a place without disk, bodies that fit nowhere. `budget` is what there is for bytes
/// on their way.
fn cache(reader: &mut Reader<'_>, cache: &Cache, budget: Bytes) {
    if cache.memory.is_none() && (cache.disk.is_some() || cache.directory.is_some()) {
        reader.report(
            Warning,
            "cache",
            "without `memory` there is no cache",
            "memory = \"64 MiB\"",
        );
    }
    match (cache.disk, &cache.directory) {
        (Some(_), None) => reader.error(
            "cache.disk",
            "`disk` needs a `directory`",
            "directory = \"/var/cache/ekiden\"",
        ),
        (None, Some(_)) => reader.report(
            Warning,
            "cache.directory",
            "without `disk` nothing is kept there",
            "disk = \"10 GiB\"",
        ),
        _ => {}
    }
    let Some(memory) = cache.memory else { return };
    let largest = match cache.largest == Cache::default().largest {
        true => format!("`largest`, {} unless it is set,", cache.largest),
        false => format!("`largest`, {},", cache.largest),
    };
    if cache.largest > memory {
        reader.error(
            "cache.largest",
            format!("{largest} is more than all of `memory`, {memory}"),
            "a body is kept in memory before it is anywhere else: lower the one or raise the other",
        );
    }
    // a block of the disk is a little more than the largest body, and one alone is no cache
    let least = cache.largest.as_u64().saturating_mul(8);
    if let Some(disk) = cache.disk.filter(|disk| disk.as_u64() < least) {
        reader.error(
            "cache.disk",
            format!("`disk`, {disk}, is less than eight bodies of {}", cache.largest),
            format!("disk = \"{}\" at least, or a smaller `largest`", Bytes::new(least)),
        );
    }
    if cache.largest > budget {
        reader.report(
            Warning,
            "cache.largest",
            format!("{largest} is more than budgets.memory, {budget}: bodies beyond that are never kept"),
            "on its way into the cache a body counts against budgets.memory: raise that, or lower `largest`",
        );
    }
}

fn tls(reader: &mut Reader<'_>, draft: &Draft) {
    match (&draft.tls.certificate, &draft.tls.key) {
        (Some(_), None) => reader.error("tls.certificate", "`certificate` needs its `key`", ""),
        (None, Some(_)) => reader.error("tls.key", "`key` needs its `certificate`", ""),
        _ => {}
    }
}

/// Open proxies on public addresses are found within hours; so nobody is one by accident.
/// The token is worth as much as every account together.
fn management(reader: &mut Reader<'_>, draft: &Draft) {
    let At::Address(address) = draft.management.listen else { return };
    if !address.ip().to_canonical().is_loopback() && !draft.management.cleartext {
        reader.error(
            "management.listen",
            format!("{address} is beyond loopback, and the token would cross the network in the clear"),
            "listen on 127.0.0.1 and reach it by ssh -L or a web server with TLS; or cleartext = true, where the network is your own",
        );
    }
}

fn listen(reader: &mut Reader<'_>, draft: &Draft, file_listens: bool) {
    let report =
        |reader: &mut Reader<'_>, severity: Severity, index: usize, message: String, hint: &str| {
            if file_listens {
                reader.report(severity, &format!("listen[{index}]"), message, hint);
            } else {
                reader.problems.push(super::Problem::general(severity, message, hint));
            }
        };
    if draft.top.listen.is_empty() {
        reader.error(
            "listen",
            "`listen` is empty: there is nothing to do",
            "listen = [\"127.0.0.1:3128\"]",
        );
    }
    let mut seen = BTreeSet::new();
    let allows = |rule: &&super::draft::RuleDraft| rule.action == "allow";
    let named = draft.rules.iter().filter(allows).any(|rule| !rule.from.is_empty());
    let open = draft.rules.iter().filter(allows).find(|rule| {
        matches_everybody(&rule.from) && (!rule.from.is_empty() || rule.relays.is_empty())
    });
    // forgetting `from` is no way to open a proxy to the world
    let unnamed = draft
        .rules
        .iter()
        .filter(allows)
        .any(|rule| rule.from.is_empty() && rule.relays.is_empty() && matches_all(&rule.to));
    for (index, address) in draft.top.listen.iter().enumerate() {
        if !seen.insert(address) && address.port() != 0 {
            report(reader, Error, index, format!("{address} is listed twice"), "");
        }
        if address.ip().to_canonical().is_loopback() {
            continue;
        }
        // whoever is not known has to log in, whatever the rules say
        if draft.accounts.enabled && draft.accounts.cleartext {
            report(
                reader,
                Warning,
                index,
                format!("passwords are taken in the clear on {address}"),
                "whoever can listen on the network between has them; set [accounts] cleartext = false and give \
                 [tls] a certificate, or see that the network is your own",
            );
        }
        if draft.accounts.enabled && (draft.accounts.required || (!named && !unnamed)) {
            continue;
        }
        if !named {
            report(
                reader,
                Error,
                index,
                format!(
                    "refusing to listen on {address}: it is reached from beyond this machine, and no rule and no account says who may use it"
                ),
                "open proxies are found and abused within hours, and you answer for what they do\n\
                 name your clients; for example, add:\n\
                 [[rule]]\n\
                 from = [\"192.168.0.0/16\"]\n\
                 action = \"allow\"\n\
                 or let households log in (`ekiden user`):\n\
                 [accounts]\n\
                 enabled = true",
            );
        } else if unnamed {
            report(
                reader,
                Error,
                index,
                format!(
                    "refusing to listen on {address}: a rule without `from` lets everybody in from beyond this machine"
                ),
                "name your clients in its `from`; if really everybody is meant, say so:\n\
                 from = [\"0.0.0.0/0\", \"::/0\"]",
            );
        } else if open.is_some() {
            report(
                reader,
                Warning,
                index,
                format!("a rule lets everybody in on {address}"),
                "name your clients in `from`; open proxies are abused within hours",
            );
        }
    }
    if let Control::At(path) = &draft.top.control
        && path.to_string_lossy().ends_with('/')
    {
        reader.error(
            "control",
            "`control` names a directory",
            "name the socket in it, such as /run/ekiden/ekiden.sock",
        );
    }
}
