use super::*;

/// Returns the view of the node `a`, `b` or `c` in a cluster of three masters with these numbers and slots.
fn view(of: &str, a: (u64, &str), b: (u64, &str), c: (u64, &str)) -> View {
    let line = |(id, (epoch, slots)): (&str, (u64, &str))| {
        let (myself, port) = (if id == of { "myself," } else { "" }, 7000 + u16::from(id.as_bytes()[0]));
        format!("{id} 127.0.0.1:{port}@17000 {myself}master - 0 0 {epoch} connected {slots}")
            .trim_end()
            .to_owned()
    };
    let lines: Vec<_> = [("a", a), ("b", b), ("c", c)].into_iter().map(line).collect();
    View::read(&lines.join("\n"), "h").expect("a view")
}

fn owner(topology: &Topology, slot: u16) -> String {
    let (_, owner) = topology.owners().nth(usize::from(slot)).unwrap();
    at(&topology.masters, owner).map_or_else(String::new, |master| master.id.clone())
}

const FIRST: (u64, &str) = (1, "0-99");
const SECOND: (u64, &str) = (2, "100-16383");

#[test]
fn view_is_read() {
    let text = "1a 10.0.0.1:7000@17000,one.example myself,master - 0 1426238317239 4 connected 0 5-7 [93-<-2b] [77->-2b]
2b [::1]:7001@17001 slave 1a 0 1426238316232 4 connected
3c :7002@17002,,shard-id=x master,fail - 0 1 9 disconnected 8-16383
4d :0@0 master,noaddr - 0 1 0 disconnected
";
    let view = View::read(text, "h").unwrap();
    assert!(view.is_moving);
    let places: Vec<_> =
        view.nodes.iter().map(|seen| (seen.place.address.as_str(), seen.place.port)).collect();
    assert_eq!(places, [("10.0.0.1", 7000), ("::1", 7001), ("h", 7002)]);
    assert_eq!(view.nodes[0].place.hostname.as_deref(), Some("one.example"));
    assert!(view.nodes[0].place.is("one.example:7000") && view.nodes[1].place.is("::1:7001"));
    assert!(!view.nodes[0].place.is("10.0.0.1:7001"));
    assert_eq!(view.nodes[2].place.hostname, None);
    let flags: Vec<_> = view.nodes.iter().map(|seen| (seen.is_master, seen.has_failed)).collect();
    assert_eq!(flags, [(true, false), (false, false), (true, true)]);
    assert_eq!(
        (view.owners[0], view.owners[1], view.owners[6], view.owners[8]),
        (Some(0), None, Some(0), Some(2))
    );
    for wrong in ["", "x", "1a h:1@2 master - 0 0 1 connected 0-16384", "1a h:1@2 master - 0 0 1 connected 0"]
    {
        assert!(View::read(wrong, "h").is_none(), "{wrong}");
    }
}

#[test]
fn later_claims_count_whoever_reports_them() {
    let mut topology = Topology::default();
    assert_eq!(topology.apply(&view("a", FIRST, SECOND, (3, ""))), Change::default());
    assert_eq!((owner(&topology, 0).as_str(), owner(&topology, 100).as_str()), ("a", "b"));
    assert_eq!(topology.masters().len(), 3, "one without slots may get some");
    // The slots 0 to 9 go to c, whose number is the highest already.
    let moved = Change { has_moved: true, has_failed_over: false };
    assert_eq!(topology.apply(&view("c", (1, "10-99"), SECOND, (3, "0-9"))), moved);
    assert_eq!(topology.apply(&view("b", FIRST, SECOND, (3, ""))), Change::default(), "an old view");
    assert_eq!(owner(&topology, 0), "c");
    // And back to a, which says so first. That c has none left looks as if it had been replaced.
    let replaced = Change { has_moved: true, has_failed_over: true };
    assert_eq!(topology.apply(&view("a", (4, "0-99"), SECOND, (3, ""))), replaced);
    assert_eq!(topology.apply(&view("c", (1, "10-99"), SECOND, (3, "0-9"))), Change::default());
    assert_eq!(owner(&topology, 0), "a");
}

