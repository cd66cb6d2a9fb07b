//! What is told, and that `jsonschema` agrees on which documents fit.

use super::*;
use crate::api::schemas;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

fn told(name: &str, value: &Value) -> Vec<String> {
    let errors = Checker::new(schemas()).unwrap().errors(name, value);
    errors.into_iter().map(|error| format!("{}: {}", error.pointer, error.detail)).collect()
}

#[test]
fn says_what_is_wrong_in_words_and_where() {
    let bad = json!({
        "name": "no spaces", "down": 7_999, "up": "fast", "weight": 1.5, "period": "year", "expires": "tomorrow",
        "disabled": 1, "hours": "", "deny": ["x", 5], "colour": "red", "a/b~c": 0,
        "devices": [
            { "kind": "password", "user": "anna", "password": "short" },
            { "kind": "password", "user": "anna" },
            { "kind": "card" }, { "kind": "prefix", "prefix": "100.64.0.0/40", "peer": "x" }, 5
        ]
    });
    insta::assert_snapshot!(told("NewAccount", &bad).join("\n"), @r"
    /a~1b~0c: there is no field `a/b~c` here; there are allow, connections, connects_per_second, deny, devices, disabled, down, expires, hours, name, on_quota_exceeded, period, quota, reset_day, throttle_rate, up, weight, zone
    /colour: there is no field `colour` here; there are allow, connections, connects_per_second, deny, devices, disabled, down, expires, hours, name, on_quota_exceeded, period, quota, reset_day, throttle_rate, up, weight, zone
    /deny/1: is to be a string
    /devices/0/password: has 5 characters, and 8 to 255 are allowed
    /devices/1/password: is missing
    /devices/2/kind: is to be `password`, `prefix`, `peer` or `wireguard`
    /devices/3/peer: there is no field `peer` here; there are kind, name, prefix
    /devices/3/prefix: is not of its form, such as `100.64.7.0/24`: in CIDR notation
    /devices/4: is to be an object
    /disabled: is to be true or false or null
    /down: is outside its range, 8000 to 9007199254740991
    /expires: is not of its form, such as `2027-03-31`: the last day on which it may come in
    /hours: has 0 characters, and 1 to 300 are allowed
    /name: is not of its form, such as `tanaka`: what it is called, 1 to 63 bytes: letters, digits, `-`, `_`, `.` and `@`
    /period: is to be `day`, `week`, `month` or `never`
    /up: is to be a whole number or null
    /weight: is to be a whole number or null
    ");
    assert_eq!(told("NewAccount", &json!({})), ["/name: is missing", "/devices: is missing"]);
    assert_eq!(told("Change", &json!({ "devices": vec![5; 64] })).len(), MOST);
    let long = json!({ "devices": vec![json!({ "kind": "peer", "peer": "x" }); 65] });
    assert_eq!(told("Change", &long), ["/devices: has 65 entries, and at most 64 are allowed"]);
    assert_eq!(told("Change", &json!([])), [": is to be an object"]);
    // nobody's password is repeated
    let secret =
        json!({ "devices": [{ "kind": "password", "user": "u", "password": "s3cr\u{7}et!!" }] });
    let told = told("Change", &secret).join("");
    assert!(told.contains("password") && !told.contains("s3cr"), "{told}");
}

/// A keyword that this does not know would be one that is not held.
#[test]
fn knows_every_keyword_of_what_is_sent() {
    fn keywords(schema: &Value, all: &Map<String, Value>, found: &mut Vec<String>) {
        let Some(map) = schema.as_object() else { return };
        for (key, value) in map {
            found.push(key.clone());
            match (key.as_str(), value) {
                ("properties", Value::Object(fields)) => {
                    fields.values().for_each(|field| keywords(field, all, found));
                }
                ("$ref", Value::String(to)) => keywords(&all[referred(to).unwrap()], all, found),
                ("items", one) => keywords(one, all, found),
                ("anyOf" | "oneOf", Value::Array(list)) => {
                    list.iter().for_each(|schema| keywords(schema, all, found));
                }
                _ => {}
            }
        }
    }
    let (all, mut found) = (schemas(), Vec::new());
    keywords(&all["Change"], &all, &mut found);
    keywords(&all["NewAccount"], &all, &mut found);
    found.sort();
    found.dedup();
    // the last row holds nothing
    let known = [
        "$ref",
        "anyOf",
        "oneOf",
        "type",
        "enum",
        "const",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "items",
        "properties",
        "required",
        "additionalProperties",
        "default",
        "description",
        "examples",
        "format",
    ];
    found.retain(|key| !known.contains(&key.as_str()));
    assert_eq!(found, [""; 0]);
}

fn leaf() -> impl Strategy<Value = Value> {
    let texts = select(vec![
        "",
        "a",
        "anna",
        "anna:b",
        "12345678",
        "1234567",
        "tab\there",
        "100.64.7.0/24",
        "100.64.7.0/33",
        "::/0",
        "fe80::1/129",
        "256.0.0.0",
        "month",
        "throttle",
        "2027-03-31",
        "2027-23-31",
        "2027-03-31\n",
        "a b",
        "名前",
        "x€",
        "\u{80}",
        "a@b.c-d_e",
    ]);
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        select(vec![
            0_u64,
            1,
            31,
            32,
            1000,
            1001,
            7999,
            8000,
            4_294_967_295,
            4_294_967_296,
            9_007_199_254_740_991,
            9_007_199_254_740_993,
            u64::MAX
        ])
        .prop_map(Value::from),
        select(vec![-1.0, 0.5, 1.0, 8000.0, 1e300, 9_007_199_254_740_992.0]).prop_map(Value::from),
        texts.prop_map(Value::from),
        select(vec![7_usize, 8, 63, 64, 65, 255, 256, 300, 301])
            .prop_map(|long| Value::from("x".repeat(long))),
        ".{0,70}".prop_map(Value::from),
    ]
}

