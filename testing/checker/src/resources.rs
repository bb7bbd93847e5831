//! The law of resources that locks protect: the part that checks the fence loses no update.

use crate::{
    format::Resource,
    history::At,
    verdict::{Problem, Verdict},
};

/// Judges what is left of the resources.
pub(crate) fn judge(resources: &[At<Resource>], verdict: &mut Verdict) {
    for resource in resources {
        weigh(resource, verdict);
    }
    if verdict.fenced_updates == 0 && !resources.is_empty() {
        let lines = resources.iter().map(|resource| resource.line);
        verdict.problems.push(Problem::new(lines, "no worker wrote under a fence"));
    }
}

/// Compares the value with the number of accepted updates: the difference is lost.
fn weigh(At { line, it: Resource { name, fenced, plain } }: &At<Resource>, verdict: &mut Verdict) {
    verdict.fenced_updates = verdict.fenced_updates.saturating_add(fenced.accepted);
    if fenced.value != fenced.accepted {
        let text =
            format!("on {name}, lost update under a fence: {} of {} are left", fenced.value, fenced.accepted);
        verdict.problems.push(Problem::new([*line], text));
    }
    verdict.plain_updates = verdict.plain_updates.saturating_add(plain.accepted);
    let lost = plain.accepted.saturating_sub(plain.value);
    verdict.plain_lost = verdict.plain_lost.saturating_add(lost);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Counted;

    fn weighed(fenced: (u64, u64), plain: (u64, u64)) -> Verdict {
        let mut verdict = Verdict::default();
        let counted = |(value, accepted)| Counted { value, accepted };
        let it = Resource { name: "0".into(), fenced: counted(fenced), plain: counted(plain) };
        judge(&[At { line: 2, it }], &mut verdict);
        verdict
    }

    #[test]
    fn a_lost_update_is_a_problem_only_under_a_fence() {
        let verdict = weighed((7, 7), (5, 6));
        assert!(verdict.is_sound());
        assert_eq!((verdict.plain_lost, verdict.fenced_updates), (1, 7));
        assert_eq!(weighed((6, 7), (6, 6)).problems.len(), 1);
        assert_eq!(
            weighed((8, 7), (6, 6)).problems.len(),
            1,
            "a value above the accepted updates is a problem as well"
        );
    }

    #[test]
    fn any_number_of_updates_is_counted() {
        let (mut verdict, most) = (Verdict::default(), Counted { value: 0, accepted: u64::MAX });
        let it = Resource { name: "0".into(), fenced: Counted { value: u64::MAX, ..most }, plain: most };
        judge(&[At { line: 2, it: it.clone() }, At { line: 3, it }], &mut verdict);
        assert_eq!((verdict.fenced_updates, verdict.plain_lost), (u64::MAX, u64::MAX));
    }

    #[test]
    fn resource_without_fenced_updates_proves_nothing() {
        assert_eq!(weighed((0, 0), (6, 6)).problems.len(), 1);
    }
}
