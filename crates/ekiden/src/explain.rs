//! `ekiden explain`: why one connection has its class, way and buffers.

use crate::status::{clean, rate, rtt, seconds, size};
use crate::{cli, client, exit, print};
use ekiden_proxy::status::{Explanation, GrantStatus, LegStatus};

/// Asks the daemon and prints. Returns the exit code.
#[must_use]
pub fn run(args: &cli::Explain) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print::warn(&format!("ekiden explain: {error}\n"));
            return exit::SYSTEM;
        }
    };
    match runtime.block_on(client::explain(args.socket.as_deref(), args.connection)) {
        Ok((Some(_), document)) if args.json => {
            print::out(&format!("{}\n", String::from_utf8_lossy(&document)))
        }
        Ok((Some(explanation), _)) => print::out(&render(&explanation)),
        Ok((None, _)) => {
            print::warn(&format!(
                "ekiden explain: there is no connection {} now; `ekiden status` lists those there are\n",
                args.connection
            ));
            exit::NOT_FINE
        }
        Err(error) => {
            print::warn(&format!("ekiden explain: {error}\n"));
            exit::NOT_FINE
        }
    }
}

/// The explanation for a person.
#[must_use]
pub fn render(explanation: &Explanation) -> String {
    let connection = &explanation.connection;
    let mut out = format!(
        "connection {}: {} from {} to {}, {} for {}\n",
        connection.id,
        clean(&connection.protocol),
        connection.client,
        connection.destination.as_deref().map_or_else(|| "-".to_owned(), clean),
        clean(&connection.state),
        seconds(connection.age_seconds),
    );
    if let Some(account) = &connection.account {
        out.push_str(&format!("account: {}\n", clean(account)));
    }
    out.push_str(&format!("class: {}\n", clean(&explanation.class)));
    out.push_str(&format!("route: {}\n", clean(&explanation.route)));
    out.push_str(&format!("household: {}\n", clean(&explanation.household)));
    out.push_str(&format!("room: {}\n", clean(&explanation.idle)));
    for leg in &explanation.legs {
        let figures = connection.legs.iter().find(|one| one.side == leg.side);
        out.push_str(&format!("\n{} leg", clean(&leg.side)));
        if let Some(figures) = figures {
            out.push_str(&kernel(figures));
        }
        out.push('\n');
        for buffer in &leg.buffers {
            out.push_str(&line(buffer, figures));
        }
    }
    out
}

/// What the kernel says of a leg.
fn kernel(leg: &LegStatus) -> String {
    let peer = leg.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string());
    // its part of a rate is what the kernel paces it by
    let held =
        leg.options.iter().find(|option| option.option == "rate" && option.refused.is_none());
    let part = held.zip(leg.pacing_rate).map_or_else(String::new, |(held, part)| {
        format!(", may send {} of the {} its leg holds", rate(part), clean(&held.asked))
    });
    format!(
        " «{}» to {peer}: {}, {} round trip, {} delivered, {} retransmitted{part}",
        clean(&leg.profile),
        clean(&leg.congestion),
        rtt(leg.rtt_us),
        rate(leg.delivery_rate),
        leg.retransmits
    )
}

/// One buffer: what it has, by whom, what it could use and why.
fn line(buffer: &GrantStatus, leg: Option<&LegStatus>) -> String {
    let now =
        leg.map(|leg| if buffer.side == "send" { leg.send_buffer } else { leg.receive_buffer });
    let mut out = format!(
        "  {} buffer: {}, {}\n",
        clean(&buffer.side),
        now.map_or_else(|| "-".to_owned(), |now| size(now.into())),
        clean(&buffer.how)
    );
    if let (Some(grant), Some(given)) = (buffer.grant, buffer.given) {
        out.push_str(&format!("    granted {}, the kernel gave {}\n", size(grant), size(given)));
    }
    match buffer.demand {
        Some(demand) => {
            out.push_str(&format!("    of use: {}, by {}\n", size(demand), clean(&buffer.why)));
        }
        None => out.push_str(&format!("    {}\n", clean(&buffer.why))),
    }
    if let Some(refused) = &buffer.refused {
        out.push_str(&format!("    {}\n", clean(refused)));
    }
    out
}

#[cfg(test)]
pub(crate) fn sample() -> Explanation {
    serde_json::from_str(include_str!("../tests/explain.json")).unwrap()
}

/// A daemon that has connection 7 and no other.
#[cfg(test)]
pub(crate) fn sample_of_seven(connection: u64) -> Option<Explanation> {
    (connection == 7).then(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_grant_and_why() {
        insta::assert_snapshot!(render(&sample()));
    }

    /// The schema of `ekiden explain --json`, as it is committed.
    fn schema() -> String {
        let schema = schemars::schema_for!(Explanation);
        format!("{}\n", serde_json::to_string_pretty(&schema).unwrap())
    }

    #[test]
    fn the_committed_schema_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/explain.json");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        if committed != schema() && std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, schema()).unwrap();
        } else {
            assert!(committed == schema(), "write it anew: UPDATE=1 cargo test -p ekiden schema");
        }
    }

    #[test]
    fn a_document_holds_to_the_schema() {
        let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let mut document = serde_json::to_value(sample()).unwrap();
        assert!(validator.is_valid(&document));
        document["legs"] = serde_json::json!("none");
        assert!(!validator.is_valid(&document), "the schema says something");
    }
}
