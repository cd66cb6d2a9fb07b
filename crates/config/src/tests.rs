use super::*;
use ekiden_model::units::{Bytes, Rate, Span};
use ekiden_proxy::settings::{
    AccessLog, Allowance, CopyMode, ExceededAction, Limits, Unclaimed, UpstreamProtocol,
};

fn problems(text: &str) -> String {
    render_all(&read(text, "test.toml").problems)
}

fn first(text: &str) -> String {
    read(text, "test.toml").problems.first().map_or_else(String::new, |p| p.line())
}

#[test]
fn an_empty_file_is_the_defaults() {
    let reading = read("", "test.toml");
    assert_eq!(reading.problems, []);
    assert_eq!(reading.settings, Settings::default());
}

#[test]
fn a_missing_from_opens_nothing_to_the_world() {
    let beyond = "listen = [\"0.0.0.0:3128\"]\n";
    let named = "[[rule]]\nfrom = [\"192.0.2.0/24\"]\naction = \"allow\"\n";
    let nameless = "[[rule]]\naction = \"allow\"\n";
    let usable = |text: &[&str]| read(&text.concat(), "test.toml").is_usable();
    assert!(!usable(&[beyond]) && !usable(&[beyond, nameless]));
    assert!(usable(&[beyond, named]));
    assert!(!usable(&[beyond, nameless, named]), "the first rule that matches decides");
    // said in so many words it is allowed, with a warning
    let everybody = "[[rule]]\nfrom = [\"0.0.0.0/0\", \"::/0\"]\naction = \"allow\"\n";
    assert!(usable(&[beyond, everybody]));
    assert!(problems(&[beyond, everybody].concat()).contains("at least half of all public"));
}

#[test]
fn required_accounts_permit_public_addresses() {
    let beyond = "listen = [\"0.0.0.0:3128\"]\n";
    let accounts = "[accounts]\nenabled = true\n";
    let optional = "required = false\n";
    let nameless = "[[rule]]\naction = \"allow\"\n";
    let usable = |text: &[&str]| read(&text.concat(), "test.toml").is_usable();
    assert!(usable(&[beyond, accounts]));
    assert!(usable(&[beyond, accounts, nameless]), "whoever it admits has to log in all the same");
    assert!(usable(&[beyond, accounts, optional]), "nobody is admitted who does not");
    assert!(!usable(&[beyond, accounts, optional, nameless]));
    assert!(!usable(&[beyond, "[accounts]\nenabled = false\n"]));
    let clear = problems(&[beyond, accounts, "cleartext = true\n"].concat());
    assert!(
        clear.starts_with("warning: passwords are accepted without encryption on 0.0.0.0:3128"),
        "{clear}"
    );
}

#[test]
fn uses_and_masks_the_password_of_the_database() {
    let address = "postgres://ekiden:geheimnis@db.example/ekiden";
    let reading = read(&format!("[accounts]\ndatabase = \"{address}\"\n"), "t");
    assert_eq!(reading.settings.accounts.database.as_deref(), Some(address));
    assert!(reading.holds_password);
    let shown = format!("{}{:#}", show(&reading, None), show_json(&reading, None));
    assert!(shown.contains("ekiden:***@db.example") && !shown.contains("geheimnis"), "{shown}");
    assert!(!read("[accounts]\ndatabase = \"/var/lib/x\"\n", "t").is_usable());
}

