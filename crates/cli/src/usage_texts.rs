//! Usage of every subcommand, in the words and the order of the tools. An empty name ends a group.

/// Subcommands of `zpool`: name and usage.
pub(crate) const ZPOOL: &[(&str, &str)] = &[
    ("version", "\tversion [-j]"),
    ("", ""),
    (
        "create",
        "\tcreate [-fnd] [-o property=value] ... \n\
         \t    [-O file-system-property=value] ... \n\
         \t    [-m mountpoint] [-R root] <pool> <vdev> ...",
    ),
    ("destroy", "\tdestroy [-f] <pool>"),
    ("", ""),
    ("add", "\tadd [-afgLnP] [-o property=value] <pool> <vdev> ..."),
    ("remove", "\tremove [-npsw] <pool> <device> ..."),
    ("", ""),
    ("labelclear", "\tlabelclear [-f] <vdev>"),
    ("", ""),
    ("checkpoint", "\tcheckpoint [-d [-w]] <pool> ..."),
    (
        "prefetch",
        "\tprefetch -t <type> [<type opts>] <pool>\n\
         \t    -t ddt <pool>",
    ),
    ("", ""),
    (
        "list",
        "\tlist [-gHLpPv] [-o property[,...]] [-j [--json-int, --json-pool-key-guid]] ...\n\
         \t    [-T d|u] [pool] [interval [count]]",
    ),
    (
        "iostat",
        "\tiostat [[[-c [script1,script2,...][-lq]]|[-rw]] [-T d | u] [-ghHLpPvy]\n\
         \t    [[pool ...]|[pool vdev ...]|[vdev ...]] [[-n] interval [count]]",
    ),
    (
        "status",
        "\tstatus [--power] [-j [--json-int, --json-flat-vdevs, ...\n\
         \t    --json-pool-key-guid]] [-c [script1,script2,...]] [-dDegiLpPstvx] ...\n\
         \t    [-T d|u] [pool] [interval [count]]",
    ),
    ("", ""),
    ("online", "\tonline [--power][-e] <pool> <device> ..."),
    ("offline", "\toffline [--power]|[[-f][-t]] <pool> <device> ..."),
    ("clear", "\tclear [[--power]|[-nF]] <pool> [device]"),
    ("reopen", "\treopen [-n] <pool>"),
    ("", ""),
    ("attach", "\tattach [-fsw] [-o property=value] <pool> <device> <new-device>"),
    ("detach", "\tdetach <pool> <device>"),
    ("replace", "\treplace [-fsw] [-o property=value] <pool> <device> [new-device]"),
    (
        "split",
        "\tsplit [-gLnPl] [-R altroot] [-o mntopts]\n\
         \t    [-o property=value] <pool> <newpool> [<device> ...]",
    ),
    ("", ""),
    ("initialize", "\tinitialize [-c | -s | -u] [-w] <pool> [<device> ...]"),
    ("resilver", "\tresilver <pool> ..."),
    ("scrub", "\tscrub [-e | -s | -p | -C] [-w] <pool> ..."),
    ("trim", "\ttrim [-dw] [-r <rate>] [-c | -s] <pool> [<device> ...]"),
    ("", ""),
    (
        "import",
        "\timport [-d dir] [-D]\n\
         \timport [-o mntopts] [-o property=value] ... \n\
         \t    [-d dir | -c cachefile] [-D] [-l] [-f] [-m] [-N] [-R root] [-F [-n]] -a\n\
         \timport [-o mntopts] [-o property=value] ... \n\
         \t    [-d dir | -c cachefile] [-D] [-l] [-f] [-m] [-N] [-R root] [-F [-n]]\n\
         \t    [--rewind-to-checkpoint] <pool | id> [newpool]",
    ),
    ("export", "\texport [-af] <pool> ..."),
    (
        "upgrade",
        "\tupgrade\n\
         \tupgrade -v\n\
         \tupgrade [-V version] <-a | pool ...>",
    ),
    ("reguid", "\treguid [-g guid] <pool>"),
    ("", ""),
    ("history", "\thistory [-il] [<pool>] ..."),
    ("events", "\tevents [-vHf [pool] | -c]"),
    ("", ""),
    (
        "get",
        "\tget [-Hp] [-j [--json-int, --json-pool-key-guid]] ...\n\
         \t    [-o \"all\" | field[,...]] <\"all\" | property[,...]> <pool> ...",
    ),
    (
        "set",
        "\tset <property=value> <pool>\n\
         \tset <vdev_property=value> <pool> <vdev>",
    ),
    ("sync", "\tsync [pool] ..."),
    ("", ""),
    ("wait", "\twait [-Hp] [-T d|u] [-t <activity>[,...]] <pool> [interval]"),
    ("", ""),
    ("ddtprune", "\tddtprune -d|-p <amount> <pool>"),
];

