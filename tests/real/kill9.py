#!/usr/bin/env python3
"""What kill9.sh runs: programs that write, and note elsewhere what they were told is durable; and who checks it.

load MOUNT NOTES ROUND   writes until the mount is gone
check MOUNT NOTES        everything noted is there

With VIA=daemon the program CENOTE is also told to make, change and remove datasets.
"""
import hashlib
import os
import random
import subprocess
import sys
import time


def block(key, size):
    """Bytes that only this key has."""
    seed = hashlib.sha256(key.encode()).digest()
    return (seed * (size // 32 + 1))[:size]


def note(notes, *words):
    notes.write(" ".join(str(word) for word in words) + "\n")
    notes.flush()


def appender(mount, notes, who):
    """Appends records to a log, and syncs it."""
    fd = os.open(f"{mount}/log{who}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    number = os.fstat(fd).st_size // 1000
    os.ftruncate(fd, number * 1000)
    while True:
        for _ in range(random.randint(1, 5)):
            os.write(fd, block(f"log{who}.{number}", 1000))
            number += 1
        os.fdatasync(fd) if number % 2 else os.fsync(fd)
        note(notes, "log", who, number)


def replacer(mount, notes, who):
    """Replaces a file as editors do: a new one, synced, is renamed over it, and its folder is synced."""
    directory = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
    version = time.time_ns()
    while True:
        version += 1
        size = random.randint(1, 200000)
        name = f"{mount}/replaced{who}"
        fd = os.open(name + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, f"{version} {size}\n".encode() + block(f"{who}.{version}", size))
        os.fsync(fd)
        os.close(fd)
        os.rename(name + ".new", name)
        os.fsync(directory)
        note(notes, "replaced", who, version)


def maker(mount, notes, who, round_):
    """Makes and removes trees; now and then syncs a file and its folder."""
    number = 0
    while True:
        number += 1
        folder = f"{mount}/tree{who}/{round_}.{number}"
        os.makedirs(folder)
        for i in range(random.randint(1, 30)):
            with open(f"{folder}/{i}", "wb", 0) as file:
                file.write(block(f"{folder[len(mount):]}/{i}", 3000))
        if number % 7 == 0:
            fd = os.open(f"{folder}/0", os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
            note(notes, "file", f"tree{who}/{round_}.{number}/0")
        elif number % 3 == 0:
            for entry in os.scandir(folder):
                os.unlink(entry)
            os.rmdir(folder)


def overwriter(mount, notes, who):
    """Overwrites pages in place with O_DSYNC."""
    fd = os.open(f"{mount}/pages{who}", os.O_RDWR | os.O_CREAT | os.O_DSYNC)
    version = int(random.random() * 1e9) << 20
    while True:
        version += 1
        page = random.randrange(200)
        key = f"{who}.{page}.{version}"
        note(notes, "try", who, page, version)
        os.pwrite(fd, f"{version:020d}".encode() + block(key, 4076), page * 4096)
        note(notes, "page", who, page, version)


def ask(*words):
    """Runs a command; its output, or None if it failed."""
    done = subprocess.run([os.environ["CENOTE"], *words], capture_output=True, text=True, check=False)
    if done.returncode != 0 or done.stderr:
        print(" ".join(words), done.returncode, done.stderr.strip())
    return done.stdout if done.returncode == 0 else None


def datasets():
    """Every file system and snapshot that commander makes, with its mark."""
    listed = ask("zfs", "list", "-Hrt", "filesystem,snapshot", "-o", "name,real:mark", "real")
    if listed is None:
        return None
    pairs = (line.split("\t") for line in listed.splitlines())
    return {name: mark for name, mark in pairs if name.startswith(("real/d", "real/a@"))}


def commander(mount, notes, who, round_):
    """Makes, marks, renames and removes file systems and snapshots. Each new file system gets a file that is synced."""
    known = datasets()
    if known is None:
        return
    note(notes, "state", *(f"{name}={mark}" for name, mark in known.items()))
    number = 0
    while True:
        number += 1
        name, mark = f"d{who}.{round_}.{number}", f"m{round_}.{number}"
        olds = [old for old in known if old.split(".")[0].endswith(f"d{who}")]
        old = random.choice(olds) if olds else None
        verb = random.choice(["create", "snapshot", "mark", "rename", "destroy", "destroy"] if len(olds) > 2 else ["create", "snapshot"])
        changed, words = dict(known), None
        if verb == "create":
            at = f"{os.path.dirname(mount)}/more/{name}"
            changed[f"real/{name}"] = mark
            words = ("create", "-o", f"mountpoint={at}", "-o", f"real:mark={mark}", f"real/{name}")
        elif verb == "snapshot":
            changed[f"real/a@{name}"] = mark
            words = ("snapshot", "-o", f"real:mark={mark}", f"real/a@{name}")
        elif verb == "mark":
            changed[old] = mark
            words = ("set", f"real:mark={mark}", old)
        elif verb == "rename":
            new = f"real/a@{name}" if "@" in old else f"real/{name}"
            changed[new] = changed.pop(old)
            words = ("rename", old, new)
        else:
            del changed[old]
            words = ("destroy", old)
        note(notes, "try", *(f"{name}={mark}" for name, mark in changed.items()))
        if ask("zfs", *words) is None:
            return
        known = changed
        note(notes, "state", *(f"{name}={mark}" for name, mark in known.items()))
        if verb == "create":
            fd = os.open(f"{at}/file", os.O_WRONLY | os.O_CREAT)
            os.write(fd, block(at, 5000))
            os.fsync(fd)
            note(notes, "file", f"real/{name}", at)


def load(mount, folder, round_):
    os.makedirs(folder, exist_ok=True)
    children = []
    work = [(kind, who) for who in range(2) for kind in (appender, replacer, maker, overwriter)]
    if os.environ.get("VIA") == "daemon":
        work.append((commander, 0))
    for kind, who in work:
        pid = os.fork()
        if pid == 0:
            random.seed(f"{kind.__name__}{who}{round_}{os.getpid()}")
            try:
                with open(f"{folder}/{kind.__name__}{who}", "a", encoding="ascii") as notes:
                    kind(mount, notes, who, *([round_] if kind in (maker, commander) else []))
            except OSError as error:
                print(kind.__name__, error)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def lines(folder, name):
    try:
        with open(f"{folder}/{name}", encoding="ascii") as file:
            return [line.split() for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def must(holds, *what):
    if not holds:
        print("wrong:", *what)
        sys.exit(1)


def check(mount, folder):
    seen = 0
    for who in range(2):
        noted = lines(folder, f"appender{who}")
        if noted:
            count = int(noted[-1][2])
            with open(f"{mount}/log{who}", "rb") as file:
                content = file.read()
            must(len(content) >= count * 1000, f"log{who} has {len(content)} bytes, {count} records are durable")
            for number in range(count):
                must(content[number * 1000 : number * 1000 + 1000] == block(f"log{who}.{number}", 1000), f"log{who}, record {number}")
            seen += count
        noted = lines(folder, f"replacer{who}")
        if noted:
            with open(f"{mount}/replaced{who}", "rb") as file:
                head, content = file.read().split(b"\n", 1)
            version, size = map(int, head.split())
            must(content == block(f"{who}.{version}", size), f"replaced{who} is torn")
            durable = [int(words[2]) for words in noted]
            # The last rename may have been made without an acknowledgement.
            must(version >= durable[-1], f"replaced{who}: version {version}, {durable[-1]} is durable")
            seen += 1
        for words in lines(folder, f"maker{who}"):
            with open(f"{mount}/{words[1]}", "rb") as file:
                must(file.read() == block(f"/{words[1]}", 3000), words[1])
            seen += 1
        durable, tried = {}, {}
        for kind, _, page, version in lines(folder, f"overwriter{who}"):
            if kind == "page":
                durable[int(page)] = int(version)
                tried[int(page)] = []
            else:
                tried.setdefault(int(page), []).append(int(version))
        with open(f"{mount}/pages{who}", "rb") if durable else open("/dev/null", "rb") as file:
            content = file.read()
        for page, version in durable.items():
            found = content[page * 4096 : page * 4096 + 4096]
            now = int(found[:20])
            must(now == version or now in tried[page], f"pages{who}, page {page}: {now}, {version} is durable")
            must(found[20:] == block(f"{who}.{page}.{now}", 4076), f"pages{who}, page {page} is torn")
            seen += 1
    seen += check_datasets(folder)
    print(f"{seen} durable things are there")


def state_of(pairs):
    return dict(pair.split("=") for pair in pairs)


def check_datasets(folder):
    noted = lines(folder, "commander0")
    may = []
    for kind, *pairs in noted:
        if kind == "state":
            may = [state_of(pairs)]
        elif kind == "try":
            # It may have been done although its client got no reply.
            may.append(state_of(pairs))
    if not may:
        return 0
    found = datasets()
    must(found in may, "datasets:", found, "where it must be one of", may)
    wanted = {words[1]: words[2] for words in noted if words[0] == "file"}
    there = 0
    for name, at in wanted.items():
        if name in found:
            with open(f"{at}/file", "rb") as file:
                must(file.read() == block(at, 5000), f"{at}/file")
            there += 1
    return len(found) + there


if sys.argv[1] == "load":
    load(sys.argv[2], sys.argv[3], sys.argv[4])
else:
    check(sys.argv[2], sys.argv[3])
