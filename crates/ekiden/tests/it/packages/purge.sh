#!/bin/sh
# purge.sh PACKAGE FOLDER: in a mount namespace of its own. Fails with what is wrong.
set -eu
package=$1
tree=$2/machine

mkdir "$tree"
mount -t tmpfs none "$tree"
cd "$tree"
mkdir -p lower upper work usr etc/systemd var/lib/dpkg/info var/lib/dpkg/updates var/lib/dpkg/triggers var/log var/cache run tmp proc dev
mount -t overlay -o "lowerdir=/usr,upperdir=$tree/upper,workdir=$tree/work" none usr
mount -t proc none proc
mount --bind /dev dev
for name in bin sbin lib lib64; do
    if [ -L "/$name" ]; then cp -P "/$name" .; fi
done
printf 'root:x:0:0:root:/root:/bin/sh\n' >etc/passwd
printf 'root:*:19000:0:99999:7:::\n' >etc/shadow
printf 'root:x:0:\n' >etc/group
printf 'root:*::\n' >etc/gshadow
chmod 640 etc/shadow etc/gshadow
cp /etc/login.defs /etc/ld.so.cache etc/
printf 'passwd: files\ngroup: files\nshadow: files\ngshadow: files\n' >etc/nsswitch.conf
for file in passwd shadow group gshadow; do cp -p "etc/$file" "etc/$file-"; done
touch var/lib/dpkg/status var/lib/dpkg/available etc/subuid etc/subgid

files() { find upper etc var run tmp ! -path 'var/lib/dpkg*' ! -path 'etc/*-' ! -path '*.lock' ! -path '*/.updated' | sort; }
dpkg() { command dpkg --root="$tree" --log=/dev/null --force-depends "$@" >log 2>&1 || {
    cat log
    exit 1
}; }
fails() {
    echo "purge.sh: $*"
    exit 1
}

files >before
cp etc/passwd passwd
dpkg --install "$package"
grep -q '^ekiden:x:[0-9]*:[0-9]*:.*:/var/lib/ekiden:/usr/sbin/nologin$' etc/passwd || fails "no user: $(cat etc/passwd)"
owner=$(sed -n 's/^ekiden:x:\([0-9]*\):.*/\1/p' etc/passwd)
[ "$(stat -c '%u %a' var/lib/ekiden)" = "$owner 700" ] || fails "var/lib/ekiden: $(stat -c '%u %a' var/lib/ekiden)"
[ -L etc/systemd/system/multi-user.target.wants/ekiden.service ] || fails "not enabled"
# what a user and the daemon put there
echo '# changed' >>etc/ekiden/config.toml
mkdir -p var/log/ekiden var/cache/ekiden/http run/ekiden etc/systemd/system/ekiden.service.d etc/sysctl.d
touch etc/ekiden/key.pem var/lib/ekiden/accounts.sqlite var/log/ekiden/access.log run/ekiden/ekiden.sock etc/sysctl.d/90-ekiden.conf
dpkg --install "$package"
grep -q '^# changed$' etc/ekiden/config.toml || fails "an upgrade changed the configuration"
dpkg --remove ekiden
[ -e var/lib/ekiden/accounts.sqlite ] && [ -e etc/ekiden/key.pem ] || fails "a removal took state along"
[ ! -e usr/bin/ekiden ] || fails "a removal left the program"
dpkg --install "$package"
[ "$(readlink etc/systemd/system/ekiden.service)" != /dev/null ] || fails "masked after another installation"
dpkg --remove ekiden
# a cache on a disk of its own
rm -r var/cache/ekiden/http
mount -t tmpfs none var/cache/ekiden
touch var/cache/ekiden/lock
dpkg --purge ekiden
[ -d var/cache/ekiden ] && [ -z "$(ls -A var/cache/ekiden)" ] || fails "a mount point is gone, or not empty"
grep -q 'a mount point stays' log || fails "nothing is said of a mount point: $(cat log)"
umount var/cache/ekiden
rmdir var/cache/ekiden
# folders of systemd and dpkg that were not there on this small machine are no traces of ours
rmdir etc/sysctl.d etc/systemd/system/multi-user.target.wants etc/systemd/system 2>/dev/null || true
files >after
grep -i ekiden after && fails "left behind"
cmp -s passwd etc/passwd || fails "users changed: $(cat etc/passwd)"
! grep -q ekiden etc/group etc/shadow etc/gshadow || fails "a group or a shadow is left"
diff before after | grep '^>' | grep -v -E ' (var/lib/systemd|upper/share(/.*)?|upper/lib(/.*)?|upper/bin|etc/\.pwd)' && fails "left behind"
exit 0