/// Subcommands of `zfs`: name and usage.
pub(crate) const ZFS: &[(&str, &str)] = &[
    ("version", "\tversion [-j]"),
    ("", ""),
    (
        "create",
        "\tcreate [-Pnpuv] [-o property=value] ... <filesystem>\n\
         \tcreate [-Pnpsv] [-b blocksize] [-o property=value] ... -V <size> <volume>",
    ),
    (
        "destroy",
        "\tdestroy [-fnpRrv] <filesystem|volume>\n\
         \tdestroy [-dnpRrv] <filesystem|volume>@<snap>[%<snap>][,...]\n\
         \tdestroy <filesystem|volume>#<bookmark>",
    ),
    ("", ""),
    ("snapshot", "\tsnapshot [-r] [-o property=value] ... <filesystem|volume>@<snap> ..."),
    ("rollback", "\trollback [-rRf] <snapshot>"),
    ("clone", "\tclone [-p] [-o property=value] ... <snapshot> <filesystem|volume>"),
    ("promote", "\tpromote <clone-filesystem>"),
    (
        "rename",
        "\trename [-f] <filesystem|volume|snapshot> <filesystem|volume|snapshot>\n\
         \trename -p [-f] <filesystem|volume> <filesystem|volume>\n\
         \trename -u [-f] <filesystem> <filesystem>\n\
         \trename -r <snapshot> <snapshot>",
    ),
    ("bookmark", "\tbookmark <snapshot|bookmark> <newbookmark>"),
    (
        "program",
        "\tprogram [-jn] [-t <instruction limit>] [-m <memory limit (b)>]\n\
         \t    <pool> <program file> [lua args...]",
    ),
    ("", ""),
    (
        "list",
        "\tlist [-Hp] [-j [--json-int]] [-r|-d max] [-o property[,...]] [-s property]...\n\
         \t    [-S property]... [-t type[,...]] [filesystem|volume|snapshot] ...",
    ),
    ("", ""),
    ("set", "\tset [-u] <property=value> ... <filesystem|volume|snapshot> ..."),
    (
        "get",
        "\tget [-rHp] [-j [--json-int]] [-d max] [-o \"all\" | field[,...]]\n\
         \t    [-t type[,...]] [-s source[,...]]\n\
         \t    <\"all\" | property[,...]> [filesystem|volume|snapshot|bookmark] ...",
    ),
    ("inherit", "\tinherit [-rS] <property> <filesystem|volume|snapshot> ..."),
    (
        "upgrade",
        "\tupgrade [-v]\n\
         \tupgrade [-r] [-V version] <-a | filesystem ...>",
    ),
    ("", ""),
    (
        "userspace",
        "\tuserspace [-Hinp] [-o field[,...]] [-s field] ...\n\
         \t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>",
    ),
    (
        "groupspace",
        "\tgroupspace [-Hinp] [-o field[,...]] [-s field] ...\n\
         \t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>",
    ),
    (
        "projectspace",
        "\tprojectspace [-Hp] [-o field[,...]] [-s field] ... \n\
         \t    [-S field] ... <filesystem|snapshot|path>",
    ),
    ("", ""),
    (
        "project",
        "\tproject [-d|-r] <directory|file ...>\n\
         \tproject -c [-0] [-d|-r] [-p id] <directory|file ...>\n\
         \tproject -C [-k] [-r] <directory ...>\n\
         \tproject [-p id] [-r] [-s] <directory ...>",
    ),
    ("", ""),
    (
        "mount",
        "\tmount [-j]\n\
         \tmount [-flvO] [-o opts] <-a|-R filesystem|filesystem>",
    ),
    ("unmount", "\tunmount [-fu] <-a | filesystem|mountpoint>"),
    ("share", "\tshare [-l] <-a [nfs|smb] | filesystem>"),
    ("unshare", "\tunshare <-a [nfs|smb] | filesystem|mountpoint>"),
    ("", ""),
    (
        "send",
        "\tsend [-DLPbcehnpsVvw] [-i|-I snapshot]\n\
         \t     [-R [-X dataset[,dataset]...]]     <snapshot>\n\
         \tsend [-DnVvPLecw] [-i snapshot|bookmark] <filesystem|volume|snapshot>\n\
         \tsend [-DnPpVvLec] [-i bookmark|snapshot] --redact <bookmark> <snapshot>\n\
         \tsend [-nVvPe] -t <receive_resume_token>\n\
         \tsend [-PnVv] --saved filesystem",
    ),
    (
        "receive",
        "\treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ...\n\
         \t    <filesystem|volume|snapshot>\n\
         \treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ... \n\
         \t    [-d | -e] <filesystem>\n\
         \treceive -A <filesystem|volume>",
    ),
    ("", ""),
    (
        "allow",
        "\tallow <filesystem|volume>\n\
         \tallow [-ldug] <\"everyone\"|user|group>[,...] <perm|@setname>[,...]\n\
         \t    <filesystem|volume>\n\
         \tallow [-ld] -e <perm|@setname>[,...] <filesystem|volume>\n\
         \tallow -c <perm|@setname>[,...] <filesystem|volume>\n\
         \tallow -s @setname <perm|@setname>[,...] <filesystem|volume>",
    ),
    ("", ""),
    (
        "unallow",
        "\tunallow [-rldug] <\"everyone\"|user|group>[,...]\n\
         \t    [<perm|@setname>[,...]] <filesystem|volume>\n\
         \tunallow [-rld] -e [<perm|@setname>[,...]] <filesystem|volume>\n\
         \tunallow [-r] -c [<perm|@setname>[,...]] <filesystem|volume>\n\
         \tunallow [-r] -s @setname [<perm|@setname>[,...]] <filesystem|volume>",
    ),
    ("", ""),
    ("hold", "\thold [-r] <tag> <snapshot> ..."),
    ("holds", "\tholds [-rHp] <snapshot> ..."),
    ("release", "\trelease [-r] <tag> <snapshot> ..."),
    ("diff", "\tdiff [-FHth] <snapshot> [snapshot|filesystem]"),
    ("load-key", "\tload-key [-rn] [-L <keylocation>] <-a | filesystem|volume>"),
    ("unload-key", "\tunload-key [-r] <-a | filesystem|volume>"),
    (
        "change-key",
        "\tchange-key [-l] [-o keyformat=<value>]\n\
         \t    [-o keylocation=<value>] [-o pbkdf2iters=<value>]\n\
         \t    <filesystem|volume>\n\
         \tchange-key -i [-l] <filesystem|volume>",
    ),
    ("redact", "\tredact <snapshot> <bookmark> <redaction_snapshot> ..."),
    ("wait", "\twait [-t <activity>] <filesystem>"),
    ("zone", "\tzone <nsfile> <filesystem>"),
    ("unzone", "\tunzone <nsfile> <filesystem>"),
];
