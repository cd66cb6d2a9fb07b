//! What browsers find on the proxy's own port: the script that tells them which proxy to use, and a page.

/// What the script for browsers says (`/proxy.pac`, `/wpad.dat`), and whether there is a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pac {
    /// Whether it is served. Default yes.
    pub serve: bool,
    /// Names that browsers reach without this relay: `example.org`, or `*.example.org` with all below it.
    pub direct: Vec<String>,
    /// Whether browsers go direct while this relay does not answer. Default yes.
    pub fallback: bool,
    /// Whether `http://relay/` is answered with a page for its users. Default yes.
    pub page: bool,
}

impl Default for Pac {
    fn default() -> Self {
        Self { serve: true, direct: Vec::new(), fallback: true, page: true }
    }
}
