//! Applies the house rules to the repository. Each rule's own tests are in `src/tidy`.

use fsglass_tests::tidy::{files, layers, promises, sizes, words, File};

fn apply(rule: fn(&[File]) -> Vec<String>) {
    let files = files().expect("git lists the files of the repository");
    assert!(
        files.len() > 20,
        "the list of files is not the repository's"
    );
    let complaints = rule(&files);
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn layers_import_downwards() {
    apply(layers::check);
}

#[test]
fn files_and_functions_are_short() {
    apply(sizes::check);
}

#[test]
fn no_module_is_an_orphan() {
    apply(sizes::orphans);
}

#[test]
fn names_say_something() {
    apply(words::names);
}

#[test]
fn no_marks_machine_paths_or_registry_hosts() {
    apply(words::texts);
}

#[test]
fn colours_are_tokens() {
    apply(words::colours);
}

#[test]
fn structures_on_disk_name_their_source() {
    apply(promises::sources);
}

#[test]
fn simplifications_are_listed_in_compat() {
    apply(promises::simplifications);
}

#[test]
fn the_top_level_is_as_agreed() {
    apply(promises::top_level);
}
