"""Devices and arrays: the only layer that calls WebGPU.

Its modules, lowest first; each imports only from those before it:

    engine, native, header                      what an engine must do, and what engines share
    wgpu, dawn, adapters                        the engines, their adapters, and the choice of one
    lifetime, forking, guard                    access to a device that may be closed, lost or inherited by a fork
    launch, pool, pipelines, submissions        dispatches, buffers, compiled shaders, and the queue
    view, aliasing, operators                   shapes and strides over a buffer, and what is done with arrays
    transfer, recording                         staging buffers, and what a call allocates and dispatches
    core                                        the parts of an open device, without its arrays
    allocate, moves, launches, plans            new buffers, copies, and what repeated calls find again
    probe, generation, rates, timing, memory    what is measured of a device
    device                                      devices and their arrays, which refer to each other
    devices, profiling                          all devices of a machine, and the profile of one
"""
