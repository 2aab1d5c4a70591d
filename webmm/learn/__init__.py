"""The course: chapters in Markdown (`docs/learn/`) with figures, excerpts and drawings made from kernels and records.

`chapters` reads them, for the page, the documentation and `webmm explain STAGE`. `python -m webmm.learn`, in a
checkout, writes what their directives stand for into the files, so that they read the same everywhere.
"""
