//! Chromium through Ekiden: a page with 50 objects, each through the proxy, each shown.

use crate::common::{Site, accelerator, stdout, succeed, tool};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

const OBJECTS: usize = 50;

#[test]
fn chromium_loads_a_page_with_fifty_objects() {
    let Some(mut chromium) = tool("chromium", "chromium") else { return };
    let (Some(proxy), Some(site)) = (accelerator(""), Site::start()) else { return };
    let mut page = String::from("<!doctype html><title>waiting</title><body>\n");
    for n in 0..OBJECTS {
        let picture = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"5\"><!--{pad}--></svg>",
            w = n + 1,
            pad = "x".repeat(n * 1000),
        );
        fs::write(site.path(&format!("{n}.svg")), picture).unwrap();
        writeln!(page, "<img src=\"{n}.svg\">").unwrap();
    }
    // Counts what was really decoded, each with the width it was given.
    page += "<p id=\"count\">none</p><script>
addEventListener('load', () => {
  const shown = [...document.images].filter((i, n) => i.complete && i.naturalWidth === n + 1);
  document.getElementById('count').textContent = `shown: ${shown.length}`;
});
</script>";
    fs::write(site.path("page.html"), page).unwrap();
    let profile = tempfile::tempdir().unwrap();
    chromium
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg("--disable-dev-shm-usage")
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--proxy-server=http://{}", proxy.address))
        // Without this, loopback would go around the proxy.
        .arg("--proxy-bypass-list=<-loopback>")
        .args(["--virtual-time-budget=20000", "--dump-dom", &site.url("page.html")]);
    let dom = stdout(&succeed(chromium, &proxy));
    assert!(dom.contains(&format!("shown: {OBJECTS}<")), "{dom}");

    let requests = site.requests();
    let ours: BTreeSet<&str> = requests
        .iter()
        .filter(|r| r[1].ends_with(".svg") && r[2] == "200" && r[4] != "-")
        .map(|r| r[1].as_str())
        .collect();
    assert_eq!(ours.len(), OBJECTS, "through the proxy, by nginx's log: {requests:?}");
}
