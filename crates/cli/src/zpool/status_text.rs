//! What `zpool status` says about a diagnosis: status, action, message id.

use admin::Diagnosis;

/// The three texts; line breaks within them carry the tab of continuation lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    /// What is wrong.
    pub(super) status: Option<String>,
    /// What to do.
    pub(super) action: Option<String>,
    /// Id of the page that explains it.
    pub(super) msgid: Option<&'static str>,
}

/// Address of the page of a message id.
pub(super) fn page(msgid: &str) -> String {
    format!("https://openzfs.github.io/openzfs-docs/msg/{msgid}")
}

fn advice(status: &str, action: &str, msgid: Option<&'static str>) -> Advice {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Advice { status: some(status), action: some(action), msgid }
}

/// The texts for a diagnosis.
pub(super) fn of_status(diagnosis: &Diagnosis) -> Advice {
    let id = msgid(diagnosis);
    match diagnosis {
        Diagnosis::Healthy => advice("", "", None),
        Diagnosis::Resilvering => advice(
            "One or more devices is currently being resilvered.  The pool will\n\
             \tcontinue to function, possibly in a degraded state.",
            "Wait for the resilver to complete.",
            None,
        ),
        Diagnosis::HostidMismatch => advice(
            "Mismatch between pool hostid and system hostid on imported pool.\n\
             \tThis pool was previously imported into a system with a different hostid,\n\
             \tand then was verbatim imported into this system.",
            "Export this pool on all systems on which it is imported.\n\
             \tThen import it to correct the mismatch.",
            id,
        ),
        Diagnosis::ActiveElsewhere => advice(
            "The pool is suspended because multihost writes failed or were delayed;\n\
             \tanother system could import the pool undetected.",
            "Make sure the pool's devices are connected, then reboot your system and\n\timport the pool.",
            id,
        ),
        Diagnosis::BadGuidSum => advice(
            "One or more devices are missing from the system.",
            "Attach the missing devices and try again.",
            id,
        ),
        Diagnosis::SuspendedWaiting | Diagnosis::SuspendedFailing => advice(
            "One or more devices are faulted in response to IO failures.",
            "Make sure the affected devices are connected, then run 'zpool clear'.",
            id,
        ),
        Diagnosis::Stopped(why) => advice(
            &format!("Nothing more is written to the pool: {why}."),
            "Export the pool by 'zpool export -f', then import it: it is as it was when its last\n\
             \ttransaction group was written, and what its intent logs have of later.",
            id,
        ),
        Diagnosis::BadLog => advice(
            "An intent log record could not be read.\n\
             \tWaiting for administrator intervention to fix the faulted pool.",
            "Either restore the affected device(s) and run 'zpool online',\n\
             \tor ignore the intent log records by running 'zpool clear'.",
            id,
        ),
        Diagnosis::CorruptPool => advice(
            "The pool metadata is corrupted and the pool cannot be opened.",
            "Destroy and re-create the pool from\n\ta backup source.",
            id,
        ),
        Diagnosis::CorruptData => advice(
            "One or more devices has experienced an error resulting in data\n\
             \tcorruption.  Applications may be affected.",
            "Restore the file in question if possible.  Otherwise restore the\n\tentire pool from backup.",
            id,
        ),
        Diagnosis::VersionNewer
        | Diagnosis::UnsupportedForRead(_)
        | Diagnosis::UnsupportedForWrite(_)
        | Diagnosis::OldVersion
        | Diagnosis::FeaturesDisabled
        | Diagnosis::Incompatible => of_versions(diagnosis, id),
        Diagnosis::FaultedNoReplicas
        | Diagnosis::MissingNoReplicas
        | Diagnosis::CorruptLabelNoReplicas
        | Diagnosis::Faulted
        | Diagnosis::Missing
        | Diagnosis::CorruptLabel
        | Diagnosis::Failing
        | Diagnosis::Offline
        | Diagnosis::Removed => of_devices(diagnosis, id),
    }
}

