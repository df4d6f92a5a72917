#!/bin/sh
# real-sources INSTALLED: Debian's sources of NVIDIA's open kernel modules, of trixie and of bookworm, as packages named as NVIDIA names its own, in a
# repository on this node; their DKMS scripts are those of the installed version. Prints both versions, and a kernel of bookworm, in one line at the end.
set -eu
installed=$1
debian=/etc/apt/sources.list.d/debian.sources
mirror=$(sed -n 's/^URIs: //p' $debian | head -n 1)
key=$(sed -n 's/^Signed-By: //p' $debian | head -n 1)
for suite in trixie bookworm; do
	printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main contrib non-free\nSigned-By: %s\n' "$mirror" $suite "$key" \
		>/etc/apt/sources.list.d/real-$suite.sources
done
printf 'Package: *\nPin: release n=bookworm\nPin-Priority: 100\n' >/etc/apt/preferences.d/real-bookworm
apt-get -q update
mkdir -p /root/real/repository
cd /root/real
make_package() {
	rm -rf "$1"
	mkdir "$1"
	(cd "$1" && apt-get -q -o APT::Sandbox::User=root download "nvidia-open-kernel-dkms/$1")
	dpkg-deb -x "$1"/*.deb "$1/tree"
	set -- "$1" "$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' "$1"/tree/usr/src/*/dkms.conf)"
	package=$1/package
	mkdir -p "$package/usr/src" "$package/DEBIAN"
	mv "$1"/tree/usr/src/* "$package/usr/src/nvidia-$2"
	# Debian keeps several drivers apart by the names of their modules; NVIDIA's packages do not.
	sed -i 's/^PACKAGE_NAME=.*/PACKAGE_NAME="nvidia"/' "$package/usr/src/nvidia-$2/dkms.conf"
	for script in postinst prerm; do
		sed "s/$installed/$2/g" "/var/lib/dpkg/info/nvidia-kernel-open-dkms.$script" >"$package/DEBIAN/$script"
		chmod 755 "$package/DEBIAN/$script"
	done
	printf 'Package: nvidia-kernel-open-dkms\nVersion: %s-1\nArchitecture: amd64\nDepends: dkms\nMaintainer: lab <lab@lab.internal>\n' "$2" \
		>"$package/DEBIAN/control"
	printf 'Description: NVIDIA open kernel modules of Debian %s\n' "$1" >>"$package/DEBIAN/control"
	dpkg-deb -Zgzip -z1 --build "$package" "repository/nvidia-kernel-open-dkms_$2-1_amd64.deb" >&2
	versions="${versions:-} $2"
}
make_package trixie
make_package bookworm
cd repository
for deb in *.deb; do
	dpkg-deb -f "$deb"
	printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$deb" "$(stat -c %s "$deb")" "$(sha256sum "$deb" | cut -d ' ' -f 1)"
done >Packages
echo 'deb [trusted=yes] file:/root/real/repository ./' >/etc/apt/sources.list.d/real.list
chmod 755 /root
apt-get -q update
kernel=$(apt-cache search --names-only '^linux-image-6\.1\.0-[0-9]+-amd64$' | sed 's/^linux-image-\([^ ]*\) .*/\1/' | sort -V | tail -n 1)
echo "$versions $kernel"
