include $(sort $(wildcard $(BR2_EXTERNAL_MESHDDNS_PATH)/package/*/*.mk))
