//! How a link is described: what is accepted reads back from its own text as itself, and what is
//! refused says what to write instead.
#![no_main]

use ekiden_model::network::link::{
    Loss, LossUnit, QueueKind, QueueLength, Scheduled, Serialiser, TextError,
};
use libfuzzer_sys::fuzz_target;
use std::fmt::{Debug, Display};
use std::str::FromStr;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    check::<QueueLength>(text);
    check::<QueueKind>(text);
    check::<Serialiser>(text);
    check::<LossUnit>(text);
    check::<Loss>(text);
    check::<Scheduled>(text);
    if let Ok(length) = text.parse::<QueueLength>() {
        let _ = length.bound(&Serialiser::Infinite);
    }
});

fn check<T: FromStr<Err = TextError> + Display + Debug + PartialEq>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => assert_eq!(value.to_string().parse().as_ref(), Ok(&value)),
        Err(error) => assert!(error.to_string().contains("write it like"), "{error}"),
    }
}
