//! Chromium by its DevTools protocol over a pair of pipes: enough to log in at a proxy and read a page.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long it may be silent.
const LONG: Duration = Duration::from_secs(60);

/// A browser without a window, and one page of it.
pub(crate) struct Browser {
    child: Child,
    asks: File,
    hears: Receiver<Value>,
    events: VecDeque<Value>,
    next: u64,
    page: Option<String>,
}

impl Browser {
    /// Starts it with a folder of its own and these arguments.
    pub(crate) fn start(folder: &Path, args: &[String]) -> Self {
        let [asked, heard] = ["asked", "heard"].map(|name| folder.join(name));
        let made = Command::new("mkfifo").args([&asked, &heard]).status().unwrap();
        assert!(made.success());
        // it reads from 3 and writes to 4; opened both ways, neither waits for the other end
        let shell = "exec chromium \"$@\" 3<>\"$ASKED\" 4<>\"$HEARD\"";
        let child = Command::new("sh")
            .args(["-c", shell, "sh", "--remote-debugging-pipe"])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .arg("--disable-dev-shm-usage")
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .args(args)
            .env("ASKED", &asked)
            .env("HEARD", &heard)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("chromium.log")).unwrap())
            .spawn()
            .unwrap();
        let both = |path: &Path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        let (asks, mut answers) = (both(&asked), both(&heard));
        let (sender, hears) = channel();
        std::thread::spawn(move || {
            let (mut message, mut piece) = (Vec::new(), [0; 65_536]);
            while let Ok(n @ 1..) = answers.read(&mut piece) {
                for byte in &piece[..n] {
                    match byte {
                        0 => {
                            let value = serde_json::from_slice(&message).unwrap();
                            message.clear();
                            if sender.send(value).is_err() {
                                return;
                            }
                        }
                        byte => message.push(*byte),
                    }
                }
            }
        });
        let mut browser = Self { child, asks, hears, events: VecDeque::new(), next: 0, page: None };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.ask("Target.attachToTarget", attach);
        browser.page = session["sessionId"].as_str().map(str::to_owned);
        browser
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if let Some(page) = &self.page {
            message["sessionId"] = json!(page);
        }
        self.asks.write_all(&[message.to_string().as_bytes(), &[0]].concat()).unwrap();
        self.next
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        loop {
            let heard = self.hears.recv_timeout(LONG).unwrap();
            if heard["id"] == id {
                assert!(heard["error"].is_null(), "{method}: {heard}");
                return heard["result"].clone();
            }
            self.events.push_back(heard);
        }
    }

    /// Goes to a page, logging in with user and password as often as it is asked to; the page's text, or what the
    /// browser says of it, and how often it was asked.
    pub(crate) fn read(&mut self, url: &str, user: &str, password: &str) -> (String, usize) {
        self.ask("Page.enable", json!({}));
        self.ask("Fetch.enable", json!({"handleAuthRequests": true}));
        let going = self.send("Page.navigate", json!({"url": url}));
        let mut asked = 0;
        loop {
            let heard = match self.events.pop_front() {
                Some(event) => event,
                None => self.hears.recv_timeout(LONG).unwrap(),
            };
            let request = &heard["params"]["requestId"];
            match heard["method"].as_str() {
                Some("Fetch.requestPaused") => {
                    self.send("Fetch.continueRequest", json!({"requestId": request}));
                }
                Some("Fetch.authRequired") => {
                    asked += 1;
                    // a password that is wrong is asked for again
                    let answer = match asked {
                        1 => {
                            json!({"response": "ProvideCredentials", "username": user, "password": password})
                        }
                        _ => json!({"response": "CancelAuth"}),
                    };
                    let answer = json!({"requestId": request, "authChallengeResponse": answer});
                    self.send("Fetch.continueWithAuth", answer);
                }
                Some("Page.loadEventFired") => break,
                _ if heard["id"] == going && !heard["result"]["errorText"].is_null() => {
                    return (heard["result"]["errorText"].to_string(), asked);
                }
                _ => {}
            }
        }
        let text = json!({"expression": "document.body.innerText"});
        let text = self.ask("Runtime.evaluate", text);
        (text["result"]["value"].as_str().unwrap_or_default().to_owned(), asked)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.page = None;
        self.send("Browser.close", json!({}));
        // gone by itself or not
        for _ in 0..50 {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
