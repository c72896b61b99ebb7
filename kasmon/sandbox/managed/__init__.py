"""One sandbox through its life: made, used, put to sleep, resumed, healed, copied. Start with `sandbox`."""
