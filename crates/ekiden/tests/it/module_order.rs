//! The order of modules: which way imports point, how large files and folders may be.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms of `ekiden-proxy`, from the top. A module imports from its own row and from rows below.
const PROXY_ROWS: &[&[&str]] = &[
    &["server"],
    &["inbound"],
    &["session"],
    // the runtime configuration resolves names and holds tunnels, so it stands beside the way out
    &["outbound", "runtime"],
    &["cache"],
    &["resources"],
    &["transfer"],
    &["policy"],
    &["observe"],
    &["destination", "error", "settings", "wire"],
];

/// The largest import cycle, in files.
const MOST_IN_A_CYCLE: usize = 3;
const MOST_LINES: usize = 450;
const MOST_ENTRIES: usize = 15;

/// Files and folders that are too large today. This list only shrinks.
const NOT_YET: &[&str] = &[];

/// A module's path within its crate; the crate root is empty.
type Module = Vec<String>;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Each crate's modules with their text.
fn modules() -> BTreeMap<String, BTreeMap<Module, String>> {
    let mut all = BTreeMap::new();
    for package in fs::read_dir(crates()).unwrap() {
        let package = package.unwrap();
        let src = package.path().join("src");
        let mut found = Vec::new();
        if src.is_dir() {
            files(&src, &mut found);
        }
        let text = |path: &PathBuf| {
            (module(path.strip_prefix(&src).unwrap()), fs::read_to_string(path).unwrap())
        };
        let name = package.file_name().into_string().unwrap();
        all.insert(name, found.iter().map(text).collect());
    }
    all
}

fn module(file: &Path) -> Module {
    let mut path: Module =
        file.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if matches!(path.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        path.pop();
    }
    path
}

/// The text without its comments, string literals and `#[cfg(test)]` modules.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut in_test = false;
    let mut test_follows = false;
    for line in text.lines() {
        if in_test {
            // modules stand at the left edge, and so do their closing braces
            in_test = line != "}";
            continue;
        }
        let trimmed = line.trim_start();
        if line == "#[cfg(test)]" {
            test_follows = true;
            continue;
        }
        if test_follows && !trimmed.starts_with("#[") {
            test_follows = false;
            in_test = line.ends_with('{');
            continue;
        }
        if !trimmed.starts_with("//") {
            let mut literal = false;
            let mut before = ' ';
            for (at, c) in line.char_indices() {
                if !literal && line[at..].starts_with("//") {
                    break;
                }
                if c == '"' && before != '\\' && before != '\'' {
                    literal = !literal;
                }
                if !literal {
                    code.push(c);
                }
                before = c;
            }
        }
        code.push('\n');
    }
    code
}

/// The paths within its own crate that a module names, each from the crate's root.
fn paths(own: &Module, code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    for (start, first) in ["crate::", "super::", "self::"]
        .iter()
        .flat_map(|first| code.match_indices(first).map(|(at, _)| (at, *first)))
    {
        let before = code[..start].chars().next_back().unwrap_or(' ');
        if before.is_alphanumeric() || matches!(before, '_' | ':') {
            continue;
        }
        let mut prefix = match first {
            "crate::" => Vec::new(),
            "self::" => own.clone(),
            _ => own[..own.len().saturating_sub(1)].to_vec(),
        };
        let mut rest = &code[start + first.len()..];
        while let Some(after) = rest.strip_prefix("super::") {
            prefix.pop();
            rest = after;
        }
        tree(&prefix, rest, &mut found);
    }
    found
}

/// Reads a use tree from its beginning; returns what follows it.
fn tree<'a>(prefix: &Module, text: &'a str, found: &mut Vec<Module>) -> &'a str {
    let mut text = text.trim_start();
    let mut path = prefix.clone();
    loop {
        if let Some(inner) = text.strip_prefix('{') {
            let mut rest = inner.trim_start();
            while !rest.is_empty() && !rest.starts_with('}') {
                let after = tree(&path, rest, found);
                let after = after.trim_start().trim_start_matches(',').trim_start();
                if after.len() == rest.len() {
                    return "";
                }
                rest = after;
            }
            return rest.strip_prefix('}').unwrap_or(rest);
        }
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        if end > 0 {
            path.push(text[..end].to_owned());
        }
        text = &text[end..];
        match text.strip_prefix("::") {
            Some(after) => text = after.trim_start(),
            None => {
                found.push(path);
                // an alias, or a star
                let text = text.strip_prefix('*').unwrap_or(text);
                let end = text.find([',', '}', ';', '\n']).unwrap_or(text.len());
                return if text[..end].trim_start().starts_with("as ") {
                    &text[end..]
                } else {
                    text
                };
            }
        }
    }
}

/// Which modules each module imports; a parent and its descendants may know each other.
fn imports(modules: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut imports = BTreeMap::new();
    for (own, text) in modules {
        let mut of = BTreeSet::new();
        for path in paths(own, &code(text)) {
            let lengths = (1..=path.len()).rev();
            let file = lengths.map(|n| path[..n].to_vec()).find(|path| modules.contains_key(path));
            if let Some(file) = file
                && !file.starts_with(own)
                && !own.starts_with(&file)
            {
                of.insert(file);
            }
        }
        imports.insert(own.clone(), of);
    }
    imports
}

