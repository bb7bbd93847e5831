//! The structure of the crates: floors, and no circle of imports.
//!
//! The order of the `mod` lines in `lib.rs` is the order of the floors, from the top. Modules of one paragraph are on
//! one floor. A module imports only from floors below its own.

use locker_tests::{PACKAGES, root};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree, Visibility, visit::Visit};

type Module = Vec<String>;

/// Which module imports from which.
#[derive(Default)]
struct Imports {
    modules: BTreeSet<Module>,
    /// Importing module, and path as written but absolute.
    paths: BTreeSet<(Module, Module)>,
}

struct Reader<'a> {
    imports: &'a mut Imports,
    module: Module,
    children: PathBuf,
}

impl Imports {
    fn of_crate(name: &str) -> Self {
        let (mut imports, root) = (Self::default(), root().join(name).join("src"));
        let main = ["lib.rs", "main.rs"].map(|name| root.join(name)).into_iter().find(|file| file.exists());
        Reader { imports: &mut imports, module: Vec::new(), children: root }
            .file(&main.expect("the root of a crate"));
        imports
    }

    /// The module that a path leads into.
    fn target(&self, path: &[String]) -> Module {
        let lengths = (1..=path.len()).rev();
        lengths
            .map(|length| &path[..length])
            .find(|path| self.modules.contains(*path))
            .unwrap_or_default()
            .to_vec()
    }

    /// A module and the one that it is a part of are one room: what it takes from there is no import.
    fn edges(&self) -> BTreeSet<(Module, Module)> {
        let edges = self.paths.iter().map(|(from, path)| (from.clone(), self.target(path)));
        edges.filter(|(from, to)| !from.starts_with(to)).collect()
    }
}

impl Reader<'_> {
    fn file(&mut self, file: &Path) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.imports.modules.insert(self.module.clone());
        self.visit_file(&parsed);
    }

    fn path(&mut self, path: &[String]) {
        let mut absolute = self.module.clone();
        let mut rest = path;
        match rest.first().map(String::as_str) {
            Some("crate") => (absolute, rest) = (Vec::new(), &rest[1..]),
            Some("self") => rest = &rest[1..],
            Some("super") => {
                while rest.first().is_some_and(|part| part == "super") {
                    absolute.pop();
                    rest = &rest[1..];
                }
            }
            // A child module is known once its `mod` line was read, which rustfmt keeps above.
            Some(first) if self.is_child(first) => {}
            _ => return,
        }
        absolute.extend_from_slice(rest);
        self.imports.paths.insert((self.module.clone(), absolute));
    }

    fn is_child(&self, name: &str) -> bool {
        let child: Module = self.module.iter().cloned().chain([name.to_owned()]).collect();
        self.imports.modules.contains(&child)
    }

    fn tree(&mut self, before: &[String], tree: &UseTree, is_public: bool) {
        let with = |name: String| before.iter().cloned().chain([name]).collect::<Vec<_>>();
        match tree {
            UseTree::Path(path) => self.tree(&with(path.ident.to_string()), &path.tree, is_public),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree, is_public)),
            UseTree::Name(name) => self.leaf(&with(name.ident.to_string()), is_public),
            UseTree::Rename(rename) => self.leaf(&with(rename.ident.to_string()), is_public),
            UseTree::Glob(_) => self.leaf(before, is_public),
        }
    }

    /// A module that re-exports its children does not depend on them.
    fn leaf(&mut self, path: &[String], is_public: bool) {
        if !(is_public && self.is_child(&path[0])) {
            self.path(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).iter().any(is_test) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let name = item.ident.to_string();
        if item.content.is_some() {
            return syn::visit::visit_item_mod(self, item);
        }
        let module: Module = self.module.iter().cloned().chain([name.clone()]).collect();
        let (file, children) = (self.children.join(format!("{name}.rs")), self.children.join(&name));
        Reader { imports: self.imports, module, children }.file(&file);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.tree(&[], &item.tree, !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let path: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.path(&path);
        }
        syn::visit::visit_path(self, path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return attribute.path().is_ident("test") };
    let tokens = list.tokens.to_string();
    list.path.is_ident("cfg") && (tokens == "test" || tokens.starts_with("all (test"))
}

/// The floor of each module of the crate's root: 0 is the top.
fn floors(name: &str) -> BTreeMap<String, usize> {
    let text = fs::read_to_string(root().join(name).join("src/lib.rs")).unwrap();
    let mut floors = BTreeMap::new();
    for (floor, paragraph) in text.split("\n\n").enumerate() {
        for line in paragraph.lines() {
            let declared = line.strip_prefix("pub ").or(line.strip_prefix("pub(crate) ")).unwrap_or(line);
            if let Some(module) = declared.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
                floors.insert(module.to_owned(), floor);
            }
        }
    }
    floors
}

fn shown((from, to): &(Module, Module)) -> String {
    format!("{} -> {}", from.join("::"), to.join("::"))
}

