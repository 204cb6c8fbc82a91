################################################################################
#
# meshddns
#
################################################################################

# Installs the binary of deploy/build and the units:
#
#     deploy/build arm64
#     make BR2_EXTERNAL=<sources>/deploy/buildroot menuconfig
#
# Checked by deploy/test/buildroot with Buildroot of August 2026: check-package,
# the configuration, "make meshddns". Not checked: a whole image, its boot.
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
		$(@D)/deploy/systemd/*.target \
		$(TARGET_DIR)/usr/lib/systemd/system
	$(INSTALL) -D -m 0644 $(@D)/deploy/image/80-meshddns.preset \
		$(TARGET_DIR)/usr/lib/systemd/system-preset/80-meshddns.preset
endef

$(eval $(generic-package))
