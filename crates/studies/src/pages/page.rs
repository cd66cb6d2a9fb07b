//! Pages: which object is asked for after which, the files that make a browser do so, and the least time it takes.

use ekiden_lab::cell::{Cell, CellError};
use ekiden_model::units::{Rate, Span};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Hosts are numbered from 1 to this.
const HOSTS: usize = 6;

/// The name of a host of the pages.
pub(crate) fn host_name(host: usize) -> String {
    format!("h{host}.test")
}

/// The names of all hosts.
pub(crate) fn host_names() -> Vec<String> {
    (1..=HOSTS).map(host_name).collect()
}

/// What is fetched by one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    /// The name of its file, whose ending says how it is asked for.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// From 1.
    pub(crate) host: usize,
    /// The object that has to be there whole before this one is asked for; the document has none.
    pub(crate) parent: Option<usize>,
}

/// A document, which is the first object, and what it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) objects: Vec<Object>,
}

impl Page {
    /// The page of a cell.
    pub(crate) fn of(cell: &Cell) -> Result<Self, CellError> {
        match cell.text("page")? {
            "small" => Ok(Self::small()),
            "news" => Ok(Self::news()),
            "application" => Ok(Self::application()),
            other => Err(cell.error("page", &format!("`{other}` is not known"))),
        }
    }

    fn begin(name: &str, bytes: u64) -> Self {
        let (name, objects) = (name.to_owned(), Vec::new());
        let mut page = Self { name, objects };
        page.add(page.document(), bytes, 1, None);
        page
    }

    fn add(&mut self, name: String, bytes: u64, host: usize, parent: Option<usize>) -> usize {
        self.objects.push(Object { name, bytes, host, parent });
        self.objects.len() - 1
    }

    /// `count` objects after `parent`, whose sizes come in turns, as do as many hosts.
    fn add_all(&mut self, tag: &str, count: usize, sizes: &[u64], hosts: usize, parent: usize) {
        for (number, bytes) in sizes.iter().cycle().take(count).enumerate() {
            let name = format!("{}-{tag}{number}.bin", self.name);
            self.add(name, *bytes, 1 + number % hosts, Some(parent));
        }
    }

    /// Eight objects on two hosts.
    pub(crate) fn small() -> Self {
        let mut page = Self::begin("small", 20_000);
        page.add_all("", 8, &[5_000, 12_000, 30_000, 60_000], 2, 0);
        page
    }

    /// A style sheet and a script, then 68 objects on six hosts.
    pub(crate) fn news() -> Self {
        let mut page = Self::begin("news", 30_000);
        page.add("news.css".to_owned(), 30_000, 1, Some(0));
        let script = page.add("news.js".to_owned(), 40_000, 1, Some(0));
        let sizes = [800, 1_500, 3_000, 6_000, 9_000, 12_000, 18_000, 25_000, 35_000, 50_000];
        page.add_all("", 68, &sizes, HOSTS, script);
        page
    }

    /// Five calls, each after the one before, then ten objects, on two hosts.
    pub(crate) fn application() -> Self {
        let mut page = Self::begin("application", 10_000);
        let mut last = 0;
        for number in 0..5 {
            let name = format!("application-call{number}.bin");
            last = page.add(name, 8_000, 1 + number % 2, Some(last));
        }
        page.add_all("", 10, &[20_000], 2, last);
        page
    }

    /// One file.
    pub(crate) fn file(bytes: u64) -> Self {
        Self::begin(&format!("file-{bytes}"), bytes)
    }

    /// The file that a browser is sent to.
    pub(crate) fn document(&self) -> String {
        format!("{}.html", self.name)
    }

