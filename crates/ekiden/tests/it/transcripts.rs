//! Transcripts of the command, one file a subject, in `tests/cmd/`.

#[test]
fn commands_say_what_they_should() {
    trycmd::TestCases::new()
        .default_bin_name("ekiden")
        .env("HOME", "/nonexistent")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env("NO_COLOR", "1")
        .case("tests/cmd/*.trycmd");
}
