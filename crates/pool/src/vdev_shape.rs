//! How a vdev tree changes when a device joins or leaves: pure functions on configurations
//! (docs/on-disk/14-vdevs.md, section 8).
//!
//! # What always holds
//! - What belongs to a top-level slot (space, sectors, class, ZAP) stays with the slot: when a device becomes a
//!   mirror the mirror has it, when a mirror becomes a device again the device has it.
//! - A vdev that becomes top-level because its parent ends takes over the parent's guid; below the top every vdev
//!   keeps its own.
//! - A refusal leaves the configuration as it was.

use crate::attach::Purpose;
use crate::refusal::ShapeRefusal;
use format::VdevGuid;
use format::config::{VdevKind, VdevNode};

/// The place of a vdev in the tree: the index at each level, from the root down.
pub(crate) type Place = Vec<usize>;

/// How a new leaf joins another vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    /// As one more child of the parent that both have.
    Beside,
    /// Both become children of a new vdev of this kind, which stands where the old one was.
    Under(VdevKind),
}

/// What a vdev that left the tree leaves behind.
#[derive(Debug)]
pub(crate) struct Departed {
    /// The leaf that has left.
    pub(crate) leaf: VdevNode,
    /// A spare that has taken the place of the leaf for good.
    pub(crate) heir: Option<VdevNode>,
    /// Guids that have changed: the new one and that so far.
    pub(crate) renamed: Option<(VdevGuid, VdevGuid)>,
}

/// Whether a vdev is a device or a file.
pub(crate) fn is_device(node: &VdevNode) -> bool {
    matches!(node.kind, VdevKind::Disk | VdevKind::File)
}

/// Whether all children of a vdev of this kind hold the same bytes.
pub(crate) fn is_mirror_like(kind: VdevKind) -> bool {
    matches!(kind, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare)
}

/// The place of a vdev below the root.
pub(crate) fn place_of(root: &VdevNode, guid: VdevGuid) -> Option<Place> {
    for (index, child) in root.children.iter().enumerate() {
        if child.guid == guid {
            return Some(vec![index]);
        }
        if let Some(mut place) = place_of(child, guid) {
            place.insert(0, index);
            return Some(place);
        }
    }
    None
}

fn at<'n>(root: &'n VdevNode, place: &[usize]) -> Option<&'n VdevNode> {
    place.iter().try_fold(root, |node, index| node.children.get(*index))
}

fn at_mut<'n>(root: &'n mut VdevNode, place: &[usize]) -> Option<&'n mut VdevNode> {
    place.iter().try_fold(root, |node, index| node.children.get_mut(*index))
}

/// The vdev and its parent.
fn with_parent<'n>(
    root: &'n VdevNode,
    place: &[usize],
) -> Result<(&'n VdevNode, &'n VdevNode), ShapeRefusal> {
    let above = place.split_last().map_or(&[][..], |(_, above)| above);
    let node = at(root, place).filter(|_| !place.is_empty());
    node.zip(at(root, above)).ok_or(ShapeRefusal::NoSuchDevice)
}

/// Allocatable bytes that a device needs at this place.
pub(crate) fn needed_at(root: &VdevNode, place: &[usize]) -> u64 {
    let Some(mut node) = place.first().and_then(|top| root.children.get(*top)) else { return 0 };
    let mut needed = node.asize;
    for index in place.iter().skip(1) {
        if node.kind == VdevKind::Raidz {
            needed = needed.checked_div(node.children.len() as u64).unwrap_or(0);
        }
        let Some(child) = node.children.get(*index) else { return 0 };
        node = child;
    }
    needed
}

/// Decides how a new leaf joins the vdev at a place.
pub(crate) fn plan(
    root: &VdevNode,
    place: &[usize],
    is_spare: bool,
    purpose: Purpose,
) -> Result<Join, ShapeRefusal> {
    let (node, parent) = with_parent(root, place)?;
    let is_top = place.len() == 1;
    if !is_device(node) {
        return Err(match purpose {
            _ if node.kind == VdevKind::Raidz => ShapeRefusal::Expansion,
            Purpose::Mirror => ShapeRefusal::OnlyMirrors,
            Purpose::Replace => ShapeRefusal::InReplacing,
        });
    }
    match (purpose, parent.kind) {
        (Purpose::Mirror, _) if is_top => Ok(Join::Under(VdevKind::Mirror)),
        (Purpose::Mirror, VdevKind::Mirror) => Ok(Join::Beside),
        (Purpose::Mirror, _) => Err(ShapeRefusal::OnlyMirrors),
        (Purpose::Replace, VdevKind::Spare) if is_spare => Ok(Join::Beside),
        (Purpose::Replace, VdevKind::Spare) if node.is_spare && parent.children.len() == 2 => {
            Err(ShapeRefusal::SpareOnly)
        }
        (Purpose::Replace, VdevKind::Spare) if node.is_spare => Err(ShapeRefusal::InReplacing),
        (Purpose::Replace, VdevKind::Replacing) if !is_spare => Ok(Join::Beside),
        (Purpose::Replace, _) if is_spare => Ok(Join::Under(VdevKind::Spare)),
        (Purpose::Replace, _) => Ok(Join::Under(VdevKind::Replacing)),
    }
}

