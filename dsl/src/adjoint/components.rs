//! The order in which the fields of λ can be computed: strongly connected components of J_L's dependency graph.

/// The strongly connected components of a graph over `nodes` (numbers below 64), each after all that lead to it.
///
/// `edge(j, i)` says whether j leads to i. Members of a component and independent components are in the order of
/// `nodes`.
pub(crate) fn components(nodes: &[usize], edge: impl Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
    let reach = reachable(nodes, edge);
    let together = |i: usize, j: usize| i == j || (reach[i] >> j & 1 == 1 && reach[j] >> i & 1 == 1);
    let mut found: Vec<Vec<usize>> = vec![];
    for &i in nodes {
        match found.iter_mut().find(|component| together(component[0], i)) {
            Some(component) => component.push(i),
            None => found.push(vec![i]),
        }
    }
    let before = |component: &Vec<usize>| {
        let leads_here = |j: &&usize| reach[**j] >> component[0] & 1 == 1 && !component.contains(*j);
        nodes.iter().filter(leads_here).count()
    };
    // A node that leads to a component also leads to all later ones, and so does the component itself: the count grows.
    found.sort_by_key(before);
    found
}

/// For every node the set of nodes that a path of one or more edges leads to.
fn reachable(nodes: &[usize], edge: impl Fn(usize, usize) -> bool) -> Vec<u64> {
    let mut reach = vec![0u64; nodes.iter().max().map_or(0, |n| n + 1)];
    for &j in nodes {
        reach[j] = nodes.iter().filter(|i| edge(j, **i)).fold(0, |set, i| set | 1 << i);
    }
    for &via in nodes {
        for &j in nodes {
            if reach[j] >> via & 1 == 1 {
                reach[j] |= reach[via];
            }
        }
    }
    reach
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(n: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
        components(&(0..n).collect::<Vec<_>>(), |j, i| edges.contains(&(j, i)))
    }

    #[test]
    fn independent_nodes_stay_alone_and_in_order() {
        assert_eq!(ordered(3, &[(0, 0), (1, 1), (2, 2)]), [[0], [1], [2]]);
        assert_eq!(components(&[], |_, _| true), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn sources_come_first() {
        assert_eq!(ordered(3, &[(2, 1), (1, 0), (2, 0)]), [[2], [1], [0]]);
    }

    #[test]
    fn cycles_are_one_component() {
        let two = ordered(5, &[(0, 3), (3, 0), (1, 2), (2, 1), (2, 3), (3, 4)]);
        assert_eq!(two, [vec![1, 2], vec![0, 3], vec![4]]);
        assert_eq!(ordered(3, &[(0, 1), (1, 2), (2, 0)]), [[0, 1, 2]]);
    }
}
