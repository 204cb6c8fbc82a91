# AN EXAMPLE THAT NOTHING TESTS: bitbake has never read this file. It is written for scarthgap.
#
# A Yocto recipe for the static binary of deploy/build and the units. It needs a folder "files" beside it
# with dist/meshddns-linux-ARCH as meshddns, and the units of deploy/systemd.
SUMMARY = "DDNS for mesh networks"
DESCRIPTION = "Keeps the DNS TXT records by which the nodes of a mesh network find each other."
SECTION = "net"
# The sources state no licence yet.
LICENSE = "CLOSED"

SRC_URI = " \
    file://meshddns \
    file://meshddns.target \
    file://meshddns.service \
    file://meshddns.socket \
    file://meshddns-dns.socket \
    file://meshddns-node.socket \
    file://meshddns-tls.socket \
    file://meshddns-node-tls.socket \
"
S = "${UNPACKDIR}"
UNPACKDIR ??= "${WORKDIR}"

inherit systemd features_check
REQUIRED_DISTRO_FEATURES = "systemd"
COMPATIBLE_HOST = "(x86_64|aarch64|arm|riscv64).*-linux"

# The binary is already static and stripped.
INHIBIT_PACKAGE_STRIP = "1"
INHIBIT_PACKAGE_DEBUG_SPLIT = "1"
INSANE_SKIP:${PN} += "already-stripped"
do_configure[noexec] = "1"
do_compile[noexec] = "1"

do_install() {
    install -D -m 0755 ${UNPACKDIR}/meshddns ${D}${bindir}/meshddns
    install -d ${D}${systemd_system_unitdir}
    install -m 0644 ${UNPACKDIR}/meshddns.target ${UNPACKDIR}/meshddns.service ${UNPACKDIR}/meshddns.socket ${UNPACKDIR}/meshddns-dns.socket \
        ${UNPACKDIR}/meshddns-node.socket ${UNPACKDIR}/meshddns-tls.socket ${UNPACKDIR}/meshddns-node-tls.socket ${D}${systemd_system_unitdir}
}

# The other sockets are for the operator to enable: they take ports 53, 8054, 8443 and 8444.
SYSTEMD_SERVICE:${PN} = "meshddns.service meshddns.socket"
FILES:${PN} += "${systemd_system_unitdir}/meshddns.target ${systemd_system_unitdir}/meshddns-dns.socket ${systemd_system_unitdir}/meshddns-node.socket ${systemd_system_unitdir}/meshddns-tls.socket ${systemd_system_unitdir}/meshddns-node-tls.socket"
