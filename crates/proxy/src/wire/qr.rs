//! A text as a QR code, drawn as one path of SVG.

use qrcode::bits::encode_auto;
use qrcode::canvas::{Canvas, MaskPattern};
use qrcode::ec::construct_codewords;
use qrcode::{Color, EcLevel};
use std::fmt::Write as _;

/// Light modules that the standard wants around a code (ISO/IEC 18004 §6.3.8).
pub const QUIET: usize = 4;

/// A code; dark modules are unit squares from `(0, 0)` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QrPath {
    /// Modules of a side, without the quiet zone.
    pub side: usize,
    /// The value of `d` of an SVG path that fills the dark modules.
    pub path: String,
}

impl QrPath {
    /// The code of a text; `None` where it is too long for one, some 2,900 bytes.
    pub fn new(text: &str) -> Option<Self> {
        // a screen is no crumpled paper: the lowest level keeps it small
        let level = EcLevel::L;
        let bits = encode_auto(text.as_bytes(), level).ok()?;
        let version = bits.version();
        let (data, check) = construct_codewords(&bits.into_bytes(), version, level).ok()?;
        let mut canvas = Canvas::new(version, level);
        canvas.draw_all_functional_patterns();
        canvas.draw_data(&data, &check);
        // cameras read any; weighing all eight takes milliseconds, and strangers ask for codes
        canvas.apply_mask(MaskPattern::Checkerboard);
        let side = usize::try_from(version.width()).ok()?;
        let modules = canvas.into_colors();
        let mut path = String::new();
        for (y, row) in modules.chunks(side).enumerate() {
            let mut x = 0;
            for run in row.chunk_by(|a, b| a == b) {
                if run[0] == Color::Dark {
                    let _ = write!(path, "M{x} {y}h{0}v1h-{0}z", run.len());
                }
                x += run.len();
            }
        }
        Some(Self { side, path })
    }

    /// A whole SVG element with its quiet zone, black on white in any colour scheme. `label` says to a screen reader
    /// where the code leads, and must be escaped already.
    pub fn svg(&self, label: &str) -> String {
        let whole = self.side + 2 * QUIET;
        format!(
            "<svg class=\"qr\" role=\"img\" aria-label=\"{label}\" viewBox=\"-{QUIET} -{QUIET} {whole} {whole}\" \
             shape-rendering=\"crispEdges\"><rect x=\"-{QUIET}\" y=\"-{QUIET}\" width=\"{whole}\" height=\"{whole}\" \
             fill=\"#fff\"/><path fill=\"#000\" d=\"{}\"/></svg>",
            self.path
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_with_a_finder_pattern() {
        let code = QrPath::new("http://192.0.2.1:3128/proxy.pac").unwrap();
        assert!(code.path.starts_with("M0 0h7v1h-7z"), "{}", code.path);
        assert_eq!(code.side % 4, 1);
        assert!(code.svg("x").contains(&format!("-4 -4 {0} {0}", code.side + 8)));
        assert_eq!(QrPath::new(&"x".repeat(4_000)), None);
    }

    #[test]
    fn all_codes_have_the_same_mask() {
        for port in 3_100..3_132 {
            let code = QrPath::new(&format!("http://192.0.2.1:{port}/proxy.pac")).unwrap();
            // 111011…, as the standard's table has it for level L and mask 000 (ISO/IEC 18004 Annex C)
            assert!(code.path.contains("M0 8h3v1h-3zM4 8h"), "{port}: {}", code.path);
        }
    }
}