fn fields(names: &'static [&'static str], value: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let pairs = proptest::collection::vec((select(names), value), 0..5);
    pairs
        .prop_map(|pairs| {
            pairs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<Map<_, _>>()
                .into()
        })
        .boxed()
}

fn device() -> BoxedStrategy<Value> {
    let kind = select(vec!["password", "prefix", "peer", "card"]);
    let rest = fields(&["user", "password", "prefix", "peer", "name", "kind"], leaf().boxed());
    let made = (kind, rest).prop_map(|(kind, mut device)| {
        let map = device.as_object_mut().unwrap();
        map.entry("kind").or_insert_with(|| kind.into());
        device
    });
    let right = select(vec![
        json!({ "kind": "password", "user": "anna", "password": "a long password" }),
        json!({ "kind": "prefix", "prefix": "100.64.7.0/24", "name": null }),
        json!({ "kind": "peer", "peer": "ship", "name": "boat" }),
    ]);
    prop_oneof![4 => made, 4 => right, 1 => leaf()].boxed()
}

fn document() -> impl Strategy<Value = Value> {
    let lists = prop_oneof![
        proptest::collection::vec(leaf(), 0..4).prop_map(Value::from),
        select(vec![64_usize, 65, 256, 257]).prop_map(|long| vec![json!("x"); long].into()),
    ];
    let value = prop_oneof![6 => leaf(), 1 => lists];
    let names: &[&str] = &[
        "name",
        "forget",
        "down",
        "up",
        "weight",
        "quota",
        "period",
        "zone",
        "reset_day",
        "on_quota_exceeded",
        "throttle_rate",
        "connections",
        "connects_per_second",
        "expires",
        "allow",
        "deny",
        "hours",
        "disabled",
        "colour",
    ];
    let devices = prop_oneof![6 => proptest::collection::vec(device(), 0..3).prop_map(Value::from), 1 => leaf()];
    (fields(names, value.boxed()), proptest::option::of(devices), any::<bool>()).prop_map(
        |(mut all, devices, named)| {
            let map = all.as_object_mut().unwrap();
            map.extend(devices.map(|devices| ("devices".to_owned(), devices)));
            if named {
                map.entry("name").or_insert_with(|| "tanaka".into());
            }
            all
        },
    )
}

#[test]
fn sees_what_the_library_sees() {
    let all = schemas();
    let checker = Checker::new(all.clone()).unwrap();
    let both = ["Change", "NewAccount"].map(|name| {
        let root =
            json!({ "$ref": format!("#{SCHEMAS}/{name}"), "components": { "schemas": all } });
        (name, jsonschema::draft202012::new(&root).unwrap())
    });
    let right = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let tried = runner.run(&document(), |document| {
        for (name, library) in &both {
            let errors = checker.errors(name, &document);
            right.set(right.get() + u32::from(errors.is_empty()));
            prop_assert_eq!(
                errors.is_empty(),
                library.is_valid(&document),
                "{}: {:?}",
                name,
                errors
            );
        }
        Ok(())
    });
    tried.unwrap();
    // both were tried
    assert!((200..3800).contains(&right.get()), "{right:?}");
}
