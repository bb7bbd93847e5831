//! Sets of nodes that reach each other.

use std::mem::replace;

/// Returns the set of each node: two nodes are in the same set if each reaches the other. `next` are the nodes that
/// each leads to. Takes as many steps as there are nodes and edges.
///
/// Source: M. Sharir, "A strong-connectivity algorithm and its applications in data flow analysis", 1981.
pub(super) fn sets(next: &[Vec<usize>]) -> Vec<usize> {
    let (mut is_seen, mut order) = (vec![false; next.len()], Vec::with_capacity(next.len()));
    (0..next.len()).for_each(|start| visit(start, next, &mut is_seen, &mut order));
    let before = reversed(next);
    is_seen.fill(false);
    let mut set_of = vec![0; next.len()];
    for first in order.into_iter().rev() {
        let mut set = Vec::new();
        visit(first, &before, &mut is_seen, &mut set);
        for node in set {
            set_of[node] = first;
        }
    }
    set_of
}

/// Adds the nodes that `start` reaches to `order`, each after those that it leads to, unless they were seen before.
fn visit(start: usize, next: &[Vec<usize>], is_seen: &mut [bool], order: &mut Vec<usize>) {
    let is_new = |node: usize, is_seen: &mut [bool]| !replace(&mut is_seen[node], true);
    let mut path = if is_new(start, is_seen) { vec![(start, next[start].iter())] } else { Vec::new() };
    while let Some((node, rest)) = path.last_mut() {
        match rest.next() {
            Some(to) if is_new(*to, is_seen) => path.push((*to, next[*to].iter())),
            Some(_) => {}
            None => {
                order.push(*node);
                path.pop();
            }
        }
    }
}

fn reversed(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut before = vec![Vec::new(); next.len()];
    for (from, all) in next.iter().enumerate() {
        for to in all {
            before[*to].push(from);
        }
    }
    before
}
