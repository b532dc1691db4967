//! The property tables, in a notation of their own: one property per line (docs/on-disk/33-cli.md, sections 10 to
//! 12; the lists of values are as usage texts print them).

use super::{Class, FS, Fallback, Kind, LEAF_OR_TOP, MARK, POOL_WIDE, Prop, SNAP, VOL};

/// `name "HEADER" side visibility Kind Class fallback (applies) "values" [index];`
macro_rules! props {
    ($(#[$doc:meta])* $table:ident[$n:literal] {
        $($name:literal $column:literal $side:ident $shown:ident $kind:ident $class:ident $fallback:tt ($applies:expr)
          $values:literal [$($text:literal = $number:literal)*];)*
    }) => {
        $(#[$doc])*
        pub static $table: [Prop; $n] = [$(Prop {
            name: $name,
            column: $column,
            kind: Kind::$kind,
            class: Class::$class,
            fallback: fallback!($fallback),
            applies: $applies,
            values: $values,
            index: &[$(($text, $number)),*],
            right_aligned: flag!($side),
            visible: flag!($shown),
        }),*];
    };
}

macro_rules! fallback {
    (-) => {
        Fallback::None
    };
    (none) => {
        Fallback::Number(u64::MAX)
    };
    ({ $text:literal }) => {
        Fallback::Text($text)
    };
    ($number:literal) => {
        Fallback::Number($number)
    };
}

macro_rules! flag {
    (right) => {
        true
    };
    (left) => {
        false
    };
    (shown) => {
        true
    };
    (hidden) => {
        false
    };
}

props! {
    /// Properties of file systems, volumes, snapshots and bookmarks, in the order in which `zfs get all`
    /// lists them.
    DATASET[100] {
        "type" "TYPE" left shown Text ReadOnly - (FS | SNAP | VOL | MARK)
            "filesystem | volume | snapshot | bookmark"
            [];
        "creation" "CREATION" left shown Number ReadOnly - (FS | SNAP | VOL | MARK) "<date>" [];
        "used" "USED" right shown Number ReadOnly - (FS | SNAP | VOL) "<size>" [];
        "available" "AVAIL" right shown Number ReadOnly - (FS | VOL) "<size>" [];
        "referenced" "REFER" right shown Number ReadOnly - (FS | SNAP | VOL | MARK) "<size>" [];
        "compressratio" "RATIO" right shown Number ReadOnly - (FS | SNAP | VOL | MARK)
            "<1.00x or higher if compressed>"
            [];
        "mounted" "MOUNTED" left shown Index ReadOnly - (FS) "yes | no" ["no" = 0 "yes" = 1];
        "origin" "ORIGIN" left shown Text ReadOnly - (FS | VOL) "<snapshot>" [];
        "quota" "QUOTA" right shown Number Default 0 (FS) "<size> | none" [];
        "reservation" "RESERV" right shown Number Default 0 (FS | VOL) "<size> | none" [];
        "volsize" "VOLSIZE" right shown Number Default 0 (SNAP | VOL) "<size>" [];
        "volblocksize" "VOLBLOCK" right shown Number OneTime 16384 (VOL) "512 to 128k, power of 2" [];
        "recordsize" "RECSIZE" right shown Number Inherit 131072 (FS) "512 to 1M, power of 2" [];
        "mountpoint" "MOUNTPOINT" left shown Text Inherit { "/" } (FS) "<path> | legacy | none" [];
        "sharenfs" "SHARENFS" left shown Text Inherit { "off" } (FS) "on | off | NFS share options" [];
        "checksum" "CHECKSUM" left shown Index Inherit 1 (FS | VOL)
            "on | off | fletcher2 | fletcher4 | sha256 | sha512 | skein | edonr | blake3"
            ["on" = 1 "off" = 2 "fletcher2" = 6 "fletcher4" = 7 "sha256" = 8 "noparity" = 10
             "sha512" = 11 "skein" = 12 "edonr" = 13 "blake3" = 14];
        "compression" "COMPRESS" left shown Index Inherit 1 (FS | VOL)
            "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]"
            ["on" = 1 "off" = 2 "lzjb" = 3 "gzip" = 10 "gzip-1" = 5 "gzip-2" = 6 "gzip-3" = 7
             "gzip-4" = 8 "gzip-5" = 9 "gzip-6" = 10 "gzip-7" = 11 "gzip-8" = 12 "gzip-9" = 13 "zle" = 14
             "lz4" = 15 "zstd" = 16 "zstd-fast" = 13200 "zstd-1" = 144 "zstd-2" = 272 "zstd-3" = 400
             "zstd-4" = 528 "zstd-5" = 656 "zstd-6" = 784 "zstd-7" = 912 "zstd-8" = 1040 "zstd-9" = 1168
             "zstd-10" = 1296 "zstd-11" = 1424 "zstd-12" = 1552 "zstd-13" = 1680 "zstd-14" = 1808
             "zstd-15" = 1936 "zstd-16" = 2064 "zstd-17" = 2192 "zstd-18" = 2320 "zstd-19" = 2448
             "zstd-fast-1" = 13200 "zstd-fast-2" = 13328 "zstd-fast-3" = 13456 "zstd-fast-4" = 13584
             "zstd-fast-5" = 13712 "zstd-fast-6" = 13840 "zstd-fast-7" = 13968 "zstd-fast-8" = 14096
             "zstd-fast-9" = 14224 "zstd-fast-10" = 14352 "zstd-fast-20" = 14480 "zstd-fast-30" = 14608
             "zstd-fast-40" = 14736 "zstd-fast-50" = 14864 "zstd-fast-60" = 14992 "zstd-fast-70" = 15120
             "zstd-fast-80" = 15248 "zstd-fast-90" = 15376 "zstd-fast-100" = 15504
             "zstd-fast-500" = 15632 "zstd-fast-1000" = 15760];
        "atime" "ATIME" left shown Index Inherit 1 (FS) "on | off" ["off" = 0 "on" = 1];
        "devices" "DEVICES" left shown Index Inherit 1 (FS | SNAP) "on | off" ["off" = 0 "on" = 1];
        "exec" "EXEC" left shown Index Inherit 1 (FS | SNAP) "on | off" ["off" = 0 "on" = 1];
        "setuid" "SETUID" left shown Index Inherit 1 (FS | SNAP) "on | off" ["off" = 0 "on" = 1];
        "readonly" "RDONLY" left shown Index Inherit 0 (FS | VOL) "on | off" ["off" = 0 "on" = 1];
        "zoned" "ZONED" left shown Index Inherit 0 (FS) "on | off" ["off" = 0 "on" = 1];
        "snapdir" "SNAPDIR" left shown Index Inherit 0 (FS) "disabled | hidden | visible"
            ["hidden" = 0 "visible" = 1 "disabled" = 2];
        "aclmode" "ACLMODE" left shown Index Inherit 0 (FS) "discard | groupmask | passthrough | restricted"
            ["discard" = 0 "groupmask" = 2 "passthrough" = 3 "restricted" = 4];
        "aclinherit" "ACLINHERIT" left shown Index Inherit 4 (FS)
            "discard | noallow | restricted | passthrough | passthrough-x"
            ["discard" = 0 "noallow" = 1 "restricted" = 4 "passthrough" = 3 "secure" = 4
             "passthrough-x" = 5];
        "createtxg" "CREATETXG" right shown Number ReadOnly - (FS | SNAP | VOL | MARK) "<uint64>" [];
        "name" "NAME" left hidden Text ReadOnly - (FS | SNAP | VOL | MARK) "" [];
        "canmount" "CANMOUNT" left shown Index Default 1 (FS) "on | off | noauto"
            ["off" = 0 "on" = 1 "noauto" = 2];
        "iscsioptions" "ISCSIOPTIONS" left hidden Text Inherit { "" } (VOL) "" [];
        "xattr" "XATTR" left shown Index Inherit 2 (FS | SNAP) "on | off | dir | sa"
            ["off" = 0 "on" = 2 "sa" = 2 "dir" = 1];
        "numclones" "NUMCLONES" right hidden Number ReadOnly - (SNAP) "" [];
        "copies" "COPIES" left shown Index Inherit 1 (FS | VOL) "1 | 2 | 3" ["1" = 1 "2" = 2 "3" = 3];
        "version" "VERSION" left shown Index Default 0 (FS | SNAP) "1 | 2 | 3 | 4 | 5 | current"
            ["1" = 1 "2" = 2 "3" = 3 "4" = 4 "5" = 5 "current" = 5];
        "utf8only" "UTF8ONLY" left shown Index OneTime 0 (FS | SNAP) "on | off" ["off" = 0 "on" = 1];
        "normalization" "NORMALIZATION" left shown Index OneTime 0 (FS | SNAP)
            "none | formC | formD | formKC | formKD"
            ["none" = 0 "formD" = 16 "formKC" = 96 "formC" = 80 "formKD" = 32];
        "casesensitivity" "CASE" left shown Index OneTime 0 (FS | SNAP) "sensitive | insensitive | mixed"
            ["sensitive" = 0 "insensitive" = 1 "mixed" = 2];
        "vscan" "VSCAN" left shown Index Inherit 0 (FS) "on | off" ["off" = 0 "on" = 1];
        "nbmand" "NBMAND" left shown Index Inherit 0 (FS | SNAP) "on | off" ["off" = 0 "on" = 1];
        "sharesmb" "SHARESMB" left shown Text Inherit { "off" } (FS) "on | off | SMB share options" [];
        "refquota" "REFQUOTA" right shown Number Default 0 (FS) "<size> | none" [];
        "refreservation" "REFRESERV" right shown Number Default 0 (FS | VOL) "<size> | none" [];
        "guid" "GUID" right shown Number ReadOnly - (FS | SNAP | VOL | MARK) "<uint64>" [];
        "primarycache" "PRIMARYCACHE" left shown Index Inherit 2 (FS | SNAP | VOL) "all | none | metadata"
            ["none" = 0 "metadata" = 1 "all" = 2];
        "secondarycache" "SECONDARYCACHE" left shown Index Inherit 2 (FS | SNAP | VOL)
            "all | none | metadata"
            ["none" = 0 "metadata" = 1 "all" = 2];
        "usedbysnapshots" "USEDSNAP" right shown Number ReadOnly - (FS | VOL) "<size>" [];
        "usedbydataset" "USEDDS" right shown Number ReadOnly - (FS | VOL) "<size>" [];
        "usedbychildren" "USEDCHILD" right shown Number ReadOnly - (FS | VOL) "<size>" [];
        "usedbyrefreservation" "USEDREFRESERV" right shown Number ReadOnly - (FS | VOL) "<size>" [];
        "useraccounting" "USERACCOUNTING" right hidden Number ReadOnly - (FS | SNAP | VOL) "" [];
        "stmf_sbd_lu" "STMF_SBD_LU" left hidden Text Inherit { "" } (VOL) "" [];
        "defer_destroy" "DEFER_DESTROY" left shown Index ReadOnly - (SNAP) "yes | no" ["off" = 0 "on" = 1];
        "userrefs" "USERREFS" right shown Number ReadOnly - (SNAP) "<count>" [];
        "logbias" "LOGBIAS" left shown Index Inherit 0 (FS | VOL) "latency | throughput"
            ["latency" = 0 "throughput" = 1];
        "unique" "UNIQUE" right hidden Number ReadOnly - (FS | SNAP | VOL) "" [];
        "objsetid" "OBJSETID" right shown Number ReadOnly - (FS | SNAP | VOL) "<uint64>" [];
        "dedup" "DEDUP" left shown Index Inherit 2 (FS | VOL)
            "on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | edonr,verify | blake3[,verify]"
            ["on" = 1 "off" = 2 "verify" = 257 "sha256" = 8 "sha256,verify" = 264 "sha512" = 11
             "sha512,verify" = 267 "skein" = 12 "skein,verify" = 268 "edonr,verify" = 269 "blake3" = 14
             "blake3,verify" = 270];
        "mlslabel" "MLSLABEL" left shown Text Inherit { "none" } (FS | SNAP | VOL) "<sensitivity label>" [];
        "sync" "SYNC" left shown Index Inherit 0 (FS | VOL) "standard | always | disabled"
            ["standard" = 0 "always" = 1 "disabled" = 2];
        "dnodesize" "DNSIZE" left shown Index Inherit 0 (FS) "legacy | auto | 1k | 2k | 4k | 8k | 16k"
            ["legacy" = 0 "auto" = 1 "1k" = 1024 "2k" = 2048 "4k" = 4096 "8k" = 8192 "16k" = 16384];
        "refcompressratio" "REFRATIO" right shown Number ReadOnly - (FS | SNAP | VOL)
            "<1.00x or higher if compressed>"
            [];
        "written" "WRITTEN" right shown Number ReadOnly - (FS | SNAP | VOL) "<size>" [];
        "clones" "CLONES" left shown Text ReadOnly - (SNAP) "<dataset>[,...]" [];
        "logicalused" "LUSED" right shown Number ReadOnly - (FS | VOL) "<size>" [];
        "logicalreferenced" "LREFER" right shown Number ReadOnly - (FS | SNAP | VOL | MARK) "<size>" [];
        "inconsistent" "INCONSISTENT" right hidden Number ReadOnly - (FS | SNAP | VOL) "" [];
        "volmode" "VOLMODE" left shown Index Inherit 0 (FS | VOL) "default | full | geom | dev | none"
            ["default" = 0 "full" = 1 "geom" = 1 "dev" = 2 "none" = 3];
        "filesystem_limit" "FSLIMIT" right shown Number Default none (FS) "<count> | none" [];
        "snapshot_limit" "SSLIMIT" right shown Number Default none (FS | VOL) "<count> | none" [];
        "filesystem_count" "FSCOUNT" right shown Number ReadOnly - (FS) "<count>" [];
        "snapshot_count" "SSCOUNT" right shown Number ReadOnly - (FS | VOL) "<count>" [];
        "snapdev" "SNAPDEV" left shown Index Inherit 0 (FS | VOL) "hidden | visible"
            ["hidden" = 0 "visible" = 1];
        "acltype" "ACLTYPE" left shown Index Inherit 0 (FS | SNAP) "off | nfsv4 | posix"
            ["off" = 0 "posix" = 1 "nfsv4" = 2 "disabled" = 0 "noacl" = 0 "posixacl" = 1];
        "context" "CONTEXT" left shown Text Default { "none" } (FS | SNAP | VOL) "<selinux context>" [];
        "fscontext" "FSCONTEXT" left shown Text Default { "none" } (FS | SNAP | VOL) "<selinux fscontext>"
            [];
        "defcontext" "DEFCONTEXT" left shown Text Default { "none" } (FS | SNAP | VOL)
            "<selinux defcontext>"
            [];
        "rootcontext" "ROOTCONTEXT" left shown Text Default { "none" } (FS | SNAP | VOL)
            "<selinux rootcontext>"
            [];
        "relatime" "RELATIME" left shown Index Inherit 1 (FS) "on | off" ["off" = 0 "on" = 1];
        "redundant_metadata" "REDUND_MD" left shown Index Inherit 0 (FS | VOL) "all | most | some | none"
            ["all" = 0 "most" = 1 "some" = 2 "none" = 3];
        "overlay" "OVERLAY" left shown Index Inherit 1 (FS) "on | off" ["off" = 0 "on" = 1];
        "prevsnap" "PREVSNAP" left hidden Text ReadOnly - (FS | VOL) "" [];
        "receive_resume_token" "RESUMETOK" left shown Text ReadOnly - (FS | VOL) "<string token>" [];
        "encryption" "ENCRYPTION" left shown Index OneTime 2 (FS | SNAP | VOL)
            "on | off | aes-128-ccm | aes-192-ccm | aes-256-ccm | aes-128-gcm | aes-192-gcm | aes-256-gcm"
            ["on" = 1 "off" = 2 "aes-128-ccm" = 3 "aes-192-ccm" = 4 "aes-256-ccm" = 5 "aes-128-gcm" = 6
             "aes-192-gcm" = 7 "aes-256-gcm" = 8];
        "keylocation" "KEYLOCATION" left shown Text Default { "none" } (FS | VOL)
            "prompt | <file URI> | <https URL> | <http URL>"
            [];
        "keyformat" "KEYFORMAT" left shown Index OneTimeDefault 0 (FS | VOL) "none | raw | hex | passphrase"
            ["none" = 0 "raw" = 1 "hex" = 2 "passphrase" = 3];
        "pbkdf2salt" "PBKDF2SALT" right hidden Number OneTimeDefault 0 (FS | VOL) "" [];
        "pbkdf2iters" "PBKDF2ITERS" right shown Number OneTimeDefault 0 (FS | VOL) "<iters>" [];
        "encryptionroot" "ENCROOT" left shown Text ReadOnly - (FS | SNAP | VOL) "<filesystem | volume>" [];
        "keyguid" "KEYGUID" right hidden Number ReadOnly - (FS | SNAP | VOL) "" [];
        "keystatus" "KEYSTATUS" left shown Index ReadOnly - (FS | SNAP | VOL)
            "none | unavailable | available"
            ["none" = 0 "unavailable" = 1 "available" = 2];
        "remaptxg" "REMAPTXG" right hidden Number ReadOnly - (FS | SNAP | VOL) "" [];
        "special_small_blocks" "SPECIAL_SMALL_BLOCKS" right shown Number Inherit 0 (FS)
            "zero or 512 to 1M, power of 2"
            [];
        "ivsetguid" "IVSETGUID" right hidden Number ReadOnly - (FS | SNAP | VOL | MARK) "" [];
        "redacted" "REDACTED" right hidden Number ReadOnly - (FS | SNAP | VOL) "" [];
        "redact_snaps" "RSNAPS" left shown Text ReadOnly - (FS | SNAP | VOL | MARK) "<snapshot>[,...]" [];
        "snapshots_changed" "SNAPSHOTS_CHANGED" left shown Number ReadOnly - (FS | VOL) "<date>" [];
        "prefetch" "PREFETCH" left shown Index Inherit 2 (FS | SNAP | VOL) "none | metadata | all"
            ["none" = 0 "metadata" = 1 "all" = 2];
        "volthreading" "zvol threading" left shown Index Default 1 (VOL) "on | off" ["off" = 0 "on" = 1];
        "direct" "DIRECT" left shown Index Inherit 1 (FS) "disabled | standard | always"
            ["disabled" = 0 "standard" = 1 "always" = 2];
        "longname" "LONGNAME" left shown Index Inherit 0 (FS) "on | off" ["off" = 0 "on" = 1];
    }
}

props! {
    /// Properties of pools, in the order in which `zpool get all` lists them.
    POOL[40] {
        "name" "NAME" left hidden Text ReadOnly - (POOL_WIDE) "" [];
        "size" "SIZE" right shown Number ReadOnly - (POOL_WIDE) "<size>" [];
        "capacity" "CAP" right shown Number ReadOnly - (POOL_WIDE) "<percent>" [];
        "altroot" "ALTROOT" left shown Text Default { "" } (POOL_WIDE) "<path>" [];
        "health" "HEALTH" right shown Number ReadOnly - (POOL_WIDE) "<state>" [];
        "guid" "GUID" right shown Number ReadOnly - (POOL_WIDE) "<guid>" [];
        "version" "VERSION" right shown Number Default 5000 (POOL_WIDE) "<version>" [];
        "bootfs" "BOOTFS" left shown Text Default { "" } (POOL_WIDE) "<filesystem>" [];
        "delegation" "DELEGATION" left shown Index Default 1 (POOL_WIDE) "on | off" ["off" = 0 "on" = 1];
        "autoreplace" "REPLACE" left shown Index Default 0 (POOL_WIDE) "on | off" ["off" = 0 "on" = 1];
        "cachefile" "CACHEFILE" left shown Text Default { "" } (POOL_WIDE) "<file> | none" [];
        "failmode" "FAILMODE" left shown Index Default 0 (POOL_WIDE) "wait | continue | panic"
            ["wait" = 0 "continue" = 1 "panic" = 2];
        "listsnapshots" "LISTSNAPS" left shown Index Default 0 (POOL_WIDE) "on | off" ["off" = 0 "on" = 1];
        "autoexpand" "EXPAND" left shown Index Default 0 (POOL_WIDE) "on | off" ["off" = 0 "on" = 1];
        "dedupditto" "DEDUPDITTO" right hidden Number Default 0 (POOL_WIDE) "" [];
        "dedupratio" "DEDUP" right shown Number ReadOnly - (POOL_WIDE) "<1.00x or higher if deduped>" [];
        "free" "FREE" right shown Number ReadOnly - (POOL_WIDE) "<size>" [];
        "allocated" "ALLOC" right shown Number ReadOnly - (POOL_WIDE) "<size>" [];
        "readonly" "RDONLY" left shown Index Default 0 (POOL_WIDE) "on | off" ["off" = 0 "on" = 1];
        "ashift" "ASHIFT" right shown Number Default 0 (POOL_WIDE) "<ashift, 9-16, or 0=default>" [];
        "comment" "COMMENT" left shown Text Default { "" } (POOL_WIDE) "<comment-string>" [];
        "expandsize" "EXPANDSZ" right shown Number ReadOnly - (POOL_WIDE) "<size>" [];
        "freeing" "FREEING" right shown Number ReadOnly - (POOL_WIDE) "<size>" [];
        "fragmentation" "FRAG" right shown Number ReadOnly - (POOL_WIDE) "<percent>" [];
        "leaked" "LEAKED" right shown Number ReadOnly - (POOL_WIDE) "<size>" [];
        "maxblocksize" "MAXBLOCKSIZE" right hidden Number ReadOnly - (POOL_WIDE) "" [];
        "tname" "TNAME" left hidden Text OneTime { "" } (POOL_WIDE) "" [];
        "maxdnodesize" "MAXDNODESIZE" right hidden Number ReadOnly - (POOL_WIDE) "" [];
        "multihost" "MULTIHOST" left shown Index Default 0 (POOL_WIDE) "on | off" ["off" = 0 "on" = 1];
        "checkpoint" "CKPOINT" right shown Number ReadOnly - (POOL_WIDE) "<size>" [];
        "load_guid" "LOAD_GUID" right shown Number ReadOnly - (POOL_WIDE) "<load_guid>" [];
        "autotrim" "AUTOTRIM" left shown Index Default 0 (POOL_WIDE) "on | off" ["off" = 0 "on" = 1];
        "compatibility" "COMPATIBILITY" left shown Text Default { "off" } (POOL_WIDE)
            "<file[,file...]> | off | legacy"
            [];
        "bcloneused" "BCLONE_USED" right shown Number ReadOnly - (POOL_WIDE) "<size>" [];
        "bclonesaved" "BCLONE_SAVED" right shown Number ReadOnly - (POOL_WIDE) "<size>" [];
        "bcloneratio" "BCLONE_RATIO" right shown Number ReadOnly - (POOL_WIDE) "<1.00x or higher if cloned>"
            [];
        "dedup_table_size" "DDTSIZE" right shown Number ReadOnly - (POOL_WIDE) "<size>" [];
        "dedup_table_quota" "DDTQUOTA" right shown Number Default none (POOL_WIDE) "<size>" [];
        "dedupcached" "DEDUPCACHED" right hidden Number ReadOnly - (POOL_WIDE) "" [];
        "last_scrubbed_txg" "LAST_SCRUBBED_TXG" right shown Number ReadOnly - (POOL_WIDE) "<txg>" [];
    }
}

props! {
    /// Properties of vdevs, in the order in which `zpool get all POOL VDEV` lists them.
    VDEV[52] {
        "name" "NAME" left hidden Text ReadOnly - (LEAF_OR_TOP) "" [];
        "capacity" "CAP" right shown Number ReadOnly - (LEAF_OR_TOP) "<size>" [];
        "state" "STATE" right shown Number ReadOnly - (LEAF_OR_TOP) "<state>" [];
        "guid" "GUID" right shown Number ReadOnly - (LEAF_OR_TOP) "<guid>" [];
        "asize" "ASIZE" right shown Number ReadOnly - (LEAF_OR_TOP) "<asize>" [];
        "psize" "PSIZE" right shown Number ReadOnly - (LEAF_OR_TOP) "<psize>" [];
        "ashift" "ASHIFT" right shown Number ReadOnly - (LEAF_OR_TOP) "<ashift>" [];
        "size" "SIZE" right shown Number ReadOnly - (LEAF_OR_TOP) "<size>" [];
        "free" "FREE" right shown Number ReadOnly - (LEAF_OR_TOP) "<size>" [];
        "allocated" "ALLOC" right shown Number ReadOnly - (LEAF_OR_TOP) "<size>" [];
        "comment" "COMMENT" left shown Text Default { "" } (LEAF_OR_TOP) "<comment-string>" [];
        "expandsize" "EXPANDSZ" right shown Number ReadOnly - (LEAF_OR_TOP) "<size>" [];
        "fragmentation" "FRAG" right shown Number ReadOnly - (LEAF_OR_TOP) "<percent>" [];
        "bootsize" "BOOTSIZE" right shown Number ReadOnly - (LEAF_OR_TOP) "<size>" [];
        "parity" "PARITY" right shown Number ReadOnly - (LEAF_OR_TOP) "<parity>" [];
        "path" "PATH" left shown Text Default { "" } (LEAF_OR_TOP) "<device-path>" [];
        "devid" "DEVID" left shown Text ReadOnly - (LEAF_OR_TOP) "<devid>" [];
        "physpath" "PHYSPATH" left shown Text ReadOnly - (LEAF_OR_TOP) "<physpath>" [];
        "encpath" "ENCPATH" left shown Text ReadOnly - (LEAF_OR_TOP) "<encpath>" [];
        "fru" "FRU" left shown Text ReadOnly - (LEAF_OR_TOP) "<fru>" [];
        "parent" "PARENT" left shown Text ReadOnly - (LEAF_OR_TOP) "<parent>" [];
        "children" "CHILDREN" left shown Text ReadOnly - (LEAF_OR_TOP) "<child[,...]>" [];
        "numchildren" "NUMCHILD" right shown Number ReadOnly - (LEAF_OR_TOP) "<number-of-children>" [];
        "read_errors" "RDERR" right shown Number ReadOnly - (LEAF_OR_TOP) "<errors>" [];
        "write_errors" "WRERR" right shown Number ReadOnly - (LEAF_OR_TOP) "<errors>" [];
        "checksum_errors" "CKERR" right shown Number ReadOnly - (LEAF_OR_TOP) "<errors>" [];
        "initialize_errors" "INITERR" right shown Number ReadOnly - (LEAF_OR_TOP) "<errors>" [];
        "null_ops" "NULLOP" right shown Number ReadOnly - (LEAF_OR_TOP) "<operations>" [];
        "read_ops" "READOP" right shown Number ReadOnly - (LEAF_OR_TOP) "<operations>" [];
        "write_ops" "WRITEOP" right shown Number ReadOnly - (LEAF_OR_TOP) "<operations>" [];
        "free_ops" "FREEOP" right shown Number ReadOnly - (LEAF_OR_TOP) "<operations>" [];
        "claim_ops" "CLAIMOP" right shown Number ReadOnly - (LEAF_OR_TOP) "<operations>" [];
        "trim_ops" "TRIMOP" right shown Number ReadOnly - (LEAF_OR_TOP) "<operations>" [];
        "null_bytes" "NULLBYTE" right shown Number ReadOnly - (LEAF_OR_TOP) "<bytes>" [];
        "read_bytes" "READBYTE" right shown Number ReadOnly - (LEAF_OR_TOP) "<bytes>" [];
        "write_bytes" "WRITEBYTE" right shown Number ReadOnly - (LEAF_OR_TOP) "<bytes>" [];
        "free_bytes" "FREEBYTE" right shown Number ReadOnly - (LEAF_OR_TOP) "<bytes>" [];
        "claim_bytes" "CLAIMBYTE" right shown Number ReadOnly - (LEAF_OR_TOP) "<bytes>" [];
        "trim_bytes" "TRIMBYTE" right shown Number ReadOnly - (LEAF_OR_TOP) "<bytes>" [];
        "removing" "REMOVING" left shown Index ReadOnly - (LEAF_OR_TOP) "off | on" ["off" = 0 "on" = 1];
        "allocating" "ALLOCATING" left shown Index Default 1 (LEAF_OR_TOP) "off | on | -"
            ["off" = 0 "on" = 1 "-" = 2];
        "failfast" "FAILFAST" left shown Index Default 1 (LEAF_OR_TOP) "off | on" ["off" = 0 "on" = 1];
        "checksum_n" "CKSUM_N" right shown Number Default none (LEAF_OR_TOP) "<events>" [];
        "checksum_t" "CKSUM_T" right shown Number Default none (LEAF_OR_TOP) "<seconds>" [];
        "io_n" "IO_N" right shown Number Default none (LEAF_OR_TOP) "<events>" [];
        "io_t" "IO_T" right shown Number Default none (LEAF_OR_TOP) "<seconds>" [];
        "raidz_expanding" "RAIDZ_EXPANDING" left shown Index ReadOnly - (LEAF_OR_TOP) "off | on"
            ["off" = 0 "on" = 1];
        "slow_io_n" "SLOW_IO_N" right shown Number Default none (LEAF_OR_TOP) "<events>" [];
        "slow_io_t" "SLOW_IO_T" right shown Number Default none (LEAF_OR_TOP) "<seconds>" [];
        "trim_support" "TRIMSUP" left shown Index ReadOnly - (LEAF_OR_TOP) "off | on" ["off" = 0 "on" = 1];
        "trim_errors" "TRIMERR" right shown Number ReadOnly - (LEAF_OR_TOP) "<errors>" [];
        "slow_ios" "SLOW" right shown Number ReadOnly - (LEAF_OR_TOP) "<slowios>" [];
    }
}
