//! `zpool status -j`, and the vdev objects that `list -j` shares with it.

use super::status_options::Options;
use super::status_text;
use super::{json_answer, json_facts};
use crate::time;
use crate::values;
use crate::vdevs::{GROUPS, tops};
use admin::verbs::zpool::status::Row;
use admin::{self, Checkpoint, Class, Expansion, PoolStatus, Removal, Scan, Vdev};
use format::nicenum::{nicebytes, nicenum};
use serde_json::{Map, Value as Json, json};

/// Which numbers are integers, and which strings are exact.
#[derive(Clone, Copy)]
struct Form {
    int: bool,
    exact: bool,
}

impl Form {
    fn count(self, number: u64) -> Json {
        values::number(number, self.int, |n| n.to_string())
    }

    fn errors(self, number: u64) -> Json {
        let exact = self.exact;
        values::number(number, self.int, |n| if exact { n.to_string() } else { nicenum(n) })
    }

    fn size(self, bytes: u64) -> Json {
        let exact = self.exact;
        values::number(bytes, self.int, |n| if exact { n.to_string() } else { nicenum(n) })
    }

    fn bytes(self, bytes: u64) -> Json {
        let exact = self.exact;
        values::number(bytes, self.int, |n| if exact { n.to_string() } else { nicebytes(n) })
    }

    /// A time; 0 is none.
    fn time(self, seconds: u64) -> Json {
        match seconds {
            0 => json!(values::ABSENT),
            s if self.int => json!(s),
            s if self.exact => json!(s.to_string()),
            s => json!(time::dated(s)),
        }
    }
}

/// The answer for all pools.
pub(super) fn answer(options: &Options, rows: &[Row]) -> String {
    let mut pools = Map::new();
    for Row { status, not_mounted } in rows {
        let mut map = pool(options, status);
        if !not_mounted.is_empty() {
            let not_mounted: Map<String, Json> =
                not_mounted.iter().map(|(dataset, why)| (dataset.clone(), json!(why.to_string()))).collect();
            map.insert("not_mounted".into(), Json::Object(not_mounted));
        }
        pools.insert(options.json.key(&status.facts), Json::Object(map));
    }
    json_answer("zpool status", "pools", pools)
}

fn pool(options: &Options, status: &PoolStatus) -> Map<String, Json> {
    let form = Form { int: options.json.int, exact: options.exact };
    let mut map = json_facts(&status.facts, false, form.int);
    let advice = status_text::of_status(&status.diagnosis);
    if let Some(text) = advice.status {
        map.insert("status".into(), json!(format!("{text}\n")));
    }
    if let Some(text) = advice.action {
        map.insert("action".into(), json!(format!("{text}\n")));
    }
    if let Some(id) = advice.msgid {
        map.insert("msgid".into(), json!(id));
        map.insert("moreinfo".into(), json!(status_text::page(id)));
    }
    if let Some(stats) = &status.scan {
        map.insert("scan_stats".into(), scan(stats, form));
    }
    if let Some(stats) = &status.removal {
        map.insert("removal_stats".into(), removal(stats, form));
    }
    if let Some(stats) = &status.checkpoint {
        map.insert("checkpoint_stats".into(), checkpoint(stats, form));
    }
    if let Some(stats) = &status.expansion {
        map.insert("raidz_expand_stats".into(), expansion(options, status, stats, form));
    }
    vdevs(options, status, form, &mut map);
    if let Some(dedup) = status.dedup.as_ref().filter(|d| d.entries > 0 && options.dedup > 0) {
        map.insert("dedup_stats".into(), dedup_json(options, dedup, form));
    }
    map.insert("error_count".into(), form.count(status.error_count));
    if options.verbose && status.error_count > 0 {
        map.insert("errlist".into(), json!(status.errors));
    }
    map
}

