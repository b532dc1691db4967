//! Tables of calls. Each table is run in an empty folder.

pub(crate) const TABLES: &[(&str, &str)] = &[
    ("mkdir and rmdir", "
mkdir d 755
stat d
mkdir d 755
mkdir d/e 2777
stat d/e
stat d
stat .
rmdir d
rmdir d/.
rmdir d/e/..
rmdir d/e
stat d
make f 644
mkdir f 755
mkdir f/g 755
rmdir f
rmdir f/g
rmdir none
rmdir none/x
mkdir none/x 755
symlink d l
mkdir l 755
rmdir l
rmdir l/
symlink gone dangling
mkdir dangling 755
mkdir @255 755
mkdir @256 755
stat @256
mkdir d/sticky 1777
stat d/sticky
fifo p 644
rmdir p
mkdir p/x 755
chmod d 0
a: mkdir d/x 755
a: rmdir d/sticky
a: stat d/sticky
chmod d 555
a: mkdir d/x 755
a: rmdir d/sticky
chmod d 777
a: mkdir d/x 700
a: stat d/x
b: mkdir d/x/y 755
b: stat d/x/y
b: rmdir d/x
rmdir d
rmdir d/x
"),
    ("times of directories", "
mkdir d 755
mark d
mark .
mkdir d/e 755
changed d
changed .
mark d
make d/f 644
changed d
mark d
link d/f d/g
changed d
mark d
unlink d/g
changed d
mark d
symlink x d/s
changed d
mark d
fifo d/p 644
changed d
mark d
rename d/f d/h
changed d
mark d
rename d/h h
changed d
mark d
rename h d/h
changed d
mark d
rmdir d/e
changed d
mark d
mkdir d/h 755
changed d
unlink d/none
changed d
rmdir d
changed d
chmod d 700
changed d
mark d
chown d 5 6
changed d
mark d
utimes d 3 4
changed d
stat d
mark d
setx d user.k v
changed d
mark d
delx d user.k
changed d
"),
    ("times of files", "
make f 644
mark f
chmod f 600
changed f
mark f
chown f 7 8
changed f
mark f
chown f - -
changed f
mark f
link f g
changed f
mark f
unlink g
changed f
mark f
rename f h
rename h f
changed f
mark f
setx f user.k v
changed f
mark f
getx f user.k
listx f
changed f
mark f
delx f user.k
changed f
mark f
truncate f 0
changed f
mark f
truncate f 100
changed f
mark f
utimes f 11 12
changed f
stat f
atime f
utimes f omit 13
stat f
atime f
utimes f 14 omit
stat f
atime f
mark f
utimes f omit omit
changed f
utimes f now now
changed f
open x f rw
mark f
pwrite x 0 abc
changed f
mark f
pread x 0 3
changed f
fsync x
close x
changed f
mark f
open x f rw
close x
changed f
open x f w+trunc
close x
changed f
open x f rw
mark f
fallocate x - 0 10000
changed f
mark f
fallocate x keep+punch 0 4096
changed f
mark f
ftruncate x 5
changed f
mark f
ftruncate x 5
changed f
close x
symlink f l
mark l
lchown l 9 9
changed l
stat l
lstat l
mark l
link l l2
changed l
lstat l2
mark l
rename l l3
rename l3 l
changed l
open x f rw
mark x
unlink f
changed x
stat x
close x
make f 644
make old 644
open x old r
mark x
rename f old
changed x
stat x
"),
    ("unlink", "
make f 644
unlink f
stat f
unlink f
unlink f/x
mkdir d 755
unlink d
unlink d/
unlink d/none/x
make d/f 644
symlink d/f l
unlink l
stat d/f
fifo p 600
sock s 600
chr c 600
blk b 600
stat p
stat s
stat c
stat b
list .
unlink p
unlink s
unlink c
unlink b
unlink @256
unlink d/f/
make f 644
open x f rw
pwrite x 0 abc
unlink f
stat x
pwrite x 3 def
pread x 0 10
ftruncate x 4
pread x 0 10
chmod f 600
fchmod x 600
stat x
close x
mkdir t 1777
a: make t/a 666
b: unlink t/a
c: unlink t/a
b: rename t/a t/b
chown t 65502 -
b: unlink t/a
chmod t 777
a: make t/a 600
b: unlink t/a
chmod t 755
a: make t/a 644
a: unlink t/a
symlink l1 l2
symlink l2 l1
unlink l1/x
stat l1
unlink l1
"),
    ("link", "
make f 644
link f g
stat f
link f g
link f none/x
link none x
mkdir d 755
link d e
link f d
link f d/f
stat f
link f f/x
link f/x y
link f @256
symlink f l
link l m
lstat m
fifo p 644
link p q
stat q
chr c 600
link c c2
chmod d 555
a: link f d/x
chmod d 777
chown f 65501 65501
a: link f d/x
b: link f d/y
chmod f 666
b: link f d/y
mkdir secret 700
make secret/x 644
a: link secret/x d/z
symlink loop loop
link loop/x y
link f loop/x
unlink f
unlink g
stat d/f
"),
    ("rename", "
make f 644
rename f g
stat f
stat g
rename none x
rename g none/x
rename g g
mkdir d 755
mkdir e 755
rename g d
rename d g
rename d e
stat d
stat e
make e/x 644
mkdir d 755
rename d e
rename e d
stat d
rename d d/sub
rename d d/x/y
mkdir d/s 755
rename d d/s
rename d d/s/t
rename d/s d
rename d/. x
rename d/.. x
rename g d/.
rename g d/..
link g h
rename g h
stat g
stat h
rename g h noreplace
rename g new noreplace
stat new
rename new d exchange
stat new
stat d
rename new none exchange
rename none new exchange
rename new d both
rename d x whiteout
lstat d
stat x
symlink x l
rename l x
lstat x
rename @256 y
rename x @256
rename x @255
stat @255
mkdir p 755
make p/f 644
mkdir p/sub 755
stat p
rename p/sub sub
stat p
stat .
rename sub p/sub
stat p
rename p/f/x y
rename p/f p/f/x
mkdir full 755
make full/f 644
rename p/sub full
make plain 644
rename p/sub plain
rename p/sub plain/
rename plain p/sub
rename plain p/none/
"),
    ("rename by users", "
mkdir t 1777
mkdir o 777
a: make t/a 644
b: rename t/a o/a
b: rename t/a t/b
a: rename t/a o/a
b: rename o/a t/x
b: stat t/x
a: make t/y 644
b: make o/z 644
b: rename o/z t/y
a: rename t/y o/y
b: rename o/z o/y
mkdir r 755
chown r 65501 65501
a: mkdir r/d 755
b: rename r/d o/d
a: rename r/d o/d
b: mkdir o/e 755
a: rename o/e o/d
mkdir p 777
mkdir p/q 755
chown p/q 65502 65502
a: rename p/q o/q
b: rename o/q p/q
a: mkdir o/mine 555
b: rename o/mine p/mine
chmod t 0
b: rename t/x o/k
b: rename o/y t/k
"),
    ("symbolic links", "
symlink target l
lstat l
readlink l
stat l
symlink other l
symlink @4095 long
lstat long
symlink @4096 longer
symlink x @256
mkdir d 755
symlink ../d d/up
stat d/up
readlink d
readlink none
make f 644
readlink f
readlink f/x
symlink a none/l
symlink d dl
make dl/in 600
stat d/in
open x l w+creat+excl 644
open x l w+creat 644
lstat target
open y l r+nofollow
open y dl r+nofollow+dir
open y d r+nofollow+dir
symlink loop1 loop2
symlink loop2 loop1
open y loop1 r
chmod loop1 600
chown loop1 1 1
truncate loop1 1
utimes loop1 1 1
readlink loop1
chmod l 640
lstat l
stat target
chmod d 0
a: readlink d/up
a: symlink x d/y
setx l user.k v
setx l trusted.k v
getx l trusted.k
"),
    ("open", "
open x f r
open x f w+creat 640
stat f
open y f w+creat+excl 640
open y f r+dir
mkdir d 755
open y d w
open y d rw
open y d r+creat 644
open y d w+creat 644
open y d w+trunc
open y d r
open y none/x w+creat 644
open y f/x w+creat 644
open y f/x r
open y @256 w+creat 644
write x hello
stat f
open y f w+trunc
stat f
open z f r+append
open z f w+append
write z one
ftruncate x 0
write z two
pread z 0 10
pwrite z 0 three
open r f r
pread r 0 20
write r no
ftruncate r 0
fallocate r - 0 10
open t . rw+tmp 644
stat t
write t temporary
linkfd t named
stat named
linkfd t named
open u . rw+tmp+excl 600
linkfd u named2
open u . r+tmp 600
open u f rw+tmp 600
fifo p 644
open q p w+nonblock
open q p r+nonblock
sock s 644
open q s r
chmod f 0
a: open q f r
chown f 65501 65501
a: open q f r
chmod f 400
a: open q f r
a: open q f w
a: open q f r+trunc
chmod f 200
a: open q f w
a: open q f r
b: open q f w
chmod d 555
a: open q d/new w+creat 644
chmod d 777
a: open q d/new w+creat 0
a: stat d/new
a: open q d/ro rw+creat 444
a: pwrite q 0 abc
a: open q d/ro w
b: open q d/noatime r+noatime+creat 644
a: open q d/noatime r+noatime
open q d/secret/x r
open q f r+path
open q d/x/ w+creat 644
open q d/ r
open q f/ r
"),
    ("permissions of classes", "
make f 640
chown f 65501 65510
a: access f rw
b: access f r
b: access f w
c: access f r
chmod f 604
b: access f r
c: access f r
chmod f 070
a: access f r
b: access f rw
b: access f x
access f rw
access f x
chmod f 010
access f x
mkdir d 711
make d/f 644
a: stat d/f
a: list d
a: access d r
a: access d x
chmod d 744
a: stat d/f
a: list d
a: access d/f r
chmod d 700
a: access d/f r
chmod d 755
a: access d w
a: chmod d/f 777
a: chown d/f 65501 -
a: utimes d/f 1 1
a: utimes d/f now now
chmod d/f 666
a: utimes d/f now now
a: utimes d/f 1 1
a: utimes d/f now 1
a: truncate d/f 5
a: setx d/f user.x y
chmod d/f 644
a: setx d/f user.x y
a: getx d/f user.x
a: setx d/f trusted.x y
a: getx d/f trusted.x
setx d/f trusted.x y
a: getx d/f trusted.x
a: listx d/f
listx d/f
a: setx d/f security.x y
setx d/f security.x y
a: getx d/f security.x
a: setx d user.x y
mkdir sticky 1777
a: setx sticky user.x y
setx sticky user.x y
fifo p 666
setx p user.x y
setx p trusted.x y
setx d/f system.x y
setx d/f x y
setx d/f other.x y
"),
    ("chmod and chown", "
make f 644
chmod f 7777
stat f
chown f 65501 65501
stat f
chmod f 6755
chown f - 65510
stat f
chmod f 2745
chown f 65501 65501
stat f
chmod f 6755
a: chown f - 65510
stat f
a: chown f 65501 -
a: chown f 65502 -
a: chown f - 65502
a: chown f - -
b: chown f - -
a: chmod f 2755
stat f
chown f - 65502
a: chmod f 2755
stat f
a: chmod f 4755
stat f
b: chmod f 777
mkdir d 2755
chown d 65501 65502
stat d
a: chmod d 2755
stat d
a: chmod d 1777
stat d
a: make g 1644
a: mkdir d/e 755
stat d/e
chmod d 2777
a: mkdir d/g 755
stat d/g
a: make d/h 2755
stat d/h
b: make d/i 2755
stat d/i
c: mkdir d/j 2755
stat d/j
c: fifo d/p 644
stat d/p
symlink f l
chmod l 600
stat f
lchown l 12 13
lstat l
stat f
chown l 14 15
stat f
chown none 1 1
chmod none 600
chmod f/x 600
chmod @256 600
chown @256 1 1
fchmod none 600
fifo p 600
chmod p 4755
stat p
chown p 1 1
stat p
"),
    ("set-id bits of written files", "
make f 6777
a: open x f w
a: pwrite x 0 abc
close x
stat f
chmod f 6777
a: truncate f 1
stat f
chmod f 6777
truncate f 2
stat f
open x f w
pwrite x 0 abc
close x
stat f
chmod f 6767
a: open x f w
a: pwrite x 0 abc
close x
stat f
chmod f 2777
a: open x f w+trunc
stat f
chmod f 6777
a: open x f w
a: fallocate x - 0 1000
stat f
chmod f 4777
a: open x f w+append
a: write x abc
stat f
chmod f 6777
a: open x f rw+dsync
a: pwrite x 0 abc
stat f
"),
    ("truncate and sizes", "
make f 644
truncate f 1000
stat f
truncate f 9223372036854775807
truncate f 8000000000000
stat f
open x f rw
pwrite x 7999999999999 z
pread x 7999999999990 20
ftruncate x 10
pread x 0 20
pwrite x 5 abc
ftruncate x 7
ftruncate x 20
pread x 0 30
mkdir d 755
truncate d 0
truncate none 0
truncate f/x 0
fifo p 644
pwrite x 0 block 10000
stat f
pread x 49995 20
pread x 60000 20
ftruncate x 30000
pread x 29995 20
ftruncate x 50000
pread x 29995 20
seek x end 0
seek x data 0
seek x data 50000
seek x hole 50000
seek x data 50001
"),
    ("fallocate", "
open x f rw+creat 644
fallocate x - 0 10000
stat f
fallocate x keep 0 1000000
stat f
pwrite x 0 abcdefgh 2000
fallocate x keep+punch 100 200
pread x 98 10
pread x 295 10
fallocate x keep+punch 4096 4096
pread x 4090 10
fallocate x punch 0 10
fallocate x zero 8000 100
pread x 7995 10
fallocate x zero+keep 15990 100
stat f
fallocate x zero 15990 100
stat f
fallocate x - 0 0
fallocate x keep+punch 100000 10
stat f
fallocate x - 20000 1
stat f
open r f r
fallocate r - 0 1
mkdir d 755
open d d r
fallocate d - 0 1
fifo p 644
"),
    ("holes and copies", "
open x f rw+creat 644
ftruncate x 10000000
pwrite x 1048576 data 1000
fsync x
seek x hole 1048576
open y g rw+creat 644
copy x 1048576 y 0 4000
pread y 0 8
copy x 0 y 0 10000000
stat g
pread y 1048576 8
copy x 20000000 y 0 10
copy y 0 y 2000000 1000
copy y 0 y 500 1000
open r f r
copy r 0 r 0 10
open a f w+append
copy y 0 a 0 10
mkdir d 755
open d d r
copy d 0 y 0 10
copy y 1048570 y 100 20
pread y 98 30
stat g
"),
    ("names", "
make @255 644
stat @255
make @256 644
rename @255 @256
mkdir @255/x 755
symlink x @256
mkdir a 755
mkdir a/@255 755
make a/@255/@255 644
stat a/@255/@255
make . 644
make .. 644
mkdir . 755
unlink .
unlink ..
rmdir .
rmdir ..
stat a/../a/./@255
stat a/./../a/
make a/b/c 644
list a
fifo . 644
symlink x .
link a/@255/@255 .
"),
    ("extended attributes", "
make f 644
setx f user.a one
setx f user.a two create
setx f user.a two replace
setx f user.b two replace
setx f user.b two create
getx f user.a
getx f user.c
delx f user.c
listx f
setx f user.big @4000
getx f user.big
setx f user.empty @0
getx f user.empty
setx f user.@250 v
setx f user. v
setx f user.toohuge @65537
delx f user.a
delx f user.a
listx f
mkdir d 755
setx d user.k v
getx d user.k
rename f g
getx g user.b
link g h
getx h user.b
chmod g 0
a: getx g user.b
a: listx g
getx none user.x
setx none user.x v
open x g rw
unlink g
unlink h
"),
    ("what is open and has no name", "
open x f rw+creat 644
pwrite x 0 abc
unlink f
make f 644
stat x
stat f
pread x 0 10
rename f g
open y g rw
make other 644
rename other g
pwrite y 0 xyz
pread y 0 9
stat y
mkdir d 755
open d d r
rmdir d
stat d
make d/x 644
open z d/x w+creat 644
fsync d
open z g rw
link g h
unlink g
stat z
unlink h
stat z
linkfd z back
stat z
"),
    ("access control lists", "
make f 640
acl f access u:6,u65501:6,g:4,m:6,o:0
stat f
getacl f access
a: access f rw
b: access f r
c: access f r
chmod f 600
stat f
getacl f access
a: access f r
chmod f 664
getacl f access
a: access f rw
a: acl f access u:7,g:7,o:7
acl f default u:7,g:7,o:7
acl f access u:6,g:4,o:0
getacl f access
stat f
listx f
acl f access u:6,u65501:6,g:4,o:0
acl f access u:6,g:4
acl f access u:9,g:4,o:0
acl f access u:6,u65501:6,u65501:4,g:4,m:6,o:0
acl f access
listx f
mkdir d 755
acl d default u:7,u65501:7,g:5,m:7,o:5
getacl d default
listx d
stat d
make d/f 666
stat d/f
getacl d/f access
make d/g 600
stat d/g
getacl d/g access
mkdir d/e 777
stat d/e
getacl d/e default
getacl d/e access
mkdir d/x 700
getacl d/x access
symlink f d/l
lstat d/l
fifo d/p 666
stat d/p
a: access d/f rw
a: access d/g r
b: access d/f w
delx d system.posix_acl_default
delx d system.posix_acl_default
make d/after 666
stat d/after
acl d access u:7,g:5,g65510:7,m:7,o:0
a: make d/mine 644
c: make d/no 644
a: rename d/mine d/yours
b: unlink d/yours
chown d/f 65502 -
b: acl d/f access u:6,g:4,o:4
mark d
acl d access u:7,g:5,o:5
changed d
delx d system.posix_acl_access
getacl d access
make s 2755
chown s 65501 65502
a: acl s access u:7,g:7,o:5
stat s
mkdir t 755
acl t default u:7,g:5,o:5
make t/f 666
stat t/f
acl t default u:6,g:6,o:6
mkdir t/d 777
stat t/d
acl none access u:7,g:7,o:7
getacl d none
a: acl t access u:7,g:7,o:7
a: delx t system.posix_acl_default
a: acl t default u:7,g:7,o:7
"),
    ("long paths and loops", "
mkdir a 755
symlink . a/l
stat a/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l
stat a/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l/l
make @200/@200/@200/@200/@200/@200/@200/@200/@200/@200/@200/@200/@200/@200/@200/@200/@200/@200/@200/@200/@200 644
stat @300
unlink @300
rmdir @300
mkdir @300 755
make @300 644
link a @300
rename a @300
rename @300 a
open x @300 r
open x @300 w+creat 644
chmod @300 600
truncate @300 1
utimes @300 1 1
readlink @300
access @300 r
fifo @300 600
setx @300 user.k v
make f 644
stat f/x
unlink f/x
mkdir f/x 755
rename f/x g
rename f g/h
link f/x g
symlink x f/x
chmod f/x 600
open x f/x r
open x f/x w+creat 600
truncate f/x 1
readlink f/x
access f/x r
fifo f/x 600
setx f/x user.k v
stat f/
"),
    ("set-id bits without a change", "
make f 644
chown f 65501 65501
chmod f 6777
chown f - -
stat f
chmod f 6777
a: chown f - -
stat f
chmod f 2767
chown f - -
stat f
chmod f 2767
a: chown f - -
stat f
chown f - 65510
chmod f 6777
mark f
c: chown f - -
stat f
a: chown f - -
stat f
mkdir d 755
chmod d 6777
chown d - -
stat d
"),
    ("set-group-id bits that nobody executes", "
make f 644
chown f 65501 65502
chmod f 6666
a: open x f rw
a: pwrite x 0 abc
stat f
chmod f 6666
b: open x f rw
b: pwrite x 0 abc
stat f
chmod f 2666
c: open x f rw
c: ftruncate x 1
stat f
chmod f 2666
c: fallocate x - 0 5000
stat f
chmod f 2666
c: copy x 0 x 2000 100
stat f
chmod f 2666
pwrite x 0 abc
stat f
chown f 65501 65510
chmod f 2666
b: pwrite x 0 abc
stat f
chmod f 2666
c: pwrite x 0 abc
stat f
"),
    ("what cannot be both", "
make f 644
rename f g whiteout+noreplace
lstat f
lstat g
make h 644
rename g h whiteout+noreplace
setx h user.a one both
setx h user.a one
setx h user.a two both
getx h user.a
"),
    ("reserving", "
open x f rw+creat 644
pwrite x 0 abc 2000
mark f
fallocate x keep 0 100000
changed f
mark f
fallocate x - 0 100
changed f
stat f
"),
];
