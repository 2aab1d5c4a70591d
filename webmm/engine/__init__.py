"""Devices and arrays: all that talks to WebGPU."""