#[test]
fn node_that_gives_a_slot_away_is_believed() {
    let mut topology = Topology::default();
    topology.apply(&view("a", (9, "0-99"), SECOND, (3, "")));
    let moved = Change { has_moved: true, has_failed_over: false };
    assert_eq!(topology.apply(&view("a", (9, "1-99"), SECOND, (3, "0"))), moved);
    assert_eq!((owner(&topology, 0).as_str(), owner(&topology, 1).as_str()), ("c", "a"));
}

#[test]
fn taken_slots_are_a_failover() {
    // A master without slots does not know yet that it was replaced.
    for former in ["master,fail", "slave", "master,fail?", "master"] {
        let mut topology = Topology::default();
        topology.apply(&view("a", FIRST, SECOND, (3, "")));
        let text = format!(
            "a 127.0.0.1:7097@1 {former} - 0 0 1 disconnected\nb 127.0.0.1:7098@1 myself,master - 0 0 2 connected \
             100-16383\nd 127.0.0.1:7100@1 master - 0 0 4 connected 0-99"
        );
        let change = topology.apply(&View::read(&text, "h").unwrap());
        assert_eq!(change, Change { has_moved: true, has_failed_over: true }, "{former}");
        assert_eq!(topology.masters().len(), 2, "the former master is left: {former}");
        // The former master still believes in itself.
        assert_eq!(topology.apply(&view("a", FIRST, SECOND, (3, ""))), Change::default());
        assert_eq!(owner(&topology, 0), "d");
        assert!(
            topology.master_at("127.0.0.1:7100").is_some() && topology.master_at("127.0.0.1:1").is_none()
        );
    }
}

#[test]
fn node_that_was_reset_takes_nothing() {
    let mut topology = Topology::default();
    topology.apply(&view("a", FIRST, SECOND, (3, "")));
    let alone = View::read("c 127.0.0.1:7099@1 myself,master - 0 0 0 connected", "h").unwrap();
    assert_eq!(topology.apply(&alone), Change::default());
    assert_eq!((owner(&topology, 0).as_str(), owner(&topology, 100).as_str()), ("a", "b"));
}

#[test]
fn node_at_a_new_place_is_another_one() {
    let mut topology = Topology::default();
    let at = |port: u16| {
        let text = format!("a 127.0.0.1:{port}@1 myself,master - 0 0 1 connected 0-16383");
        View::read(&text, "h").unwrap()
    };
    topology.apply(&at(7000));
    let before = topology.masters();
    assert!(!topology.has_relocated(*before.first().unwrap()));
    assert!(!topology.apply(&at(7001)).has_failed_over);
    let after = topology.masters();
    assert_eq!(after.len(), 1);
    assert_ne!(before, after);
    assert_eq!(topology.master(*after.first().unwrap()).unwrap().1.port, 7001);
    assert!(topology.has_relocated(*after.first().unwrap()));
}

/// A container that knows itself by its former address, for example. The others know where it is.
#[test]
fn word_of_a_node_about_its_own_place_moves_nothing() {
    let mut topology = Topology::default();
    let others = view("a", FIRST, SECOND, (3, ""));
    topology.apply(&others);
    let before: Vec<_> = topology.owners().collect();
    let mut own = view("b", FIRST, SECOND, (3, ""));
    own.nodes[1].place.address = "10.9.9.9".to_owned();
    own.was_reached = true;
    for view in [&own, &others, &own] {
        assert_eq!(topology.apply(view), Change::default());
        assert_eq!(topology.owners().collect::<Vec<_>>(), before);
        assert_eq!(topology.masters().len(), 3);
    }
    // The others know a new place.
    let mut moved = view("a", FIRST, SECOND, (3, ""));
    moved.nodes[1].place.address = "10.8.8.8".to_owned();
    topology.apply(&moved);
    let after: Vec<_> = topology.owners().collect();
    assert_ne!(after, before);
    topology.apply(&own);
    assert_eq!(topology.owners().collect::<Vec<_>>(), after);
    // The only node that was asked so far.
    let mut alone = Topology::default();
    alone.apply(&own);
    assert_eq!(alone.masters().len(), 3);
}

