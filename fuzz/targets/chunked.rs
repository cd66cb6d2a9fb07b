//! A chunked body, cut at random: the same bytes come out, in chunks and plain, and what is written
//! on is read back by the same rules.
//!
//! The first bytes of the input say where to cut: a count, then so many lengths.
#![no_main]

use ekiden_proxy::wire::http::BadMessage;
use ekiden_proxy::wire::http::chunked::{Chunked, Output};
use ekiden_proxy::wire::http::head::Limits;
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { bytes: 512, fields: 8 };

struct Read {
    out: Vec<u8>,
    used: usize,
    done: bool,
    bytes: u64,
}

/// Trailers are written with a space behind the colon, so their section may grow by a byte each.
const ROOMY: Limits = Limits { bytes: LIMITS.bytes + LIMITS.fields, ..LIMITS };

fn read(input: &[u8], cuts: &[u8], output: Output) -> Result<Read, BadMessage> {
    read_within(LIMITS, input, cuts, output)
}

fn read_within(
    limits: Limits,
    input: &[u8],
    cuts: &[u8],
    output: Output,
) -> Result<Read, BadMessage> {
    let mut chunked = Chunked::new(output, limits);
    let (mut out, mut used, mut cuts) = (Vec::new(), 0, cuts.iter());
    while used < input.len() && !chunked.is_done() {
        let length = cuts.next().map_or(usize::MAX, |n| usize::from(*n).max(1));
        let end = used.saturating_add(length).min(input.len());
        let took = chunked.read(&input[used..end], &mut out)?;
        assert!(took == end - used || chunked.is_done());
        used += took;
    }
    Ok(Read { out, used, done: chunked.is_done(), bytes: chunked.bytes() })
}

fuzz_target!(|input: &[u8]| {
    let Some((&count, rest)) = input.split_first() else { return };
    let (cuts, body) = rest.split_at(usize::from(count).min(rest.len()));
    let whole = read(body, &[], Output::Chunks);
    let cut = read(body, cuts, Output::Chunks);
    let plain = read(body, cuts, Output::Plain);
    let (Ok(whole), Ok(cut), Ok(plain)) = (&whole, &cut, &plain) else {
        assert!(
            whole.is_err() && cut.is_err() && plain.is_err(),
            "the cuts decide what is refused"
        );
        return;
    };
    assert_eq!((&whole.out, whole.used, whole.done), (&cut.out, cut.used, cut.done));
    assert_eq!((plain.used, plain.done, plain.bytes), (whole.used, whole.done, whole.bytes));
    assert_eq!(plain.out.len() as u64, plain.bytes, "plain output is the data alone");
    if !whole.done {
        return;
    }
    // our own framing read again: nothing added, nothing lost
    let Ok(again) = read_within(ROOMY, &whole.out, &[], Output::Chunks) else {
        panic!("own framing is refused")
    };
    assert!(again.done && again.used == whole.out.len() && again.out == whole.out);
    let Ok(data) = read_within(ROOMY, &whole.out, cuts, Output::Plain) else {
        panic!("own framing is refused")
    };
    assert_eq!(data.out, plain.out);
});
