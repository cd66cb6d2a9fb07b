//! The repository's words and references: citations resolve, links resolve, tests state behaviour.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, iter};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Text files under version control, or all files where there is no repository; without measurements and seeds.
fn files(extensions: &[&str]) -> Vec<(PathBuf, String)> {
    let root = root();
    let listed = Command::new("git").arg("ls-files").current_dir(&root).output();
    let listed = listed.ok().filter(|output| output.status.success() && !output.stdout.is_empty());
    let paths: Vec<PathBuf> = match listed {
        Some(output) => {
            String::from_utf8(output.stdout).unwrap().lines().map(PathBuf::from).collect()
        }
        None => {
            walk(&root).iter().map(|path| path.strip_prefix(&root).unwrap().to_owned()).collect()
        }
    };
    let wanted = |path: &PathBuf| {
        let kept = ["experiments/results", "fuzz/seeds", "target", ".git"];
        !kept.iter().any(|folder| path.starts_with(folder))
            && path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted))
    };
    let read = |path: PathBuf| fs::read_to_string(root.join(&path)).ok().map(|text| (path, text));
    paths.into_iter().filter(wanted).filter_map(read).collect()
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| match path.is_dir() {
        true if path.ends_with("target") || path.ends_with(".git") => Vec::new(),
        true => walk(&path),
        false => iter::once(path).collect(),
    };
    entries.flat_map(below).collect()
}

/// Sections of the algorithms' pages, such as `satellite E.4`.
fn sections() -> BTreeSet<String> {
    let folder = root().join("docs/book/src/design/algorithms");
    let mut found = BTreeSet::new();
    for path in walk(&folder) {
        let page = path.file_stem().unwrap().to_string_lossy().into_owned();
        for line in fs::read_to_string(&path).unwrap().lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                let section = heading.split_whitespace().next().unwrap_or_default();
                found.insert(format!("{page} {section}"));
            }
        }
    }
    found
}

#[test]
fn citations_of_algorithms_resolve() {
    let sections = sections();
    assert!(sections.contains("satellite E.4"), "{sections:?}");
    let mut wrong = Vec::new();
    let mut cited = 0;
    for (path, text) in files(&["rs", "toml", "md", "c", "h", "sh"]) {
        if path.starts_with("docs/book/src/design/algorithms") {
            continue; // its own pages show the form of a citation
        }
        for (at, _) in text.match_indices("algorithms/") {
            let mut words = text[at + "algorithms/".len()..]
                .split(|c: char| c.is_whitespace() || ",;:)`'".contains(c))
                .filter(|word| {
                    !word.is_empty() && *word != "//" && *word != "//!" && *word != "///"
                });
            let page = words.next().unwrap_or_default();
            let section = words.next().unwrap_or_default().trim_end_matches(['.', '\'']);
            let is_section = section.len() >= 3
                && section.starts_with(|c: char| ('A'..='F').contains(&c))
                && section[1..].starts_with('.');
            if page.contains(".md") || page.contains('*') || !is_section {
                continue;
            }
            cited += 1;
            if !sections.contains(&format!("{page} {section}")) {
                wrong.push(format!("{}: algorithms/{page} {section}", path.display()));
            }
        }
    }
    assert!(cited > 50, "only {cited} citations were found");
    assert!(wrong.is_empty(), "no such section:\n{}", wrong.join("\n"));
}

#[test]
fn studies_are_cited_by_name_and_sources_stand_inside() {
    for (path, text) in files(&["rs", "toml", "md", "c", "h"]) {
        if path.ends_with("repository.rs") || path.ends_with("CHANGELOG.md") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let place = format!("{}:{}: {line}", path.display(), number + 1);
            assert!(!line.contains("ALGORITHMS"), "{place}");
            let numbered = (0..5).any(|n| {
                line.contains(&format!("(seed {n}")) || line.contains(&format!("seed {n}'"))
            });
            assert!(!numbered, "{place}");
        }
    }
}

#[test]
fn guillemets_are_not_used() {
    for (path, text) in files(&["rs", "toml", "md", "c", "h", "sh", "trycmd", "snap", "json"]) {
        let line = text.lines().find(|line| line.contains(['\u{ab}', '\u{bb}']));
        assert!(line.is_none(), "{}: {}", path.display(), line.unwrap_or_default());
    }
}

#[test]
fn test_names_state_behaviour() {
    let clauses =
        ["what_", "who_", "whose_", "whoever_", "whatever_", "which_", "where_", "that_", "whom_"];
    for (path, text) in files(&["rs"]) {
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[") {
                is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
                continue;
            }
            let function = line.trim_start_matches("async ").strip_prefix("fn ");
            if let Some(name) = function.filter(|_| is_test) {
                let clause = clauses.iter().any(|clause| name.starts_with(clause));
                assert!(!clause, "{}: {name}", path.display());
            }
            is_test = false;
        }
    }
}

