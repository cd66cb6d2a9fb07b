//! Alerts that real faults cause, at a real web server and a real mail server.

pub(crate) mod receivers;

use crate::daemons::{daemon, pair, stdout, tunnel_is_up};
use ekiden_testkit::{Authority, Daemon, wait_for};
use receivers::{mail, tls, web};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// The alerts that stand, as `alert subject`.
fn standing(daemon: &Daemon) -> Vec<String> {
    let status = daemon.status();
    let standing = status["alerts"]["standing"].as_array().cloned().unwrap_or_default();
    let line = |one: &serde_json::Value| {
        format!("{} {}", one["alert"].as_str().unwrap(), one["subject"].as_str().unwrap())
    };
    standing.iter().map(line).collect()
}

#[test]
fn a_line_that_is_down_is_told_by_webhook_and_mail_and_so_is_its_return() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let tls = tls(&authority, folder.path());
    let (web, mail) = (web(Some(tls.clone()), &[]), mail(tls, false));
    fs::write(folder.path().join("password"), "geheim\n").unwrap();
    fs::write(folder.path().join("token"), "Bearer a-token\n").unwrap();
    let config = format!(
        "[accounts]\nstate = \"DIR/state\"\n[alerts]\nafter = \"1 s\"\nca = \"{}\"\n\
         webhook = \"https://localhost:{}/hook?key=1\"\nwebhook_authorization_file = \"{at}/token\"\n\
         mail_to = [\"you@example.org\"]\nmail_server = \"smtp://me@localhost:{}\"\nmail_password_file = \"{at}/password\"\n",
        authority.file.display(),
        web.port,
        mail.port,
        at = folder.path().display(),
    );
    let [far_home, near] = pair(["20 Mbit/s"; 2], ["", &config]);
    let (mut far, mut near) = (far_home.serve(), near.serve());
    wait_for("the tunnel", || tunnel_is_up(&near));
    // both receivers are reached, and say so
    let tried = near.printed(&["alerts", "test"]);
    assert!(tried.contains("webhook: delivered: localhost:"), "{tried}");
    assert!(tried.contains("204 No Content"), "{tried}");
    assert!(tried.contains("mail: delivered: ") && tried.contains("250 kept"), "{tried}");
    let post = web.wait_for(&["\"alert\":\"trial\""]).to_lowercase();
    assert!(post.starts_with("post /hook?key=1 http/1.1\r\n"), "{post}");
    for field in ["authorization: bearer a-token", "content-type: application/json"] {
        assert!(post.contains(field), "{field}\n{post}");
    }
    mail.wait_for(&["Subject: [ekiden ", "firing trial", "To: you@example.org"]);
    assert!(!near.log().contains("a-token") && !near.log().contains("geheim"));

    far.kill();
    web.wait_for(&["\"alert\":\"line-down\"", "\"state\":\"firing\"", "\"subject\":\"far\""]);
    mail.wait_for(&["firing line-down: far", "FIRING line-down: far\nno tunnel to far"]);
    assert_eq!(standing(&near), ["line-down far"]);
    let text = stdout(&near.run(&["status"]));
    assert!(text.contains("alert line-down for ") && text.contains("no tunnel to far"), "{text}");

    // a restart tells nobody again, and does not forget who is to hear of the end
    near.restart();
    wait_for("what stands", || standing(&near) == ["line-down far"]);
    let far = far_home.serve();
    web.wait_for(&["\"state\":\"resolved\"", "\"alert\":\"line-down\"", "\"until\":\"2"]);
    mail.wait_for(&["RESOLVED line-down: far"]);
    wait_for("nothing that stands", || standing(&near).is_empty());
    let told = ["firing line-down far", "resolved line-down far"];
    assert_eq!(web.alerts()[1..], told, "the first was the trial");
    near.stop();
    far.stop();
}

/// Moves so many bytes to a server, as the client at `from`.
fn move_bytes(daemon: &Daemon, from: Ipv4Addr, length: usize) {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = server.local_addr().unwrap();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&daemon.address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let (mut far, _) = server.accept().unwrap();
    stream.write_all(&vec![7; length]).unwrap();
    far.read_exact(&mut vec![0; length]).unwrap();
}