/// Those about the version of a pool and its features.
fn of_versions(diagnosis: &Diagnosis, id: Option<&'static str>) -> Advice {
    match diagnosis {
        Diagnosis::VersionNewer => advice(
            "The pool has been upgraded to a newer, incompatible on-disk version.\n\
             \tThe pool cannot be accessed on this system.",
            "Access the pool from a system running more recent software, or\n\trestore the pool from backup.",
            id,
        ),
        Diagnosis::UnsupportedForRead(features) => advice(
            &with_list(
                "The pool cannot be accessed on this system because it uses the\n\
                 \tfollowing feature(s) not supported on this system:",
                features,
            ),
            "Access the pool from a system that supports the required feature(s),\n\
             \tor restore the pool from backup.",
            None,
        ),
        Diagnosis::UnsupportedForWrite(features) => advice(
            &with_list(
                "The pool can only be accessed in read-only mode on this system. It\n\
                 \tcannot be accessed in read-write mode because it uses the following\n\
                 \tfeature(s) not supported on this system:",
                features,
            ),
            "The pool cannot be accessed in read-write mode. Import the pool with\n\
             \t\"-o readonly=on\", access the pool from a system that supports the\n\
             \trequired feature(s), or restore the pool from backup.",
            None,
        ),
        Diagnosis::OldVersion => advice(
            "The pool is formatted using a legacy on-disk format.  The pool can\n\
             \tstill be used, but some features are unavailable.",
            "Upgrade the pool using 'zpool upgrade'.  Once this is done, the\n\
             \tpool will no longer be accessible on software that does not support\n\tfeature flags.",
            None,
        ),
        Diagnosis::FeaturesDisabled => advice(
            "Some supported and requested features are not enabled on the pool.\n\
             \tThe pool can still be used, but some features are unavailable.",
            "Enable all features using 'zpool upgrade'. Once this is done,\n\
             \tthe pool may no longer be accessible by software that does not support\n\
             \tthe features. See zpool-features(7) for details.",
            None,
        ),
        Diagnosis::Incompatible => advice(
            "One or more features are enabled on the pool despite not being\n\
             \trequested by the 'compatibility' property.",
            "Consider setting 'compatibility' to an appropriate value, or\n\
             \tadding needed features to the relevant file in\n\
             \t/etc/zfs/compatibility.d or /usr/share/zfs/compatibility.d.",
            None,
        ),
        _ => advice("", "", None),
    }
}

/// Those about single devices.
fn of_devices(diagnosis: &Diagnosis, id: Option<&'static str>) -> Advice {
    match diagnosis {
        Diagnosis::FaultedNoReplicas => advice(
            "One or more devices are faulted in response to persistent errors.  There are \n\
             \tinsufficient replicas for the pool to continue functioning.",
            "Destroy and re-create the pool from a backup source.  Manually marking the device\n\
             \trepaired using 'zpool clear' may allow some data to be recovered.",
            None,
        ),
        Diagnosis::MissingNoReplicas => advice(
            "One or more devices could not be opened.  There are insufficient\n\
             \treplicas for the pool to continue functioning.",
            "Attach the missing device and online it using 'zpool online'.",
            id,
        ),
        Diagnosis::CorruptLabelNoReplicas => advice(
            "One or more devices could not be used because the label is missing \n\
             \tor invalid.  There are insufficient replicas for the pool to continue\n\tfunctioning.",
            "Destroy and re-create the pool from\n\ta backup source.",
            id,
        ),
        Diagnosis::Faulted => advice(
            "One or more devices are faulted in response to persistent errors.\n\
             \tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
            "Replace the faulted device, or use 'zpool clear' to mark the device\n\trepaired.",
            None,
        ),
        Diagnosis::Missing => advice(
            "One or more devices could not be opened.  Sufficient replicas exist for\n\
             \tthe pool to continue functioning in a degraded state.",
            "Attach the missing device and online it using 'zpool online'.",
            id,
        ),
        Diagnosis::CorruptLabel => advice(
            "One or more devices could not be used because the label is missing or\n\
             \tinvalid.  Sufficient replicas exist for the pool to continue\n\
             \tfunctioning in a degraded state.",
            "Replace the device using 'zpool replace'.",
            id,
        ),
        Diagnosis::Failing => advice(
            "One or more devices has experienced an unrecoverable error.  An\n\
             \tattempt was made to correct the error.  Applications are unaffected.",
            "Determine if the device needs to be replaced, and clear the errors\n\
             \tusing 'zpool clear' or replace the device with 'zpool replace'.",
            id,
        ),
        Diagnosis::Offline => advice(
            "One or more devices has been taken offline by the administrator.\n\
             \tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
            "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
            None,
        ),
        Diagnosis::Removed => advice(
            "One or more devices has been removed by the administrator.\n\
             \tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
            "Online the device using zpool online' or replace the device with\n\t'zpool replace'.",
            None,
        ),
        _ => advice("", "", None),
    }
}

fn with_list(text: &str, features: &[String]) -> String {
    features.iter().fold(text.to_owned(), |text, feature| format!("{text}\n\t\t{feature}"))
}

fn msgid(diagnosis: &Diagnosis) -> Option<&'static str> {
    Some(match diagnosis {
        Diagnosis::Missing => "ZFS-8000-2Q",
        Diagnosis::MissingNoReplicas => "ZFS-8000-3C",
        Diagnosis::CorruptLabel => "ZFS-8000-4J",
        Diagnosis::CorruptLabelNoReplicas => "ZFS-8000-5E",
        Diagnosis::BadGuidSum => "ZFS-8000-6X",
        Diagnosis::CorruptPool => "ZFS-8000-72",
        Diagnosis::CorruptData => "ZFS-8000-8A",
        Diagnosis::Failing => "ZFS-8000-9P",
        Diagnosis::VersionNewer => "ZFS-8000-A5",
        Diagnosis::HostidMismatch => "ZFS-8000-EY",
        Diagnosis::ActiveElsewhere => "ZFS-8000-MM",
        Diagnosis::SuspendedWaiting | Diagnosis::Stopped(_) => "ZFS-8000-HC",
        Diagnosis::SuspendedFailing => "ZFS-8000-JQ",
        Diagnosis::BadLog => "ZFS-8000-K4",
        _ => return None,
    })
}
