//! The smallest plan that fails in the same way.

use crate::{
    plan::Plan,
    simulation::{Run, run},
};

/// How many runs shrinking takes at most.
const MOST: usize = 600;

/// Takes away what is not needed for the failure, one thing after the other.
pub(crate) fn shrink(mut plan: Plan, mut failed: Run) -> (Plan, Run) {
    let mut runs = 0;
    loop {
        let before = plan.size();
        for smaller in smaller(&plan) {
            // The last try that failed may have made others outdated.
            if smaller.size() >= plan.size() || runs >= MOST {
                continue;
            }
            runs += 1;
            let tried = run(&smaller);
            if is_alike(&tried, &failed) {
                (plan, failed) = (smaller, tried);
                break;
            }
        }
        if plan.size() == before {
            return (plan, failed);
        }
    }
}

/// Returns whether two runs fail in the same way: their first problems differ at most in numbers.
fn is_alike(one: &Run, other: &Run) -> bool {
    let words = |run: &Run| {
        let first = run.problems.first()?;
        Some(first.chars().filter(|letter| letter.is_alphabetic()).take(40).collect::<String>())
    };
    words(one).is_some() && words(one) == words(other)
}

/// Returns the plans that lack one thing, the largest things first.
fn smaller(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Plan)| {
        let mut smaller = plan.clone();
        change(&mut smaller);
        all.push(smaller);
    };
    if plan.faults > 0 {
        add(&|plan| plan.faults = 0);
    }
    for (number, process) in plan.processes.iter().enumerate() {
        add(&|plan| plan.processes[number].callers.clear());
        for caller in 0..process.callers.len() {
            add(&|plan| plan.processes[number].callers[caller].clear());
        }
    }
    for number in 0..plan.breaks.len() {
        add(&|plan| {
            plan.breaks.remove(number);
        });
    }
    for (number, process) in plan.processes.iter().enumerate() {
        for (caller, steps) in process.callers.iter().enumerate() {
            for step in 0..steps.len() {
                add(&|plan| drop(plan.processes[number].callers[caller].remove(step)));
            }
        }
    }
    all
}
