//! Real clients through Ekiden: curl, wget, git, ssh. Real servers behind it: nginx, sshd.

use crate::common::{Site, accelerator, hash_of, present, stdout, succeed, tool};
use ekiden_testbed::load::servers::{digest, hash, pattern};
use ekiden_testbed::peers::{Peer, Start, sshd};
use std::fs;
use std::process::Command;

/// Ekiden, a site and curl; a missing one ends the test.
fn stage() -> Option<(Peer, Site, Command)> {
    let mut curl = tool("curl", "curl")?;
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "30"]);
    Some((accelerator("")?, Site::start()?, curl))
}

/// Asks for the file in one of the ways curl knows, and compares.
fn fetched_by_curl(way: &str) {
    let Some((proxy, site, mut curl)) = stage() else { return };
    curl.args(way.split(' ')).arg(proxy.address.to_string()).arg(site.url("file.bin"));
    let output = succeed(curl, &proxy);
    assert_eq!(hash(&output.stdout), Site::hash());
}

#[test]
fn curl_gets_by_http() {
    fetched_by_curl("-x");
}

#[test]
fn curl_gets_by_connect() {
    fetched_by_curl("-p -x");
}

#[test]
fn curl_gets_by_socks5() {
    fetched_by_curl("--socks5");
}

#[test]
fn curl_gets_by_socks5_with_the_name_left_to_us() {
    fetched_by_curl("--socks5-hostname");
}

#[test]
fn curl_gets_by_socks4() {
    fetched_by_curl("--socks4");
}

#[test]
fn curl_gets_by_socks4a() {
    fetched_by_curl("--socks4a");
}

/// The name itself, not an address, goes to the proxy.
#[test]
fn curl_leaves_a_name_to_us() {
    for way in ["-x", "--socks5-hostname", "--socks4a"] {
        let Some((proxy, site, mut curl)) = stage() else { return };
        let url = format!("http://localhost:{}/file.bin", site.server.address.port());
        curl.args([way, &proxy.address.to_string(), &url]);
        assert_eq!(hash(&succeed(curl, &proxy).stdout), Site::hash(), "{way}");
    }
}

/// 20 requests of one curl: over kept-alive connections, in order, each with its own body.
#[test]
fn curl_reuses_connections() {
    let Some((proxy, site, mut curl)) = stage() else { return };
    for n in 0..20 {
        fs::write(site.path(&format!("{n}.txt")), format!("this is {n}\n")).unwrap();
    }
    curl.args([
        "-x",
        &proxy.address.to_string(),
        &site.url("[0-19].txt"),
        "-w",
        "%{num_connects}\n",
    ]);
    let text = stdout(&succeed(curl, &proxy));
    let lines: Vec<&str> = text.lines().collect();
    let expected: Vec<String> =
        (0..20).flat_map(|n| [format!("this is {n}"), u32::from(n == 0).to_string()]).collect();
    assert_eq!(lines, expected);
}

#[test]
fn curl_asks_for_a_head_only() {
    let Some((proxy, site, mut curl)) = stage() else { return };
    curl.args(["-x", &proxy.address.to_string(), "--head", &site.url("file.bin")]);
    let head = stdout(&succeed(curl, &proxy)).to_lowercase();
    assert!(head.contains(&format!("content-length: {}", Site::FILE_BYTES)), "{head}");
    assert_eq!(site.requests()[0][0], "HEAD");
}

/// A body of unknown length, with `Expect: 100-continue`: chunked from curl to nginx.
#[test]
fn curl_posts_in_chunks() {
    let Some((proxy, site, mut curl)) = stage() else { return };
    let body = site.path("file.bin");
    curl.args(["-x", &proxy.address.to_string(), "--dump-header", "-", "--data-binary"])
        .arg(format!("@{}", body.display()))
        .args([
            "-H",
            "Transfer-Encoding: chunked",
            "-H",
            "Expect: 100-continue",
            &site.url("post"),
        ]);
    let answer = stdout(&succeed(curl, &proxy));
    let file = answer.lines().find_map(|l| l.strip_prefix("X-Body-File: ")).unwrap_or_else(|| {
        panic!("no X-Body-File in {answer}");
    });
    assert_eq!(hash_of(file.trim().as_ref()), Site::hash());
}

#[test]
fn curl_puts_from_a_pipe() {
    let Some((proxy, site, mut curl)) = stage() else { return };
    let body = fs::File::open(site.path("file.bin")).unwrap();
    curl.args(["-x", &proxy.address.to_string(), "-T", "-", &site.url("upload/new.bin")]);
    curl.stdin(body);
    succeed(curl, &proxy);
    assert_eq!(hash_of(&site.path("upload/new.bin")), Site::hash());
}