#[test]
fn quotas_are_told_at_80_and_at_100_percent_once_the_receiver_answers() {
    let web = web(None, &["503 Service Unavailable"]);
    let config = |more: &str| {
        format!(
            "[access]\nallow_destinations = [\"127.0.0.0/8\"]\n[accounts]\nstate = \"DIR/state\"\n[management]\nlisten = \"127.0.0.1:0\"\n\
             [alerts]\nafter = \"1 s\"\nwebhook = \"http://127.0.0.1:{}\"\n{more}\
             [[account]]\nname = \"tanaka\"\naddresses = [\"127.0.0.2\"]\nquota = \"2 MB/30 d\"\n\
             [[account]]\nname = \"sato\"\naddresses = [\"127.0.0.3\"]\nquota = \"2 MB/30 d\"\n\
             [[account]]\nname = \"idle\"\naddresses = [\"127.0.0.4\"]\nquota = \"2 MB/30 d\"\n",
            web.port
        )
    };
    let daemon = daemon(&config(""));
    move_bytes(&daemon, Ipv4Addr::new(127, 0, 0, 2), 1_700_000);
    wait_for("the first alert", || standing(&daemon) == ["quota-low tanaka"]);
    move_bytes(&daemon, Ipv4Addr::new(127, 0, 0, 3), 2_020_000);
    wait_for("the others", || standing(&daemon).len() == 3);
    web.wait_for(&["quota-used-up", "sato has used up its quota of 2.00 MB: it is slowed down"]);
    web.wait_for(&["tanaka has used 85 % of its quota: 1.70 MB of 2.00 MB"]);
    let mut told = web.alerts();
    told.sort();
    let expected =
        ["firing quota-low sato", "firing quota-low tanaka", "firing quota-used-up sato"];
    assert_eq!(told, expected);
    let receiver = daemon.status()["alerts"]["receivers"][0].clone();
    assert_eq!((&receiver["to"], &receiver["failed"]), (&"webhook".into(), &1.into()));
    assert_eq!(receiver["last_error"], serde_json::Value::Null);
    // a disk that has less room than is asked for
    daemon.reload(&config("disk_free = \"1000 TiB\"\n"));
    wait_for("the disk", || standing(&daemon).iter().any(|one| one.starts_with("disk-full /")));
    web.wait_for(&["\"alert\":\"disk-full\"", " free\""]);
    daemon.reload(&config(""));
    wait_for("the end of it", || !standing(&daemon).iter().any(|one| one.starts_with("disk")));
    daemon.stop();
}

#[test]
fn a_trial_says_why_nothing_arrives_and_check_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let tls = tls(&authority, folder.path());
    let (web, mail) = (web(Some(tls.clone()), &["404 Not Found"; 9]), mail(tls, true));
    let daemon = daemon("");
    let run = || {
        let output = daemon.run(&["alerts", "test"]);
        (output.status.code(), stdout(&output))
    };
    let (code, text) = run();
    assert!(code == Some(1) && text.contains("nobody is told of alerts"), "{text}");
    fs::write(folder.path().join("password"), "wrong\n").unwrap();
    let config = |ca: &str| {
        format!(
            "[alerts]\nwebhook = \"https://localhost:{}/\"\nmail_to = [\"you@example.org\"]\n{ca}\
             mail_server = \"smtps://me@localhost:{}\"\nmail_password_file = \"{}/password\"\n",
            web.port,
            mail.port,
            folder.path().display(),
        )
    };
    let ca = format!("ca = \"{}\"\n", authority.file.display());
    daemon.reload(&config(&ca));
    let (code, text) = run();
    assert_eq!(code, Some(1));
    assert!(text.contains("webhook: not delivered: ") && text.contains("404 Not Found"), "{text}");
    assert!(text.contains("mail: not delivered: ") && text.contains("535"), "{text}");
    // a server whose certificate nobody has vouched for
    daemon.reload(&config(""));
    let (_, text) = run();
    assert!(text.to_lowercase().matches("certificate").count() >= 2, "{text}");
    fs::write(folder.path().join("password"), "geheim\n").unwrap();
    daemon.reload(&config(&ca));
    assert!(run().1.contains("mail: delivered: "), "{}", run().1);
    // what cannot work is refused before it is needed
    fs::remove_file(folder.path().join("password")).unwrap();
    let checked = daemon.run(&["check"]);
    assert_eq!(checked.status.code(), Some(1));
    let text = stdout(&checked);
    assert!(text.contains("the password for `mail_server` cannot be read"), "{text}");
    daemon.stop();
}
