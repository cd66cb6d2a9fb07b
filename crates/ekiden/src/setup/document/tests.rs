use super::*;
use std::fs;

fn document(text: &str) -> (tempfile::TempDir, Place, Document) {
    let folder = tempfile::tempdir().unwrap();
    let place = Place { config: folder.path().join("config.toml"), service: None };
    if !text.is_empty() {
        fs::write(&place.config, text).unwrap();
    }
    let document = Document::open(&place).unwrap();
    (folder, place, document)
}

/// What an end of a tunnel writes.
fn far(document: &mut Document) -> Routed {
    document.listen(&[], &["192.168.1.1:3128".parse().unwrap()]).unwrap();
    document.admit(&["192.168.1.0/24".parse().unwrap()]).unwrap();
    document.upstream("shore").unwrap();
    document.route("shore").unwrap()
}

fn written(document: &Document, place: &Place) -> String {
    let changes = document.changes().unwrap();
    document.prepare(&changes, place).unwrap().commit().unwrap();
    fs::read_to_string(&place.config).unwrap()
}

#[test]
fn a_new_configuration_has_what_is_needed_and_a_second_time_changes_nothing() {
    let (_folder, place, mut document) = document("");
    assert_eq!(far(&mut document), Routed::Added);
    let text = written(&document, &place);
    insta::assert_snapshot!(text, @r#"
    listen = ["192.168.1.1:3128"]

    [[rule]]
    from = ["192.168.1.0/24"]
    action = "allow"

    [upstream.shore]
    url = "tunnel://shore"

    [[route]]
    through = ["shore"]
    "#);
    let mut again = Document::open(&place).unwrap();
    assert_eq!(far(&mut again), Routed::Already);
    assert!(again.changes().unwrap().is_nothing());
}

#[test]
fn comments_and_other_keys_stay() {
    let old = "# mine\nname = \"ship\" # its name\nlisten = [\n  \"127.0.0.1:3128\", # me\n]\n\n[timeouts]\n# long\nstop = \"1 s\"\n\n[[route]]\nto = [\"*.example\"]\nthrough = [\"direct\"]\n";
    let (_folder, place, mut document) = document(old);
    assert_eq!(far(&mut document), Routed::Added);
    let text = written(&document, &place);
    for line in old.lines().filter(|line| !line.contains("127.0.0.1")) {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.contains("# me") && text.contains("192.168.1.1:3128"), "{text}");
    let routes: Vec<_> = text.lines().filter(|line| line.starts_with("through")).collect();
    assert_eq!(routes, ["through = [\"direct\"]", "through = [\"shore\"]"]);
}

#[test]
fn clients_are_admitted_before_a_rule_that_refuses_everybody() {
    let net = |text: &str| -> IpNet { text.parse().unwrap() };
    let both = [net("192.168.1.0/24"), net("fd12::/64")];
    let old = "name = \"ship\"\n\n[[rule]]\nfrom = [\"10.0.0.7\"]\naction = \"deny\"\n";
    // also where a rule behind it has them
    let behind = "[[rule]]\nfrom = [\"192.168.1.0/24\", \"fd12::/64\"]\naction = \"allow\"\n";
    let route = "\n[[route]]\nto = [\"*.example\"]\nthrough = [\"direct\"]\n";
    for all in [
        "from = [\"0.0.0.0/0\", \"::/0\"]\n",
        "from = [\"::/0\"]\n",
        "from = [\"192.168.0.0/16\"]\n",
        "to = [\"*\"]\n",
        "",
    ] {
        let all = format!("\n# nobody else\n[[rule]]\n{all}action = \"deny\"\n");
        let (_folder, place, mut document) = document(&format!("{old}{route}{all}\n{behind}"));
        document.admit(&both).unwrap();
        let text = written(&document, &place);
        assert_eq!(text, format!("{old}{route}\n{behind}{all}\n{behind}"));
        let mut again = Document::open(&place).unwrap();
        again.admit(&both).unwrap();
        assert!(again.changes().unwrap().is_nothing());
    }
    // it refuses others, or a destination
    for (from, more) in [("10.0.0.0/8", ""), ("::/0", ""), ("0.0.0.0/0", "to = [\":25\"]\n")] {
        let last = format!("[[rule]]\nfrom = [\"{from}\"]\n{more}action = \"deny\"\n");
        let (_folder, place, mut document) = document(&last);
        document.admit(&[net("192.168.1.0/24")]).unwrap();
        let text = written(&document, &place);
        assert!(text.starts_with(&last) && text.ends_with("\"allow\"\n"), "{text}");
    }
}

#[test]
fn a_file_of_comments_keeps_them_at_its_head() {
    let (_folder, place, mut document) = document("# see the book\n#listen = []\n");
    far(&mut document);
    let text = written(&document, &place);
    assert!(text.starts_with("# see the book\n#listen = []\n\nlisten = ["), "{text}");
}

#[test]
fn another_route_for_everything_stays_and_is_named() {
    let (_folder, _place, mut document) =
        document("[upstream.a]\nurl = \"http://a:1\"\n[[route]]\nthrough = [\"a\", \"direct\"]\n");
    assert_eq!(far(&mut document), Routed::Other("a, direct".to_owned()));
    // used by no route
    assert!(document.changes().unwrap().warnings.contains("shore"));
}

#[test]
fn values_are_replaced_with_their_comment_kept_and_shown() {
    let (_folder, _place, mut document) =
        document("listen = \"127.0.0.1:1\"\n[leg.client]\nrate = \"4 Mbit/s\"    # the hub's\n");
    document.set(&["leg", "client"], "rate", "4 Mbit/s").unwrap();
    assert!(document.changes().unwrap().is_nothing());
    document.set(&["leg", "client"], "rate", "5 Mbit/s").unwrap();
    document.listen(&[], &["127.0.0.2:1".parse().unwrap()]).unwrap();
    insta::assert_snapshot!(document.changes().unwrap().lines, @r#"
    - listen = "127.0.0.1:1"
    + listen = ["127.0.0.1:1", "127.0.0.2:1"]
    - rate = "4 Mbit/s"    # the hub's
    + rate = "5 Mbit/s"    # the hub's
    "#);
}

#[test]
fn every_address_takes_the_place_of_those_that_it_has_in_it() {
    let every = ["0.0.0.0:3128", "[::]:3128"].map(|at| at.parse().unwrap());
    for (before, after) in [
        (
            "[\"127.0.0.1:3128\", \"127.0.0.1:1\"]",
            "[\"127.0.0.1:1\", \"0.0.0.0:3128\", \"[::]:3128\"]",
        ),
        ("\"[::1]:3128\"", "[\"0.0.0.0:3128\", \"[::]:3128\"]"),
        ("[\"0.0.0.0:3128\"]", "[\"0.0.0.0:3128\", \"[::]:3128\"]"),
    ] {
        let admitted = "[accounts]\nenabled = true\n";
        let (_folder, place, mut document) = document(&format!("listen = {before}\n{admitted}"));
        document.listen(&[], &every).unwrap();
        let text = written(&document, &place);
        assert_eq!(text, format!("listen = {after}\n{admitted}"));
        // what it has in it is not added, either
        let mut document = Document::open(&place).unwrap();
        document.listen(&[], &["127.0.0.9:3128".parse().unwrap()]).unwrap();
        assert!(document.changes().unwrap().is_nothing());
    }
}

#[test]
fn a_configuration_with_errors_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place { config: folder.path().join("config.toml"), service: None };
    fs::write(&place.config, "listn = []\n").unwrap();
    let why = Document::open(&place).unwrap_err();
    assert!(why.contains("has errors; mend them first") && why.contains("did you mean"), "{why}");
}

#[test]
fn a_configuration_that_would_not_be_usable_is_not_written() {
    let (_folder, _place, mut document) = document("");
    document.listen(&[], &["0.0.0.0:3128".parse().unwrap()]).unwrap();
    let why = document.changes().unwrap_err();
    assert!(why.contains("nothing was written") && why.contains("refusing to listen"), "{why}");
}