fn scan(scan: &Scan, form: Form) -> Json {
    let function = match scan.function {
        1 => "SCRUB",
        2 => "RESILVER",
        _ => "NONE",
    };
    let state = match scan.state {
        1 => "SCANNING",
        2 => "FINISHED",
        3 => "CANCELED",
        _ => "NONE",
    };
    // Numbers of this pass belong to a scan that runs.
    let pass = scan.pass.as_ref();
    let issued = pass.map_or(scan.examined.saturating_sub(scan.skipped), |pass| pass.issued);
    let paused_since = pass.map_or(if scan.paused { scan.end } else { 0 }, |pass| pass.paused_since);
    json!({
        "function": function,
        "state": state,
        "start_time": form.time(scan.start),
        "end_time": form.time(scan.end),
        "to_examine": form.bytes(scan.to_examine),
        "examined": form.bytes(scan.examined),
        "skipped": form.bytes(scan.skipped),
        "processed": form.bytes(scan.processed),
        "errors": form.count(scan.errors),
        "bytes_per_scan": form.bytes(pass.map_or(0, |pass| pass.pass_examined)),
        "pass_start": form.count(pass.map_or(scan.start, |pass| pass.start)),
        "scrub_pause": form.time(paused_since),
        "scrub_spent_paused": form.count(pass.map_or(0, |pass| pass.spent_paused)),
        "issued_bytes_per_scan": form.bytes(pass.map_or(0, |pass| pass.pass_issued)),
        "issued": form.bytes(issued),
    })
}

fn state_word(state: u64) -> &'static str {
    match state {
        1 => "SCANNING",
        2 => "FINISHED",
        3 => "CANCELED",
        _ => "NONE",
    }
}

fn removal(removal: &Removal, form: Form) -> Json {
    json!({
        "state": state_word(removal.state),
        "removing_vdev": removal.vdev.to_string(),
        "start_time": form.time(removal.start),
        "end_time": form.time(removal.end),
        "to_copy": form.bytes(removal.to_copy),
        "copied": form.bytes(removal.copied),
        "mapping_memory": form.bytes(removal.mapping_memory),
    })
}

fn checkpoint(checkpoint: &Checkpoint, form: Form) -> Json {
    let state = if checkpoint.discarding { "DISCARDING" } else { "EXISTS" };
    json!({
        "state": state,
        "start_time": form.time(checkpoint.time),
        "space": form.bytes(checkpoint.space),
    })
}

fn expansion(options: &Options, status: &PoolStatus, expansion: &Expansion, form: Form) -> Json {
    let vdev = status.vdevs.root.children.iter().find(|v| v.id == expansion.vdev);
    json!({
        "name": vdev.map_or_else(String::new, |v| options.names.of(v)),
        "state": state_word(expansion.state),
        "expanding_vdev": form.count(expansion.vdev),
        "start_time": form.time(expansion.start),
        "end_time": form.time(expansion.end),
        "to_reflow": form.bytes(expansion.to_copy),
        "reflowed": form.bytes(expansion.copied),
        "waiting_for_resilver": form.count(0),
    })
}

fn dedup_json(options: &Options, dedup: &admin::Dedup, form: Form) -> Json {
    let mut map = Map::new();
    map.insert("ddt_entries".into(), form.count(dedup.entries));
    map.insert("size_on_disk".into(), form.bytes(dedup.on_disk));
    map.insert("size_in_core".into(), form.bytes(dedup.in_core));
    if options.dedup > 1 {
        let mut histogram = Map::new();
        for (power, b) in dedup.histogram.iter().enumerate().filter(|(_, b)| b.blocks > 0) {
            let bucket = json!({
                "refcnt": form.count(u32::try_from(power).ok().and_then(|p| 1u64.checked_shl(p)).unwrap_or(0)),
                "blocks": form.count(b.blocks), "lsize": form.bytes(b.lsize),
                "psize": form.bytes(b.psize), "dsize": form.bytes(b.dsize),
                "ref_blocks": form.count(b.ref_blocks), "ref_lsize": form.bytes(b.ref_lsize),
                "ref_psize": form.bytes(b.ref_psize), "ref_dsize": form.bytes(b.ref_dsize),
            });
            histogram.insert(power.to_string(), bucket);
        }
        map.insert("ddt_histogram".into(), Json::Object(histogram));
    }
    Json::Object(map)
}

