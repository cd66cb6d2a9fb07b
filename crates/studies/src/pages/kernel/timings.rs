//! When a browser had each object of its page, by the page's own clock (Navigation, Resource and Paint Timing).

use crate::pages::outcome::{Fetched, Loaded};
use serde::Deserialize;

/// Milliseconds since the navigation began. An answer that has not ended has no `last`; times that a server keeps from
/// the page are 0.
pub(super) const ASK: &str = r#"JSON.stringify((() => {
  const one = r => ({wanted: r.startTime, asked: r.requestStart, first: r.responseStart, last: r.responseEnd});
  const page = performance.getEntriesByType("navigation");
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return {objects: [...page, ...performance.getEntriesByType("resource")].map(one), paint: paint ? paint.startTime : null};
})())"#;

#[derive(Debug, Deserialize)]
struct Timings {
    objects: Vec<Timing>,
    paint: Option<f64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Timing {
    wanted: f64,
    asked: f64,
    first: f64,
    last: f64,
}

/// The page, if all its objects have come and it was painted; otherwise how many there are. Errors: what the browser
/// said cannot be read, or has a time that it cannot have.
pub(super) fn read(said: &str, objects: usize) -> Result<Result<Loaded, usize>, String> {
    let timings: Timings =
        serde_json::from_str(said).map_err(|error| format!("{error}: {said}"))?;
    let whole: Vec<&Timing> = timings.objects.iter().filter(|one| one.last > 0.0).collect();
    if whole.len() < objects || timings.paint.is_none() {
        return Ok(Err(whole.len()));
    }
    let mut fetched = Vec::new();
    for one in whole {
        let times = [one.wanted, one.asked, one.first, one.last];
        if !times.is_sorted() || one.first == 0.0 {
            return Err(format!("an object has the times {times:?}, in ms"));
        }
        let [wanted, asked, first, last] = times.map(|ms| ms / 1e3);
        fetched.push(Fetched { wanted, asked, first, last });
    }
    let paint = timings.paint.map(|ms| ms / 1e3);
    Ok(Ok(Loaded { objects: fetched, paint }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"wanted":0,"asked":620.5,"first":1240,"last":1250.5}"#;

    fn said(objects: &[&str], paint: &str) -> String {
        format!(r#"{{"objects":[{}],"paint":{paint}}}"#, objects.join(","))
    }

    #[test]
    fn a_page_is_whole_when_all_its_objects_are_and_it_was_painted() {
        let open = r#"{"wanted":1251,"asked":1252,"first":0,"last":0}"#;
        let came = r#"{"wanted":1251,"asked":1252,"first":1860,"last":1900}"#;
        assert_eq!(read(&said(&[DOCUMENT, open], "1300"), 2), Ok(Err(1)));
        assert_eq!(read(&said(&[DOCUMENT, came], "null"), 2), Ok(Err(2)));
        let loaded = read(&said(&[DOCUMENT, came], "1300"), 2).unwrap().unwrap();
        let document = Fetched { wanted: 0.0, asked: 0.6205, first: 1.24, last: 1.2505 };
        assert_eq!((loaded.objects[0], loaded.paint), (document, Some(1.3)));
        assert_eq!(loaded.objects.len(), 2);
    }

    #[test]
    fn times_that_a_server_keeps_back_are_refused() {
        let kept = r#"{"wanted":1251,"asked":0,"first":0,"last":1900}"#;
        let report = read(&said(&[DOCUMENT, kept], "1300"), 2).unwrap_err();
        assert!(report.contains("1251"), "{report}");
        assert!(read("nothing", 1).unwrap_err().contains("nothing"));
    }
}
