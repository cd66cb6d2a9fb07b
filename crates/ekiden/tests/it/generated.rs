//! What is generated for shells and for man.

use std::process::Command;

fn stdout(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ekiden")).args(args).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&["completions", shell]);
        for word in ["serve", "doctor", "allow-destination"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn the_manual_page_has_every_command_and_option() {
    let page = stdout(&["man"]);
    assert!(page.contains(".TH ekiden 1"), "{page}");
    for part in [".SH \"EKIDEN SERVE\"", ".SH \"EKIDEN CONFIG SHOW\"", "allow\\-destination", ".SS"]
    {
        assert!(page.contains(part), "{part}");
    }
}
