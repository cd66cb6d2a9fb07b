//! Chromium as somebody who logs in at a proxy and reads a page.

use ekiden_testbed::chromium::Chromium;
use serde_json::json;

/// A browser without a window, and one page of it.
pub(crate) struct Browser(Chromium);

impl Browser {
    /// Starts it with these arguments.
    pub(crate) fn start(args: &[String]) -> Self {
        Self(Chromium::start(None, args).unwrap())
    }

    /// Goes to a page, logging in with user and password as often as it is asked to; the page's text, or what the
    /// browser says of it, and how often it was asked.
    pub(crate) fn read(&mut self, url: &str, user: &str, password: &str) -> (String, usize) {
        let browser = &mut self.0;
        browser.ask("Page.enable", json!({})).unwrap();
        browser.ask("Fetch.enable", json!({"handleAuthRequests": true})).unwrap();
        let going = browser.send("Page.navigate", json!({"url": url})).unwrap();
        let mut asked = 0;
        loop {
            let heard = browser.hear().unwrap();
            let request = &heard["params"]["requestId"];
            match heard["method"].as_str() {
                Some("Fetch.requestPaused") => {
                    let request = json!({"requestId": request});
                    browser.send("Fetch.continueRequest", request).unwrap();
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
                    browser.send("Fetch.continueWithAuth", answer).unwrap();
                }
                Some("Page.loadEventFired") => break,
                _ if heard["id"] == going && !heard["result"]["errorText"].is_null() => {
                    return (heard["result"]["errorText"].to_string(), asked);
                }
                _ => {}
            }
        }
        let text = browser.evaluate("document.body.innerText").unwrap();
        (text.as_str().unwrap_or_default().to_owned(), asked)
    }
}