#[test]
fn imports_point_down() {
    let mut wrong = Vec::new();
    for name in PACKAGES {
        let floors = floors(name);
        assert!(floors.len() > 3, "{name}: {floors:?}");
        for edge in Imports::of_crate(name).edges() {
            let [Some(from), Some(to)] = [&edge.0, &edge.1].map(|module| module.first()) else { continue };
            if from != to && floors[to] <= floors[from] {
                wrong.push(format!("{name}: {}", shown(&edge)));
            }
        }
    }
    assert!(wrong.is_empty(), "imports that do not point down:\n{}", wrong.join("\n"));
}

#[test]
fn no_module_imports_through_the_crate_root() {
    for name in PACKAGES {
        let imports = Imports::of_crate(name);
        let through_root = imports.paths.iter().filter(|(from, path)| {
            !from.is_empty() && !path.is_empty() && imports.target(path).is_empty() && !is_macro(path)
        });
        let shown: Vec<_> = through_root.map(shown).collect();
        assert!(shown.is_empty(), "{name}: name the module, not `crate::`:\n{}", shown.join("\n"));
    }
}

/// Macros are at the root of their crate.
fn is_macro(path: &[String]) -> bool {
    path.len() == 1 && path[0].chars().all(|letter| letter.is_lowercase() || letter == '_')
}

#[test]
fn no_imports_go_in_a_circle() {
    let mut circles = Vec::new();
    for name in PACKAGES.into_iter().chain(["testing/checker", "testing/torture"]) {
        let edges = Imports::of_crate(name).edges();
        let mut reach: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
        for (from, to) in &edges {
            reach.entry(from).or_default().insert(to);
        }
        loop {
            let sum = |reach: &BTreeMap<_, BTreeSet<_>>| reach.values().map(BTreeSet::len).sum::<usize>();
            let before = sum(&reach);
            for from in reach.keys().copied().collect::<Vec<_>>() {
                let further: BTreeSet<_> =
                    reach[from].iter().filter_map(|to| reach.get(to)).flatten().copied().collect();
                reach.get_mut(from).unwrap().extend(further);
            }
            if sum(&reach) == before {
                break;
            }
        }
        let is_circular =
            |(from, to): &&(Module, Module)| reach.get(to).is_some_and(|all| all.contains(from));
        circles.extend(edges.iter().filter(is_circular).map(|edge| format!("{name}: {}", shown(edge))));
    }
    assert!(circles.is_empty(), "imports in a circle:\n{}", circles.join("\n"));
}

#[test]
fn the_reader_follows_paths() {
    let imports = Imports::of_crate("locker-runtime");
    let edges = imports.edges();
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    for (from, to) in [("lease::guard", "lease::hold"), ("handles::lock", "lease")] {
        assert!(edges.contains(&(module(from), module(to))), "{from} -> {to}");
    }
    assert!(!imports.modules.contains(&module("lease::tests")), "tests are not part of the structure");
}

/// Cargo does not find the targets of this package itself.
#[test]
fn every_test_file_is_a_target() {
    let tests = root().join("tests");
    let manifests = ["tests", "locker-server"].map(|package| root().join(package));
    let manifests = manifests.map(|folder| fs::read_to_string(folder.join("Cargo.toml")).unwrap()).concat();
    let entries = fs::read_dir(&tests).unwrap().map(|entry| entry.unwrap().path());
    let targets = entries.filter_map(|entry| match entry.join("main.rs") {
        main if main.exists() => Some(main),
        _ => entry.extension().is_some_and(|extension| extension == "rs").then_some(entry),
    });
    for target in targets {
        let path = target.strip_prefix(&tests).unwrap().to_str().unwrap();
        assert!(manifests.contains(&format!("{path}\"")), "no package has a target for tests/{path}");
    }
}

/// The crates that a package is compiled of, itself included.
fn crates(package: &str, features: &[&str]) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--offline", "--package", package, "--edges", "normal", "--prefix", "none"]);
    let output = tree.args(features).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    // Name and version: a crate that is shown again has a mark.
    lines.lines().map(|line| line.splitn(3, ' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

/// A judge that shares code with what it judges shares its bugs.
#[test]
fn checker_uses_no_crate_of_locker() {
    let crates = crates("locker-checker", &["--all-features"]);
    let ours: Vec<_> = crates.iter().filter(|name| name.starts_with("locker")).collect();
    assert!(ours.len() == 1 && ours[0].starts_with("locker-checker "), "{ours:?}");
}

/// The README said 47 and 77 after a crate had been added.
#[test]
#[cfg_attr(not(all(target_os = "linux", target_arch = "x86_64")), ignore = "other systems have other crates")]
fn readme_has_the_number_of_crates() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let library = |features: &[&str]| crates("locker-rs", features).len();
    let stated = format!("{} instead of {}", library(&["--no-default-features"]), library(&[]));
    assert!(readme.contains(&stated), "README.md does not say: {stated}");
}