#[test]
fn a_certificate_and_its_key_go_together() {
    assert!(problems("[tls]\ncertificate = \"/c.pem\"\n").contains("needs its `key`"));
    assert!(problems("[tls]\nkey = \"/k.pem\"\n").contains("needs its `certificate`"));
    assert_eq!(problems("[tls]\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"\n"), "");
}

#[test]
fn a_whole_configuration() {
    let text = include_str!("../tests/good.toml");
    let reading = read(text, "good.toml");
    assert_eq!(render_all(&reading.problems), "");
    let settings = reading.settings;
    assert_eq!(settings.name, "harbour");
    assert_eq!(settings.listen.len(), 2);
    let sea = &settings.legs["sea"];
    assert_eq!(sea.connect_timeout, Span::from_secs(20));
    assert_eq!(sea.idle_timeout, Span::from_secs(1800), "from `direct`");
    assert_eq!(sea.socket.congestion, ["bbr", "cubic"]);
    assert_eq!(sea.socket.pace, Some(Rate::from_bits_per_second(4_000_000)));
    assert_eq!(sea.socket.send_buffer, Some(Bytes::mib(2)));
    assert_eq!(sea.socket.mss, None, "set in `direct` and given back");
    assert_eq!(settings.upstreams["capital"].protocol, UpstreamProtocol::Socks5);
    assert_eq!(settings.upstreams["capital"].host, "2001:db8::7");
    assert_eq!(settings.routes[1].through, [vec!["near".to_owned(), "capital".to_owned()], vec![]]);
    assert!(settings.access.rules[1].allow && !settings.access.rules[0].allow);
    assert_eq!(settings.relay.copy_mode, CopyMode::Random(7));
    assert_eq!(settings.access_log, AccessLog::File("/var/log/ekiden/access.json".into()));
    assert!(!reading.origins.contains_key("timeouts.stop"));
    assert_eq!(reading.origins.get("name"), Some(&Origin::Line(3)));
}

#[test]
fn every_problem_at_once() {
    insta::assert_snapshot!(problems(include_str!("../tests/bad.toml")));
}

#[test]
fn a_syntax_error_has_its_place() {
    insta::assert_snapshot!(problems("listen = [\"127.0.0.1:3128\"\n[dns]\n"));
}

#[test]
fn refuses_to_be_an_open_proxy() {
    insta::assert_snapshot!(problems(
        "listen = [\"127.0.0.1:1\", \"0.0.0.0:3128\", \"[::ffff:127.0.0.1]:1\"]\n"
    ));
    let rule = "[[rule]]\nfrom = [\"192.168.0.0/16\"]\naction = \"allow\"\n";
    assert_eq!(problems(&format!("listen = [\"[::]:3128\"]\n{rule}")), "");
    for refused in
        ["[[rule]]\naction = \"allow\"\n", "[[rule]]\nfrom = [\"10.0.0.0/8\"]\naction = \"deny\"\n"]
    {
        let reading = read(&format!("listen = [\"[::]:3128\"]\n{refused}"), "t");
        assert!(!reading.is_usable(), "{refused}");
    }
    let from = |net: &str| read(&format!("[access]\nproxy_protocol_from = [\"{net}\"]\n"), "t");
    for net in ["0.0.0.0/0", "::/0", "::ffff:0:0/96"] {
        assert!(!from(net).is_usable(), "{net}");
    }
    for (net, reports) in [("64.0.0.0/7", 1), ("10.0.0.0/8", 0), ("fc00::/7", 1), ("fd65::/16", 0)]
    {
        assert!(from(net).is_usable() && from(net).problems.len() == reports, "{net}");
    }
    let flag = Overrides { listen: vec!["0.0.0.0:1".parse().unwrap()], ..Overrides::default() };
    assert!(!read_with("", "t", &flag).is_usable());
    let reading = read_with(rule, "t", &flag);
    assert!(reading.is_usable());
    let everybody =
        "listen = [\"[::]:1\"]\n[[rule]]\nfrom = [\"0.0.0.0/0\", \"::/0\"]\naction = \"allow\"\n";
    let reading = read(everybody, "t");
    assert!(reading.is_usable() && reading.problems.len() == 1);
}

#[test]
fn reads_accounts_and_their_limits() {
    let text = r#"
[sharing]
uplink = "20 Mbit/s"
unclaimed = "refuse"
[[account]]
name = "harbour"
addresses = ["100.64.1.0/24", "fd65:6b69:64:1::/64"]
rate_down = "5 Mbit/s"
connection_rate_up = "1 Mbit/s"
weight = 3
connections = 64
connects_per_second = 20
quota = "100 GiB/day"
on_quota_exceeded = "cut"
[[account]]
name = "school"
peers = ["island"]
quota = "1 GiB/30 d"
"#;
    let reading = read(text, "test.toml");
    assert_eq!(render_all(&reading.problems), "");
    let accounts = reading.settings.sharing;
    let mbit = |n: u64| Some(Rate::from_bits_per_second(n * 1_000_000));
    assert_eq!((accounts.uplink, accounts.downlink), (mbit(20), None));
    assert_eq!(accounts.unclaimed, Unclaimed::Refuse);
    let [harbour, school] = &accounts.list[..] else { panic!("two") };
    assert_eq!((harbour.name.as_str(), harbour.addresses.len()), ("harbour", 2));
    let day = Span::from_secs(86_400);
    let quota =
        Allowance { bytes: Bytes::mib(100 << 10), period: day, on_exceeded: ExceededAction::Cut };
    let limits = Limits {
        rates: [None, mbit(5)],
        each: [mbit(1), None],
        weight: 3,
        connections: Some(64),
        connects: Some(20),
        quota: Some(quota),
    };
    assert_eq!(harbour.limits, limits);
    assert_eq!(school.peers, ["island"]);
    let on_exceeded = ExceededAction::Throttle(Rate::from_bits_per_second(256_000));
    let period = day.saturating_mul(30);
    let quota = Some(Allowance { bytes: Bytes::mib(1 << 10), period, on_exceeded });
    assert_eq!(school.limits, Limits { quota, ..Limits::default() });
}

#[test]
fn refuses_accounts_with_the_same_claims() {
    let home = |rest: &str| format!("[[account]]\nname = \"a\"\n{rest}\n");
    let at = "addresses = [\"100.64.1.0/24\"]\n";
    for (text, part, usable) in [
        ("[[account]]\naddresses = [\"100.64.0.1\"]".to_owned(), "has no `name`", false),
        (home(""), "claims no clients", false),
        (home(at) + &home("peers = [\"b\"]"), "there are two accounts `a`", false),
        (
            home(at) + "[[account]]\nname = \"b\"\naddresses = [\"100.64.1.0/24\"]",
            "another account claims 100.64.1.0/24 already",
            false,
        ),
        (home(&format!("{at}throttle_rate = \"1 Mbit/s\"")), "no effect without a `quota`", true),
        (
            home(&format!(
                "{at}quota = \"1 GiB\"\non_quota_exceeded = \"cut\"\nthrottle_rate = \"1 Mbit/s\""
            )),
            "no effect where `on_quota_exceeded` is \"cut\"",
            true,
        ),
        (
            home(&format!("{at}quota = \"1 GiB\"\nrate_up = \"100 kbit/s\"")),
            "`throttle_rate`, 256 kbit/s, is not slower than this account's own rate",
            true,
        ),
        (home(&format!("{at}on_quota_exceeded = \"throtle\"")), "did you mean `throttle`", false),
        ("[sharing]\nuplink = \"1 kbit/s\"".to_owned(), "too little", false),
        ("[account]\nname = \"a\"".to_owned(), "[[account]]", false),
    ] {
        assert!(problems(&text).contains(part), "{text}: {}", problems(&text));
        assert_eq!(read(&text, "t").is_usable(), usable, "{text}");
    }
}

#[test]
fn reports_each_mistake() {
    for (text, part) in [
        ("listn = []", "unknown key `listn` (did you mean `listen`?)"),
        ("stop = \"3 s\"", "unknown key `stop` (`stop` belongs into [timeouts])"),
        ("listen = []", "`listen` is empty"),
        (
            "[budgets]\nsessions = \"3 MiB\"\nhead = \"1 MiB\"",
            "`sessions`, 3 MiB, is less than four heads of 1 MiB",
        ),
        ("listen = \"127.0.0.1\"", "\"127.0.0.1\" has no port"),
        ("listen = [\"127.0.0.1:1\", \"127.0.0.1:1\"]", "listed twice"),
        ("listen = [\"127.0.0.1:1\", \"0.0.0.0:1\"]", "0.0.0.0:1 has 127.0.0.1:1 in it"),
        ("[tunnel]\nlisten = [\"[::]:1\", \"[::1]:1\"]", "[::]:1 has [::1]:1 in it"),
        ("listen = \":3128\"", "127.0.0.1:3128\" for this machine alone"),
        ("listen = \"::1\"", "has no port (\"[::1]:3128\")"),
        ("listen = \"127.0.0.1:99999\"", "a port is a number from 1 to 65535"),
        ("[dns]\nservers = [\"8.8.8\"]", "is not an address; such as 192.0.2.53"),
        ("control = \"here\"", "not an absolute path"),
        ("name = \"a b\"", "a name in `Via`"),
        ("[timeouts]\nstop = 3", "with its unit, in quotes"),
        ("[timeouts]\nstop = \"3\"", "the unit is missing"),
        ("[timeouts]\nkeep_alive = \"0 s\"", "too little"),
        ("[dns]\nattempt_delay = \"3 s\"", "too much (at most 2 s)"),
        ("[dns]\nprefer = \"ipv5\"", "did you mean `ipv"),
        ("[dns]\nmin_ttl = \"2 h\"", "longer than `max_ttl`"),
        ("[leg.client]\nmss = 87", "87 is out of range (88 to 32767)"),
        ("[leg.client]\ndscp = 64", "0 to 63"),
        ("[leg.client]\nsyn_count = 0", "1 to 127"),
        ("[leg.client]\nrto_min = \"201 ms\"", "at most 200 ms"),
        ("[leg.client]\nrto_max = \"121 s\"", "at most 120 s"),
        ("[leg.client]\nkeepalive_idle = \"1.5 s\"", "whole seconds"),
        ("[leg.client]\ninherit = \"clinet\"", "no leg `clinet` (did you mean `client`?)"),
        (
            "[leg.client]\ninherit = \"direct\"\n[leg.direct]\ninherit = \"client\"",
            "in a circle: client > direct > client",
        ),
        ("[leg.client]\ninherit = \"client\"", "in a circle: client > client"),
        ("[leg.\"a b\"]", "invalid name"),
        ("leg = 3", "group of tables"),
        ("[leg]\nmss = 3", "unknown key `mss` in [leg]"),
        ("[upstream.a]", "used by no route"),
        ("[[route]]\nthrough = [\"a\"]", "no upstream `a`"),
        ("[[route]]\nthrough = [\"dirct\"]", "no upstream `dirct` (did you mean `direct`?)"),
        ("[leg.client]\nconnect_timeout = \"5 s\"", "`connect_timeout` has no effect"),
        ("[leg.client]\nsource = \"127.0.0.1\"", "`source` has no effect"),
        ("[leg.client]\ninitial_rto = \"kernel\"", "`initial_rto` has no effect"),
        ("[leg.client]\nestablish_timeout = \"5 s\"", "`establish_timeout` has no effect"),
        ("[leg.client]\nsecond_syn = true", "`second_syn` has no effect"),
        ("[leg.direct]\ncongestion = [\"hold\"]", "`hold` holds a rate, and none is set"),
        (
            "[leg.direct]\ncongestion = [\"hold\"]\nrate = \"4 Mbit/s\"\nmptcp = true",
            "for plain TCP, and this leg asks for Multipath TCP",
        ),
        ("[leg.direct]\nrate = \"4 Mbit/s\"", "`rate` has no effect"),
        ("[leg.direct]\nline = \"4 Mbit/s\"", "`line` has no effect"),
        ("[leg.direct]\nrate = \"60 kbit/s\"", "too little"),
        (
            "[leg.direct]\ncongestion = [\"hold\"]\nrate = \"4 Mbit/s\"\nline = \"3 Mbit/s\"",
            "`line` is slower than `rate`",
        ),
        ("[leg.direct]\nestablish_timeout = \"10 s\"", "is not shorter than `connect_timeout`"),
        ("[[route]]\nthrough = [\"a > a\"]", "twice"),
        ("[[route]]\nthrough = [\"a >\"]", "names of upstreams"),
        ("[[route]]\nthrough = [\"a > direct\"]", "stands alone"),
        ("[[route]]\nthrough = []", "`through` is empty"),
        ("[[route]]\n[[route]]\nto = [\":22\"]", "never reached"),
        ("[route]\nto = []", "[[route]]"),
        ("[[rule]]\nfrom = [\"10.0.0.1/8\"]\naction = \"allow\"", "10.0.0.0/8 was meant?"),
        (
            "[[rule]]\nfrom = [\"192.168.0.0/16\"]\naction = \"allow\"\n[[rule]]\nto = [\":25\"]\naction = \"deny\"",
            "does not hold for clients of rule 1, which allows them everything",
        ),
        ("[[rule]]", "no `action`"),
        ("[[rule]]\naction = \"alow\"", "did you mean `allow`?"),
        ("[relay]\nmovement = \"fast\"", "must be `auto`"),
        ("[log]\naccess = \"x\"", "must be `off`"),
        ("[timeouts.stop]\n", "not a table"),
        ("timeouts = 3", "write it as [timeouts]"),
        ("a = 1\na = 2", "this is not TOML: duplicate key"),
        ("[accounts]\nenabled = yes", "a switch is true or false: write true"),
        ("[accounts]\nenabled = Off", "a switch is true or false: write false"),
    ] {
        assert!(first(text).contains(part), "{text}\n{}", first(text));
    }
}

#[test]
fn refuses_old_names_with_the_new_one_and_the_place() {
    let account = "[[account]]\nname = \"a\"\naddresses = [\"100.64.1.0/24\"]\n";
    for (text, place, hint) in [
        ("[[household]]\nname = \"a\"".to_owned(), "1:3", "`household` is now `[[account]]`"),
        (
            "[households]\nuplink = \"1 Mbit/s\"".to_owned(),
            "1:2",
            "`households` is now `[sharing]`",
        ),
        ("[sharing]\nstrangers = \"refuse\"".to_owned(), "2:1", "`strangers` is now `unclaimed`"),
        (format!("{account}relays = [\"b\"]"), "4:1", "`relays` is now `peers`"),
        (
            format!("{account}when_spent = \"cut\""),
            "4:1",
            "`when_spent` is now `on_quota_exceeded`",
        ),
        (format!("{account}slower = \"1 Mbit/s\""), "4:1", "`slower` is now `throttle_rate`"),
        (
            "[[rule]]\naction = \"deny\"\nrelays = [\"*\"]".to_owned(),
            "3:1",
            "`relays` is now `peers`",
        ),
        ("[leg.client]\nunsent_low_water = \"1 MiB\"".to_owned(), "2:1", "is now `notsent_lowat`"),
        ("[management]\nmetrics_households = 1".to_owned(), "2:1", "is now `metrics_accounts`"),
    ] {
        let reading = read(&text, "f");
        let told = reading.problems.iter().map(Problem::line).find(|line| line.contains(hint));
        let told = told.unwrap_or_else(|| panic!("{text}: {}", problems(&text)));
        assert!(told.starts_with(&format!("f:{place}: unknown key")), "{told}");
        assert!(!reading.is_usable(), "{text}");
    }
}

#[test]
fn no_problem_shows_a_password() {
    for text in [
        "[upstream.a]\nurl = \"http://u:geheim@h\"",
        "[upstream.a]\nurl = \"http://u:geheim@h:1\" trailing",
        "[upstream.a]\npassword = \"geheim\"",
        "upstream = { a = { url = \"ftp://u:geheim@h:1\", colour = 1 } }",
    ] {
        let shown = problems(text);
        assert!(!shown.is_empty() && !shown.contains("geheim"), "{shown}");
        assert!(!format!("{:?}", read(text, "t")).contains("geheim"), "{text}");
    }
}

#[test]
fn too_long_or_too_deep_is_refused() {
    assert!(first(&"#".repeat(LONGEST + 1)).contains("longer than 1 MiB"));
    assert!(first(&format!("a = {}", "[".repeat(100_000))).contains("not TOML"));
    let many = (0..100_000).map(|n| format!("k{n} = 1\n")).collect::<String>();
    let reading = read(many.get(..LONGEST).unwrap_or(&many), "many");
    assert!(reading.problems.len() <= 101);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        let _ = read(&text, "any").problems.iter().map(Problem::render).count();
    }

    #[test]
    fn no_likely_text_makes_it_panic(lines in proptest::collection::vec(line(), 0..12)) {
        let reading = read(&lines.join("\n"), "any");
        let _ = render_all(&reading.problems);
        let _ = show(&reading, None);
    }
}

/// A line of a configuration, sometimes wrong.
fn line() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let value = prop_oneof![
        Just("\"1 s\"".to_owned()),
        Just("\"kernel\"".to_owned()),
        Just("[]".to_owned()),
        Just("[\"direct\", \"a > b\"]".to_owned()),
        Just("true".to_owned()),
        Just("{ x = 1 }".to_owned()),
        Just("1979-05-27".to_owned()),
        Just("-1".to_owned()),
        Just("\"http://u:p@h:1\"".to_owned()),
        Just("[[1, [2]], {}]".to_owned()),
        "\"[^\"\\\\\\n]{0,20}\"",
    ];
    let key = prop_oneof![
        Just("listen"),
        Just("leg.client.mss"),
        Just("url"),
        Just("through"),
        Just("to"),
        Just("from"),
        Just("inherit"),
        Just("action"),
        Just("stop"),
        Just("password"),
        Just("upstream.a.url"),
        Just("route"),
    ];
    prop_oneof![
        Just("[leg.client]".to_owned()),
        Just("[leg.x]".to_owned()),
        Just("[upstream.a]".to_owned()),
        Just("[[route]]".to_owned()),
        Just("[[rule]]".to_owned()),
        Just("[timeouts]".to_owned()),
        Just("[upstream]".to_owned()),
        Just("[[upstream]]".to_owned()),
        Just("[leg.x.y]".to_owned()),
        (key, value).prop_map(|(key, value)| format!("{key} = {value}")),
    ]
}

#[test]
fn a_value_with_control_characters_stays_on_its_line_of_the_log() {
    let problems = read("[pressure]\nlow = \"c\\n\\t90 %\"\n", "test.toml").problems;
    assert!(!problems.is_empty());
    for problem in &problems {
        assert!(!problem.line().contains(char::is_control), "{}", problem.line());
    }
}
