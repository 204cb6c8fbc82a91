################################################################################
#
# meshddns
#
################################################################################

# Installs the binary of deploy/build, the units and, when it is there,
# provision.json of this folder:
#
#     deploy/build arm64
#     make BR2_EXTERNAL=<sources>/deploy/buildroot menuconfig
MESHDDNS_VERSION = local
MESHDDNS_SITE = $(BR2_EXTERNAL_MESHDDNS_PATH)/../..
MESHDDNS_SITE_METHOD = local
MESHDDNS_ADD_TOOLCHAIN_DEPENDENCY = NO

ifeq ($(BR2_x86_64),y)
MESHDDNS_BINARY = meshddns-linux-amd64
else ifeq ($(BR2_aarch64),y)
MESHDDNS_BINARY = meshddns-linux-arm64
else ifeq ($(BR2_RISCV_64),y)
MESHDDNS_BINARY = meshddns-linux-riscv64
else
MESHDDNS_BINARY = meshddns-linux-armv7
endif

define MESHDDNS_INSTALL_TARGET_CMDS
	$(INSTALL) -D -m 0755 $(@D)/dist/$(MESHDDNS_BINARY) $(TARGET_DIR)/usr/bin/meshddns
endef

define MESHDDNS_INSTALL_INIT_SYSTEMD
	$(INSTALL) -d $(TARGET_DIR)/usr/lib/systemd/system
	$(INSTALL) -m 0644 $(@D)/deploy/systemd/*.service $(@D)/deploy/systemd/*.socket \
		$(TARGET_DIR)/usr/lib/systemd/system
endef

$(eval $(generic-package))
