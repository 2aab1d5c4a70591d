"""The public calls: a module for each op, and the code that they share.

Steps of calls that are the same in both languages are in the translated subset (docs/page.md).
"""
