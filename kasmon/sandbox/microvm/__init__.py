"""The microvm tier: virtual machines with their own kernel, whose memory can be saved to disk and resumed.

Start with `machine`, the tier. `provisioning` builds and finds the image, `boot` runs QEMU, `warm_pool`
holds booted machines to copy, and `link` connects the host (`link.host_end`) with the guest
(`link.guest_init`).
"""
