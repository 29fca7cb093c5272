//! Packages that nobody maintains any more, as far as is known here, and who brings them. This is a list by hand, not a database
//! of advisories: it sees to it that those on it do not spread, and that they leave the list when they are gone.

use serde::Deserialize;

/// A package, why it is on the list, and the only packages that may depend on it.
type Unmaintained = (&'static str, &'static str, &'static [&'static str]);

/// `pulp` calls the macros of `paste` while it is compiled; nothing of them is in a program. No release of `pulp` up to 0.22.3
/// does without.
const KNOWN: [Unmaintained; 1] = [("paste", "RUSTSEC-2024-0436", &["pulp"])];

#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    #[serde(default)]
    dependencies: Vec<String>,
}

/// The packages that a workspace's own need, apart from those that adapt other frameworks: what frameworks depend on is theirs.
fn without_frameworks(lock: Lock) -> Lock {
    let is_own = |name: &str| name == "oplus" || name.starts_with("oplus-");
    let mut needed: Vec<String> =
        lock.package.iter().map(|package| package.name.clone()).filter(|n| is_own(n)).collect();
    needed.retain(|name| name != "oplus-candle" && name != "oplus-burn");
    let mut next = 0;
    while let Some(name) = needed.get(next).cloned() {
        for package in lock.package.iter().filter(|package| package.name == name) {
            for on in package.dependencies.iter().filter_map(|on| on.split(' ').next()) {
                if !needed.iter().any(|known| known == on) {
                    needed.push(on.to_owned());
                }
            }
        }
        next += 1;
    }
    Lock { package: lock.package.into_iter().filter(|package| needed.contains(&package.name)).collect() }
}

/// The faults of a workspace's packages.
fn faults(lock: &Lock) -> Vec<String> {
    let mut faults = vec![];
    for (name, advisory, allowed) in KNOWN {
        if !lock.package.iter().any(|package| package.name == name) {
            faults.push(format!("nothing depends on {name} any more: take it off the list"));
        }
        // A dependency is a name, and where there are several versions also its version.
        let depends = |package: &&Package| package.dependencies.iter().any(|on| on.split(' ').next() == Some(name));
        for package in lock.package.iter().filter(depends).filter(|package| !allowed.contains(&&*package.name)) {
            faults.push(format!("{} depends on {name}, which nobody maintains ({advisory})", package.name));
        }
    }
    faults
}

#[test]
fn packages_that_nobody_maintains_do_not_spread() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap();
    assert_eq!(faults(&without_frameworks(toml::from_str(&text).unwrap())), Vec::<String>::new());
}

#[test]
fn another_that_depends_on_one_and_one_that_is_gone_are_found() {
    let lock = |text: &str| faults(&toml::from_str(text).unwrap());
    let spread = "[[package]]\nname = \"paste\"\n[[package]]\nname = \"x\"\ndependencies = [\"paste 1.0.15\"]\n";
    assert_eq!(lock(spread), ["x depends on paste, which nobody maintains (RUSTSEC-2024-0436)"]);
    let gone = "[[package]]\nname = \"pulp\"\n";
    assert_eq!(lock(gone), ["nothing depends on paste any more: take it off the list"]);
}