/// Its numbers of configurations begin anew.
#[test]
fn another_cluster_takes_the_place_of_one_that_is_gone() {
    let mut topology = Topology::default();
    topology.apply(&view("a", (7, "0-99"), (8, "100-16383"), (9, "")));
    let anew = |slots: &str| {
        let line = |id, port, epoch, slots| {
            format!(
                "{id} 127.0.0.1:{port}@17000 {}master - 0 0 {epoch} connected {slots}",
                if epoch == 1 { "myself," } else { "" }
            )
        };
        let text = [line("x", 7097, 1, slots), line("y", 7098, 2, "100-16383")].join("\n");
        View::read(&text, "h").unwrap()
    };
    let other = anew("0-99");
    assert!(topology.is_foreign(&other) && !topology.is_foreign(&view("c", FIRST, SECOND, (3, ""))));
    assert!(!Topology::default().is_foreign(&other), "nothing is known yet");
    assert_eq!(topology.apply(&other), Change::default(), "one view is not enough");
    assert_eq!(topology.replace(&other), Change { has_moved: true, has_failed_over: true });
    assert_eq!((owner(&topology, 0).as_str(), owner(&topology, 100).as_str()), ("x", "y"));
    assert_eq!(topology.masters().len(), 2, "the former masters are left");
    assert!(!topology.is_foreign(&other));
}

/// A node of 6.2 knows no names of hosts, and lists nodes of 7 without them.
#[test]
fn name_alone_makes_no_other_place() {
    let named = |name: &str| {
        let mut view = view("a", FIRST, SECOND, (3, ""));
        view.nodes[1].place.hostname = Some(name.to_owned());
        view
    };
    let nameless = view("c", FIRST, SECOND, (3, ""));
    for (by_name, other_name_counts) in [(false, false), (true, true)] {
        let mut topology = Topology::new(by_name);
        topology.apply(&named("one.example"));
        let before = topology.masters();
        for view in [&nameless, &named("one.example"), &nameless] {
            assert_eq!(topology.apply(view), Change::default());
            assert_eq!(topology.masters(), before);
        }
        assert!(topology.master_at("one.example:7098").is_some());
        topology.apply(&named("other.example"));
        assert_eq!(topology.masters() != before, other_name_counts);
        assert!(topology.master_at("other.example:7098").is_some());
    }
    // A certificate may be for a name that was not known yet.
    let mut topology = Topology::new(true);
    topology.apply(&nameless);
    let before = topology.masters();
    topology.apply(&named("one.example"));
    assert_ne!(topology.masters(), before);
}

/// It had the highest number when it was removed, so no other node's claim is later.
#[test]
fn removed_master_is_left_once_it_is_gone() {
    let mut topology = Topology::default();
    topology.apply(&view("a", (1, "0-99"), (9, "100-16383"), (3, "")));
    let text = "a 127.0.0.1:7097@1 myself,master - 0 0 1 connected 0-99
c 127.0.0.1:7099@1 master - 0 0 3 connected 100-16383";
    let without = View::read(text, "h").unwrap();
    assert_eq!(topology.apply(&without), Change::default());
    let unknown = topology.owners_unknown_to(&[&without]);
    assert_eq!(unknown.len(), 1);
    let with = view("c", (1, "0-99"), (9, "100-16383"), (3, ""));
    assert!(topology.owners_unknown_to(&[&without, &with]).is_empty(), "one node knows it");
    topology.set_gone(unknown);
    assert_eq!(topology.apply(&without), Change { has_moved: true, has_failed_over: true });
    assert_eq!(owner(&topology, 100), "c");
}