    /// Numbers of the objects that are asked for when this one is there.
    pub(crate) fn children(&self, parent: usize) -> impl Iterator<Item = usize> + '_ {
        let is_child = move |object: &Object| object.parent == Some(parent);
        let all = self.objects.iter().enumerate();
        all.filter(move |(_, object)| is_child(object)).map(|(number, _)| number)
    }

    /// The text of a file that asks for something, padded to its size; `None` of one that does not.
    pub(crate) fn text(&self, number: usize) -> Option<String> {
        let object = self.objects.get(number)?;
        let size = usize::try_from(object.bytes).unwrap_or(usize::MAX);
        let ending = object.name.rsplit('.').next().unwrap_or_default();
        let (before, after) = match ending {
            "css" => ("/*".to_owned(), "*/p{color:#333}".to_owned()),
            "js" => ("/*".to_owned(), format!("*/{}", self.script(number))),
            "html" => {
                let name = &self.name;
                // an icon that is there already is not asked for
                let head =
                    format!("<!doctype html><link rel=icon href=data:,><title>{name}</title><p>");
                (head, format!("</p>{}", self.elements(number)))
            }
            _ => return None,
        };
        let filling = size.saturating_sub(before.len() + after.len());
        Some(format!("{before}{}{after}", "x".repeat(filling)))
    }

    fn elements(&self, number: usize) -> String {
        let mut elements = String::new();
        let mut is_scripted = false;
        for child in self.children(number).filter_map(|child| self.objects.get(child)) {
            let name = &child.name;
            if name.ends_with(".css") {
                elements += &format!("<link rel=stylesheet href={name}>");
            } else if name.ends_with(".js") {
                elements += &format!("<script src={name}></script>");
            } else {
                is_scripted = true;
            }
        }
        if is_scripted {
            elements += &format!("<script>{}</script>", self.script(number));
        }
        elements
    }

    fn script(&self, number: usize) -> String {
        // the pages' server has the port that it got
        let fetch = "const get=(host,name,then)=>fetch(`https://h${host}.test:${location.port}/${name}`,\
                     {cache:\"no-store\"}).then(r=>r.arrayBuffer()).then(then);";
        format!("{fetch}{}", self.calls(number))
    }

    fn calls(&self, number: usize) -> String {
        let call = |child: usize| {
            let object = self.objects.get(child)?;
            let by_element = object.name.ends_with(".css") || object.name.ends_with(".js");
            let Object { name, host, .. } = object;
            let then = self.calls(child);
            (!by_element).then(|| format!("get({host},\"{name}\",()=>{{{then}}});"))
        };
        self.children(number).filter_map(call).collect()
    }

    /// The least time from the beginning to the last byte: a round trip for each host's TLS and for each request, and
    /// every byte at the link's rate, first come, first served. Headers and a proxy's answers cost nothing.
    pub(crate) fn floor(&self, rtt: Span, rate: Rate) -> f64 {
        let trip = rtt.as_secs_f64();
        let seconds = |bytes: u64| bytes as f64 * 8.0 / rate.as_bits_per_second() as f64;
        // when each host can be asked
        let mut hosts: BTreeMap<usize, f64> = BTreeMap::new();
        let mut ask =
            |object: &Object, at: f64| at.max(*hosts.entry(object.host).or_insert(at + trip));
        let mut asked: Vec<(f64, usize)> =
            self.objects.first().map(|document| (ask(document, 0.0), 0)).into_iter().collect();
        let (mut free, mut last) = (0.0_f64, 0.0_f64);
        let by_time = |a: &(f64, usize), b: &(f64, usize)| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1));
        while let Some((at, number)) = {
            asked.sort_by(by_time as fn(&(f64, usize), &(f64, usize)) -> Ordering);
            asked.pop()
        } {
            let Some(object) = self.objects.get(number) else { continue };
            free = free.max(at + trip / 2.0) + seconds(object.bytes);
            let done = free + trip / 2.0;
            last = last.max(done);
            for child in self.children(number) {
                if let Some(object) = self.objects.get(child) {
                    asked.push((ask(object, done), child));
                }
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Page; 3] {
        [Page::small(), Page::news(), Page::application()]
    }

    #[test]
    fn pages_have_the_objects_and_hosts_of_their_kind() {
        let shape = |page: &Page| {
            let hosts: std::collections::BTreeSet<usize> =
                page.objects.iter().map(|object| object.host).collect();
            (page.objects.len(), hosts.len())
        };
        assert_eq!(all().each_ref().map(shape), [(9, 2), (71, 6), (16, 2)]);
        for page in all() {
            let mut names: Vec<&str> = page.objects.iter().map(|o| o.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), page.objects.len(), "{}: a name stands twice", page.name);
        }
    }

    #[test]
    fn files_have_their_sizes_and_ask_for_every_object_once() {
        for page in all() {
            let texts: String = (0..page.objects.len()).filter_map(|n| page.text(n)).collect();
            for (number, object) in page.objects.iter().enumerate() {
                if let Some(text) = page.text(number) {
                    assert_eq!(text.len() as u64, object.bytes, "{}", object.name);
                }
                let quoted = format!("\"{}\"", object.name);
                let linked = format!("={}>", object.name);
                let times = texts.matches(&quoted).count() + texts.matches(&linked).count();
                assert_eq!(times, usize::from(object.parent.is_some()), "{}", object.name);
            }
        }
    }

    #[test]
    fn floors_are_round_trips_and_bytes() {
        let (rtt, rate) = (Span::from_millis(600), Rate::from_bits_per_second(20_000_000));
        // TLS and the document, TLS with the second host and its objects
        let small = 4.0 * 0.6 + f64::from(20_000 + 2 * 12_000 + 2 * 60_000) * 8.0 / 20e6;
        assert!((Page::small().floor(rtt, rate) - small).abs() < 1e-9);
        // TLS, the document, five calls of which one has TLS before it, the rest
        let bytes = f64::from(10_000 + 5 * 8_000 + 10 * 20_000);
        let application = 9.0 * 0.6 + bytes * 8.0 / 20e6;
        assert!((Page::application().floor(rtt, rate) - application).abs() < 1e-9);
        let news = Page::news().floor(rtt, rate);
        assert!((5.0 * 0.6..5.0 * 0.6 + 0.6).contains(&news), "{news}");
        assert!((Page::file(1).floor(rtt, rate) - 1.2).abs() < 1e-6);
    }
}
