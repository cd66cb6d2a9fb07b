//! A configuration: whatever the text, problems with places and no panic; and no password in them.
#![no_main]

use ekiden_config::{read, render_all, show, show_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let reading = read(text, "f");
    assert_eq!(reading.problems.is_empty(), render_all(&reading.problems).trim().is_empty());
    for problem in &reading.problems {
        assert!(!problem.render().is_empty() && !problem.line().contains('\n'));
    }
    // what is not TOML leaves the defaults, which cost the most and say nothing new
    if reading.origins.is_empty() {
        return;
    }
    let _ = show(&reading, Some("f"));
    let _ = show_json(&reading, Some("f"));
    // the same text says the same
    assert_eq!(read(text, "f").settings, reading.settings);
});
