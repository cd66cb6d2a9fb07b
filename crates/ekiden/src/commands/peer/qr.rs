//! A text as a QR code of half-blocks.

use crate::print::warn;
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};
use std::io::{IsTerminal as _, stderr, stdout};

/// Writes the code to standard error: where `asked`, else on a terminal that has room for it.
pub(crate) fn show(text: &str, asked: bool) {
    // a screen is no crumpled paper: the lowest level keeps it small
    let Ok(code) = QrCode::with_error_correction_level(text, EcLevel::L) else { return };
    let terminal = stderr().is_terminal();
    if !asked {
        let size = rustix::termios::tcgetwinsize(stderr()).ok();
        // a quiet zone of four modules on each side; two modules in a line, and a line for the shell
        let side = code.width() + 8;
        let fits = size.is_some_and(|size| {
            usize::from(size.ws_col) >= side && usize::from(size.ws_row) > side.div_ceil(2)
        });
        if !fits || !terminal || !stdout().is_terminal() {
            return;
        }
    }
    warn(&format!("\n{}\n", blocks(&code, terminal)));
}

/// Light modules are blocks, as suits a dark screen; on a terminal the colours are set.
fn blocks(code: &QrCode, coloured: bool) -> String {
    let mut renderer = code.render::<Dense1x2>();
    let text = renderer.dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build();
    let line = |line: &str| match coloured {
        true => format!("\x1b[97;40m{line}\x1b[0m\n"),
        false => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rows_of_modules_are_one_line() {
        let code = QrCode::with_error_correction_level("ekiden://join/x", EcLevel::L).unwrap();
        let text = blocks(&code, false);
        let side = code.width() + 8;
        assert_eq!(text.lines().count(), side.div_ceil(2), "{text}");
        assert!(text.lines().all(|line| line.chars().count() == side), "{text}");
        // the quiet zone is light
        assert!(text.lines().next().unwrap().chars().all(|c| c == '\u{2588}'), "{text}");
        assert!(blocks(&code, true).starts_with("\x1b[97;40m"));
    }
}
