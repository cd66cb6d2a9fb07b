//! Downloads over a path of legs.
//!
//! ```text
//! client ══ leg 0 ══ relay1 ══ leg 1 ══ … ══ relayk ══ leg k ══ server
//! ```

pub(crate) mod closed_form;
pub(crate) mod network;
pub(crate) mod tcp;
pub(crate) mod testbed;
pub(crate) mod transfer;

/// How the kernel's downloads are made, for the report.
pub(crate) const METHOD: (&str, &str) = (
    "method",
    "curl uses squid and ekiden by GET with the whole URL, dante by SOCKS5 CONNECT. Goodput is the file's bytes \
     over the time from before connecting to the last byte. Every run starts cold: its relays have no connection \
     to each other",
);

pub(crate) fn facts(engine: &str) -> Vec<(&'static str, &'static str)> {
    if engine != crate::kernel::NAME {
        return Vec::new();
    }
    let links = "super-packets of the kernel's own choice where nothing is lost. Super-packets of at least 44 \
                 segments or a third of the window where super-packets are lost. Single packets where single \
                 packets are lost";
    vec![("links", links), METHOD]
}
