//! Peers that upstreams name: they are known to the state, and not to the configuration.

use crate::load::Loaded;
use crate::problem::place::Source;
use crate::problem::{Problem, Severity, by_place, similar};
use crate::value::url;
use crate::{Origin, pattern};
use ekiden_proxy::settings::UpstreamProtocol;

impl Loaded {
    /// Warns of upstreams whose tunnel leads to none of the `known` peers. A peer may be joined later, so none is an error.
    pub fn check_peers(&mut self, known: &[&str]) {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        let source = Source::new(file.as_deref().unwrap_or_default(), &self.text);
        let mut found = Vec::new();
        for (name, upstream) in &self.reading.draft.upstreams {
            let Ok(url) = url::read(&upstream.url) else { continue };
            if url.protocol != UpstreamProtocol::Tunnel || known.contains(&url.host.as_str()) {
                continue;
            }
            let peer = pattern::shorten(&url.host);
            let line = match self.reading.origins.get(&format!("upstream.{name}.url")) {
                Some(Origin::Line(line)) => Some(*line),
                _ => None,
            };
            let place = line.and_then(|line| {
                let before: usize =
                    self.text.split_inclusive('\n').take(line - 1).map(str::len).sum();
                let at = before + self.text[before..].find("tunnel://")?;
                Some(source.place(&(at..at + "tunnel://".len() + url.host.len())))
            });
            let close = match similar::closest(&url.host, known.iter().copied()) {
                Some(close) => format!("did you mean `{close}`? Otherwise join"),
                None => "join".to_owned(),
            };
            found.push(Problem {
                severity: Severity::Warning,
                file: file.clone(),
                place,
                message: format!("no peer `{peer}` is known to this relay"),
                hint: format!("{close} it with the other relay's invitation: ekiden peer join ekiden1-… --name {peer}"),
            });
        }
        let problems = &mut self.reading.problems;
        problems.extend(found);
        problems.sort_by_key(by_place);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Loaded, read, render_all};

    #[test]
    fn warns_of_a_peer_that_is_not_known_and_names_the_closest() {
        let text = "[upstream.a]\nurl = \"tunnel://shor\"\n[[route]]\nthrough = [\"a\"]\n";
        let said = |known: &[&str]| {
            let reading = read(text, "test.toml");
            let mut loaded =
                Loaded { file: Some("test.toml".into()), text: text.to_owned(), reading };
            loaded.check_peers(known);
            assert!(loaded.reading.is_usable());
            render_all(&loaded.reading.problems)
        };
        let found = said(&["ship", "shore"]);
        assert!(
            found.contains("no peer `shor` is known") && found.contains("test.toml:2:8"),
            "{found}"
        );
        assert!(found.contains("did you mean `shore`?"), "{found}");
        assert!(said(&[]).contains("ekiden peer join ekiden1-… --name shor"), "{}", said(&[]));
        assert_eq!(said(&["shor"]), "");
    }
}
