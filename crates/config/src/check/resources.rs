//! Buffers, overload, the pool and the cache: sizes that must fit each other.

use crate::draft::Draft;
use crate::reader::Reader;
use ekiden_model::resources::buffers::Scheme;
use ekiden_model::units::Bytes;
use ekiden_proxy::settings::Cache;

pub(super) fn resources(reader: &mut Reader<'_>, draft: &Draft) {
    let (buffers, pressure) = (&draft.buffers, &draft.pressure);
    if pressure.low > pressure.high {
        reader.error(
            "pressure.low",
            "`low` is above `high`",
            "low = \"90 %\" with high = \"95 %\"",
        );
    }
    if buffers.initial > buffers.ceiling {
        reader.error("buffers.initial", "`initial` is larger than `ceiling`", "");
    }
    if buffers.budget.is_some_and(|budget| budget < buffers.initial) {
        reader.error("buffers.budget", "`budget` is smaller than the first buffer, `initial`", "");
    }
    // without it `equation` would do nothing at all
    if buffers.scheme == Scheme::Buffers && buffers.budget.is_none() {
        reader.warn(
            "buffers.scheme",
            "`equation` has no effect without `budget`: the kernel tunes buffers",
            "set `budget`, such as \"64 MiB\"",
        );
    }
    let (sessions, head) = (draft.budgets.sessions, draft.budgets.head);
    if sessions.as_u64() < head.as_u64().saturating_mul(4) {
        reader.error(
            "budgets.sessions",
            format!("`sessions`, {sessions}, is less than four heads of {head}"),
            "raise `sessions` or lower `head`",
        );
    }
    cache(reader, &draft.cache, draft.budgets.memory);
    if draft.pool.per_destination > draft.pool.connections && draft.pool.connections > 0 {
        let default = ekiden_proxy::settings::Pool::default();
        if draft.pool.per_destination != default.per_destination {
            reader.warn(
                "pool.per_destination",
                "`per_destination` is more than the pool's `connections`",
                "",
            );
        }
    }
}

/// `budget` is `budgets.memory`.
fn cache(reader: &mut Reader<'_>, cache: &Cache, budget: Bytes) {
    if cache.memory.is_none() && (cache.disk.is_some() || cache.directory.is_some()) {
        reader.warn("cache", "no cache without `memory`", "memory = \"64 MiB\"");
    }
    match (cache.disk, &cache.directory) {
        (Some(_), None) => reader.error(
            "cache.disk",
            "`disk` needs a `directory`",
            "directory = \"/var/cache/ekiden\"",
        ),
        (None, Some(_)) => reader.warn(
            "cache.directory",
            "`directory` has no effect without `disk`",
            "disk = \"10 GiB\"",
        ),
        _ => {}
    }
    let Some(memory) = cache.memory else { return };
    let largest = match cache.largest == Cache::default().largest {
        true => format!("`largest`, {} unless it is set,", cache.largest),
        false => format!("`largest`, {},", cache.largest),
    };
    if cache.largest > memory {
        reader.error(
            "cache.largest",
            format!("{largest} is more than all of `memory`, {memory}"),
            "a body goes to memory first: lower one or raise the other",
        );
    }
    // a block of the disk is a little more than the largest body, and one alone is no cache
    let least = cache.largest.as_u64().saturating_mul(8);
    if let Some(disk) = cache.disk.filter(|disk| disk.as_u64() < least) {
        reader.error(
            "cache.disk",
            format!("`disk`, {disk}, is less than eight bodies of {}", cache.largest),
            format!("disk = \"{}\" at least, or a smaller `largest`", Bytes::new(least)),
        );
    }
    let least = cache.least_memory();
    if cache.disk.is_some() && cache.largest <= memory && memory < least {
        reader.error(
            "cache.memory",
            format!(
                "`memory`, {memory}, is too little: the disk's buffers take {} of it, and {} must be left for the \
                 largest body",
                cache.buffers(),
                cache.largest
            ),
            format!("memory = \"{least}\" at least, or a smaller `largest`"),
        );
    }
    let half = Bytes::new(budget.as_u64() / 2);
    if cache.disk.is_some() && cache.largest <= budget && budget < cache.read_size() {
        reader.warn(
            "cache.largest",
            format!(
                "{largest} is more than a read of the disk can have of budgets.memory, {budget}: nothing is read from it"
            ),
            format!("budgets.memory = \"{}\" at least, or a smaller `largest`", cache.read_size()),
        );
    } else if cache.largest > half {
        reader.warn(
            "cache.largest",
            format!(
                "{largest} is more than half of budgets.memory, {budget}, and clients of one address have no more: \
                 larger bodies are not cached for them"
            ),
            "a body that is received counts in budgets.memory: raise it, or lower `largest`",
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::read;

    fn first(text: &str) -> String {
        read(text, "test.toml").problems.first().map_or_else(String::new, |p| p.line())
    }

    #[test]
    fn reports_cache_limits_with_the_values_found() {
        for (text, part, usable) in [
            (
                "[cache]\nmemory = \"1 MiB\"",
                "`largest`, 4 MiB unless it is set, is more than all of `memory`, 1 MiB",
                false,
            ),
            (
                "[cache]\nmemory = \"1 MiB\"\nlargest = \"2 MiB\"",
                "3:11: `largest`, 2 MiB, is more than all of `memory`, 1 MiB",
                false,
            ),
            (
                "budgets.memory = \"1 GiB\"\n[cache]\nmemory = \"1 GiB\"\nlargest = \"100 MiB\"\ndisk = \"500 MiB\"\ndirectory = \"/x\"",
                "`disk`, 500 MiB, is less than eight bodies of 100 MiB (disk = \"800 MiB\" at least",
                false,
            ),
            (
                "[cache]\nmemory = \"18 MiB\"\ndisk = \"64 MiB\"\ndirectory = \"/x\"",
                "2:10: `memory`, 18 MiB, is too little: the disk's buffers take 15 MiB of it, and 4 MiB must be left for the largest body (memory = \"19 MiB\" at least",
                false,
            ),
            (
                "[cache]\nmemory = \"1 GiB\"\ndisk = \"1 GiB\"\ndirectory = \"/x\"\nlargest = \"64 MiB\"",
                "`largest`, 64 MiB, is more than a read of the disk can have of budgets.memory, 64 MiB: nothing is read from it",
                true,
            ),
            (
                "[cache]\nmemory = \"1 GiB\"\nlargest = \"65 MiB\"",
                "`largest`, 65 MiB, is more than half of budgets.memory, 64 MiB, and clients of one address have no more: larger bodies are not cached for them",
                true,
            ),
            (
                "[cache]\nmemory = \"1 GiB\"\nlargest = \"33 MiB\"",
                "`largest`, 33 MiB, is more than half of budgets.memory, 64 MiB",
                true,
            ),
            (
                "[budgets]\nmemory = \"1 MiB\"\n[cache]\nmemory = \"64 MiB\"",
                "`largest`, 4 MiB unless it is set, is more than half of budgets.memory, 1 MiB",
                true,
            ),
        ] {
            assert!(first(text).contains(part), "{text}: {}", first(text));
            assert_eq!(read(text, "test.toml").is_usable(), usable, "{text}");
        }
        assert_eq!(
            first("[budgets]\nmemory = \"1 MiB\""),
            "",
            "without a cache it is nobody's business"
        );
        assert_eq!(first("[cache]\nmemory = \"1 GiB\"\nlargest = \"32 MiB\""), "");
    }
}
