//! Checks that need the whole configuration: names that must exist, entries that never match, and safety.

mod access;
mod accounts;
mod inherit;
mod legs;
mod resources;
mod routing;

pub(crate) use inherit::inherit;

use crate::draft::Draft;
use crate::reader::Reader;
use crate::value::url;
use std::collections::BTreeMap;

/// All checks. `file_listens`: the listen addresses come from the file.
pub(super) fn check(
    reader: &mut Reader<'_>,
    draft: &Draft,
    file_listens: bool,
) -> BTreeMap<String, url::UpstreamUrl> {
    let urls = routing::upstreams(reader, draft);
    routing::routes(reader, draft);
    routing::tunnels(reader, draft, &urls);
    routing::rules(reader, draft);
    legs::legs(reader, draft);
    if draft.dns.min_ttl > draft.dns.max_ttl {
        reader.error("dns.min_ttl", "`min_ttl` is longer than `max_ttl`", "");
    }
    resources::resources(reader, draft);
    accounts::accounts(reader, draft);
    access::tls(reader, draft);
    access::listen(reader, draft, file_listens);
    access::management(reader, draft);
    urls
}
