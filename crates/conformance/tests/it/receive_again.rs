//! `zfs send` and `zfs receive`: what is interrupted and goes on, limits of space, and what is left when they are refused.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods)]

use crate::receive::World;
use crate::zstream::fed;

impl World {
    /// The stream that a command writes.
    fn stream(&self, line: &str) -> Vec<u8> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = fed(&mut self.command(), &words, &[]);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn token(&self, dataset: &str) -> String {
        let token = self.property(dataset, "receive_resume_token").replace(" -", "");
        assert!(token.starts_with("1-"), "{token}");
        token
    }

    fn number(&self, dataset: &str, name: &str) -> u64 {
        let text = self.good(&format!("zfs get -Hp -o value {name} {dataset}"), &[]);
        text.trim().parse().expect("a number")
    }
}

#[test]
fn the_stream_of_a_file_system_itself_is_resumed() {
    let world = World::new();
    world.receive("zfs receive dst/full", "full");
    let whole = world.stream("zfs send dst/full");
    world.bad("zfs receive -s dst/res", &whole[..whole.len() / 2]);
    let token = world.token("dst/res");
    let rest = world.stream(&format!("zfs send -t {token}"));
    assert!(rest.len() < whole.len());
    world.good("zfs receive -s dst/res", &rest);
    assert_eq!(world.names("snapshot", "dst/res"), ["dst/res@--head--"]);
    world.check_files("dst/res@--head--", "dst/full@a");
    world.good("zfs rename dst/full dst/other", &[]);
    let (_, errors, code) = world.run(&format!("zfs send -t {token}"), &[]);
    assert_eq!(code, 255);
    let message = "cannot resume send: 'dst/full@--head--' used in the initial send no longer exists\n";
    assert_eq!(errors, message);
    world.judge();
}

#[test]
fn a_full_stream_over_a_dataset_is_resumed_by_force_only() {
    let world = World::new();
    world.receive("zfs receive dst/full", "full");
    let whole = world.stream("zfs send dst/full@a");
    world.good("zfs create -o readonly=on dst/old", &[]);
    world.bad("zfs receive -sF dst/old", &whole[..whole.len() / 2]);
    let rest = world.stream(&format!("zfs send -t {}", world.token("dst/old")));
    assert_eq!(
        world.bad("zfs receive -s dst/old", &rest),
        "cannot receive new filesystem stream: destination 'dst/old' exists\nmust specify -F to overwrite it\n"
    );
    world.good("zfs receive -sF dst/old", &rest);
    world.check_files("dst/old@a", "dst/full@a");
    world.judge();
}

#[test]
fn received_values_are_shown_where_others_hold() {
    let world = World::new();
    world.receive("zfs receive dst/full", "full");
    world.good("zfs set com.example:k=old dst/full", &[]);
    world.good("zfs receive dst/r", &world.stream("zfs send -p dst/full@a"));
    world.good("zfs set com.example:k=new dst/full", &[]);
    world.good("zfs snapshot dst/full@b", &[]);
    let increment = world.stream("zfs send -p -i @a dst/full@b");
    world.good("zfs receive -x com.example:k dst/r", &increment);
    let text = world.good("zfs get -H -o value,received,source com.example:k dst/r", &[]);
    assert_eq!(text, "-\tnew\t-\n");
    world.good("zfs inherit -S com.example:k dst/r", &[]);
    assert_eq!(world.property("dst/r", "com.example:k"), "new received");
}

#[test]
fn quotas_bound_what_is_received() {
    let world = World::new();
    world.receive("zfs receive dst/full", "full");
    let half = world.number("dst/full", "referenced") / 2;
    world.good(&format!("zfs create -o quota={half} dst/small"), &[]);
    assert_eq!(
        world.bad("zfs receive dst/small/r", &testkit::stream("full")),
        "cannot receive new filesystem stream: destination dst/small/r space quota exceeded.\n"
    );
    // A refquota may be exceeded by what a sender with the same one can have.
    world.receive("zfs receive dst/r", "full");
    let refquota = world.number("dst/r", "referenced");
    world.receive("zfs receive dst/full", "incr-a-b");
    assert!(world.number("dst/full", "referenced") > refquota);
    world.good(&format!("zfs set refquota={refquota} dst/r"), &[]);
    world.receive("zfs receive dst/r", "incr-a-b");
    world.judge();
}

#[test]
fn space_of_a_destroyed_dataset_is_waited_for() {
    let world = World::new();
    let image = world.folder.path().join("d/b");
    crate::receive::make(&image, 64 << 20);
    world.good(&format!("zpool create few {}", image.display()), &[]);
    let full = testkit::stream("full");
    world.good("zfs receive few/r0", &full);
    let mut last = 0;
    while world.run(&format!("zfs receive few/r{}", last + 1), &full).2 == 0 {
        last += 1;
    }
    // Nothing fits now.
    assert_eq!(world.run("zfs create few/new", &[]).2, 1);
    world.good("zfs destroy -r few/r0", &[]);
    world.good("zfs receive few/r0", &full);
}

#[test]
fn datasets_move_below_new_ones_as_at_the_sender() {
    let world = World::new();
    world.good("zfs create -p dst/h/ann", &[]);
    world.good("zfs snapshot -r dst/h@1", &[]);
    world.good("zfs receive dst/r", &world.stream("zfs send -R dst/h@1"));
    world.good("zfs create dst/h/group", &[]);
    world.good("zfs rename dst/h/ann dst/h/group/ann", &[]);
    world.good("zfs snapshot -r dst/h@2", &[]);
    let package = world.stream("zfs send -R -I @1 dst/h@2");
    let told = world.good("zfs receive -nvF dst/r", &package);
    assert!(
        told.contains("would receive incremental stream of dst/h/group/ann@2 into dst/r/ann@2\n"),
        "{told}"
    );
    let told = world.good("zfs receive -vF dst/r", &package);
    assert!(told.contains("attempting rename dst/r/ann to dst/r/group/ann\nsuccess\n"), "{told}");
    let snapshots = ["dst/r@1", "dst/r@2", "dst/r/group@2", "dst/r/group/ann@1", "dst/r/group/ann@2"];
    assert_eq!(world.names("snapshot", "dst/r"), snapshots);
    // What is there is passed over, but no full stream.
    let (told, errors, code) = world.run("zfs receive -v dst/r", &package);
    assert_eq!(
        told,
        "receiving incremental stream of dst/h@2 into dst/r@2\nsnap dst/r@2 already exists; ignoring\n\
         received 0B stream in 0.00 seconds (0B/sec)\n"
    );
    let exists = "destination 'dst/r/group' exists\nmust specify -F to overwrite it\n";
    assert_eq!((errors, code), (format!("cannot receive new filesystem stream: {exists}"), 1));
    let no_stream = world.bad("zfs receive dst/x", b"hello\n");
    assert_eq!(no_stream, "cannot receive: failed to read from stream\n");
    world.judge();
}