#[test]
fn links_of_the_book_resolve() {
    let mut broken = Vec::new();
    for (path, text) in files(&["md"]) {
        let mut code = false;
        for line in text.lines() {
            code ^= line.trim_start().starts_with("```");
            if code || path.ends_with("CHANGELOG.md") {
                continue;
            }
            for (at, _) in line.match_indices("](") {
                let target = line[at + 2..].split(')').next().unwrap_or_default();
                let file = target.split('#').next().unwrap_or_default();
                if file.is_empty() || file.contains("://") {
                    continue;
                }
                if !root().join(&path).parent().unwrap().join(file).exists() {
                    broken.push(format!("{}: {target}", path.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn pages_of_the_book_are_whole() {
    for (path, text) in
        files(&["md"]).into_iter().filter(|(path, _)| path.starts_with("docs/book/src"))
    {
        let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
        assert_eq!(fences % 2, 0, "{path:?}: a code block is not closed");
        assert!(text.lines().count() >= 3, "{path:?} has a heading and nothing else");
    }
}

#[test]
fn configurations_in_the_book_are_usable_as_they_stand() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (path, text) in files(&["md"]) {
        // the laboratory's files are of other kinds
        if !path.starts_with("docs/book/src") || path.starts_with("docs/book/src/lab") {
            continue;
        }
        for block in text.split("\n```toml\n").skip(1) {
            let block = block.split("\n```").next().unwrap_or_default();
            let reading = ekiden_config::read(block, &path.display().to_string());
            seen += 1;
            if !reading.is_usable() {
                wrong.push(format!("{block}\n\n{}", ekiden_config::render_all(&reading.problems)));
            }
        }
    }
    assert!(seen > 15, "only {seen} configurations were found");
    assert!(wrong.is_empty(), "ekiden refuses:\n{}", wrong.join("\n"));
}

#[test]
fn the_clients_of_a_pair_by_hand_are_added_to_what_joining_writes() {
    let page = fs::read_to_string(root().join("docs/book/src/guides/pair.md")).unwrap();
    let block = page.rsplit("\n```toml\n").next().unwrap().split("\n```").next().unwrap();
    assert!(block.starts_with("listen = "), "{block}");
    let joined = "[upstream.shore]\nurl = \"tunnel://shore\"\n[[route]]\nthrough = [\"shore\"]\n";
    let reading = ekiden_config::read(&format!("{block}\n{joined}"), "pair.md");
    assert!(reading.is_usable(), "{}", ekiden_config::render_all(&reading.problems));
    assert_eq!(reading.draft.routes.len(), 1);
}

#[test]
fn a_guide_adds_each_account_once() {
    for (path, text) in files(&["md"]) {
        if !path.starts_with("docs/book/src/guides") {
            continue;
        }
        let mut seen = BTreeSet::new();
        for rest in text.split("ekiden account add ").skip(1) {
            let name = rest.split_whitespace().next().unwrap_or_default();
            assert!(seen.insert(name), "{}: {name} is there already", path.display());
        }
    }
}

/// The tests that the page on security names: `crate module::test`, as `cargo test -p` takes them.
fn named_tests(page: &str) -> Vec<(String, String)> {
    let spans = page.split('`').skip(1).step_by(2);
    let named = spans.filter_map(|span| span.split_once(' '));
    let named = named.filter(|(package, path)| {
        package.starts_with("ekiden") && path.contains("::") && !path.contains(' ')
    });
    named.map(|(package, path)| (package.to_owned(), path.to_owned())).collect()
}

/// The functions of a source file that are tests, with the folders, the file and the modules they may stand in.
fn tests_of(path: &Path, text: &str) -> Vec<(String, BTreeSet<String>)> {
    let folders = path.with_extension("");
    let mut within: BTreeSet<String> =
        folders.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let lines = || text.lines().map(str::trim);
    let modules = lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(" {"));
    within.extend(modules.map(str::to_owned));
    let (mut is_test, mut is_ignored, mut found) = (false, false, Vec::new());
    for line in lines() {
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            is_ignored |= line.starts_with("#[ignore");
            continue;
        }
        // programs with a harness of their own list them: ("name", name),
        let listed = line.strip_prefix("(\"").and_then(|rest| rest.split_once("\", "));
        if let Some((name, rest)) = listed
            && rest.strip_suffix("),") == Some(name)
        {
            found.push((name.to_owned(), within.clone()));
        }
        let function = line.trim_start_matches("async ").strip_prefix("fn ");
        if let Some((name, _)) =
            function.filter(|_| is_test && !is_ignored).and_then(|name| name.split_once('('))
        {
            found.push((name.to_owned(), within.clone()));
        }
        (is_test, is_ignored) = (false, false);
    }
    found
}

#[test]
fn tests_named_by_the_page_on_security_exist() {
    let page = "docs/book/src/operate/security.md";
    let named = named_tests(&fs::read_to_string(root().join(page)).unwrap());
    assert!(named.len() > 30, "only {} tests were found on {page}", named.len());
    let sources = files(&["rs"]);
    let mut missing = Vec::new();
    for (package, path) in named {
        let folder = match package.strip_prefix("ekiden-") {
            Some(name) => Path::new("crates").join(name),
            None => Path::new("crates").join(&package),
        };
        let mut modules: Vec<&str> = path.split("::").collect();
        let name = modules.pop().unwrap_or_default();
        let mut tests = sources
            .iter()
            .filter(|(source, _)| source.starts_with(&folder))
            .flat_map(|(source, text)| tests_of(source, text));
        let is_it = |(test, within): (String, BTreeSet<String>)| {
            test == name && modules.iter().all(|module| within.contains(*module))
        };
        if !tests.any(is_it) {
            missing.push(format!("{package} {path}"));
        }
    }
    assert!(missing.is_empty(), "{page} names tests that do not exist:\n{}", missing.join("\n"));
}