/// Puts a new leaf into the tree. `guid` is that of the vdev above both, if one is made.
pub(crate) fn join(root: &mut VdevNode, place: &[usize], how: Join, mut leaf: VdevNode, guid: VdevGuid) {
    match how {
        Join::Beside => {
            let above = place.split_last().map_or(&[][..], |(_, above)| above);
            if let Some(parent) = at_mut(root, above) {
                leaf.id = parent.children.len() as u32;
                parent.children.push(leaf);
            }
        }
        Join::Under(kind) => {
            let is_top = place.len() == 1;
            let Some(slot) = at_mut(root, place) else { return };
            let mut both = VdevNode::new(kind, guid);
            (both.id, both.create_txg) = (slot.id, slot.create_txg);
            let mut old = std::mem::replace(slot, VdevNode::new(kind, guid));
            if is_top {
                old.hand_over_slot(&mut both);
            }
            (old.id, leaf.id) = (0, 1);
            both.children = vec![old, leaf];
            *slot = both;
        }
    }
}

/// Takes a leaf out of the tree. A vdev with one child left ends, and the child takes its place.
pub(crate) fn part(root: &mut VdevNode, place: &[usize]) -> Result<Departed, ShapeRefusal> {
    let (node, parent) = with_parent(root, place)?;
    if !is_device(node) || !is_mirror_like(parent.kind) || parent.children.len() < 2 {
        return Err(ShapeRefusal::NotDetachable);
    }
    let (Some((index, above)), gone) = (place.split_last(), ShapeRefusal::NoSuchDevice) else {
        return Err(ShapeRefusal::NoSuchDevice);
    };
    let parent = at_mut(root, above).ok_or(gone)?;
    let leaf = parent.children.remove(*index);
    parent.children.iter_mut().zip(0..).for_each(|(child, id)| child.id = id);
    // The spare of a device that is gone stays for good.
    let spare = parent.children.last_mut();
    let heir =
        spare.filter(|last| parent.kind == VdevKind::Spare && *index == 0 && last.is_spare).map(|last| {
            (last.is_spare, last.unspare) = (false, false);
            last.clone()
        });
    let renamed = if parent.children.len() == 1 { collapse(root, above) } else { None };
    Ok(Departed { leaf, heir, renamed })
}

/// Notes that a device for which a spare stands in is in order again: the spare goes back when the device has all
/// data.
pub(crate) fn note_repaired(root: &mut VdevNode, leaf: VdevGuid) {
    let Some(place) = place_of(root, leaf) else { return };
    let Some((0, above)) = place.split_last() else { return };
    if at(root, above).is_some_and(|parent| parent.kind == VdevKind::Spare)
        && let Some(node) = at_mut(root, &place)
    {
        node.unspare = true;
    }
}

