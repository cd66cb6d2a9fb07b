//! Inheritance of legs.

use crate::draft::{Draft, LegDraft};
use crate::problem::similar;
use crate::reader::Reader;
use crate::value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Fills in inherited legs, and `client` and `direct`. Returns which keys were inherited: path to the
/// path they come from.
pub(crate) fn inherit(reader: &mut Reader<'_>, draft: &mut Draft) -> BTreeMap<String, String> {
    let sets = std::mem::take(&mut reader.legs);
    let parent = |name: &str| {
        sets.get(name)?.iter().find_map(|(key, value)| match value {
            Value::Text(parent) if key.name == "inherit" => Some(parent.clone()),
            _ => None,
        })
    };
    let mut from = BTreeMap::new();
    let always = ["client", "direct"].map(str::to_owned);
    let names: BTreeSet<String> = sets.keys().cloned().chain(always).collect();
    for name in &names {
        let mut line = vec![name.clone()];
        while let Some(next) = line.last().and_then(|last| parent(last)) {
            let path = format!("leg.{name}.inherit");
            if line.contains(&next) {
                let round = line.iter().chain([&next]).cloned().collect::<Vec<_>>().join(" > ");
                // each leg of the circle would say the same
                if next == *name && line.iter().all(|other| name <= other) {
                    reader.error(
                        &path,
                        format!("legs inherit in a circle: {round}"),
                        "remove one of these `inherit` keys",
                    );
                }
                break;
            }
            if !names.contains(&next) {
                if line.len() == 1 {
                    let known: Vec<&str> = names.iter().map(String::as_str).collect();
                    reader.error(
                        &path,
                        format!("there is no leg `{next}`"),
                        similar::hint("legs", &next, &known),
                    );
                }
                break;
            }
            line.push(next);
        }
        let mut leg = LegDraft::default();
        for ancestor in line.iter().rev() {
            for (key, value) in sets.get(ancestor).into_iter().flatten() {
                if ancestor == name || key.name != "inherit" {
                    (key.put)(&mut leg, value.clone());
                    from.insert(
                        format!("leg.{name}.{}", key.name),
                        format!("leg.{ancestor}.{}", key.name),
                    );
                }
            }
        }
        draft.legs.insert(name.clone(), leg);
    }
    from
}