fn upward(rows: &[&[&str]], modules: &BTreeMap<Module, String>) -> Vec<String> {
    let row = |module: &Module| {
        let room = module.first()?;
        let row = rows.iter().position(|row| row.contains(&room.as_str()));
        Some(row.unwrap_or_else(|| panic!("{room} is not in this test: give it its row")))
    };
    let mut found = Vec::new();
    for (own, of) in imports(modules) {
        for other in of {
            if row(&own).zip(row(&other)).is_some_and(|(own, other)| other < own) {
                found.push(format!("{} imports {}", own.join("::"), other.join("::")));
            }
        }
    }
    found
}

/// Groups of modules that import each other in a circle and are larger than permitted.
fn cycles(modules: &BTreeMap<Module, String>) -> Vec<String> {
    let imports = imports(modules);
    let reaches = |from: &Module| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            open.extend(imports[module].iter().filter(|next| seen.insert((*next).clone())));
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        imports.keys().map(|module| (module, reaches(module))).collect();
    let mut groups = BTreeSet::new();
    for (module, others) in &reached {
        let group: Vec<String> = others
            .iter()
            .filter(|other| reached[other].contains(*module))
            .map(|other| other.join("::"))
            .collect();
        if group.len() > MOST_IN_A_CYCLE {
            groups.insert(group.join(", "));
        }
    }
    groups.into_iter().collect()
}

#[test]
fn imports_of_the_proxy_point_downward() {
    let upward = upward(PROXY_ROWS, &modules()["proxy"]);
    assert!(upward.is_empty(), "{}", upward.join("\n"));
}

#[test]
fn no_import_cycle_has_more_than_three_files() {
    let mut found = Vec::new();
    for (name, modules) in modules() {
        if !NOT_YET.contains(&name.as_str()) {
            found.extend(cycles(&modules).into_iter().map(|cycle| format!("{name}: {cycle}")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_source_file_has_more_than_450_lines() {
    let mut found = Vec::new();
    for (name, modules) in modules() {
        for (module, text) in modules {
            let (path, lines) = (format!("{name}::{}", module.join("::")), text.lines().count());
            if lines > MOST_LINES && !NOT_YET.contains(&path.as_str()) {
                found.push(format!("{path}: {lines} lines"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_source_folder_has_more_than_15_entries() {
    fn folders(folder: &Path, found: &mut Vec<(PathBuf, usize)>) {
        let entries: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.push((folder.to_owned(), entries.len()));
        entries.iter().filter(|path| path.is_dir()).for_each(|path| folders(path, found));
    }
    let mut all = Vec::new();
    for package in fs::read_dir(crates()).unwrap() {
        let src = package.unwrap().path().join("src");
        if src.is_dir() {
            folders(&src, &mut all);
        }
    }
    let mut found = Vec::new();
    for (folder, entries) in all {
        let path = folder.strip_prefix(crates()).unwrap().to_str().unwrap();
        if entries > MOST_ENTRIES && !NOT_YET.contains(&path) {
            found.push(format!("{path}: {entries} entries"));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn planted_imports_are_found() {
    let tree = |files: &[(&str, &str)]| -> BTreeMap<Module, String> {
        files.iter().map(|(file, text)| (module(Path::new(file)), (*text).to_owned())).collect()
    };
    let rows: &[&[&str]] = &[&["top"], &["middle"], &["bottom"]];
    let plain = "use crate::middle::{self, inner::Thing as Other};\n// crate::top\n";
    let fine = [("lib.rs", "mod top;"), ("top.rs", plain), ("middle/mod.rs", "mod inner;")];
    let mut files = fine.to_vec();
    files.extend([("middle/inner.rs", "use super::Thing;\n"), ("bottom.rs", "")]);
    assert!(upward(rows, &tree(&files)).is_empty() && cycles(&tree(&files)).is_empty());
    // an upward import, in a group, in code, and not in a test
    for (text, seen) in [
        ("use crate::{bottom, top::Thing};\n", true),
        ("fn f() { crate::top::f(); }\n", true),
        ("use super::super::top;\n", true),
        ("#[cfg(test)]\nmod tests {\n    use crate::top;\n}\n", false),
        ("fn f() { g(\"crate::top\"); }\n", false),
    ] {
        files[3].1 = text;
        assert_eq!(!upward(rows, &tree(&files)).is_empty(), seen, "{text}");
    }
    let ring = [
        ("a.rs", "use crate::b::B;\n"),
        ("b.rs", "use crate::c::C;\n"),
        ("c.rs", "use crate::d::D;\n"),
        ("d.rs", "use crate::a::A;\n"),
    ];
    assert_eq!(cycles(&tree(&ring)), ["a, b, c, d"]);
    assert!(cycles(&tree(&ring[..3])).is_empty());
}