/// Half a file, by range: not a byte too many.
#[test]
fn curl_resumes() {
    let Some((proxy, site, mut curl)) = stage() else { return };
    let part = site.path("part.bin");
    let mut bytes = fs::read(site.path("file.bin")).unwrap();
    bytes.truncate(1_234_567);
    fs::write(&part, bytes).unwrap();
    curl.args(["-x", &proxy.address.to_string(), "-C", "-", &site.url("file.bin"), "-o"])
        .arg(&part);
    succeed(curl, &proxy);
    assert_eq!(hash_of(&part), Site::hash());
}

#[test]
fn wget_gets() {
    let Some(mut wget) = tool("wget", "wget") else { return };
    let (Some(proxy), Some(site)) = (accelerator(""), Site::start()) else { return };
    let file = site.path("got.bin");
    wget.env("http_proxy", format!("http://{}", proxy.address))
        .args(["--no-config", "--tries=1", "-q", "-O"])
        .arg(&file)
        .arg(site.url("file.bin"));
    succeed(wget, &proxy);
    assert_eq!(hash_of(&file), Site::hash());
    let via = &site.requests()[0][4];
    assert_ne!(via, "-", "the request did not come through the proxy");
}

fn git(arguments: &[&str]) -> Option<Command> {
    let mut git = tool("git", "git")?;
    git.args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .envs(["AUTHOR", "COMMITTER"].map(|w| (format!("GIT_{w}_NAME"), "lab")))
        .envs(["AUTHOR", "COMMITTER"].map(|w| (format!("GIT_{w}_EMAIL"), "lab@example.invalid")));
    Some(git)
}

/// Dumb HTTP: dozens of requests, some of them answered 404, over a few connections.
#[test]
fn git_clones() {
    let (Some(proxy), Some(site)) = (accelerator(""), Site::start()) else { return };
    let (work, bare, clone) = (site.path("work"), site.path("repo.git"), site.path("clone"));
    let [work, bare, clone] = [&work, &bare, &clone].map(|p| p.to_str().unwrap());
    fs::create_dir(work).unwrap();
    let run = |arguments: &[&str]| git(arguments).map(|g| succeed(g, &proxy));
    if run(&["init", "-q", "-b", "main", work]).is_none() {
        return;
    }
    for n in 0..10_u64 {
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut pattern(n, 20_000), &mut text).unwrap();
        fs::write(format!("{work}/{n}"), text).unwrap();
        run(&["-C", work, "add", "."]);
        run(&["-C", work, "commit", "-q", "-m", "one more"]);
    }
    run(&["clone", "-q", "--bare", work, bare]);
    run(&["-C", bare, "update-server-info"]);
    let through = format!("http.proxy=http://{}", proxy.address);
    run(&["-c", &through, "clone", "-q", &site.url("repo.git"), clone]);
    run(&["-C", clone, "fsck", "--strict"]);
    for n in 0..10_u64 {
        assert_eq!(hash_of(format!("{clone}/{n}").as_ref()), digest(pattern(n, 20_000)).hash);
    }
    let requests = site.requests();
    assert!(requests.len() > 5 && requests.iter().all(|r| r[4] != "-"), "{requests:?}");
}

/// ssh over SOCKS5 and over CONNECT: a command's output, and a large stream each way.
#[test]
fn ssh_logs_in() {
    if tool("nc", "netcat-openbsd").is_none() {
        return;
    }
    for (helper, stand_in) in [("5", "dante"), ("connect", "squid")] {
        if std::env::var("EKIDEN_STAND_IN").is_ok_and(|s| s != stand_in) {
            continue;
        }
        let (Some(proxy), Some(server)) =
            (accelerator(""), present(sshd::start(&Start::default())))
        else {
            return;
        };
        let Some(mut ssh) = tool("ssh", "openssh-client") else { return };
        let through = format!("ProxyCommand=nc -X {helper} -x {} %h %p", proxy.address);
        let file = server.peer.folder().join("large.bin");
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut pattern(3, 3_000_000), &mut bytes).unwrap();
        fs::write(&file, &bytes).unwrap();
        ssh.args(server.options())
            .args(["-o", &through, &server.peer.address.ip().to_string(), "cat"])
            .stdin(fs::File::open(&file).unwrap());
        let output = succeed(ssh, &proxy);
        assert_eq!(hash(&output.stdout), hash(&bytes), "{helper}");
    }
}
