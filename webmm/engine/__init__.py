"""Devices and arrays: the only layer that calls WebGPU."""
