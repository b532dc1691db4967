//! Properties that arrive with a stream, and what is in effect then.

use cenote::PoolWriter;
use cenote_admin::edit::{self, NewDataset};
use dsl::prop::receive::{self, Effect, Received};
use dsl::prop::{self, PropValue};

use super::support::Image;

const SIZE: u64 = 128 << 20;

/// Receives properties; returns the names of those that are refused.
fn receive(writer: &PoolWriter, name: &'static str, props: &[(&str, u64, Effect)]) -> Vec<String> {
    let one = |(name, value, effect): &(&str, u64, Effect)| {
        let is_user = name.contains(':');
        let value = if is_user { PropValue::String(value.to_string()) } else { PropValue::Number(*value) };
        Received { name: (*name).to_owned(), value, effect: *effect }
    };
    let props: Vec<Received> = props.iter().map(one).collect();
    let refused = writer.run(move |ctx| receive::receive(ctx, name, &props)).unwrap();
    refused.into_iter().map(|(name, _)| name).collect()
}

fn set(writer: &PoolWriter, name: &'static str, prop: &'static str, value: u64) {
    writer.run(move |ctx| prop::change::set(ctx, name, prop, &PropValue::Number(value))).unwrap();
}

/// Value, source, and received value.
fn shown(writer: &PoolWriter, name: &str, prop: &str) -> String {
    let view = writer.view().unwrap();
    let dataset = view.dataset(name).unwrap();
    let Some(value) = prop::get(dataset.dsl(), prop).unwrap() else { return "nothing".to_owned() };
    let received = value.received.map_or_else(|| "-".to_owned(), |value| prop::exact(prop, &value));
    format!("{} {} {received}", prop::exact(prop, &value.raw), value.source.text())
}

const ON: u64 = 1;
const OFF: u64 = 0;

#[test]
fn received_values_take_effect_where_nothing_is_set() {
    let (image, writer) = Image::new(SIZE, &[]);
    edit::create(&writer, &NewDataset::filesystem("p/a")).unwrap();
    let quota = 50 << 20;
    let all = [
        ("atime", OFF, Effect::Received),
        ("quota", quota, Effect::Received),
        ("a:b", 7, Effect::Received),
        ("used", 1, Effect::Received),
        ("volsize", 1 << 20, Effect::Received),
    ];
    assert_eq!(receive(&writer, "p/a", &all), ["used", "volsize"]);
    assert_eq!(shown(&writer, "p/a", "atime"), "off received off");
    assert_eq!(shown(&writer, "p/a", "quota"), format!("{quota} received {quota}"));
    assert_eq!(shown(&writer, "p/a", "a:b"), "7 received 7");
    let limit = || writer.view().unwrap().dsl().dir("p/a").unwrap().phys().quota;
    assert_eq!(limit(), quota);
    // A local value stays; what is not received any more goes.
    set(&writer, "p/a", "atime", ON);
    assert!(receive(&writer, "p/a", &[("atime", OFF, Effect::Received)]).is_empty());
    assert_eq!(shown(&writer, "p/a", "atime"), "on local off");
    assert_eq!((shown(&writer, "p/a", "quota"), limit()), ("0 default -".to_owned(), 0));
    assert_eq!(shown(&writer, "p/a", "a:b"), "nothing");
    // A limit that cannot be kept is refused, and the others are received.
    let low = [("quota", 1, Effect::Received), ("exec", OFF, Effect::Received)];
    assert_eq!(receive(&writer, "p/a", &low), ["quota"]);
    assert_eq!(shown(&writer, "p/a", "exec"), "off received off");
    writer.close().unwrap();
    image.judge();
}

#[test]
fn excluded_values_are_stored_and_hidden() {
    let (image, writer) = Image::new(SIZE, &[]);
    edit::create(&writer, &NewDataset::filesystem("p/a")).unwrap();
    let quota = 50 << 20;
    let all =
        [("atime", OFF, Effect::Excluded), ("quota", quota, Effect::Excluded), ("a:b", 7, Effect::Excluded)];
    assert!(receive(&writer, "p/a", &all).is_empty());
    assert_eq!(shown(&writer, "p/a", "atime"), "on default off");
    assert_eq!(shown(&writer, "p/a", "quota"), format!("0 default {quota}"));
    assert_eq!(shown(&writer, "p/a", "a:b"), "nothing");
    assert_eq!(writer.view().unwrap().dsl().dir("p/a").unwrap().phys().quota, 0);
    // It can be reverted to.
    writer.run(|ctx| prop::change::inherit(ctx, "p/a", "atime", true)).unwrap();
    assert_eq!(shown(&writer, "p/a", "atime"), "off received off");
    // What was set before stays, and so does what was received.
    set(&writer, "p/a", "quota", 60 << 20);
    set(&writer, "p/a", "exec", OFF);
    let all = [
        ("quota", quota, Effect::Excluded),
        ("exec", ON, Effect::Excluded),
        ("canmount", 2, Effect::Received),
    ];
    assert!(receive(&writer, "p/a", &all).is_empty());
    assert_eq!(shown(&writer, "p/a", "quota"), format!("{} local {quota}", 60 << 20));
    assert_eq!(shown(&writer, "p/a", "exec"), "off local on");
    assert!(receive(&writer, "p/a", &[("canmount", 0, Effect::Excluded)]).is_empty());
    assert_eq!(shown(&writer, "p/a", "canmount"), "noauto local off");
    writer.close().unwrap();
    image.judge();
}

#[test]
fn descendants_inherit_what_was_set_above() {
    let (image, writer) = Image::new(SIZE, &[]);
    edit::create(&writer, &NewDataset::filesystem("p/a")).unwrap();
    set(&writer, "p", "atime", OFF);
    set(&writer, "p/a", "atime", ON);
    assert!(receive(&writer, "p/a", &[("atime", ON, Effect::Inherited)]).is_empty());
    assert_eq!(shown(&writer, "p/a", "atime"), "off inherited from p on");
    writer.close().unwrap();
    image.judge();
}
