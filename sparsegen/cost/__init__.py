"""The cost model: device profiles, the ConvStencil equations, and what a stencil schedule costs on a device.

Nothing here imports the emulator or the warp level: predictions come from the schedule's own numbers alone.
"""
