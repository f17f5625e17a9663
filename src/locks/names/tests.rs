use proptest::prelude::*;

use super::*;

fn name() -> impl Strategy<Value = Vec<u8>> {
    // Few bytes, so that names meet each other, of lengths on both sides of what counts.
    prop::collection::vec(0u8..3, 0..20)
}

proptest! {
    #[test]
    fn a_name_that_is_there_is_never_denied(steps in prop::collection::vec((any::<bool>(), name()), 0..60)) {
        let mut names = Names::default();
        let mut model: Vec<Vec<u8>> = Vec::new();
        for (adds, name) in steps {
            if adds {
                names.add(&name);
                model.push(name);
            } else if let Some(index) = model.iter().position(|there| *there == name) {
                names.remove(&name);
                model.swap_remove(index);
            }
            prop_assert!(model.iter().all(|there| names.may_have(there)));
        }
        for name in &model {
            names.remove(name);
        }
        prop_assert!(names.counts.is_empty());
        prop_assert!(model.iter().all(|gone| !names.may_have(gone)));
    }
}

#[test]
fn other_names_are_mostly_denied() {
    let mut names = Names::default();
    (0..1_000).for_each(|number| names.add(format!("pr-actuation-lock:owner/repo#{number}").as_bytes()));
    let others =
        (1_000..9_000).filter(|number| names.may_have(format!("pr-actuation-lock:owner/repo#{number}").as_bytes()));
    assert_eq!(others.count(), 0);
    for word in ["", "k", "SET", "pr-actuation-lock:owner/repo#", "xr-actuation-lock:owner/repo#1"] {
        assert!(!names.may_have(word.as_bytes()), "{word}");
    }
}
