//! The vectors of the specification, and laws that hold for every map.

use super::*;
use format::{AllocOffset, Ashift, Asize, Psize, Txg};

const VECTORS: &str = include_str!("../../../../docs/on-disk/14-geometry-vectors.tsv");

fn lines(kind: &str) -> impl Iterator<Item = (Vec<&'static str>, &'static str)> {
    VECTORS.lines().filter(|line| !line.starts_with('#')).filter_map(move |line| {
        let mut fields = line.split('\t');
        (fields.next()? == kind)
            .then(|| Some((fields.next()?.split(' ').collect(), fields.next()?)))
            .flatten()
    })
}

fn num<T: std::str::FromStr>(fields: &[&str], i: usize) -> T {
    fields[i].parse().unwrap_or_else(|_| panic!("field {i} of {fields:?}"))
}

fn plain(row: &Row) -> String {
    let columns: Vec<String> =
        row.columns.iter().map(|c| format!("{}:{}:{}", c.child, c.at, c.stored)).collect();
    columns.join(" ")
}

fn placed(map: &BlockMap) -> String {
    let rows: Vec<String> = map
        .rows
        .iter()
        .map(|row| {
            let mut columns: Vec<String> =
                row.parity().iter().map(|c| format!("{}:{}:P", c.child, c.at)).collect();
            columns.extend(row.data().iter().map(|c| match c.data {
                0 => format!("{}:{}:-", c.child, c.at),
                _ => format!("{}:{}:{}", c.child, c.at, c.block_at / map.sector),
            }));
            columns.join(" ")
        })
        .collect();
    rows.join(" | ")
}

/// The laws that hold for maps of every kind.
fn check_laws(map: &BlockMap) {
    let mut covered = vec![false; (map.size / map.sector) as usize];
    for row in &map.rows {
        let mut children: Vec<usize> = row.columns.iter().map(|c| c.child).collect();
        children.sort_unstable();
        children.dedup();
        assert_eq!(children.len(), row.columns.len(), "a child twice in {row:?}");
        for column in row.data() {
            assert!(column.data <= column.stored && column.stored <= row.height());
            for i in 0..column.data / map.sector {
                let sector = (column.block_at / map.sector + i) as usize;
                assert!(!std::mem::replace(&mut covered[sector], true), "sector {sector} twice");
            }
        }
    }
    assert!(covered.iter().all(|seen| *seen), "not covered: {map:?}");
    if map.in_order {
        let mut at = 0;
        for column in map.rows.iter().flat_map(Row::data) {
            assert_eq!(column.block_at, at);
            at += column.data;
        }
    }
}

#[test]
fn raidz_vectors() {
    let mut seen = 0;
    for (f, expected) in lines("raidz") {
        let raidz = Raidz::new(num(&f, 0), num(&f, 1), Ashift(num(&f, 2)), Expansion::default()).unwrap();
        let map = raidz.map(AllocOffset(num(&f, 3)), Psize(num(&f, 4)), Txg(50)).unwrap();
        assert_eq!(plain(&map.rows[0]), expected, "{f:?}");
        check_laws(&map);
        seen += 1;
    }
    assert_eq!(seen, 36);
}

#[test]
fn expanded_vectors() {
    let mut seen = 0;
    for (f, expected) in lines("expanded") {
        let txgs =
            if f[3] == "-" { vec![] } else { f[3].split(',').map(|t| Txg(t.parse().unwrap())).collect() };
        let reflow = ReflowState { offset: num(&f, 5), in_scratch: f[6] == "1" };
        let expansion = Expansion { txgs, running: (f[4] == "1").then_some(reflow) };
        let raidz = Raidz::new(num(&f, 0), num(&f, 1), Ashift(num(&f, 2)), expansion).unwrap();
        let map = raidz.map(AllocOffset(num(&f, 8)), Psize(num(&f, 9)), Txg(num(&f, 7))).unwrap();
        match expected.strip_prefix("(same as raidz) ") {
            Some(expected) => assert_eq!(plain(&map.rows[0]), expected, "{f:?}"),
            None => assert_eq!(placed(&map), expected, "{f:?}"),
        }
        check_laws(&map);
        seen += 1;
    }
    assert_eq!(seen, 35);
}

#[test]
fn draid_vectors() {
    let mut seen = 0;
    for (f, expected) in lines("draid") {
        let params = DraidParams {
            children: num(&f, 0),
            ndata: num(&f, 1),
            nparity: num(&f, 2),
            nspares: num(&f, 3),
            ngroups: num(&f, 4),
            ashift: Ashift(num(&f, 5)),
        };
        let draid = Draid::new(params).unwrap();
        let map = draid.map(AllocOffset(num(&f, 6)), Psize(num(&f, 7))).unwrap();
        let rows: Vec<String> = map
            .rows
            .iter()
            .map(|row| {
                let mut text = format!("pad={}", row.height());
                for (i, c) in row.columns.iter().enumerate() {
                    let len = if i < row.nparity { c.stored } else { c.data };
                    text += &format!(" {}:{}:{len}", c.child, c.at);
                }
                text
            })
            .collect();
        assert_eq!(rows.join(" | "), expected, "{f:?}");
        check_laws(&map);
        seen += 1;
    }
    assert_eq!(seen, 15);
}

#[test]
fn every_vector_line_is_tested() {
    let all = VECTORS.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(all, 36 + 35 + 15);
}

#[test]
fn deflate_ratios_of_the_spec() {
    let ratio = |asize: Asize| (1u64 << 17) / (asize.0 / 512);
    let raidz = |n, p, a| Raidz::new(n, p, Ashift(a), Expansion::default()).unwrap();
    let big = Psize(1 << 17);
    assert_eq!(ratio(mirror_asize(big, 512).unwrap()), 512);
    assert_eq!(ratio(raidz(4, 1, 9).asize(big, Txg(0)).unwrap()), 383);
    assert_eq!(ratio(raidz(7, 3, 12).asize(big, Txg(0)).unwrap()), 292);
    let params =
        DraidParams { children: 11, ndata: 4, nparity: 2, nspares: 2, ngroups: 3, ashift: Ashift(12) };
    assert_eq!(ratio(Draid::new(params).unwrap().asize(big).unwrap()), 341);
}

#[test]
fn laws_hold_for_many_shapes() {
    let mut random = crate::env::Random::from_seed(14);
    for _ in 0..3000 {
        let children = 2 + random.below(20) as usize;
        let nparity = 1 + random.below(3.min(children as u64 - 1)) as u8;
        let grown = random.below(3) as usize;
        let running =
            random.one_in(2).then(|| ReflowState { offset: random.below(1 << 24) & !511, in_scratch: false });
        let expansion = Expansion { txgs: (0..grown).map(|i| Txg(100 + i as u64)).collect(), running };
        let Some(raidz) = Raidz::new(children, nparity, Ashift(9), expansion) else { continue };
        let (offset, birth) = (AllocOffset(random.below(1 << 16) * 512), Txg(98 + random.below(6)));
        let psize = Psize((1 + random.below(300)) * 512);
        let map = raidz.map(offset, psize, birth).unwrap();
        check_laws(&map);
        let columns: u64 = map.rows.iter().flat_map(|row| &row.columns).map(|c| c.stored).sum();
        assert!(columns <= raidz.asize(psize, birth).unwrap().0);
    }
}
