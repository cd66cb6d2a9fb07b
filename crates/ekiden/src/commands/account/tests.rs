use super::*;

#[test]
fn usage_of_a_quota_without_period_is_since_the_beginning() {
    let used = |begun| Usage { account: AccountId(7), name: None, begun, down: 1, up: 2 };
    assert_eq!(since_in_words(&used(0)), "the beginning");
    assert_eq!(since_in_words(&used(1_793_491_200)), "2026-11-01T00:00:00Z");
}

#[test]
fn an_account_whose_last_day_is_past_is_said_to_be_over() {
    let now: Timestamp = "2026-11-01T12:00:00Z".parse().unwrap();
    let until = |day: Option<&str>| {
        let expires = day.map(|day| day.parse().unwrap());
        over(&Attributes { expires, ..Attributes::default() }, now)
    };
    let said = until(Some("2020-01-01"));
    assert!(said.starts_with("it is over: 2020-01-01, UTC, was its last day"), "{said}");
    for open in [None, Some("2026-11-01"), Some("2027-03-31")] {
        assert_eq!(until(open), "");
    }
}