/// The tree, and the groups beside it.
fn vdevs(options: &Options, status: &PoolStatus, form: Form, map: &mut Map<String, Json>) {
    let root = &status.vdevs.root;
    let mut tree = Map::new();
    if options.json.flat {
        flat(options, root, None, form, &mut tree);
    } else {
        let (name, mut object) = vdev(options, root, None, form);
        let normal: Map<String, Json> = tops(root, Class::Normal)
            .filter(|v| v.kind != "indirect")
            .map(|v| nested(options, v, None, form))
            .collect();
        object.insert("vdevs".into(), Json::Object(normal));
        tree.insert(name, Json::Object(object));
    }
    map.insert("vdevs".into(), Json::Object(tree));
    let mut group = |key: &str, members: &mut dyn Iterator<Item = &Vdev>| {
        let objects: Map<String, Json> = members.map(|v| nested(options, v, None, form)).collect();
        if !objects.is_empty() {
            map.insert(key.into(), Json::Object(objects));
        }
    };
    for (class, heading) in GROUPS {
        group(heading, &mut tops(root, class));
    }
    group("l2cache", &mut status.vdevs.cache.iter());
    group("spares", &mut status.vdevs.spares.iter());
}

fn nested(options: &Options, v: &Vdev, parent: Option<&str>, form: Form) -> (String, Json) {
    let (name, mut object) = vdev(options, v, parent, form);
    let children: Map<String, Json> =
        v.children.iter().map(|c| nested(options, c, parent.and(Some(&name)), form)).collect();
    if !children.is_empty() {
        object.insert("vdevs".into(), Json::Object(children));
    }
    (name, Json::Object(object))
}

/// Children first, each with the name of its parent; the tool repeats what stands below a vdev so far
/// inside it, which is kept because readers may have come to use it.
fn flat(options: &Options, v: &Vdev, parent: Option<&str>, form: Form, all: &mut Map<String, Json>) {
    let (name, mut object) = vdev(options, v, parent, form);
    let members = v.children.iter().filter(|c| !matches!(c.kind.as_str(), "hole" | "indirect"));
    for child in members {
        flat(options, child, Some(&name), form, all);
    }
    if !v.children.is_empty() {
        object.insert("vdevs".into(), Json::Object(all.clone()));
    }
    all.insert(name, Json::Object(object));
}

/// Name, type, guid, path, class, state: what every vdev object begins with.
pub(super) fn identity(vdev: &Vdev, name: &str, int: bool) -> Map<String, Json> {
    let mut map = Map::new();
    map.insert("name".into(), json!(name));
    map.insert("vdev_type".into(), json!(vdev.kind));
    map.insert("guid".into(), values::number(vdev.guid, int, |n| n.to_string()));
    for (key, text) in [("path", &vdev.path), ("phys_path", &vdev.phys_path), ("devid", &vdev.devid)] {
        if let Some(text) = text {
            map.insert(key.into(), json!(text));
        }
    }
    map.insert("class".into(), json!(vdev.class.word()));
    map.insert("state".into(), json!(vdev.health.state_word()));
    map
}

fn vdev(options: &Options, v: &Vdev, parent: Option<&str>, form: Form) -> (String, Map<String, Json>) {
    let name = options.names.of(v);
    let mut map = identity(v, &name, form.int);
    if let Some(parent) = parent {
        map.insert("parent".into(), json!(parent));
    }
    if v.space > 0 {
        map.insert("alloc_space".into(), form.size(v.alloc));
        map.insert("total_space".into(), form.size(v.space));
        map.insert("def_space".into(), form.size(v.deflated));
    }
    if v.replace_size > 0 && v.kind != "root" {
        map.insert("rep_dev_size".into(), form.size(v.replace_size));
    }
    if v.psize > 0 {
        map.insert("phys_space".into(), form.size(v.psize));
    }
    map.insert("read_errors".into(), form.errors(v.read_errors));
    map.insert("write_errors".into(), form.errors(v.write_errors));
    map.insert("checksum_errors".into(), form.errors(v.checksum_errors));
    if v.is_leaf() {
        map.insert("slow_ios".into(), form.errors(v.slow_ios));
    }
    if v.not_present {
        map.insert("not_present".into(), form.count(1));
        map.insert("was".into(), json!(v.path.clone().unwrap_or_default()));
    } else if !v.aux.words().is_empty() {
        map.insert("aux".into(), json!(v.aux.words()));
    }
    (name, map)
}