/// Ends a vdev that has one child. Returns the new guid of the child and that so far, if it has changed.
fn collapse(root: &mut VdevNode, place: &[usize]) -> Option<(VdevGuid, VdevGuid)> {
    let is_top = place.len() == 1;
    let (index, above) = place.split_last()?;
    let is_under_spare = at(root, above).is_some_and(|parent| parent.kind == VdevKind::Spare) && *index == 0;
    let slot = at_mut(root, place)?;
    let mut last = slot.children.pop()?;
    last.id = slot.id;
    match slot.kind {
        // The spare has done its work when the replacement has all data.
        VdevKind::Replacing => last.unspare |= is_under_spare,
        VdevKind::Spare => last.unspare = false,
        _ => {}
    }
    let before = last.guid;
    if is_top {
        slot.hand_over_slot(&mut last);
        last.guid = slot.guid;
    }
    let now = last.guid;
    *slot = last;
    (now != before).then_some((now, before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{Ashift, ObjectId};

    fn leaf(guid: u64) -> VdevNode {
        let mut node = VdevNode::new(VdevKind::File, VdevGuid(guid));
        node.path = Some(format!("/d{guid}"));
        node
    }

    fn over(kind: VdevKind, guid: u64, mut children: Vec<VdevNode>) -> VdevNode {
        children.iter_mut().zip(0..).for_each(|(child, id)| child.id = id);
        let mut node = VdevNode::new(kind, VdevGuid(guid));
        node.children = children;
        node
    }

    fn pool(mut top: VdevNode) -> VdevNode {
        (top.ashift, top.asize, top.zap_top) = (Some(Ashift(12)), 1 << 30, ObjectId(7));
        over(VdevKind::Root, 1, vec![top])
    }

    fn spare(guid: u64) -> VdevNode {
        let mut node = leaf(guid);
        node.is_spare = true;
        node
    }

    fn plan_for(root: &VdevNode, guid: u64, is_spare: bool, purpose: Purpose) -> Result<Join, ShapeRefusal> {
        plan(root, &place_of(root, VdevGuid(guid)).unwrap(), is_spare, purpose)
    }

    fn part_of(root: &mut VdevNode, guid: u64) -> Result<Departed, ShapeRefusal> {
        let place = place_of(root, VdevGuid(guid)).unwrap();
        part(root, &place)
    }

    #[test]
    fn a_device_becomes_a_mirror_and_a_device_again() {
        let mut root = pool(leaf(10));
        let how = plan_for(&root, 10, false, Purpose::Mirror).unwrap();
        assert_eq!(how, Join::Under(VdevKind::Mirror));
        join(&mut root, &[0], how, leaf(11), VdevGuid(50));
        let top = &root.children[0];
        assert_eq!(
            (top.kind, top.guid, top.asize, top.zap_top.0),
            (VdevKind::Mirror, VdevGuid(50), 1 << 30, 7)
        );
        assert_eq!((top.children[0].asize, top.children[0].ashift), (0, None));
        assert_eq!(plan_for(&root, 11, false, Purpose::Mirror), Ok(Join::Beside));
        let gone = part_of(&mut root, 10).unwrap();
        assert_eq!(gone.renamed, Some((VdevGuid(50), VdevGuid(11))));
        let top = &root.children[0];
        assert_eq!(
            (top.kind, top.guid, top.asize, top.ashift),
            (VdevKind::File, VdevGuid(50), 1 << 30, Some(Ashift(12)))
        );
        assert_eq!(part_of(&mut root, 50).unwrap_err(), ShapeRefusal::NotDetachable);
    }

    #[test]
    fn a_replacement_below_a_raidz_keeps_its_guid() {
        let mut root = pool(over(VdevKind::Raidz, 20, vec![leaf(10), leaf(11), leaf(12)]));
        assert_eq!(needed_at(&root, &[0, 1]), (1 << 30) / 3);
        let how = plan_for(&root, 11, false, Purpose::Replace).unwrap();
        join(&mut root, &[0, 1], how, leaf(13), VdevGuid(50));
        assert_eq!(needed_at(&root, &[0, 1, 1]), (1 << 30) / 3);
        // One more replacement stands beside, a spare below.
        assert_eq!(plan_for(&root, 13, false, Purpose::Replace), Ok(Join::Beside));
        assert_eq!(plan_for(&root, 13, true, Purpose::Replace), Ok(Join::Under(VdevKind::Spare)));
        assert_eq!(plan_for(&root, 11, false, Purpose::Mirror), Err(ShapeRefusal::OnlyMirrors));
        assert_eq!(plan_for(&root, 20, false, Purpose::Mirror), Err(ShapeRefusal::Expansion));
        let gone = part_of(&mut root, 11).unwrap();
        assert_eq!(gone.renamed, None);
        let child = &root.children[0].children[1];
        assert_eq!((child.guid, child.id, child.children.len()), (VdevGuid(13), 1, 0));
    }

    #[test]
    fn a_spare_stays_for_good_or_goes_back() {
        let mut root = pool(over(VdevKind::Mirror, 20, vec![leaf(10), leaf(11)]));
        let how = plan_for(&root, 11, true, Purpose::Replace).unwrap();
        join(&mut root, &[0, 1], how, spare(30), VdevGuid(50));
        assert_eq!(plan_for(&root, 30, false, Purpose::Replace), Err(ShapeRefusal::SpareOnly));
        assert_eq!(plan_for(&root, 30, true, Purpose::Replace), Ok(Join::Beside));
        let mut kept = root.clone();
        let heir = part_of(&mut kept, 11).unwrap().heir.unwrap();
        assert_eq!((heir.guid, heir.is_spare), (VdevGuid(30), false));
        // The original is replaced: then the spare is not needed any more.
        let how = plan_for(&root, 11, false, Purpose::Replace).unwrap();
        assert_eq!(how, Join::Under(VdevKind::Replacing));
        join(&mut root, &[0, 1, 0], how, leaf(12), VdevGuid(51));
        assert!(part_of(&mut root, 11).unwrap().heir.is_none());
        assert!(root.children[0].children[1].children[0].unspare);
        let gone = part_of(&mut root, 30).unwrap();
        assert!(gone.leaf.is_spare && gone.heir.is_none());
        assert!(!root.children[0].children[1].unspare);
    }
}
